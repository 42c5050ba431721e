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
    """A conclusion by its name in CONCLUSIONS: files <name>.csv and <name>.md.

    `title` heads its section of the page, `caption` is the text below it, `category` its place in
    Snakemake's own report. `module` is a module of this package, with these functions:

    - `table(study, *tables)`: the data frame; `tables` are the tables of the conclusions in `uses`
    - `as_text(table)`: the table of the page; left out if the page has none
    - `page(table, study)`: <name>.md without the warnings, a heading first; by default `as_text`
    - `with_warnings(page, warnings)`: <name>.md; by default the warnings follow the heading
    """

    module: str
    title: str
    caption: str
    category: str = "Tables"
    uses: tuple[str, ...] = ()

    def table(self, study: Study, *tables: pd.DataFrame) -> pd.DataFrame:
        """The table of the conclusion."""
        made: pd.DataFrame = self._function("table")(study, *tables)
        return made

    def shown(self, table: pd.DataFrame) -> TextTable | None:
        """The table of the page, or None if the page has none."""
        as_text = self._function("as_text")
        return as_text(table) if as_text else None

    def page(self, table: pd.DataFrame, study: Study, warnings: Sequence[DataWarning] = ()) -> str:
        """The conclusion as Markdown, with the warnings about its data."""
        from tfscaling.tables import display

        page = self._function("page")
        text = page(table, study) if page else display.markdown(self._function("as_text")(table))
        return str((self._function("with_warnings") or display.with_warnings)(text, warnings))

    def _function(self, name: str) -> Any:
        """The function of the module, or None if it has none of this name."""
        module = importlib.import_module(f"tfscaling.conclusions.{self.module}")
        return getattr(module, name, None)


#: Every conclusion by its name, in the order of the report.
CONCLUSIONS: dict[str, Conclusion] = {
    "headline": Conclusion(
        "headline",
        "Headline",
        "The answer in one sentence, and how sure it is: plain text.",
        "Findings",
    ),
    "decision": Conclusion(
        "decision",
        "Recommendation",
        "Which configuration to take for the shortest time, the lowest cost and the best quality, "
        "which is the test accuracy unless the recipe names another metric: only "
        "where it is shown to be within the indifference of the best, else the best estimate and "
        "how far it may be from the best.",
        "Findings",
    ),
    "findings": Conclusion(
        "findings",
        "Findings",
        "What the comparison says, sentence by sentence, and how far the runs support it: "
        "supported, inconclusive, or too few runs.",
        "Findings",
        uses=("clouds",),
    ),
    "search": Conclusion(
        "search_results",
        "The search",
        "Who left the search in which round, by what margin and at what cost, where a search "
        "makes the runs; what its answer promises, and what it saved.",
        "Findings",
    ),
    "next_steps": Conclusion(
        "next_steps",
        "What to do next",
        "What would make the answer surer or more complete, and what it takes.",
        "Findings",
        uses=("decision",),
    ),
    "regressions": Conclusion(
        "two_sweeps",
        "Against another sweep",
        "Every configuration against the same configuration of the study that `compare_with` "
        "names: slower, "
        "faster, the same within the indifference, or cannot be told, for all configurations "
        "together; "
        "lost or failing, where runs fail now, and whether more runs fail at the others together; "
        "and in what the runs of the two were made otherwise.",
    ),
    "clouds": Conclusion(
        "clouds",
        "Clouds: the same configuration on two clouds",
        "Platforms of different clouds at the same configuration: the cloud with the better "
        "median, how many times worse the other one is, and whether the interval supports that.",
    ),
    "published": Conclusion(
        "published_values",
        "Published against measured",
        "Every published configuration with the measured values: time of the same configuration "
        "with the same "
        "training; loss and accuracy of all runs of the same training, on any platform.",
    ),
    "forecast": Conclusion(
        "forecast",
        "Forecast of configurations that were not run",
        "The time on the numbers of nodes that `forecast` names, from start-up, computation and "
        "all-reduce: with the error on configurations left out, refused where that is too large. "
        "Never part of a decision.",
    ),
    "projection": Conclusion(
        "projection",
        "Projected from short runs",
        "Time, node-hours and cost of whole trainings as they are projected from runs that "
        "`stop_after_steps` ended, with an interval for a run of the whole; and, where such a run "
        "was made, what it took.",
    ),
    "communication": Conclusion(
        "communication",
        "Communication",
        "Time of an all-reduce of the model's gradient, timed alone by the training's own strategy "
        "on the same nodes, with latency and bandwidth from a sweep of sizes; and the measured "
        "step compared with computation plus all-reduce. That bound is without overlap: a step "
        "below it overlaps communication with computation, a step above it waits, or does other "
        "work such as the update of the variables.",
    ),
    "attribution": Conclusion(
        "what_holds_back",
        "Bottleneck analysis",
        "The parts of a step: input, computation, waiting for slower ranks and communication, from "
        "steps with and without real input and synchronisation, with the largest of "
        "them. Measured where the recipe has `attribution: true`.",
    ),
    "methodology": Conclusion(
        "methodology",
        "Methodology",
        'The rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems" '
        "(SC15), and the rules of MLPerf Training that apply here, each checked on this data set, "
        "with the numbers that decide it.",
        "Method",
        uses=("communication",),
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
