"""Scaling evidence for an application for compute time.

INPUTS   config.json, manifest.json, the tables
OUTPUTS  proposal/proposal.md with its plots as PNG; with pandoc also proposal.tex and proposal.docx
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median

import pandas as pd

from tfscaling.conclusions import rendering
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.campaign import CampaignRow
from tfscaling.conclusions.evidence import Study, group_by_task, task_name
from tfscaling.estimation.campaigns import LEVEL
from tfscaling.estimation.samples import NOT_COMPARED, SUPPORTED
from tfscaling.files import atomic
from tfscaling.page.plot_figure import Tables, hidden_artists
from tfscaling.page.plot_registry import PLOTS
from tfscaling.record.run_states import RunState
from tfscaling.stages import write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study.config_types import PROGRAM_STRATEGY, TASK_AXES, Comparison, Config
from tfscaling.study.run_spec import Point
from tfscaling.tables import display, timings
from tfscaling.tables.data_warnings import SERIOUS, read_warnings
from tfscaling.tables.display import (
    Markdown,
    TextTable,
    count_text,
    format_cell,
    format_value,
    measured_time_text,
    point_name,
    varying_axes,
)
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, is_projected, point_of

#: Column of the table → its heading.
COLUMNS = {
    "nodes": "nodes",
    "gpus_per_node": "GPUs per node",
    "runs": "runs",
    "execution_time_s": "time (s)",
    "speedup": "speed-up",
    "scaling_efficiency": "efficiency",
    "weak_scaling_efficiency": "weak efficiency",
    "node_hours": "node-hours",
    "core_hours": "core-hours",
    "gpu_hours": "GPU-hours",
}
#: Columns that the table has only if a configuration has a value above zero.
IF_KNOWN = ("weak_scaling_efficiency", "core_hours", "gpu_hours")
#: Metrics that have a plot.
PLOTTED = ("speedup", "scaling_efficiency", "weak_scaling_efficiency")
#: Formats to which pandoc converts the Markdown file.
FORMATS = ("tex", "docx")
#: Fact of the runs → its name in the section on software and machines.
FACTS = {
    "cpu_model": "processor",
    "gpus": "GPUs",
    "memory_gb": "memory of a node (GB)",
    "python": "Python",
    "git_commit": "tfscaling at commit",
    "dataset": "data",
}


@dataclass(frozen=True)
class ComputeTimeRequest:
    """The compute time to request for one training task, at the recommended configuration.

    With simulated campaigns, it is the upper end of the interval of their node-hours, with the
    margin: 95 % of the campaigns need less, and the margin is for tests. The median of a training,
    times the number of trainings, would lack work that is repeated after time limits,
    interruptions and failures.

    Attributes:
        name: Model, recipe and configuration.
        so_far: How far the choice of the configuration is supported, such as `fastest so far` or
            `not compared with any other`; "" if it is supported completely.
        time_s: Wall time of a training in seconds, with evaluations and checkpoints; NaN if no run
            has a time that counts.
        is_projected: Whether the time is projected from short runs.
        nodes: Number of nodes.
        trainings: Number of trainings.
        margin: Fraction that is added to the node-hours.
        record: Source of `time_s`: Markdown link to the folder with the configuration's records,
            or name of the file of timings that was imported.
        cores: Cores of a node; NaN if unknown.
        gpus: GPUs of a node.
        campaign: Date and node-hours of all trainings; None without `question.campaign`.
        wide_job: The warning that the job of a training is wide and short; "" otherwise.
    """

    name: str
    so_far: str
    time_s: float
    is_projected: bool
    nodes: int
    trainings: int
    margin: float
    record: str
    cores: float = math.nan
    gpus: float = 0.0
    campaign: CampaignRow | None = None
    wide_job: str = ""

    @property
    def is_simulated(self) -> bool:
        """Whether the node-hours follow from simulated campaigns."""
        return self.campaign is not None and self.campaign.is_simulated

    @property
    def node_hours_each(self) -> float:
        """Node-hours of one training."""
        return self.nodes * self.time_s / 3600

    @property
    def node_hours(self) -> float:
        """Node-hours of all trainings, with the margin; NaN if trainings may never end."""
        if self.campaign is not None and self.campaign.is_simulated:
            return self.campaign.node_hours_high * (1 + self.margin)
        return self.node_hours_each * self.trainings * (1 + self.margin)

    @property
    def refusal(self) -> str:
        """Why no node-hours can be requested; "" if they can."""
        if self.campaign is None or is_known(self.node_hours):
            return ""
        share = f"more than {(1 - LEVEL) / 2:.0%} of the simulated campaigns"
        return self.campaign.reason or f"in {share} a training never ends"

    @property
    def shares(self) -> str:
        """Core-hours and GPU-hours of all trainings as text: `640 core-hours, 40 GPU-hours`."""
        each = {"core-hours": self.cores, "GPU-hours": self.gpus}
        return ", ".join(
            f"{four_digits(number * self.node_hours)} {name}"
            for name, number in each.items()
            if number > 0
        )


def four_digits(amount: float) -> str:
    """Format hours or seconds with four digits, from 9999.5 on without decimals: 1.667, 92160."""
    return f"{amount:.4g}" if amount < 9999.5 else f"{amount:.0f}"


def run(study: StudyFolder) -> None:
    """Write the proposal with its plots and print the paths.

    Raises:
        SystemExit: No run has an execution time.
    """
    comparison, folder = study.read_table("comparison"), study.folder / "proposal"
    evidence = write_tables.load_evidence(study)
    warnings = read_warnings(study.details / "warnings.json")
    measured = [row for row in evidence.points if is_known(row.execution_time_s)]
    if not measured:
        raise SystemExit("no run has a time yet: there is no scaling to report")
    folder.mkdir(exist_ok=True)
    plots = [name for name in PLOTTED if PLOTS[name].is_measured(comparison)]
    tables = Tables(comparison, study.read_table("epochs"), study.read_table("published"))
    for name in plots:
        figure = PLOTS[name].draw(tables, PLOTS[name].title)
        for artist in chain(*hidden_artists(figure).values()):
            artist.set_visible(False)
        with atomic.replacement(folder / f"{name}.png") as temporary:
            # both plots side by side
            figure.savefig(temporary, format="png", dpi=200, pil_kwargs={"dpi": (360, 360)})
    text = rendering.render(
        "proposal",
        title=_title(study.config),
        measured_time=" or ".join(sorted({measured_time_text(row) for row in measured})),
        imported_from=_imported_from(evidence),
        series=list(_scaling_tables(measured, _imported_from(evidence))),
        left_out=sorted({row.status for row in evidence.points} - {"ok"}),
        times=_describe_repeats(measured),
        baseline=study.config.comparison.baseline.axes,
        has_projected=any(map(is_projected, measured)),
        requests=list(make_requests(evidence, study.config)),
        four_digits=four_digits,
        level=f"{LEVEL:.0%}",
        facts=dict(_environment_facts(study.read_grid_runs())),
        plots={name: PLOTS[name].title for name in plots},
        warnings=[warning.text for warning in warnings if warning.severity == SERIOUS],
    )
    page = folder / "proposal.md"
    atomic.write_text(page, text + "\n")
    print(page)
    for path in _convert_page(page):
        print(path)


def _title(config: Config) -> str:
    """Return the comparison's title, or the name of the study if it has none."""
    title = config.comparison.title
    return config.study if title == Comparison().title else title


