"""Texts of conclusions, from the files in `templates`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfscaling.conclusions.evidence import remark
from tfscaling.tables.display import (
    listed,
    percent,
    point_name,
    times,
    value,
    varying,
    within,
    worse,
)
from tfscaling.tables.estimates import CONFIDENCE, RUNS_FOR_INTERVAL
from tfscaling.tables.significance import Samples
from tfscaling.tables.table_rows import Row, is_known

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """The text of a template, without space at its end."""
    return str(_environment().get_template(f"{template}.j2").render(values)).rstrip()


def line(template: str, **values: Any) -> str:
    """The text of a template as one line."""
    return " ".join(render(template, **values).split())


def sentences(template: str, rows: Sequence[Row], samples: Samples, **values: Any) -> str:
    """The text of a template about points, as one line.

    In the template `name(row)` and `names(rows)` name points of `rows` by what differs between
    them, and `remark(row)` is `evidence.remark`.
    """
    vary = functools.cache(lambda: varying(rows))

    def name(row: Row, with_remark: bool = False) -> str:
        return point_name(row, vary()) + (remark(row, samples) if with_remark else "")

    def names(few: Sequence[Row], with_remarks: bool = False) -> str:
        return listed([name(row, with_remarks) for row in few])

    return line(template, name=name, names=names, remark=lambda row: remark(row, samples), **values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (is_known, listed, percent, times, value, within, worse)
    environment.globals.update({function.__name__: function for function in functions})
    environment.globals |= {
        "confidence": f"{CONFIDENCE:.0%}",
        "runs_for_interval": RUNS_FOR_INTERVAL,
        "plural": lambda number, noun: noun if number == 1 else f"{noun}s",
    }
    return environment
