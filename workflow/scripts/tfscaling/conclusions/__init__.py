"""Conclusions of a study: decision, findings, clouds, other sweeps, published values and more.

`base.CONCLUSIONS` is the list of them; `evidence.Study` is what they are drawn from. `answers` has
the answer to each question, with every configuration's state: headline, decision and next steps
are views of it.
"""

#: Modules that other packages may import.
__all__ = [
    "answers",
    "base",
    "decision",
    "evidence",
    "findings",
    "headline",
    "projection",
    "shown",
    "two_sweeps",
]
