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
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from markupsafe import Markup, escape

from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.estimation.intervals import CONFIDENCE, RESAMPLES, RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import RULE
from tfscaling.page.inline_svg import inline_svg
from tfscaling.page.page_answers import answers_by_question, findings_by_topic, headlines_to_show
from tfscaling.page.page_tables import (
    Table,
    make_metrics_table,
    make_runs_table,
    make_status_table,
)
from tfscaling.page.study_origin import describe_trainings, provenance_section, summary_sentence
from tfscaling.page.words import GLOSSARY, TONES
from tfscaling.record import checks
from tfscaling.study.manifest import Manifest
from tfscaling.tables import comparison, display, row_values, timings
from tfscaling.tables.data_warnings import FEW_RUNS, LIMITED, SERIOUS, DataWarning
from tfscaling.tables.row_values import group_by, qualities_in_table

if TYPE_CHECKING:
    from jinja2 import Template


def warning_lines(warnings: Sequence[DataWarning]) -> list[tuple[str, str]]:
    """Return (severity, line) for the top of the page: one line joins the warnings of a severity.

    The warning about too few runs is left out: badges on the page show it.
    """
    leads = {SERIOUS: "Warning", LIMITED: "Note"}
    shown = [warning for warning in warnings if warning.kind != FEW_RUNS]
    return [
        (severity, f"{leads[severity]}: {'; '.join(warning.short for warning in own)}.")
        for severity, own in group_by(shown, lambda warning: warning.severity).items()
    ]


#: Highest number of rows with which a folded table is part of the page when it opens.
_ROWS_HELD = 200


PAGE_DIR = Path(__file__).resolve().parents[3] / "report"
#: Names of the plots on the first and the second screen; where all configurations have the same
#: number of nodes, ONE_SIZE_PLOT is the first.
FIRST_PLOT, TIME_PLOT, ONE_SIZE_PLOT = "execution_time", "time_split", "quality_time"
TEMPLATE, STYLE, SCRIPT = "page.html.j2", "page.css", "page.js"


@dataclass(frozen=True)
class Plot:
    """A drawn plot for the page.

    Attributes:
        name: Name of the plot, a key of PLOTS.
        title: Title of the plot.
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
        warnings: Reasons to read some of the numbers with care.
        conclusions: Name in CONCLUSIONS → table; "headline", "decision", "findings" and
            "next_steps" are required.
        plots: The drawn plots; plots without data are left out.
        question_goal: Goal of the configuration's `question`; None without this key.
    """

    manifest: Manifest
    runs: pd.DataFrame
    comparison: pd.DataFrame
    warnings: Sequence[DataWarning]
    conclusions: Mapping[str, pd.DataFrame]
    plots: Sequence[Plot]
    question_goal: str | None = None


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
    context = {
        "title": title,
        "study": folder.name,
        # tables and page of the runs so far are in the folder `partial` of the study
        "name": folder.parent.name if folder.name == "partial" else folder.name,
        "trains": describe_trainings(
            row_values.without_points(runs, results.manifest.explaining_points)
        ),
        "headlines": headlines,
        "next_steps": next_steps["text"].tolist(),
        **_plot_values(results.plots, comparison),
        "glossary": {word: text for texts in GLOSSARY.values() for word, text in texts.items()},
        "any_valid": bool((runs["status"] == "ok").any()),
        "summary": summary_sentence(results.manifest.platforms, runs, comparison),
        "warnings": results.warnings,
        "warning_lines": warning_lines(results.warnings),
        "questions": answers_by_question(decision, results.question_goal, headlines),
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
        **_style_and_scripts(),
    }
    return str(_load_template().render(context))


def _plot_values(plots: Sequence[Plot], comparison: pd.DataFrame) -> dict[str, Any]:
    """Return the template's variables for the plots, as SVG.

    Args:
        plots: The plots.
        comparison: The table of configurations, by which the first plot is chosen.

    Returns:
        `first_plot` and `time_plot`, which the page shows above its tables (None without one), and
        `plots`, all others.
    """
    label = "Plot: {}. Its values are in the table “Comparison”."
    found = {p.name: inline_svg(p.svg, p.name, label.format(p.title)) for p in plots}
    has_sizes = comparison["nodes"].nunique() > 1 or ONE_SIZE_PLOT not in found
    return {
        "first_plot": found.pop(FIRST_PLOT if has_sizes else ONE_SIZE_PLOT, None),
        "time_plot": found.pop(TIME_PLOT, None),
        "plots": list(found.values()),
    }


def _style_and_scripts() -> dict[str, str]:
    """Return the template's variables for style and scripts.

    They include the hash by which the page's content security policy admits the script.
    """
    script = (PAGE_DIR / SCRIPT).read_text(encoding="utf-8")
    return {
        "style": (PAGE_DIR / STYLE).read_text(encoding="utf-8"),
        "script": script,
        "script_hash": "sha256-" + _base64(hashlib.sha256(script.encode()).digest()),
        "datatables": datatables_script(),
    }


def _page_tables(results: Results, metrics: Sequence[str], folder: Path) -> Iterator[Table]:
    """Yield the page's sortable tables in their order: comparison, conclusions with rows, runs.

    Args:
        results: Tables and conclusions.
        metrics: Metrics that the tables show.
        folder: The page's folder, for links to records.
    """
    title = "Comparison: one row per configuration"
    imported_from = timings.imported_from(results.runs)
    points = comparison.comparison_text_table(results.comparison, title, metrics, imported_from)
    yield Table("comparison", points)
    for name, conclusion in CONCLUSIONS.items():
        frame = results.conclusions.get(name)
        if frame is not None and len(frame) and (shown := conclusion.text_table(frame)):
            yield Table(name, replace(shown, title=conclusion.title), conclusion.caption)
    yield make_runs_table(results.runs, metrics, folder)


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
