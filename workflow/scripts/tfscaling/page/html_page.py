"""The page of results: one HTML file with everything in it.

The page is `workflow/report/page.html.j2`. Its tables are plain HTML; DataTables, from the package
itables, makes them sort and filter. A policy in the page forbids the browser any request, and any
script but the page's own.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape as escaped
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup, escape

from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.conclusions.decision import DecisionRow
from tfscaling.conclusions.findings import Finding
from tfscaling.conclusions.headline import HeadlineRow
from tfscaling.estimation.intervals import CONFIDENCE, RESAMPLES, RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import RULE
from tfscaling.estimation.samples import NOT_MEASURED, TOO_FEW
from tfscaling.page.host_lists import fold_host_names
from tfscaling.record import attempts, checks
from tfscaling.record.metrics import METRICS, QUALITY, describe_metrics, quality_metric
from tfscaling.record.run_states import RESULTS, status_words
from tfscaling.study.config_types import AXES, Platform, Quality, Question
from tfscaling.study.manifest import Manifest
from tfscaling.study.platforms import SHOWN_KEYS
from tfscaling.tables import comparison, display, row_values
from tfscaling.tables.data_warnings import FEW_RUNS, LIMITED, SERIOUS, DataWarning
from tfscaling.tables.display import (
    MISSING,
    FormattedNumber,
    TextTable,
    column_headings,
    count_text,
    format_cell,
    format_value,
    join_names,
    shared_values_sentence,
    split_naming_columns,
)
from tfscaling.tables.row_types import RunRow
from tfscaling.tables.row_values import group_by, qualities_in_table
from tfscaling.tables.table_files import to_rows

if TYPE_CHECKING:
    from jinja2 import Template

#: Highest number of values in a column by which readers choose rows; columns with more are
#: searched.
CHOICES_MAX = 24
#: Columns whose values are judgements.
_JUDGED = {"status", "verdict", "support", "loss_verdict", "accuracy_verdict"}
#: Columns by whose values readers can choose rows, if there are few values.
_CHOICES = {*AXES, "devices", *_JUDGED, "cloud", "metric", "winner", "source", "quality_metric"}
_CHOICES |= {"platform_a", "platform_b", "cloud_a", "cloud_b"}
_NUMBER = re.compile(r"-?[0-9.]+")
#: Columns with long texts.
_LONG = {"reason", "remark", "meaning", "what it means"}


class Column:
    """A column of a table on the page: how the page formats, filters and sorts it.

    Args:
        name: Name of the column.
        shown: The table that has the column.

    Attributes:
        is_long: Whether its cells have long texts.
        is_choice: Whether readers can filter rows by its values.
        is_number: Whether it has numbers.
        is_ordered: Whether its cells need a sort key, because they have more text than a number.
    """

    def __init__(self, name: str, shown: TextTable) -> None:
        texts = shown.cells[name]
        few = 1 < len(set(texts)) <= min(CHOICES_MAX, len(texts) - 1)
        self.name, self.is_long, self.is_choice = name, name in _LONG, few and name in _CHOICES
        self.is_number = shown.is_number_column(name)
        self.is_ordered = self.is_number and any(
            isinstance(text, FormattedNumber) and not _NUMBER.fullmatch(text) for text in texts
        )

    def order(self, cell: str) -> str:
        """Return the sort key of a cell with a number; "" for a missing number."""
        return f"{cell.value:.9g}" if isinstance(cell, FormattedNumber) else ""

    def tone(self, cell: str) -> str | None:
        """Return the name of a cell's colour, a value of TONES; None without one."""
        return TONES.get(cell) if self.name in _JUDGED else None


@dataclass(frozen=True)
class Table:
    """A table of the page with its caption and notes.

    Attributes:
        id: The id of its HTML element.
        shown: The formatted table.
        caption: A text above the table.
    """

    id: str
    shown: TextTable
    caption: str = ""

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of the table."""
        return [Column(str(name), self.shown) for name in self.shown.cells]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The formatted cells, row by row."""
        return [*self.shown.cells.itertuples(index=False, name=None)]


