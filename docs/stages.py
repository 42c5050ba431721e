"""The stages of the workflow as a picture, which `make schemas` writes to docs/stages.svg."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

#: Of a box, and from one box to the next, in pixels.
WIDTH, HEIGHT, RIGHT, DOWN = 176, 48, 206, 84
MARGIN = 8
STYLE = """
text { font: 12px sans-serif; text-anchor: middle; fill: #1a1d21 } .rule { font-weight: bold }
rect { fill: #f4f6f8; stroke: #555c66 } .paper { fill: #fff; stroke: none }
path { fill: none; stroke: #555c66; stroke-width: 1.5; marker-end: url(#end) }
.sometimes { stroke-dasharray: 5 4 } #end path { fill: #555c66; stroke: none; marker-end: none }
"""


class Stage(NamedTuple):
    """A rule: what it makes, and where its box is, counted from the left and from the top."""

    makes: str
    column: int
    row: int


STAGES = {
    "prepare_dataset": Stage("fetch once, verify", 0, 1),
    "train": Stage("one job per run", 1, 1),
    "assess_repeats": Stage("where runs must be added", 1, 2),
    "write_manifest": Stage("the planned runs", 1, 0),
    "collect": Stage("one row per run", 2, 1),
    "write_config": Stage("every key with its value", 2, 2),
    "compare": Stage("points, conclusions", 3, 1),
    "write_report": Stage("plots, one page", 4, 1),
}
#: (rule, rule that takes what it makes, whether only where it is asked for)
ARROWS = (
    ("prepare_dataset", "train", False),
    ("train", "collect", False),
    ("train", "assess_repeats", True),
    ("assess_repeats", "train", True),
    ("write_manifest", "collect", False),
    ("collect", "compare", False),
    ("write_config", "compare", False),
    ("compare", "write_report", False),
)


def svg() -> str:
    """Draw the picture as SVG, without other files and for light and dark backgrounds."""
    width = MARGIN + RIGHT * max(s.column for s in STAGES.values()) + WIDTH + MARGIN
    height = MARGIN + DOWN * max(s.row for s in STAGES.values()) + HEIGHT + MARGIN
    end = '<path d="M0 0 8 4 0 8z"/>'
    marker = '<marker id="end" markerWidth="8" markerHeight="8" refX="8" refY="4" '
    marker += f'markerUnits="userSpaceOnUse" orient="auto">{end}</marker>'
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{STYLE}</style><defs>{marker}</defs>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *_arrows(),
        *_boxes(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _boxes() -> Iterator[str]:
    for name, stage in STAGES.items():
        left, top = MARGIN + RIGHT * stage.column, MARGIN + DOWN * stage.row
        middle = left + WIDTH // 2
        yield f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        yield f'<text class="rule" x="{middle}" y="{top + 20}">{name}</text>'
        yield f'<text x="{middle}" y="{top + 37}">{escape(stage.makes)}</text>'


def _arrows() -> Iterator[str]:
    for source, target, sometimes in ARROWS:
        a, b = STAGES[source], STAGES[target]
        if a.column == b.column:  # up on the left, down on the right
            down = b.row > a.row
            x = MARGIN + RIGHT * a.column + WIDTH // 3 * (1 + down)
            start, end = MARGIN + DOWN * a.row, MARGIN + DOWN * b.row
            path = f"M{x} {start + HEIGHT * down}V{end + HEIGHT * (not down)}"
        else:
            x, to = MARGIN + RIGHT * a.column + WIDTH, MARGIN + RIGHT * b.column
            y, then = (MARGIN + DOWN * stage.row + HEIGHT // 2 for stage in (a, b))
            between = (x + to) // 2
            path = f"M{x} {y}C{between} {y} {between} {then} {to} {then}"
        yield f'<path{_class(sometimes)} d="{path}"/>'


def _class(sometimes: bool) -> str:
    return ' class="sometimes"' * sometimes
