"""The list of conclusions: for each its title, its caption and the functions that make it.

Only this list is loaded while the workflow is read: the modules load pandas and SciPy, and are
imported when one of their functions is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tfscaling.conclusions.evidence import Study
    from tfscaling.tables.data_warnings import DataWarning
    from tfscaling.tables.display import TextTable


@dataclass(frozen=True)
class Parts:
    """The functions that make a conclusion.

    Attributes:
        columns: Names of the table's columns.
        table: Returns the table of a study, for its file.
        as_text: Returns the table of the page; None: the page has none.
        page: Returns <name>.md without the warnings, a heading first; by default from `as_text`.
        with_warnings: Adds the warnings to <name>.md; by default they follow the heading.
    """

    columns: Sequence[str]
    table: Callable[[Study], pd.DataFrame]
    as_text: Callable[[pd.DataFrame], TextTable] | None = None
    page: Callable[[pd.DataFrame, Study], str] | None = None
    with_warnings: Callable[[str, Sequence[DataWarning]], str] | None = None


@dataclass(frozen=True)
class Conclusion:
    """A conclusion by its name in CONCLUSIONS: the file <name>.csv, on request <name>.md.

    `title` heads its section of the page, `caption` is the text below it. `load` imports the module
    and returns its functions.
    """

    title: str
    caption: str
    load: Callable[[], Parts]

    def table(self, study: Study) -> pd.DataFrame:
        """Return the table of the conclusion."""
        return self.load().table(study)

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(self.load().columns)

    def shown(self, table: pd.DataFrame) -> TextTable | None:
        """Return the table of the page, or None if the page has none."""
        as_text = self.load().as_text
        return as_text(table) if as_text else None

    def page(self, table: pd.DataFrame, study: Study, warnings: Sequence[DataWarning] = ()) -> str:
        """Return the conclusion as Markdown, with the warnings about its data."""
        from tfscaling.tables import display

        parts = self.load()
        if parts.page:
            text = parts.page(table, study)
        else:
            assert parts.as_text, "a conclusion has a page or a table"
            text = display.markdown(parts.as_text(table))
        if parts.with_warnings:
            return parts.with_warnings(text, warnings)
        return display.with_warnings(text, [warning.text for warning in warnings])


def _headline() -> Parts:
    from tfscaling.conclusions import headline

    return Parts(
        headline.COLUMNS, headline.table, page=headline.page, with_warnings=headline.with_warnings
    )


def _decision() -> Parts:
    from tfscaling.conclusions import decision

    return Parts(decision.COLUMNS, decision.table, page=decision.page)


def _findings() -> Parts:
    from tfscaling.conclusions import findings

    return Parts(findings.COLUMNS, findings.table, page=findings.page)


def _search() -> Parts:
    from tfscaling.conclusions import search_results

    return Parts(
        search_results.COLUMNS,
        search_results.table,
        as_text=search_results.as_text,
        page=search_results.page,
    )


def _next_steps() -> Parts:
    from tfscaling.conclusions import next_steps

    return Parts(next_steps.COLUMNS, next_steps.table, page=next_steps.page)


def _regressions() -> Parts:
    from tfscaling.conclusions import two_sweeps

    return Parts(two_sweeps.COLUMNS, two_sweeps.table, as_text=two_sweeps.as_text)


def _clouds() -> Parts:
    from tfscaling.conclusions import clouds

    return Parts(clouds.COLUMNS, clouds.table, as_text=clouds.as_text)


def _published() -> Parts:
    from tfscaling.conclusions import published_values

    return Parts(published_values.COLUMNS, published_values.table, as_text=published_values.as_text)


def _forecast() -> Parts:
    from tfscaling.conclusions import forecast

    return Parts(forecast.COLUMNS, forecast.table, as_text=forecast.as_text)


def _projection() -> Parts:
    from tfscaling.conclusions import projection

    return Parts(projection.COLUMNS, projection.table, as_text=projection.as_text)


def _attribution() -> Parts:
    from tfscaling.conclusions import what_holds_back

    return Parts(what_holds_back.COLUMNS, what_holds_back.table, as_text=what_holds_back.as_text)


def _nodes() -> Parts:
    from tfscaling.conclusions import nodes

    return Parts(nodes.COLUMNS, nodes.table, as_text=nodes.as_text)


#: Every conclusion by its name, in the order of the report.
CONCLUSIONS: dict[str, Conclusion] = {
    "headline": Conclusion(
        "Headline",
        "The answer in one sentence, and how sure it is.",
        _headline,
    ),
    "decision": Conclusion(
        "Recommendation",
        "Which configuration to take for time, cost and quality, where it is shown to be within "
        "the indifference of the best; else the best estimate and how far it may be from the best.",
        _decision,
    ),
    "findings": Conclusion(
        "Findings",
        "What the comparison shows, sentence by sentence, and how far the runs support it.",
        _findings,
    ),
    "search": Conclusion(
        "The search",
        "Which configurations were eliminated in which round, by what margin and at what cost.",
        _search,
    ),
    "next_steps": Conclusion(
        "What to do next",
        "What would make the answer surer or more complete, and what it takes.",
        _next_steps,
    ),
    "regressions": Conclusion(
        "Against another sweep",
        "Every configuration against the same one of the study that `compare_with` names: slower, "
        "faster, the same within the indifference, undecided, lost or failing.",
        _regressions,
    ),
    "clouds": Conclusion(
        "Clouds: the same configuration on two clouds",
        "The cloud with the better median, how many times worse the other one is, and whether the "
        "interval supports that.",
        _clouds,
    ),
    "published": Conclusion(
        "Published against measured",
        "Time of the same configuration with the same training; loss and accuracy of all runs of "
        "the same training, on any platform.",
        _published,
    ),
    "forecast": Conclusion(
        "Forecast of configurations that were not run",
        "The time on the numbers of nodes that `forecast` names, with the error on configurations "
        "left out, refused where that is too large. Never part of a decision.",
        _forecast,
    ),
    "projection": Conclusion(
        "Projected from short runs",
        "Time, node-hours and cost of whole trainings, projected from runs that `stop_after_steps` "
        "ended; and what a run of the whole took, where one was made.",
        _projection,
    ),
    "attribution": Conclusion(
        "Bottleneck analysis",
        "Input, computation, waiting for slower ranks and communication in a step.",
        _attribution,
    ),
    "nodes": Conclusion(
        "Nodes",
        "How many times as long runs take with each node, where runs of a configuration had "
        "different nodes.",
        _nodes,
    ),
}


def tables(study: Study) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the table of every conclusion."""
    for name, conclusion in CONCLUSIONS.items():
        yield name, conclusion.table(study)
