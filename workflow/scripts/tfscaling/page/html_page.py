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
from html import escape as escaped
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.page import sections
from tfscaling.page.sections import GLOSSARY, TONES, Table
from tfscaling.record import checks
from tfscaling.spec.manifest import Manifest
from tfscaling.tables import comparison, display, environments
from tfscaling.tables.data_warnings import DataWarning
from tfscaling.tables.display import listed
from tfscaling.tables.estimates import CONFIDENCE, RESAMPLES, RUNS_FOR_INTERVAL
from tfscaling.tables.table_rows import qualities_in

if TYPE_CHECKING:
    from jinja2 import Template

PAGE_DIR = Path(__file__).resolve().parents[3] / "report"
#: The plots of the first and the second screen; where all configurations have the same number of
#: nodes, ONE_SIZE_PLOT is the first.
FIRST_PLOT, TIME_PLOT, ONE_SIZE_PLOT = "execution_time", "time_split", "quality_time"
TEMPLATE, STYLE, SCRIPT = "page.html.j2", "page.css", "page.js"

_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r"(url\(#|href=\"#)([^)\"]+)")
#: What matplotlib sets for every element of the page, as an attribute of the plot alone.
_STYLE = re.compile(r"<style[^>]*>\s*\*\{stroke-linejoin: round; stroke-linecap: butt\}\s*</style>")


@dataclass(frozen=True)
class Plot:
    """A plot that was drawn, by its name in the registry: its title, and the SVG."""

    name: str
    title: str
    svg: bytes


@dataclass(frozen=True)
class Results:
    """What the page shows of a study.

    `runs` has one row per run, `comparison` one per point. `conclusions` are the tables of
    conclusions by their name in `CONCLUSIONS`; "headline", "decision", "findings" and "next_steps"
    are among them. `plots` are the plots with something to show.
    """

    manifest: Manifest
    runs: pd.DataFrame
    comparison: pd.DataFrame
    warnings: Sequence[DataWarning]
    conclusions: Mapping[str, pd.DataFrame]
    plots: Sequence[Plot]


def render(
    results: Results, title: str, metrics: Sequence[str], folder: Path = Path("results")
) -> str:
    """The page as HTML.

    The warnings come first in short; their whole texts are in the section on validity.
    `metrics` are the columns shown of every point; `folder` is where the page will lie, for links
    to records.
    """
    runs, comparison = results.runs, results.comparison
    headline, decision, findings, next_steps = (
        results.conclusions[name] for name in ("headline", "decision", "findings", "next_steps")
    )
    plots = {plot.name: _plot(plot) for plot in results.plots}
    has_sizes = comparison["nodes"].nunique() > 1 or ONE_SIZE_PLOT not in plots
    script = (PAGE_DIR / SCRIPT).read_text(encoding="utf-8")
    context = {
        "title": title,
        "study": folder.name,
        "trains": _trains(results.runs),
        "headlines": sections.headlines(headline),
        "next_steps": next_steps["text"].tolist(),
        "first_plot": plots.pop(FIRST_PLOT if has_sizes else ONE_SIZE_PLOT, None),
        "time_plot": plots.pop(TIME_PLOT, None),
        "plots": list(plots.values()),
        "glossary": GLOSSARY,
        "summary": sections.summary(results.manifest.platforms, runs, comparison),
        "warnings": results.warnings,
        "warning_lines": sections.warning_lines(results.warnings),
        "works": sections.choices(decision),
        "topics": sections.topics(findings, display.quality_name(comparison)),
        "tables": list(_tables(results, metrics, folder)),
        "checks": {name: check.description for name, check in checks.CHECKS.items()},
        "statuses": sections.statuses(runs, comparison),
        "left_out": sections.left_out(runs, comparison),
        "metrics": sections.metrics(qualities_in(comparison)),
        "runs_for_interval": RUNS_FOR_INTERVAL,
        "confidence": f"{CONFIDENCE:.0%}",
        "resamples": RESAMPLES,
        "environment": sections.environment(results.manifest.platforms, runs, folder),
        "style": (PAGE_DIR / STYLE).read_text(encoding="utf-8"),
        "script": script,
        "script_hash": "sha256-" + _base64(hashlib.sha256(script.encode()).digest()),
        "datatables": datatables(),
    }
    return str(_template().render(context))


def _trains(runs: pd.DataFrame) -> str:
    """What the study trains: models, data and recipes."""
    named = {
        noun: [str(name) for name in runs[column].dropna().unique()]
        for noun, column in (("model", "model"), ("data", "dataset"), ("recipe", "recipe"))
        if column in runs
    }
    return "; ".join(f"{noun} {listed(names)}" for noun, names in named.items() if names)


def _tables(results: Results, metrics: Sequence[str], folder: Path) -> Iterator[Table]:
    """The tables to sort and filter, in the order of the page; none of an empty conclusion."""
    points = comparison.as_text(
        results.comparison, "Comparison: one row per configuration", metrics
    )
    yield Table("comparison", points)
    for name, conclusion in CONCLUSIONS.items():
        frame = results.conclusions.get(name)
        if frame is not None and len(frame) and (shown := conclusion.shown(frame)):
            titled = replace(shown, title=conclusion.title)
            yield Table(name, titled, conclusion.caption)
    yield sections.all_runs(results.runs, metrics, folder)
    differences = environments.as_text(environments.differences(results.runs))
    yield Table("differences", differences)


def _plot(plot: Plot) -> dict[str, str]:
    name = f"Plot: {plot.title}. Its values are in the table “Comparison”."
    return {"title": plot.title, "svg": inline(plot.svg.decode(), plot.name, name)}


def inline(svg: str, name: str, label: str) -> str:
    """The SVG as an element: its ids begin with `name`, readers of the screen say `label`.

    It has no fixed size.
    """
    start = svg.index("<svg")
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[start:], flags=re.DOTALL)
    body = _STYLE.sub("", body)
    body = _ID.sub(rf'id="{name}-\1"', body)
    body = _REFERENCE.sub(rf"\1{name}-\2", body)
    opening, _, rest = body.partition(">")
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    attributes = f' role="img" aria-label="{escaped(label)}"'
    attributes += ' stroke-linejoin="round" stroke-linecap="butt"'
    return f"{opening}{attributes}>{rest.strip()}"


@functools.cache
def datatables() -> str:
    """DataTables as itables ships it, an ECMAScript module: compressed, in base64."""
    from itables.options import dt_bundle

    packed = gzip.compress(Path(dt_bundle).read_bytes(), compresslevel=9, mtime=0)
    return _base64(packed)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=FileSystemLoader(PAGE_DIR),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # long names of columns may break after an underscore
    environment.filters["breakable"] = lambda text: (
        escape(text).replace("_", Markup("_<wbr>")) if len(text) > 9 else text
    )
    environment.filters["tone"] = lambda word: TONES.get(word, "doubt")
    environment.filters["code"] = lambda text: Markup(
        re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    )
    return environment.get_template(TEMPLATE)
