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
class ConclusionFunctions:
    """The functions and columns of a conclusion's module.

    Attributes:
        columns: Names of the table's columns.
        table: Returns the table of a study, for <name>.csv.
        as_text: Returns the table with texts as cells, for the page; None if the page has no table.
        page: Returns <name>.md without the warnings, a heading first; None makes it from `as_text`.
        add_warnings: Adds the warnings to <name>.md; None adds them below the heading.
    """

    columns: Sequence[str]
    table: Callable[[Study], pd.DataFrame]
    as_text: Callable[[pd.DataFrame], TextTable] | None = None
    page: Callable[[pd.DataFrame, Study], str] | None = None
    add_warnings: Callable[[str, Sequence[DataWarning]], str] | None = None


@dataclass(frozen=True)
class Conclusion:
    """A conclusion: the file <name>.csv, on request <name>.md, and a section of the page.

    Attributes:
        title: Heading of the section.
        caption: Text below the heading.
        load: Imports the module of the conclusion and returns its functions.
    """

    title: str
    caption: str
    load: Callable[[], ConclusionFunctions]

    def table(self, study: Study) -> pd.DataFrame:
        """Return the table of the conclusion."""
        return self.load().table(study)

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(self.load().columns)

    def text_table(self, table: pd.DataFrame) -> TextTable | None:
        """Return the table for the page; None if the page has none."""
        as_text = self.load().as_text
        return as_text(table) if as_text else None

    def page(self, table: pd.DataFrame, study: Study, warnings: Sequence[DataWarning] = ()) -> str:
        """Return the conclusion as Markdown, with the warnings about its data.

        Args:
            table: The table of the conclusion.
            study: The study whose tables and records are the evidence.
            warnings: Warnings to include.
        """
        from tfscaling.tables import display

        parts = self.load()
        if parts.page:
            text = parts.page(table, study)
        else:
            assert parts.as_text, "a conclusion has a page or a table"
            text = display.to_markdown(parts.as_text(table))
        if parts.add_warnings:
            return parts.add_warnings(text, warnings)
        return display.insert_warnings(text, [warning.text for warning in warnings])


def _load_headline() -> ConclusionFunctions:
    """Import the module `headline` late and return its functions."""
    from tfscaling.conclusions import headline

    return ConclusionFunctions(
        headline.COLUMNS, headline.table, page=headline.page, add_warnings=headline.add_warnings
    )


def _load_decision() -> ConclusionFunctions:
    """Import the module `decision` late and return its functions."""
    from tfscaling.conclusions import decision

    return ConclusionFunctions(decision.COLUMNS, decision.table, page=decision.page)


def _load_findings() -> ConclusionFunctions:
    """Import the module `findings` late and return its functions."""
    from tfscaling.conclusions import findings

    return ConclusionFunctions(findings.COLUMNS, findings.table, page=findings.page)


def _load_search() -> ConclusionFunctions:
    """Import the module `search_results` late and return its functions."""
    from tfscaling.conclusions import search_results

    return ConclusionFunctions(
        search_results.COLUMNS,
        search_results.table,
        as_text=search_results.as_text,
        page=search_results.page,
    )


def _load_next_steps() -> ConclusionFunctions:
    """Import the module `next_steps` late and return its functions."""
    from tfscaling.conclusions import next_steps

    return ConclusionFunctions(next_steps.COLUMNS, next_steps.table, page=next_steps.page)


def _load_regressions() -> ConclusionFunctions:
    """Import the module `regressions` late and return its functions."""
    from tfscaling.conclusions import regressions

    return ConclusionFunctions(regressions.COLUMNS, regressions.table, as_text=regressions.as_text)


def _load_clouds() -> ConclusionFunctions:
    """Import the module `clouds` late and return its functions."""
    from tfscaling.conclusions import clouds

    return ConclusionFunctions(clouds.COLUMNS, clouds.table, as_text=clouds.as_text)


def _load_published() -> ConclusionFunctions:
    """Import the module `published_values` late and return its functions."""
    from tfscaling.conclusions import published_values

    return ConclusionFunctions(
        published_values.COLUMNS, published_values.table, as_text=published_values.as_text
    )


