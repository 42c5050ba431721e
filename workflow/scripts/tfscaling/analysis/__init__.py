"""Conclusions: decision, findings, clouds, another sweep, published values, scaling laws, …

`conclusions.CONCLUSIONS` is the list of them; `evidence.Study` is what they are drawn from.
"""

#: Modules that other packages may import.
__all__ = [
    "communication",
    "conclusions",
    "evidence",
    "two_sweeps",
]
