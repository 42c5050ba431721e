"""The page of results, one HTML file, and its plots as SVG."""

#: Modules that other packages may import.
__all__ = ["badge", "html_page", "plot_figure", "plot_registry"]
