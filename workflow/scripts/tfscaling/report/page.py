"""The page of results: one HTML file with everything in it.

The page is `workflow/report/page.html.j2`. Its tables are plain HTML; DataTables, from the package
itables, makes them sort and filter. A policy in the page forbids the browser any request.
"""

from __future__ import annotations

import base64
import functools
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tfscaling.analysis import communication as communication_table
from tfscaling.analysis import methodology as method_rules
from tfscaling.analysis import scaling_laws
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.report import interactive_tables, sections
from tfscaling.tables import data_warnings, display, environments

PAGE_DIR = Path(__file__).resolve().parents[3] / "report"
TEMPLATE, STYLE, SCRIPT = "page.html.j2", "page.css", "page.js"


def render(
    title: str,
    expected: Mapping[str, Any],
    runs: pd.DataFrame,
    comparison: pd.DataFrame,
    columns: Sequence[str],
    decision: pd.DataFrame,
    findings: pd.DataFrame,
    plots: Mapping[str, bytes],
    warnings: Sequence[data_warnings.DataWarning],
    *,
    clouds: pd.DataFrame | None = None,
    published: pd.DataFrame | None = None,
    scaling: pd.DataFrame | None = None,
    communication: pd.DataFrame | None = None,
    method: pd.DataFrame | None = None,
    folder: Path = Path("results"),
) -> str:
    """The page as HTML.

    The most serious `warnings` come first, all of them stand with the validity of the runs.
    `expected` is the content of manifest.json; `columns` are the metrics shown of every point;
    `plots` are SVGs by their name in `PLOTS`; `folder` is where the page will lie, for links to
    records.
    """
    context = {
        "title": title,
        "summary": sections.summary(expected, runs, comparison),
        "warnings": sections.warnings(warnings),
        "answer": sections.answer(decision, findings),
        "tables": _tables(
            runs, comparison, columns, clouds, published, scaling, communication, method, folder
        ),
        "plots": [_plot(name, svg) for name, svg in plots.items()],
        "validity": sections.validity(runs, comparison),
        "definitions": sections.definitions(),
        "environment": sections.environment(expected, runs, folder),
        "style": (PAGE_DIR / STYLE).read_text(encoding="utf-8"),
        "script": (PAGE_DIR / SCRIPT).read_text(encoding="utf-8"),
        "datatables": datatables(),
    }
    return str(_template().render(context))


def _tables(
    runs: pd.DataFrame,
    comparison: pd.DataFrame,
    columns: Sequence[str],
    clouds: pd.DataFrame | None,
    published: pd.DataFrame | None,
    scaling: pd.DataFrame | None,
    communication: pd.DataFrame | None,
    method: pd.DataFrame | None,
    folder: Path,
) -> list[interactive_tables.Table]:
    """The tables to sort and filter, in the order of the page."""
    points = display.comparison(comparison, "Comparison: one row per point", columns)
    tables = [interactive_tables.table("comparison", points)]
    if clouds is not None and len(clouds):
        tables.append(interactive_tables.clouds(clouds))
    if published is not None and len(published):
        tables.append(interactive_tables.published(published))
    if scaling is not None and len(scaling):
        tables.append(interactive_tables.table("scaling", scaling_laws.as_text(scaling)))
    if communication is not None and len(communication):
        shown = communication_table.as_text(communication)
        tables.append(interactive_tables.table("communication", shown))
    if method is not None and len(method):
        tables.append(interactive_tables.table("method", method_rules.as_text(method)))
    differences = environments.as_text(environments.differences(runs))
    return [
        *tables,
        interactive_tables.runs(runs, columns, folder),
        interactive_tables.table("differences", differences),
    ]


def _plot(name: str, svg: bytes) -> dict[str, str]:
    title = PLOTS[name].title if name in PLOTS else name.replace("_", " ")
    return {
        "title": title,
        "alt": f"Plot: {title}. Its values are in the table “Comparison”.",
        # as an image of its own: ids inside it cannot collide with those of other plots
        "source": f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
    }


@functools.cache
def datatables() -> str:
    """DataTables as itables ships it, an ECMAScript module: compressed, in base64."""
    from itables.options import dt_bundle

    packed = gzip.compress(Path(dt_bundle).read_bytes(), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode()


def _template() -> Any:
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
        escape(text).replace("_", Markup("_<wbr>")) if len(text) > 12 else text
    )
    return environment.get_template(TEMPLATE)
