"""Conclusions: decision, findings, clouds, published values, scaling laws, communication, method.

`conclusions.CONCLUSIONS` is the list of them; `evidence.Study` is what they are drawn from.
"""

#: Modules that other packages may import.
__all__ = [
    "communication",
    "conclusions",
    "evidence",
]