def _load_forecast() -> ConclusionFunctions:
    """Import the module `forecast` late and return its functions."""
    from tfscaling.conclusions import forecast

    return ConclusionFunctions(forecast.COLUMNS, forecast.table, as_text=forecast.as_text)


def _load_projection() -> ConclusionFunctions:
    """Import the module `projection` late and return its functions."""
    from tfscaling.conclusions import projection

    return ConclusionFunctions(projection.COLUMNS, projection.table, as_text=projection.as_text)


def _load_campaign() -> ConclusionFunctions:
    """Import the module `campaign` late and return its functions."""
    from tfscaling.conclusions import campaign

    return ConclusionFunctions(campaign.COLUMNS, campaign.table, as_text=campaign.as_text)


def _load_attribution() -> ConclusionFunctions:
    """Import the module `bottlenecks` late and return its functions."""
    from tfscaling.conclusions import bottlenecks

    return ConclusionFunctions(bottlenecks.COLUMNS, bottlenecks.table, as_text=bottlenecks.as_text)


def _load_nodes() -> ConclusionFunctions:
    """Import the module `nodes` late and return its functions."""
    from tfscaling.conclusions import nodes

    return ConclusionFunctions(nodes.COLUMNS, nodes.table, as_text=nodes.as_text)


#: Name → conclusion, in the order of the page.
CONCLUSIONS: dict[str, Conclusion] = {
    "headline": Conclusion(
        "Headline",
        "The answer in one sentence, and how sure it is.",
        _load_headline,
    ),
    "decision": Conclusion(
        "Recommendation",
        "Which configuration to take for time, cost and quality, where it is shown to be within "
        "the indifference of the best; else the best estimate and how far it may be from the best.",
        _load_decision,
    ),
    "findings": Conclusion(
        "Findings",
        "What the comparison shows, sentence by sentence, and how far the runs support it.",
        _load_findings,
    ),
    "search": Conclusion(
        "The search",
        "Which configurations were eliminated in which round, by what margin and at what cost.",
        _load_search,
    ),
    "next_steps": Conclusion(
        "What to do next",
        "What would make the answer surer or more complete, and what it takes.",
        _load_next_steps,
    ),
    "regressions": Conclusion(
        "Compared with a reference",
        "Every configuration against the same one in the study that `compare_with` names, or in "
        "the first of `compare_revisions`: slower, faster, the same within the indifference, "
        "undecided, lost or failing.",
        _load_regressions,
    ),
    "clouds": Conclusion(
        "Clouds: the same configuration on two clouds",
        "The cloud with the better median, how many times worse the other one is, and whether the "
        "interval supports that.",
        _load_clouds,
    ),
    "published": Conclusion(
        "Published against measured",
        "Time of the same configuration with the same training; loss and accuracy of all runs of "
        "the same training, on any platform.",
        _load_published,
    ),
    "forecast": Conclusion(
        "Forecast of configurations that were not run",
        "The time on the numbers of nodes that `forecast` names, with the error on configurations "
        "left out, refused where that is too large. Never part of a decision.",
        _load_forecast,
    ),
    "projection": Conclusion(
        "Projected from short runs",
        "Time, node-hours and cost of whole trainings, projected from runs that `stop_after_steps` "
        "ended; and what a run of the whole took, where one was made.",
        _load_projection,
    ),
    "campaign": Conclusion(
        "When all trainings are done",
        "Date, node-hours and cost of all trainings that `question.campaign` describes, for each "
        "configuration with enough runs.",
        _load_campaign,
    ),
    "attribution": Conclusion(
        "Bottleneck analysis",
        "Input, computation, waiting for slower ranks and communication in a step; start, steps "
        "and evaluations in the wall time.",
        _load_attribution,
    ),
    "nodes": Conclusion(
        "Nodes",
        "How many times as long runs take with each node, where runs of a configuration had "
        "different nodes.",
        _load_nodes,
    ),
}


def tables(study: Study) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the table of every conclusion."""
    for name, conclusion in CONCLUSIONS.items():
        yield name, conclusion.table(study)