def make_runs_table(frame: pd.DataFrame, metrics: Sequence[str], folder: Path) -> Table:
    """Return the page's table with one row per run.

    Args:
        frame: The table of runs.
        metrics: The metrics to show, if a run has a value.
        folder: The page's folder, to which links to records are relative.
    """
    axes, fixed = split_naming_columns(frame)
    rows = to_rows(RunRow, frame)
    for row in rows:  # as Slurm writes them
        row.hosts = row.hosts and fold_host_names(row.hosts.split())
    names = [*axes, "repeat", *(m for m in metrics if m in frame and frame[m].notna().any())]
    names += ["status", "replicas", "global_batch_size"]
    names += ["reason"] * any(row.reason for row in rows)
    names += ["attempt", "hosts", "started"]
    heads = column_headings(frame, names)
    cells = (
        [*(format_cell(name, row) for name in heads), _record_link(row, folder)] for row in rows
    )
    note = "A record has everything a run measured; the paths are relative to this page."
    columns = [*heads.values(), "record"]
    title = "Runs: one row per run"
    return Table(
        "runs",
        TextTable.from_rows(title, columns, cells, [note], shared_values_sentence(fixed, "runs")),
    )


def _record_link(row: RunRow, folder: Path) -> str:
    """Return a Markdown link to the raw record of a run; only its path if the file is missing.

    Args:
        row: The run.
        folder: The page's folder, to which the link is relative.
    """
    if row.record is None:
        return MISSING
    path = os.path.relpath(row.record, folder)
    if not Path(row.record).exists():  # a page of published or copied results
        return path
    href = quote(path.replace(os.sep, "/"), safe="/=")
    return Markup('<a href="{}">{}</a>').format(href, Path(path).name)


_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
#: The terms of the page by their origin: terms of this project, words of the field. `make schemas`
#: writes them to docs/glossary.md, too.
GLOSSARY: Mapping[str, Mapping[str, str]] = {
    origin: {
        word: text.format(
            confidence=CONFIDENCE,
            error=1 - CONFIDENCE,
            indifference=Question().indifference,
            runs=RUNS_FOR_INTERVAL,
            rule=RULE,
        )
        for word, text in texts.items()
    }
    for origin, texts in _WORDS["glossary"].items()
}
#: Topic of findings → its heading; the name of the quality follows a heading that ends in a space.
TOPICS: Mapping[str, str] = _WORDS["topics"]
STATUSES: Mapping[str, str] = _WORDS["statuses"]
#: Metric → its formula, for metrics that the page explains by one.
FORMULAE: Mapping[str, str] = _WORDS["by_formulae"]
#: Word → its colour, for words that must not be overlooked; "ok" is what is expected.
TONES = {word: tone for tone, words in _WORDS["tones"].items() for word in words}
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


def warning_lines(warnings: Sequence[DataWarning]) -> list[tuple[str, str]]:
    """Return (severity, line) for the top of the page, with short texts of the warnings.

    The warning about too few runs is left out: badges on the page show it.
    """
    leads = {SERIOUS: "Warning", LIMITED: "Note"}
    shown = [warning for warning in warnings if warning.kind != FEW_RUNS]
    return [
        (severity, f"{leads[severity]}: {'; '.join(warning.short for warning in own)}.")
        for severity, own in group_by(shown, lambda warning: warning.severity).items()
    ]


class ShownHeadline(NamedTuple):
    """A headline as shown on the page: the answer to one question.

    Attributes:
        question: Name of the question.
        text: The answer as a sentence.
        support: Level of support.
        badge: Text of the badge: the level of support, with a short explanation.
        more: An explanation that is too long for the badge, as a sentence; "" without one.
    """

    question: str
    text: str
    support: str
    badge: str
    more: str = ""


#: Highest number of rows with which a folded table is part of the page when it opens.
_ROWS_HELD = 200
#: Characters of the longest explanation in a badge.
_BADGE_MAX = 60


