"""Conclusions of a study: headline, decision, findings, next steps, comparisons and forecasts.

`base.CONCLUSIONS` lists them; `evidence.Study` has the data behind them. `answers` has the answer
to each question, with the state of every configuration: headline, decision and next steps show it.
"""

#: Modules that other packages may import.
__all__ = [
    "answers",
    "base",
    "campaign",
    "decision",
    "evidence",
    "findings",
    "headline",
    "projection",
    "regressions",
    "rendering",
    "scaling_range",
    "search_results",
    "wide_jobs",
]
