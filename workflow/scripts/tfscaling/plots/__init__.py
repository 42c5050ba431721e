"""Plots as SVG: how each is drawn, and the registry that names them."""

#: Modules that other packages may import.
__all__ = ["plot_registry", "plot_style"]
