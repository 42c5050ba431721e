"""Conclusions: decision, findings, clouds, methodology, communication, scaling laws."""

#: Modules that other packages may import.
__all__ = [
    "clouds",
    "communication",
    "contest",
    "decision",
    "decision_page",
    "findings",
    "methodology",
    "scaling_laws",
]
