"""Where the results of a study are from: platforms, versions, commits, hosts and dates."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tfscaling.page.page_tables import Table
from tfscaling.record.run_states import RESULTS, status_words
from tfscaling.study.config_types import Platform
from tfscaling.study.platforms import SHOWN_KEYS
from tfscaling.tables.display import (
    MISSING,
    FormattedNumber,
    TextTable,
    count_text,
    join_names,
)

_UNKNOWN = "unknown"
_COMMIT = re.compile("[0-9a-f]{40}")


def describe_commit(commit: str) -> str:
    """Return a commit for readers: a tag, or its first ten digits, and whether files were changed.

    Example: `0123456789 with uncommitted changes` for 0123456789… with `-dirty`.
    """
    name = commit.removesuffix("-dirty")
    short = name[:10] if _COMMIT.fullmatch(name) else name
    return short if name == commit else f"{short} with uncommitted changes"


def summary_sentence(
    platforms: Mapping[str, Platform], runs: pd.DataFrame, comparison: pd.DataFrame
) -> str:
    """Return a sentence on configurations, valid runs, platforms, dates and commits of a study.

    Imported timings have neither dates nor commits.

    Args:
        platforms: Name → platform.
        runs: The table of runs.
        comparison: The table of configurations.
    """
    points = comparison[comparison["status"] != "excluded"]
    valid = runs[runs["status"] == "ok"]
    names = dict.fromkeys(str(name) for name in runs["platform"])
    titles = ", ".join(str(platforms[name].title) for name in names)
    days = sorted(str(started)[:10] for started in valid["started"].dropna())
    dates = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no dates"
    commits = [describe_commit(str(commit)) for commit in valid["git_commit"].dropna().unique()]
    commit = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits) or _UNKNOWN}"
    origin = f", {dates}, {commit}" if days or commits else ""
    counts = runs["status"].value_counts()
    lost = [each for each in RESULTS[1:] if each in counts]
    others = "".join(f", {counts[each]} {status_words(each)}" for each in lost)
    in_all = f"{len(valid)} of {count_text(len(runs), 'run')} valid{others}"
    return (
        f"{count_text(len(points), 'configuration')}, {in_all}, "
        f"{count_text(len(names), 'platform')} ({titles}){origin}."
    )


def provenance_section(
    platforms: Mapping[str, Platform], runs: pd.DataFrame, folder: Path
) -> dict[str, Any]:
    """Return the template's values on versions, commits, hosts and platforms of valid runs.

    Args:
        platforms: Name → platform.
        runs: The table of runs.
        folder: The page's folder, to which paths are relative.

    Returns:
        Name in the template → value; `example` is the path of a raw record, or None.
    """
    valid = runs[runs["status"] == "ok"]
    keys = ["title", *SHOWN_KEYS]
    rows = [
        [name, *(_format_cell(getattr(p, key)) for key in keys)] for name, p in platforms.items()
    ]
    paths = [os.path.relpath(path, folder) for path in valid["record"].dropna()]
    header = ["platform", *keys]
    return {
        "versions": _count_values(valid["tensorflow"]),
        "commits": _count_values(valid["git_commit"]),
        "hosts": list(dict.fromkeys(" ".join(valid["hosts"].dropna()).split())),
        "platforms": Table("platforms", TextTable.from_rows("Platforms and prices", header, rows)),
        "example": min(paths, default=None),
    }


def _format_cell(value: object) -> str:
    """Return a value of a platform or host as a table cell; a number stays sortable by value."""
    if value is None:
        return MISSING
    return FormattedNumber(str(value), value) if isinstance(value, int | float) else str(value)


def _count_values(values: pd.Series) -> list[str]:
    """Return a text for each distinct value, such as `2.18.0 (6 runs)`, the most frequent first."""
    counts = Counter(_UNKNOWN if pd.isna(value) else str(value) for value in values)
    return [f"{value} ({count_text(number, 'run')})" for value, number in counts.most_common()]


def describe_trainings(runs: pd.DataFrame) -> str:
    """Return models, datasets and recipes of the runs as a text for readers."""
    named = {"model": "model", "data": "dataset", "recipe": "recipe"}
    found = {noun: runs[column].dropna().unique() for noun, column in named.items()}
    return "; ".join(
        f"{noun} {join_names(list(names))}" for noun, names in found.items() if len(names)
    )
