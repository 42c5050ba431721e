"""Plots as elements of the page: their titles of points show at the pointer without a script."""

from __future__ import annotations

import re
from html import escape

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r"(url\(#|href=\"#)([^)\"]+)")
#: What matplotlib sets for every element of the page, as an attribute of the plot alone.
_STYLE = re.compile(r"<style[^>]*>\s*\*\{stroke-linejoin: round; stroke-linecap: butt\}\s*</style>")


def inline(svg: str, name: str, label: str) -> str:
    """The SVG as an element: its ids begin with `name`, readers of the screen say `label`.

    It has no size of its own.
    """
    start = svg.index("<svg")
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[start:], flags=re.DOTALL)
    body = _STYLE.sub("", body)
    body = _ID.sub(rf'id="{name}-\1"', body)
    body = _REFERENCE.sub(rf"\1{name}-\2", body)
    opening, _, rest = body.partition(">")
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    attributes = f' role="img" aria-label="{escape(label)}"'
    attributes += ' stroke-linejoin="round" stroke-linecap="butt"'
    return f"{opening}{attributes}>{rest.strip()}"
