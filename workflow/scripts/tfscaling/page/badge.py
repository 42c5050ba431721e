"""A badge: a label and a message side by side, as SVG that loads nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET

#: Colours: the label, a supported message, any other message. White text on each has a contrast of
#: at least 5.
_LABEL, _SUPPORTED, _NOT_SUPPORTED = "#424242", "#2e7d32", "#616161"
#: Sizes in pixels: height, width of a character, space on each side of a text.
_HEIGHT, _CHARACTER, _MARGIN = 20, 6.6, 7


def badge_svg(label: str, message: str, description: str, *, is_supported: bool) -> str:
    """Return a badge as an SVG image.

    Args:
        label: The left text.
        message: The right text.
        description: The title, which browsers show and screen readers read.
        is_supported: Whether the runs support the message, which is then green; otherwise it is
            grey.
    """
    widths = [round(len(text) * _CHARACTER) + 2 * _MARGIN for text in (label, message)]
    size = {"width": str(sum(widths)), "height": str(_HEIGHT)}
    name = {"role": "img", "aria-label": _printable(description)}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **name})
    ET.SubElement(root, "title").text = _printable(description)
    left = 0
    colours = (_LABEL, _SUPPORTED if is_supported else _NOT_SUPPORTED)
    for text, width, colour in zip((label, message), widths, colours, strict=True):
        box = {"x": str(left), "width": str(width), "height": str(_HEIGHT), "fill": colour}
        ET.SubElement(root, "rect", box)
        place = {"x": str(left + _MARGIN), "y": "14", "textLength": str(width - 2 * _MARGIN)}
        font = {"fill": "#fff", "font-family": "Verdana,DejaVu Sans,sans-serif", "font-size": "11"}
        ET.SubElement(root, "text", place | font).text = _printable(text)
        left += width
    return ET.tostring(root, encoding="unicode") + "\n"


def _printable(text: str) -> str:
    """Return the text with a space in place of each character that is not printable."""
    return "".join(each if each.isprintable() else " " for each in text)
