"""What a study measured as Markdown, between the markers of its page of the documentation."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow/scripts"))

from tfscaling.files import atomic  # noqa: E402

_MARKED = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)


def show(measured: str, page: Path | None) -> None:
    """Print it, or write it between the markers of the page. Ends the program if it has none."""
    if page is None:
        print(measured)
        return
    text = page.read_text()
    if not _MARKED.search(text):
        sys.exit(f"{page}: no `<!-- measured -->` with `<!-- end of measured -->` after it")
    atomic.write_text(page, _MARKED.sub(lambda mark: f"{mark[1]}\n{measured}\n{mark[2]}", text))


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format a table without empty columns: the first one aligned left, the others right."""
    rows = list(rows)
    kept = [n for n in range(len(header)) if any(cells[n] for cells in rows)]
    lines = [header, (":--", *["--:"] * (len(header) - 1)), *rows]
    lines = [tuple(cells[n] for n in kept) for cells in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def place(runs: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """Return when and where the runs were made, and how many of them count; a line of Markdown.

    `columns` are those of runs.csv with what the page calls each.
    """
    valid = runs[runs["status"] == "ok"]
    days = sorted({str(started)[:10] for started in valid["started"].dropna()})
    parts = [f"{len(valid)} of {len(runs)} runs count, {' to '.join(days[:1] + days[1:][-1:])}"]
    for column, name in columns.items():
        values = sorted({str(value) for value in valid[column].dropna()})
        parts += [f"{name} {', '.join(values)}"] if values else []
    return "; ".join(parts) + ".\n"