def headlines_to_show(table: pd.DataFrame) -> list[ShownHeadline]:
    """Return the headlines in the order of the table `headline`."""
    found = []
    for row in to_rows(HeadlineRow, table):
        badge, more = row.badge, ""
        if len(row.sure) > _BADGE_MAX:
            more = row.sure
        elif sure := row.sure.removesuffix("."):
            badge = sure if row.badge == TOO_FEW else f"{row.badge}: {sure[0].lower()}{sure[1:]}"
        found.append(ShownHeadline(row.question, row.text, row.badge, badge, more))
    return found


class ShownAnswer(NamedTuple):
    """The answer by one goal as shown on the page.

    Attributes:
        title: What the answer is best for.
        text: The answer as a sentence.
        support: Level of support.
        is_other: Whether the question of the study names a different goal.
    """

    title: str
    text: str
    support: str
    is_other: bool


def answers_by_question(
    decision: pd.DataFrame,
    asked_goal: str | None = None,
    headlines: Sequence[ShownHeadline] = (),
) -> dict[str, list[ShownAnswer]]:
    """Return question → its answers, one for each measured goal; the key of a single one is "".

    The answer by `asked_goal` is included even if that goal was not measured. Sentences on all
    trainings and on configurations without a comparison are shown once.

    Args:
        decision: The table of the conclusion `decision`.
        asked_goal: The goal of the configuration's `question`; None without this key.
        headlines: The headlines above, whose sentences the answers to a question do not repeat.
    """
    questions: dict[str, list[ShownAnswer]] = {}
    said = {each.question: each.more for each in headlines}
    for row in to_rows(DecisionRow, decision):
        if row.goal == asked_goal or row.support != NOT_MEASURED:
            is_other = asked_goal is not None and row.goal != asked_goal
            text, shown_above = row.text, said.setdefault(row.question, said.get("", ""))
            for sentence in filter(None, (row.totals, row.not_covered)):
                text = text.replace(sentence, "") if sentence in shown_above else text
                said[row.question] += sentence
            shown = ShownAnswer(row.title, " ".join(text.split()), row.support, is_other)
            questions.setdefault(row.question, []).append(shown)
    return {"": next(iter(questions.values()))} if len(questions) == 1 else questions


def findings_by_topic(findings: pd.DataFrame, quality: str) -> dict[str, list[Finding]]:
    """Return heading of a topic → its findings.

    Args:
        findings: The table of the conclusion `findings`.
        quality: Name of the metric of quality, for the heading.
    """
    found = group_by(to_rows(Finding, findings), lambda row: row.topic)
    return {
        title + quality * (topic == QUALITY): found[topic]
        for topic, title in TOPICS.items()
        if topic in found
    }


def make_status_table(runs: pd.DataFrame, comparison: pd.DataFrame) -> Table:
    """Return the page's table of statuses: the number of runs of each, and what it means.

    Args:
        runs: The table of runs.
        comparison: The table of configurations, with excluded ones.
    """
    counts = Counter(str(status) for status in runs["status"])
    counts["excluded"] = int((comparison["status"] == "excluded").sum())
    names = dict.fromkeys([*STATUSES, *counts])
    rows = [[name, format_value(counts[name], 0), STATUSES.get(name, "")] for name in names]
    header = ["status", "runs", "what it means"]
    return Table(
        "statuses", TextTable.from_rows("Runs by status", header, rows, failed_attempts_notes(runs))
    )


def failed_attempts_notes(runs: pd.DataFrame) -> list[str]:
    """Return [note on the cost of failed attempts at these runs]; [] without failed attempts."""
    found = attempts.sum_spent(runs.to_dict("records"))
    if not found.attempts:
        return []
    usd = "no price" if found.lost_cost_usd is None else f"{found.lost_cost_usd:.2f} US dollars"
    failed = (
        f"{count_text(found.attempts, 'attempt')} failed: {found.lost_node_hours:.3f} node-hours"
    )
    where = "The cause and the logs of each are in its folder, attempt=<n>."
    return [f"{failed}, {usd}. {where}"]