def _describe_repeats(rows: Sequence[PointRow]) -> str:
    """Return how often each configuration was trained: `once`, `6 times` or `3 to 6 times`."""
    least, most = (end(row.runs for row in rows) for end in (min, max))
    if most == 1:
        return "once"
    return count_text(most, "time") if least == most else f"{least} to {most} times"


def _imported_from(study: Study) -> str:
    """Return the file of timings that the runs are from; "" if they were measured here."""
    return timings.imported_from(study.runs)


def _scaling_tables(rows: Sequence[PointRow], imported_from: str) -> Iterator[str]:
    """Yield a Markdown table for each platform and training: its configurations by nodes.

    Args:
        rows: The configurations.
        imported_from: The file that has their times, or ""; with a file, the table names no
            records.
    """
    axes = ("platform", "model", "strategy", "recipe")
    for points in group_by_task(rows, axes).values():
        title = task_name(points[0], axes)
        ordered = sorted(points, key=lambda row: (row.gpus_per_node, row.nodes))
        names = [n for n in COLUMNS if n not in IF_KNOWN or any(row[n] > 0 for row in points)]
        links = [[] if imported_from else [_records_link(point_of(row))] for row in ordered]
        cells = [
            [*(_cell(name, row) for name in names), *link]
            for row, link in zip(ordered, links, strict=True)
        ]
        columns = [*map(COLUMNS.__getitem__, names), *["records"] * (not imported_from)]
        yield display.to_markdown(TextTable.from_rows(title, columns, cells), level=3)


