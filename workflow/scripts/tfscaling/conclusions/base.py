"""Every conclusion that is drawn from a study: its table, its page, its section in the report.

A new table, finding or section of the report is one entry here and one function. The outputs of
rule `analyse`, the tables of `partial` and the tables of the report follow from the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfscaling.files.late_import import LateModule

if TYPE_CHECKING:
    import pandas as pd

    from tfscaling.conclusions import (
        clouds,
        communication,
        decision,
        decision_page,
        findings,
        forecast,
        headline,
        methodology,
        next_steps,
        projection,
        scaling_laws,
        search_results,
        two_sweeps,
        what_holds_back,
    )
    from tfscaling.conclusions.evidence import Study
    from tfscaling.tables import formats, published
    from tfscaling.tables.data_warnings import DataWarning
    from tfscaling.tables.display import TextTable
else:
    clouds = LateModule("tfscaling.conclusions.clouds")
    communication = LateModule("tfscaling.conclusions.communication")
    decision = LateModule("tfscaling.conclusions.decision")
    decision_page = LateModule("tfscaling.conclusions.decision_page")
    findings = LateModule("tfscaling.conclusions.findings")
    forecast = LateModule("tfscaling.conclusions.forecast")
    headline = LateModule("tfscaling.conclusions.headline")
    methodology = LateModule("tfscaling.conclusions.methodology")
    next_steps = LateModule("tfscaling.conclusions.next_steps")
    projection = LateModule("tfscaling.conclusions.projection")
    scaling_laws = LateModule("tfscaling.conclusions.scaling_laws")
    search_results = LateModule("tfscaling.conclusions.search_results")
    two_sweeps = LateModule("tfscaling.conclusions.two_sweeps")
    what_holds_back = LateModule("tfscaling.conclusions.what_holds_back")
    formats = LateModule("tfscaling.tables.formats")
    published = LateModule("tfscaling.tables.published")


@dataclass(frozen=True)
class Conclusion:
    """One conclusion, by its name in CONCLUSIONS: files <name>.csv and <name>.md.

    `title` heads its page; `caption` says in a few sentences what it shows, and `category` is
    its category in Snakemake's own report. `make` takes the study and the tables of the conclusions
    named in `uses`. `text` is the page in Markdown, a heading first, without the warnings;
    `with_warnings` adds them. `shown` is the table of the report, or None if the report has no
    table of it.
    """

    title: str
    caption: str
    make: Callable[..., pd.DataFrame]
    text: Callable[[pd.DataFrame, Study], str]
    shown: Callable[[pd.DataFrame], TextTable] | None = None
    uses: tuple[str, ...] = ()
    category: str = "Tables"
    with_warnings: Callable[[str, Sequence[DataWarning]], str] = lambda text, warnings: (
        formats.with_warnings(text, warnings)
    )


def _joined(title: str, tables: Sequence[TextTable], *paragraphs: str) -> str:
    """A page of several tables below one heading."""
    return "\n".join([f"# {title}\n", *(formats.markdown(t, 2) for t in tables), *paragraphs])


def _clouds_text(table: pd.DataFrame, study: Study) -> str:
    pairs = clouds.text_tables(table)
    notes = [f"- {note}" for note in clouds.notes(table, study)]
    return _joined(
        "Clouds against each other", pairs, *(notes if pairs else ["No two clouds to compare."])
    )


def _findings_text(table: pd.DataFrame, study: Study) -> str:
    from tfscaling.conclusions.findings import TOPICS

    topics = [topic for topic in TOPICS if topic in set(table["topic"])]
    return _joined("Findings", [findings.as_text(table, topic) for topic in topics])


#: Every conclusion by its name, in the order of the report.
CONCLUSIONS: dict[str, Conclusion] = {
    "headline": Conclusion(
        "Headline",
        "The answer in one sentence, and how sure it is: plain text.",
        headline.table,
        headline.text,
        category="Findings",
        with_warnings=headline.with_warnings,
    ),
    "decision": Conclusion(
        "Which point to take",
        "Which point to take for the shortest time, the lowest cost and the best quality, which "
        "is the test accuracy unless the recipe names another metric: only "
        "where it is shown to be within the indifference of the best, else the best estimate and "
        "how far it may be from the best.",
        lambda study: decision.table(decision.decide(study)),
        decision_page.markdown,
        category="Findings",
    ),
    "findings": Conclusion(
        "Findings",
        "What the comparison says, sentence by sentence, and how far the runs support it: "
        "supported, inconclusive, or too few runs.",
        findings.find,
        _findings_text,
        uses=("clouds",),
        category="Findings",
    ),
    "search": Conclusion(
        "The search",
        "Who left the search in which round, by what margin and at what cost, where a search "
        "makes the runs; what its answer promises, and what it saved.",
        search_results.table,
        search_results.markdown,
        search_results.as_text,
        category="Findings",
    ),
    "next_steps": Conclusion(
        "What to do next",
        "What would make the answer surer or more complete, and what it takes.",
        next_steps.table,
        next_steps.text,
        uses=("decision",),
        category="Findings",
    ),
    "regressions": Conclusion(
        "Against another sweep",
        "Every point against the same point of the study that `compare_with` names: slower, "
        "faster, the same within the indifference, or cannot be told, for all points together; "
        "lost or failing, where runs fail now, and whether more runs fail at the others together; "
        "and in what the runs of the two were made otherwise.",
        two_sweeps.table,
        lambda table, _: formats.markdown(two_sweeps.as_text(table)),
        two_sweeps.as_text,
    ),
    "clouds": Conclusion(
        "Clouds: the same point on two clouds",
        "Platforms of different clouds at the same point: the cloud with the better median, how "
        "many times worse the other one is, and whether the interval supports that.",
        clouds.table,
        _clouds_text,
        clouds.page_table,
    ),
    "published": Conclusion(
        "Published against measured",
        "Every published point with the measured values: time of the same point with the same "
        "training; loss and accuracy of all runs of the same training, on any platform.",
        lambda study: published.table(
            study.published_results,
            study.comparison,
            study.runs,
            study.manifest,
            study.published_tolerance,
        ),
        lambda table, study: formats.markdown(published.as_text(table, study.published_tolerance)),
        published.page_table,
    ),
    "scaling": Conclusion(
        "Scaling laws",
        "Amdahl's law and the Universal Scalability Law fitted to every line of points that differ "
        "in the number of replicas only, with 95 % intervals. A law is refused, with the reason, "
        "where the points do not determine it or do not follow it; there are no statements "
        "outside the measured range.",
        scaling_laws.table,
        lambda table, _: formats.markdown(scaling_laws.as_text(table)),
        scaling_laws.as_text,
    ),
    "forecast": Conclusion(
        "Forecast of points that were not run",
        "The time on the numbers of nodes that `forecast` names, from start-up, computation and "
        "all-reduce as far as they were measured, beside Amdahl's law and the Universal "
        "Scalability Law: with the error on points left out, refused where that is too large. "
        "Never part of a decision.",
        forecast.table,
        lambda table, _: formats.markdown(forecast.as_text(table)),
        forecast.as_text,
    ),
    "projection": Conclusion(
        "Projected from short runs",
        "Time, node-hours and cost of whole trainings as they are projected from runs that "
        "`stop_after_steps` ended, with an interval for a run of the whole; and, where such a run "
        "was made, what it took.",
        projection.table,
        lambda table, _: formats.markdown(projection.as_text(table)),
        projection.as_text,
    ),
    "communication": Conclusion(
        "Communication",
        "Time of an all-reduce of the model's gradient, timed alone by the training's own strategy "
        "on the same nodes, with latency and bandwidth from a sweep of sizes; and the measured "
        "step compared with computation plus all-reduce. That bound is without overlap: a step "
        "below it overlaps communication with computation, a step above it waits, or does other "
        "work such as the update of the variables.",
        communication.table,
        lambda table, _: formats.markdown(communication.as_text(table)),
        communication.as_text,
    ),
    "all_reduce": Conclusion(
        "All-reduce by size",
        "Time of an all-reduce by its size and by what the replicas talk: gRPC, MPI or NCCL, "
        "timed alone on the same nodes; with how many times as fast as gRPC it is where both "
        "were timed.",
        communication.sizes_table,
        lambda table, _: formats.markdown(communication.sizes_text(table)),
        communication.sizes_text,
    ),
    "attribution": Conclusion(
        "What holds it back",
        "The parts of a step: input, computation, waiting for slower ranks and communication, from "
        "steps with and without real input and synchronisation, with the largest of "
        "them. Measured where the recipe has `attribution: true`.",
        what_holds_back.table,
        lambda table, _: formats.markdown(what_holds_back.as_text(table)),
        what_holds_back.as_text,
    ),
    "methodology": Conclusion(
        "Methodology",
        'The rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems" '
        "(SC15), and the rules of MLPerf Training that apply here, each checked on this data set, "
        "with the numbers that decide it.",
        methodology.rules,
        lambda table, _: formats.markdown(methodology.as_text(table)),
        methodology.as_text,
        uses=("communication",),
        category="Method",
    ),
}


def tables(study: Study) -> Iterator[tuple[str, pd.DataFrame]]:
    """(name, table) of every conclusion; each is made once, after those that it uses."""
    made: dict[str, pd.DataFrame] = {}

    def table_of(name: str) -> pd.DataFrame:
        if name not in made:
            conclusion = CONCLUSIONS[name]
            made[name] = conclusion.make(study, *map(table_of, conclusion.uses))
        return made[name]

    for name in CONCLUSIONS:
        yield name, table_of(name)
