"""What a training does, one JSON line an event: the functions of the module `observe`."""

from .observe import epoch, eval, imported, step, steps

__all__ = ["epoch", "eval", "imported", "step", "steps"]