def _cell(name: str, row: PointRow) -> str:
    """Return a value of a configuration as text; hours are for one run without failed attempts.

    Args:
        name: Column of the table.
        row: The configuration.
    """
    if not name.endswith("_hours"):
        return format_cell(name, row)
    return format_value(
        row.nodes * row.execution_time_s / 3600 * _hours_per_node_hour(row, name), None
    )


def _hours_per_node_hour(row: PointRow, column: str) -> float:
    """Return the core_hours or gpu_hours (`column`) per node-hour; NaN without node-hours."""
    return float(row[column] / row.node_hours) if row.node_hours else math.nan


def _records_link(point: Point) -> Markdown:
    """Return a Markdown link to the folder of a configuration's records."""
    return Markdown(f"[records](../../runs/{point.path})")


def make_requests(study: Study, config: Config) -> Iterator[ComputeTimeRequest]:
    """Yield a request for each question whose answer names a configuration.

    Args:
        study: The evidence of the study.
        config: The configuration, with numbers of trainings and the margin.
    """
    vary = [axis for axis in varying_axes(study.points) if axis not in TASK_AXES]
    for found in answer_questions(study):
        if found.leader is None:
            continue
        row = found.leader.row
        yield ComputeTimeRequest(
            f"{row.model}, {row.recipe} on {point_name(row, vary)}",
            _describe_open_choice(found),
            _wall_time_s(study, row),
            is_projected(row),
            row.nodes,
            config.question.campaign_trainings,
            config.proposal.margin,
            _imported_from(study) or _records_link(point_of(row)),
            _hours_per_node_hour(row, "core_hours"),
            _hours_per_node_hour(row, "gpu_hours"),
            found.campaign,
            str(found.wide_job or ""),
        )


def _describe_open_choice(answer: Answer) -> str:
    """Return how far an answer is supported, such as `fastest so far`; "" if completely."""
    if answer.support == SUPPORTED:
        return ""
    if answer.support == NOT_COMPARED:
        return "not compared with any other"
    return f"{answer.best_so_far[0].lower()}{answer.best_so_far[1:]}"


def _wall_time_s(study: Study, row: PointRow) -> float:
    """Return the seconds for which a training occupies its nodes: the median over the valid runs.

    The time in which processes end is not included. If no run has a wall time, or if the time is
    projected from short runs, it is the execution time plus the evaluation time. It is NaN if no
    run has a time that counts.

    Args:
        study: The evidence of the study.
        row: The configuration.
    """
    runs = [run for run in study.runs_by_point[point_of(row)] if run.status == RunState.OK]
    times_s = [
        run.wall_time_s - (run.teardown_time_s if is_known(run.teardown_time_s) else 0.0)
        for run in runs
        if is_known(run.execution_time_s) and is_known(run.wall_time_s)
    ]
    if times_s and not is_projected(row):
        return median(times_s)
    evaluation_s = row.evaluation_time_s if is_known(row.evaluation_time_s) else 0.0
    return row.execution_time_s + evaluation_s


def _environment_facts(runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield (name, values) of hardware, software and data of the valid runs.

    Values that differ between runs are joined: ("memory of a node (GB)", "256, 512").
    """
    valid = runs[runs["status"] == "ok"]
    # a program may not use what its environment has
    trained = runs["strategy"] != PROGRAM_STRATEGY
    packages = {
        name: name
        for name in ("tensorflow", "keras", "torch", "jax")
        if name in runs and (trained.any() or name in ("torch", "jax"))
    }
    for column, name in {**FACTS, **packages}.items():
        values = sorted({str(value) for value in valid[column].dropna()})
        if values:
            yield name, ", ".join(values)


def _convert_page(page: Path) -> list[Path]:
    """Convert a Markdown file by pandoc to FORMATS; return the new files, [] without pandoc."""
    if shutil.which("pandoc") is None:
        print("With pandoc in PATH (pip install pypandoc_binary) this also writes .tex and .docx.")
        return []
    made = [page.with_suffix(f".{name}") for name in FORMATS]
    for path in made:
        # a table with lines longer than the columns would be stretched, by the lengths of its links
        command = ["pandoc", page.name, "--standalone", "--columns=10000", "--output", path.name]
        subprocess.run(command, cwd=page.parent, check=True)
    return made
