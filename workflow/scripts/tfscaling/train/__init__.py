"""What a rank does: devices, strategies, models, training loops, timing of all-reduces.

TensorFlow is imported inside functions only: names are known without it.
"""

#: Modules that other packages may import.
__all__ = [
    "models",
    "rank",
    "strategies",
]
