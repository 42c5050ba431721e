"""Plots as SVG, and the page of results."""

#: Modules that other packages may import.
__all__ = ["html_page", "plot_figure", "plot_registry"]
