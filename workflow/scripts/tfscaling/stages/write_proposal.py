"""Scaling evidence for an application for compute time.

INPUTS   config.json, manifest.json, the tables and the decision
OUTPUTS  proposal/proposal.md with its plots as PNG; with pandoc also proposal.tex and proposal.docx
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd

from tfscaling.conclusions import shown
from tfscaling.conclusions.decision import DecisionRow
from tfscaling.conclusions.evidence import work_name, works_of
from tfscaling.files import atomic
from tfscaling.page.plot_figure import Tables, lines_hidden
from tfscaling.page.plot_registry import PLOTS
from tfscaling.spec.config import POINT_AXES, Config
from tfscaling.spec.run_spec import Point
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import display
from tfscaling.tables.display import TextTable, cell, point_name, rounded
from tfscaling.tables.estimates import SUPPORTED
from tfscaling.tables.table_rows import Row, is_known, point_of, rows_of, typed

#: Columns of the table, each with its heading.
COLUMNS = {
    "nodes": "nodes",
    "gpus_per_node": "GPUs per node",
    "runs": "runs",
    "execution_time_s": "time (s)",
    "speedup": "speed-up",
    "scaling_efficiency": "efficiency",
}
PLOTTED = ("speedup", "scaling_efficiency")
#: What pandoc makes of the Markdown file.
FORMATS = ("tex", "docx")
#: Facts of the runs that the section on software and machines lists, with their names.
FACTS = {
    "cpu_model": "processor",
    "gpus": "GPUs",
    "memory_gb": "memory of a node (GB)",
    "python": "Python",
    "git_commit": "tfscaling at commit",
    "dataset": "data",
}


@dataclass(frozen=True)
class Request:
    """The node-hours for one training task, at the configuration that the runs recommend."""

    name: str
    is_supported: bool
    time_s: float
    is_projected: bool
    nodes: int
    trainings: int
    margin: float
    record: str

    @property
    def node_hours_each(self) -> float:
        return self.nodes * self.time_s / 3600

    @property
    def node_hours(self) -> float:
        return self.node_hours_each * self.trainings * (1 + self.margin)


def run(study: StudyFolder) -> None:
    """Write the proposal. Raises SystemExit if nothing was measured."""
    comparison, folder = study.read("comparison"), study.folder / "proposal"
    measured = [row for row in rows_of(comparison) if is_known(row["execution_time_s"])]
    if not measured:
        raise SystemExit("no run has a time yet: there is no scaling to report")
    folder.mkdir(exist_ok=True)
    plots = [name for name in PLOTTED if PLOTS[name].is_measured(comparison)]
    tables = Tables(comparison, study.read("epochs"), study.read("published"))
    for name in plots:
        figure = PLOTS[name].draw(tables, PLOTS[name].title)
        for artist in chain(*lines_hidden(figure).values()):
            artist.set_visible(False)
        with atomic.whole(folder / f"{name}.png") as temporary:
            # both plots side by side
            figure.savefig(temporary, format="png", dpi=200, pil_kwargs={"dpi": (360, 360)})
    chosen = typed(DecisionRow, study.read("decision"))
    text = shown.render(
        "proposal",
        title=study.config.comparison.title,
        series=list(_series(measured)),
        left_out=sorted({row["status"] for row in rows_of(comparison)} - {"ok"}),
        requests=list(_requests(measured, chosen, study.config)),
        facts=dict(_facts(study.read("runs"))),
        plots={name: PLOTS[name].title for name in plots},
    )
    page = folder / "proposal.md"
    atomic.write_text(page, text + "\n")
    print(page)
    for path in _converted(page):
        print(path)


def _series(rows: Sequence[Row]) -> Iterator[str]:
    """The configurations of each platform and training, by their number of nodes, as a table."""
    for title, points in works_of(rows, ("platform", "model", "strategy", "recipe")).items():
        ordered = sorted(points, key=lambda row: (row["gpus_per_node"], row["nodes"]))
        cells = [
            [
                *(cell(name, row) for name in COLUMNS),
                rounded(row["nodes"] * row["execution_time_s"] / 3600, None),
                _link(point_of(row)),
            ]
            for row in ordered
        ]
        columns = [*COLUMNS.values(), "node-hours", "records"]
        yield display.markdown(TextTable.of(title, columns, cells), level=3)


def _link(point: Point) -> str:
    return f"[records](../../runs/{point.path})"


def _requests(
    rows: Sequence[Row], chosen: Sequence[DecisionRow], config: Config
) -> Iterator[Request]:
    """One request per question: for the choice by its goal, or else the fastest so far."""
    for work, points in works_of(rows, config.question.separate).items():
        asked = (each for each in chosen if (each.work, each.goal) == (work, config.question.goal))
        choice = next((each for each in asked if each.platform), None)
        best = min(points, key=lambda row: row["execution_time_s"])
        if choice is not None:
            axes = [getattr(choice, axis) for axis in POINT_AXES]
            best = next((row for row in points if axes == [row[n] for n in POINT_AXES]), best)
        yield Request(
            f"{work_name(best)} on {point_name(best)}",
            choice is not None and choice.support == SUPPORTED,
            best["execution_time_s"],
            is_known(best["projected_from_steps"]),
            best["nodes"],
            config.proposal.trainings,
            config.proposal.margin,
            _link(point_of(best)),
        )


def _facts(runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """What the valid runs have in common, or each of their values."""
    valid = runs[runs["status"] == "ok"]
    packages = {name: name for name in ("tensorflow", "keras", "torch", "jax") if name in runs}
    for column, name in {**FACTS, **packages}.items():
        values = sorted({str(value) for value in valid[column].dropna()})
        if values:
            yield name, ", ".join(values)


def _converted(page: Path) -> list[Path]:
    """The files that pandoc has made; none without pandoc, which is then named."""
    if shutil.which("pandoc") is None:
        print("With pandoc in PATH (pip install pypandoc_binary) this also writes .tex and .docx.")
        return []
    made = [page.with_suffix(f".{name}") for name in FORMATS]
    for path in made:
        # a table with lines longer than the columns would be stretched, by the lengths of its links
        command = ["pandoc", page.name, "--standalone", "--columns=10000", "--output", path.name]
        subprocess.run(command, cwd=page.parent, check=True)
    return made
