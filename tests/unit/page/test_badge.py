"""The badge as SVG: its texts, its size, what screen readers read, and hostile texts."""

from __future__ import annotations

import random
import re
import string
import xml.etree.ElementTree as ET

import pytest
from seeds import drawn_seed
from tfscaling.page.badge import badge_svg

SVG = "{http://www.w3.org/2000/svg}"
SEED = drawn_seed()
HOSTILE = '<script>alert(1)</script> " \' & ]]> <!-- \x00\x1b\u2028 onload="x" <img src=//a/b>'


def contrast_with_white(colour: str) -> float:
    """The contrast of white text on a colour, by WCAG."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 1.05 / (sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05)


@pytest.mark.parametrize("is_supported", [True, False])
def test_a_badge_has_its_texts_inside_and_a_name(is_supported: bool) -> None:
    dice = random.Random(SEED)
    label, message = (
        "".join(dice.choices(string.ascii_letters + " ", k=dice.randint(3, 40))) for _ in range(2)
    )
    root = ET.fromstring(badge_svg(label, message, "what it claims", is_supported=is_supported))
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == "what it claims"
    assert [each.text for each in root.iter(f"{SVG}text")] == [label, message], SEED
    boxes = [*root.iter(f"{SVG}rect")]
    assert sum(int(box.get("width", 0)) for box in boxes) == int(root.get("width", 0))
    for box, text in zip(boxes, root.iter(f"{SVG}text"), strict=True):
        left, width = int(box.get("x", 0)), int(box.get("width", 0))
        assert left < int(text.get("x", 0))
        assert int(text.get("x", 0)) + int(text.get("textLength", 0)) < left + width
        assert contrast_with_white(box.get("fill", "")) > 4.5


def test_a_claim_and_no_claim_have_different_colours() -> None:
    colours = [
        re.findall("#[0-9a-f]{6}", badge_svg("a", "b", "c", is_supported=s)) for s in (False, True)
    ]
    assert colours[0] != colours[1]


def test_hostile_texts_are_texts() -> None:
    svg = badge_svg(HOSTILE, HOSTILE, HOSTILE, is_supported=True)
    root = ET.fromstring(svg)
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert tags == {"svg", "title", "rect", "text"}
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on")]
    assert "href" not in svg and "url(" not in svg
    assert "alert(1)" in str(root.findtext(f"{SVG}title"))