def make_metrics_table(qualities: Mapping[str, Quality]) -> Table:
    """Return the page's table that explains all metrics.

    Args:
        qualities: Name → metric of quality that only a recipe names.
    """
    texts = {**describe_metrics(), **FORMULAE}
    own = {name: quality_metric(each) for name, each in qualities.items() if name not in METRICS}
    rows = [
        [name, m.title, m.unit or MISSING, m.direction, texts.get(name, texts[QUALITY])]
        for name, m in {**METRICS, **own}.items()
    ]
    header = ["metric", "title", "unit", "better", "meaning"]
    return Table("metrics", TextTable.from_rows("Metrics", header, rows))


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
    """Return a value of a platform or host as text; numbers become sortable."""
    if value is None:
        return MISSING
    return FormattedNumber(str(value), value) if isinstance(value, int | float) else str(value)


def _count_values(values: pd.Series) -> list[str]:
    """Return each value with the number of its runs as text, the most frequent first."""
    counts = Counter(_UNKNOWN if pd.isna(value) else str(value) for value in values)
    return [f"{value} ({count_text(number, 'run')})" for value, number in counts.most_common()]


PAGE_DIR = Path(__file__).resolve().parents[3] / "report"
#: Names of the plots on the first and the second screen; where all configurations have the same
#: number of nodes, ONE_SIZE_PLOT is the first.
FIRST_PLOT, TIME_PLOT, ONE_SIZE_PLOT = "execution_time", "time_split", "quality_time"
TEMPLATE, STYLE, SCRIPT = "page.html.j2", "page.css", "page.js"

_ID = re.compile(r' \bid="([^"]+)"')
_REFERENCE = re.compile(r"(url\(#|href=\"#)([^)\"]+)")
_GEOMETRY = re.compile(r' (?:d|x|y|transform)="[^"]*"')
_FRACTION = re.compile(r"(\.\d\d)\d+")
_FONTS = re.compile(r"; font-family: ([^;\"]+)")
#: Style that matplotlib sets for every element of the page; the page has it as an attribute of each
#: plot.
_STYLE = re.compile(r"<style[^>]*>\s*\*\{stroke-linejoin: round; stroke-linecap: butt\}\s*</style>")


@dataclass(frozen=True)
class Plot:
    """A drawn plot for the page.

    Attributes:
        name: Its name in PLOTS.
        title: Its title.
        svg: The plot as SVG.
    """

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Results:
    """The results of a study to show on the page.

    Attributes:
        manifest: The planned runs.
        runs: The table of runs.
        comparison: The table of configurations.
        warnings: Limits of what the numbers mean.
        conclusions: Name in CONCLUSIONS → table; "headline", "decision", "findings" and
            "next_steps" are required.
        plots: The plots that have something to show.
        asked: Goal of the configuration's `question`; None without this key.
    """

    manifest: Manifest
    runs: pd.DataFrame
    comparison: pd.DataFrame
    warnings: Sequence[DataWarning]
    conclusions: Mapping[str, pd.DataFrame]
    plots: Sequence[Plot]
    asked: str | None = None


