"""Conclusions: decision, findings, clouds, another sweep, published values, forecast, …

`base.CONCLUSIONS` is the list of them; `evidence.Study` is what they are drawn from. An
`answer.Answer` says what is known of every configuration of a question; headline, decision and next
steps are views of it.
"""

#: Modules that other packages may import.
__all__ = [
    "answer",
    "base",
    "decision",
    "evidence",
    "findings",
    "headline",
    "projection",
    "shown",
    "two_sweeps",
]
