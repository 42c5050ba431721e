"""Plots by matplotlib as elements of the page."""

from __future__ import annotations

import re
from html import escape as escaped

_ID = re.compile(r' \bid="([^"]+)"')
_REFERENCE = re.compile(r"(url\(#|href=\"#)([^)\"]+)")
_GEOMETRY = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_FRACTION = re.compile(r"(\.\d\d)\d+")
_FONTS = re.compile(r"; font-family: ([^;\"]+)")
#: Style that matplotlib sets for every element of the page; the page has it as an attribute of each
#: plot.
_STYLE = re.compile(r"<style[^>]*>\s*\*\{stroke-linejoin: round; stroke-linecap: butt\}\s*</style>")


def inline_svg(svg: str, name: str, label: str) -> str:
    """Return an SVG that matplotlib wrote as an `<svg>` element for the page.

    The element is about a third as long: coordinates have two decimals, the font is named once,
    and unused ids are removed. It has no width and height; the page's style sets its size.

    Args:
        svg: The SVG.
        name: Prefix of the remaining ids.
        label: Text for screen readers.
    """
    start = svg.index("<svg")
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[start:], flags=re.DOTALL)
    body = _STYLE.sub("", body)
    numbers = {used: str(n) for n, (_, used) in enumerate(dict.fromkeys(_REFERENCE.findall(body)))}
    body = _ID.sub(lambda i: f' id="{name}-{numbers[i[1]]}"' if i[1] in numbers else "", body)
    body = _REFERENCE.sub(lambda i: f"{i[1]}{name}-{numbers[i[2]]}", body)
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body).replace("xlink:href", "href")
    body = _GEOMETRY.sub(lambda g: " " + " ".join(_FRACTION.sub(r"\1", g[0]).split()), body)
    fonts = _FONTS.search(body)
    body = re.sub(r">\s+<", "><", _FONTS.sub("", body))
    opening, _, rest = body.partition(">")
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    attributes = f' role="img" aria-label="{escaped(label)}"'
    attributes += f' font-family="{fonts[1]}"' if fonts else ""
    attributes += ' stroke-linejoin="round" stroke-linecap="butt"'
    return f"{opening}{attributes}>{rest.strip()}"
