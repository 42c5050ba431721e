"""The list of conclusions: for each its title, its caption and the module that draws it.

Only this list is loaded while the workflow is read: the modules load pandas and SciPy, and are
imported when one of their functions is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from tfscaling.conclusions.evidence import Study
    from tfscaling.tables.data_warnings import DataWarning
    from tfscaling.tables.display import TextTable


@dataclass(frozen=True)
class Conclusion:
    """A conclusion by its name in CONCLUSIONS: the file <name>.csv, on request <name>.md.

    `title` heads its section of the page, `caption` is the text below it. `module` is a module of
    this package, with these names:

    - `COLUMNS`: the names of the table's columns
    - `table(study, *tables)`: the data frame; `tables` are the tables of the conclusions in `uses`
    - `as_text(table)`: the table of the page; left out if the page has none
    - `page(table, study)`: <name>.md without the warnings, a heading first; by default `as_text`
    - `with_warnings(page, warnings)`: <name>.md; by default the warnings follow the heading
    """

    module: str
    title: str
    caption: str
    uses: tuple[str, ...] = ()

    def table(self, study: Study, *tables: pd.DataFrame) -> pd.DataFrame:
        """The table of the conclusion."""
        return self._function("table")(study, *tables)

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(self._function("COLUMNS"))

    def shown(self, table: pd.DataFrame) -> TextTable | None:
        """The table of the page, or None if the page has none."""
        as_text = self._function("as_text")
        return as_text(table) if as_text else None

    def page(self, table: pd.DataFrame, study: Study, warnings: Sequence[DataWarning] = ()) -> str:
        """The conclusion as Markdown, with the warnings about its data."""
        from tfscaling.tables import display

        page = self._function("page")
        text = page(table, study) if page else display.markdown(self._function("as_text")(table))
        if with_warnings := self._function("with_warnings"):
            return with_warnings(text, warnings)
        return display.with_warnings(text, [warning.text for warning in warnings])

    def _function(self, name: str) -> Any:
        """The function of the module, or None if it has none of this name."""
        return getattr(importlib.import_module(f"tfscaling.conclusions.{self.module}"), name, None)


#: Every conclusion by its name, in the order of the report.
CONCLUSIONS: dict[str, Conclusion] = {
    "headline": Conclusion(
        "headline", "Headline", "The answer in one sentence, and how sure it is."
    ),
    "decision": Conclusion(
        "decision",
        "Recommendation",
        "Which configuration to take for time, cost and quality, where it is shown to be within "
        "the indifference of the best; else the best estimate and how far it may be from the best.",
    ),
    "findings": Conclusion(
        "findings",
        "Findings",
        "What the comparison shows, sentence by sentence, and how far the runs support it.",
        uses=("clouds",),
    ),
    "search": Conclusion(
        "search_results",
        "The search",
        "Which configurations were eliminated in which round, by what margin and at what cost.",
    ),
    "next_steps": Conclusion(
        "next_steps",
        "What to do next",
        "What would make the answer surer or more complete, and what it takes.",
        uses=("decision",),
    ),
    "regressions": Conclusion(
        "two_sweeps",
        "Against another sweep",
        "Every configuration against the same one of the study that `compare_with` names: slower, "
        "faster, the same within the indifference, cannot be told, lost or failing.",
    ),
    "clouds": Conclusion(
        "clouds",
        "Clouds: the same configuration on two clouds",
        "The cloud with the better median, how many times worse the other one is, and whether the "
        "interval supports that.",
    ),
    "published": Conclusion(
        "published_values",
        "Published against measured",
        "Time of the same configuration with the same training; loss and accuracy of all runs of "
        "the same training, on any platform.",
    ),
    "forecast": Conclusion(
        "forecast",
        "Forecast of configurations that were not run",
        "The time on the numbers of nodes that `forecast` names, with the error on configurations "
        "left out, refused where that is too large. Never part of a decision.",
    ),
    "projection": Conclusion(
        "projection",
        "Projected from short runs",
        "Time, node-hours and cost of whole trainings, projected from runs that `stop_after_steps` "
        "ended; and what a run of the whole took, where one was made.",
    ),
    "attribution": Conclusion(
        "what_holds_back",
        "Bottleneck analysis",
        "Input, computation, waiting for slower ranks and communication in a step.",
    ),
    "nodes": Conclusion(
        "nodes",
        "Nodes",
        "How many times as long runs take with each node, where runs of a configuration had "
        "different nodes.",
    ),
}


def tables(study: Study) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, table) of every conclusion; each is made once, after those that it uses."""
    made: dict[str, pd.DataFrame] = {}

    def table_of(name: str) -> pd.DataFrame:
        if name not in made:
            conclusion = CONCLUSIONS[name]
            made[name] = conclusion.table(study, *map(table_of, conclusion.uses))
        return made[name]

    for name in CONCLUSIONS:
        yield name, table_of(name)