def render(
    results: Results, title: str, metrics: Sequence[str], folder: Path = Path("results")
) -> str:
    """Return the page as HTML, complete in one text.

    Args:
        results: Tables, manifest, conclusions and plots.
        title: Title of the page.
        metrics: Metrics that the tables show.
        folder: Folder in which the page will be written, for links to records.
    """
    runs, comparison = results.runs, results.comparison
    headline, decision, findings, next_steps = (
        results.conclusions[name] for name in ("headline", "decision", "findings", "next_steps")
    )
    if decision["question"].nunique() > 1:  # the questions that have a headline
        decision = decision[decision["question"].isin(headline["question"])]
    headlines = headlines_to_show(headline)
    said = "Plot: {}. Its values are in the table “Comparison”."
    plots = {p.name: inline_svg(p.svg, p.name, said.format(p.title)) for p in results.plots}
    has_sizes = comparison["nodes"].nunique() > 1 or ONE_SIZE_PLOT not in plots
    script = (PAGE_DIR / SCRIPT).read_text(encoding="utf-8")
    context = {
        "title": title,
        "study": folder.name,
        # tables and page of the runs so far are in the folder `partial` of the study
        "name": folder.parent.name if folder.name == "partial" else folder.name,
        "trains": _describe_trainings(
            row_values.without_points(runs, results.manifest.explaining_points)
        ),
        "headlines": headlines,
        "next_steps": next_steps["text"].tolist(),
        "first_plot": plots.pop(FIRST_PLOT if has_sizes else ONE_SIZE_PLOT, None),
        "time_plot": plots.pop(TIME_PLOT, None),
        "plots": list(plots.values()),
        "glossary": {word: text for texts in GLOSSARY.values() for word, text in texts.items()},
        "any_valid": bool((runs["status"] == "ok").any()),
        "summary": summary_sentence(results.manifest.platforms, runs, comparison),
        "warnings": results.warnings,
        "warning_lines": warning_lines(results.warnings),
        "questions": answers_by_question(decision, results.asked, headlines),
        "topics": findings_by_topic(findings, display.quality_name(comparison)),
        "tables": list(_page_tables(results, metrics, folder)),
        "checks": {name: check.description for name, check in checks.CHECKS.items()},
        "statuses": make_status_table(runs, comparison),
        "metrics": make_metrics_table(qualities_in_table(comparison)),
        "rows_held": _ROWS_HELD,
        "runs_for_interval": RUNS_FOR_INTERVAL,
        "rule": RULE,
        "confidence": f"{CONFIDENCE:.0%}",
        "resamples": RESAMPLES,
        "environment": provenance_section(results.manifest.platforms, runs, folder),
        "style": (PAGE_DIR / STYLE).read_text(encoding="utf-8"),
        "script": script,
        "script_hash": "sha256-" + _base64(hashlib.sha256(script.encode()).digest()),
        "datatables": datatables_script(),
    }
    return str(_load_template().render(context))


def _describe_trainings(runs: pd.DataFrame) -> str:
    """Return models, datasets and recipes of the runs as a text for readers."""
    named = {"model": "model", "data": "dataset", "recipe": "recipe"}
    found = {noun: runs[column].dropna().unique() for noun, column in named.items()}
    return "; ".join(
        f"{noun} {join_names(list(names))}" for noun, names in found.items() if len(names)
    )


def _page_tables(results: Results, metrics: Sequence[str], folder: Path) -> Iterator[Table]:
    """Yield the page's sortable tables in their order: comparison, conclusions with rows, runs.

    Args:
        results: Tables and conclusions.
        metrics: Metrics that the tables show.
        folder: The page's folder, for links to records.
    """
    title = "Comparison: one row per configuration"
    yield Table("comparison", comparison.comparison_text_table(results.comparison, title, metrics))
    for name, conclusion in CONCLUSIONS.items():
        frame = results.conclusions.get(name)
        if frame is not None and len(frame) and (shown := conclusion.text_table(frame)):
            yield Table(name, replace(shown, title=conclusion.title), conclusion.caption)
    yield make_runs_table(results.runs, metrics, folder)


def inline_svg(svg: str, name: str, label: str) -> str:
    """Return an SVG by matplotlib as an element for the page, with a third of the characters.

    Coordinates have two decimals, fonts are named once, and unused ids are removed. Width and
    height are left to the page.

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


@functools.cache
def datatables_script() -> str:
    """Return the JavaScript of DataTables, from the package itables, as gzip in base64."""
    from itables.options import dt_bundle

    packed = gzip.compress(Path(dt_bundle).read_bytes(), compresslevel=9, mtime=0)
    return _base64(packed)


def _base64(content: bytes) -> str:
    """Return bytes as a text in base64."""
    return base64.b64encode(content).decode()


def _load_template() -> Template:
    """Load the Jinja template of the page, with its filters."""
    environment = display.load_templates(PAGE_DIR, autoescape=True)
    # long names of columns may break after an underscore
    environment.filters |= {
        "breakable": lambda t: escape(t).replace("_", Markup("_<wbr>")) if len(t) > 9 else t,
        "tone": lambda word: TONES.get(word, "doubt"),
        "code": lambda t: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(t)))),
    }
    return environment.get_template(TEMPLATE)
