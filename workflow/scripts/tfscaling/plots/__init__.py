"""Plots as SVG: the registry that names them, and how each is drawn."""

#: Modules that other packages may import.
__all__ = ["plot_figure", "plot_registry", "plot_series"]
