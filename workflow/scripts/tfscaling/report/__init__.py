"""What people read: the page, plots, Markdown, LaTeX, HTML."""

#: Modules that other packages may import.
__all__ = [
    "decision_page",
    "formats",
    "page",
    "plot_style",
    "plots",
]
