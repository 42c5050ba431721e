"""The page of results. Nothing else is made here: a change of this package makes the page anew."""

#: Modules that other packages may import.
__all__ = ["page"]
