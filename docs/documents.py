"""The Markdown files of the repository that readers follow: where they are, what they link to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
#: Where pages are.
PATTERNS = (
    *(
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "config/README.md",
        "examples/README.md",
    ),
    *("plugins/*/README.md", "profiles/README.md", "provision/virtual/README.md"),
)
_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)|<img\b[^>]*\bsrc=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


class Fence(NamedTuple):
    """A block of code: its language and its text."""

    language: str
    text: str


def pages() -> list[Path]:
    """All pages."""
    return sorted({path for pattern in PATTERNS for path in REPOSITORY.glob(pattern)})


def fences(text: str) -> list[Fence]:
    """Return the code blocks of a page, in their order."""
    return [Fence(found[2], found[3]) for found in _FENCE.finditer(text)]


def timings(text: str) -> dict[str, str]:
    """Return the files of timings that the configurations of a page name, which it shows."""
    names = re.findall(r"^timings: (\S+\.csv)$", text, re.MULTILINE)
    shown = (fence.text for fence in fences(text) if fence.language == "csv")
    return dict(zip(names, shown, strict=False))


def links(text: str) -> Iterator[str]:
    """Targets of links and images, without those in code."""
    for found in _LINK.finditer(_CODE.sub("", _FENCE.sub("", text))):
        yield found[1] or found[2]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number, same = 0, anchor
        while same in found:
            number += 1
            same = f"{anchor}-{number}"
        found.add(same)
    return found


def local_files(page: Path) -> dict[str, Path]:
    """Target of each link to a file of the repository → that file, which may not exist."""
    found = {}
    for target in links(page.read_text(encoding="utf-8")):
        name = target.partition("#")[0]
        if name and not re.match(r"[a-z]+:", name):
            found[target] = (page.parent / name).resolve()
    return found
