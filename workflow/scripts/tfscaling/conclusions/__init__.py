"""Conclusions: decision, findings, clouds, another sweep, published values, forecast, …

`base.CONCLUSIONS` is the list of them; `evidence.Study` is what they are drawn from.
"""

#: Modules that other packages may import.
__all__ = ["base", "decision", "evidence", "projection", "shown", "two_sweeps"]
