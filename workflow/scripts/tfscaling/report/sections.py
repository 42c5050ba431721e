"""The sections of the page around its tables and plots."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tfscaling.records import checks
from tfscaling.records.metrics import METRICS
from tfscaling.report.interactive_tables import TONES, Table, table
from tfscaling.study.config import POINT_AXES
from tfscaling.study.platforms import SHOWN
from tfscaling.tables.data_warnings import DataWarning, placed
from tfscaling.tables.display import MISSING, Number, TextTable, cell, constant, one_line, rounded
from tfscaling.tables.intervals import CONFIDENCE, RESAMPLES, RUNS_FOR_INTERVAL

#: Topic of findings → its heading.
TOPICS = {
    "accuracy": "What it costs in accuracy",
    "scaling": "How far it scales",
    "stragglers": "Slow ranks",
    "clouds": "Which cloud",
}
STATUSES = {
    "ok": "valid: takes part in every median",
    "diverged": "the loss became NaN or infinite: a result that takes part in no median",
    "failed": "ended with an error, or did not pass the checks",
    "unfinished": "started, but without a record or a failure report: still running, or killed",
    "stale": "made with parameters or data other than those planned now",
    "missing": "not run yet",
    "excluded": "a point that is not run, because of a limit or an exclude entry",
}
_UNKNOWN = "unknown"


def summary(expected: Mapping[str, Any], runs: pd.DataFrame, comparison: pd.DataFrame) -> str:
    """What was run, in one line."""
    points = comparison[comparison["status"] != "excluded"]
    valid = runs[runs["status"] == "ok"]
    names = dict.fromkeys(str(name) for name in runs["platform"])
    titles = ", ".join(expected["platforms"][name]["title"] for name in names)
    days = sorted(str(started)[:10] for started in valid["started"].dropna())
    dates = "no dates" if not days else " to ".join(dict.fromkeys((days[0], days[-1])))
    commits = [str(commit)[:10] for commit in valid["git_commit"].dropna().unique()]
    commit = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits) or _UNKNOWN}"
    diverged = int((runs["status"] == "diverged").sum())
    count = f"{len(valid)} of {_count(len(runs), 'run')} valid"
    return (
        f"{_count(len(points), 'point')}, {count}{f', {diverged} diverged' if diverged else ''}, "
        f"{_count(len(names), 'platform')} ({titles}), {dates}, {commit}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def warnings(found: Sequence[DataWarning]) -> dict[str, Any]:
    """What must be known before any number is read: `first` at the top of the page, then `all`."""
    first, others = placed(found)
    return {
        "first": [
            {"text": text, "severity": warning.severity}
            for text, warning in zip(first, found, strict=False)
        ],
        "more": _count(len(others), "more warning") if others else "",
        "all": [
            {"text": w.text, "tone": TONES.get(w.severity, "doubt"), "severity": w.severity}
            for w in found
        ],
    }


def answer(decision: pd.DataFrame, findings: pd.DataFrame) -> dict[str, Any]:
    """The choice for each goal, by work, then the findings by topic.

    Each has subject, text, support, and whether it is certain: only if it is supported.
    """
    works = {str(work): own for work, own in decision.groupby("work", sort=False)}
    found = {topic: findings[findings["topic"] == topic] for topic in TOPICS}
    return {
        "works": [
            {
                "title": work if len(works) > 1 else "",
                "choices": [_said(row, str(row["title"])) for row in own.to_dict("records")],
            }
            for work, own in works.items()
        ],
        "others": [
            {
                "title": TOPICS[topic],
                "findings": [_said(row, str(row["subject"])) for row in own.to_dict("records")],
            }
            for topic, own in found.items()
            if len(own)
        ],
    }


def _said(row: Mapping[Any, Any], subject: str) -> dict[str, Any]:
    support = str(row["support"])
    return {
        "subject": subject,
        "text": str(row["text"]),
        "support": support,
        "is_certain": support == "supported",
        "tone": TONES.get(support, "doubt"),
    }


def validity(runs: pd.DataFrame, comparison: pd.DataFrame) -> dict[str, Any]:
    """What counts, how much of it there is, and what does not count, with the reason."""
    counts = Counter(str(status) for status in runs["status"])
    counts["excluded"] = int((comparison["status"] == "excluded").sum())
    statuses = [
        [s, rounded(counts[s], 0), STATUSES.get(s, "")] for s in dict.fromkeys([*STATUSES, *counts])
    ]
    header = ["status", "runs", "what it means"]
    sizes = comparison.loc[comparison["status"] != "excluded", "runs"]
    enough, few = int((sizes >= RUNS_FOR_INTERVAL).sum()), int((sizes == 0).sum())
    return {
        "checks": list(checks.CHECKS.items()),
        "statuses": table("statuses", TextTable.of("Runs by status", header, statuses)),
        "left_out": _left_out(runs, comparison),
        "samples": (
            f"{_count(enough, 'point')} with at least {RUNS_FOR_INTERVAL} valid runs, "
            f"{len(sizes) - enough - few} with fewer, {few} with none."
        ),
        "runs_for_interval": RUNS_FOR_INTERVAL,
        "confidence": f"{CONFIDENCE:.0%}",
    }


def _left_out(runs: pd.DataFrame, comparison: pd.DataFrame) -> Table | None:
    """One row per point, status and reason; None if every run counts."""
    keys = [*POINT_AXES, "status", "reason"]
    out = runs.loc[runs["status"] != "ok", [*keys, "repeat"]]
    excluded = comparison.loc[comparison["status"] == "excluded", keys].assign(repeat="all")
    both = pd.concat([out.astype(object), excluded.astype(object)])
    if both.empty:
        return None
    both["repeat"] = both["repeat"].astype(str)
    both["reason"] = both["reason"].fillna("").astype(str).map(one_line)
    grouped = both.groupby(keys, sort=False)["repeat"].agg(", ".join).reset_index()
    varying, above = constant(grouped, POINT_AXES)
    names = [*varying, "repeats", "status", "reason"]
    rows = (
        [cell(name, row) for name in names]
        for row in grouped.rename(columns={"repeat": "repeats"}).to_dict("records")
    )
    shown = TextTable.of("What does not count, and why", names, rows, above=above)
    return table("left-out", shown)


def definitions() -> dict[str, Any]:
    """Every metric, and how intervals are made."""
    rows = [
        [name, m.title, m.unit or MISSING, m.direction, m.meaning or f"{m.title.capitalize()}."]
        for name, m in METRICS.items()
    ]
    header = ["metric", "title", "unit", "better", "meaning"]
    return {
        "metrics": table("metrics", TextTable.of("Metrics", header, rows)),
        "resamples": RESAMPLES,
        "confidence": f"{CONFIDENCE:.0%}",
        "runs_for_interval": RUNS_FOR_INTERVAL,
    }


def environment(expected: Mapping[str, Any], runs: pd.DataFrame, folder: Path) -> dict[str, Any]:
    """On what the valid runs ran, and where their raw records are."""
    valid = runs[runs["status"] == "ok"]
    hosts: dict[str, None] = {}
    for names in valid["hosts"].dropna():
        hosts |= dict.fromkeys(str(names).split())
    platforms = expected["platforms"]
    keys = ["title", *SHOWN]
    rows = [[name, *(_text(shown[key]) for key in keys)] for name, shown in platforms.items()]
    paths = [os.path.relpath(path, folder) for path in valid["record"].dropna()]
    return {
        "versions": _counted(valid["tensorflow"]),
        "commits": _counted(valid["git_commit"]),
        "hosts": list(hosts),
        "platforms": table(
            "platforms", TextTable.of("Platforms and prices", ["platform", *keys], rows)
        ),
        "example": min(paths, default=None),
    }


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    return Number(str(value), value) if isinstance(value, int | float) else str(value)


def _counted(values: pd.Series[Any]) -> list[str]:
    """Each value with the number of its runs, the most frequent first."""
    counts = Counter(_UNKNOWN if pd.isna(value) else str(value) for value in values)
    return [f"{value} ({_count(number, 'run')})" for value, number in counts.most_common()]
