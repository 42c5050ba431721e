"""The lines of a dry-run: the runs to do by configuration, what they request, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfscaling.console import text_lines
from tfscaling.study import platforms
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.study.run_spec import RunSpec

#: Highest number of rows in the table; and the option with which Snakemake lists each job.
ROWS_MAX, ALL = 60, "--printshellcmds"
#: Longest description of a changed parameter in a row, in characters.
_WHY_MAX = 72
#: Reasons for runs that differ from no record.
_NEW, _DATA = "new", "its data is prepared again"
#: Follows the reason of a run that `explain` adds.
_EXPLAINS = "to explain steps"


@dataclass(frozen=True)
class DryRun:
    """The jobs of a dry-run, as Snakemake's log describes them, and the lines about them.

    Args:
        config: The configuration.
        manifest: All planned runs.
        runs: File of a run's record → the planned run.
        runs_dir: The folder of all runs.
        why_repeated: Returns why a run, given by its folder, is repeated although it has a record;
            "" if it is not.
        change_of: Returns how a run differs from the most similar record; "" without one.
    """

    config: Config
    manifest: Manifest
    runs: Mapping[str, PlannedRun]
    runs_dir: Path
    why_repeated: Callable[[str], str]
    change_of: Callable[[RunSpec], str]

    def lines(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what a dry-run prints about its jobs: a table of the runs to do, and their cost.

        Args:
            jobs: For each job, the fields of its record in Snakemake's log.
        """
        due: list[tuple[PlannedRun, str]] = []
        others: dict[str, int] = {}
        may_follow = False
        for job in jobs:
            outputs = [str(file) for file in job["output"]]
            if outputs and (run := self.runs.get(outputs[0])):
                why = self._reason_to_run(run.spec, str(job["reason"]))
                due.append((run, f"{why}, {_EXPLAINS}" if run.explains else why))
            else:
                others[job["rule_name"]] = others.get(job["rule_name"], 0) + 1
                may_follow |= bool(job["is_checkpoint"])
        number = text_lines.count_text(len(due), "run")
        lines = [f"study {self.config.study}: {number} to do"]
        if due:
            lines += [*self._make_table(due), *self._estimate_lines([run for run, _ in due])]
        if may_follow:
            lines.append("Further runs may follow: rounds decide about them.")
        if others:
            names = (f"{name} ({n} jobs)" if n > 1 else name for name, n in others.items())
            lines.append(f"Other jobs: {', '.join(names)}.")
        return lines

    def _reason_to_run(self, spec: RunSpec, reason: str) -> str:
        """Return why a run is due: what is new about it, or why it is repeated.

        Args:
            spec: The run.
            reason: Snakemake's reason for the job.
        """
        if why := self.why_repeated(spec.path):
            return why
        if change := self.change_of(spec):
            return change if len(change) <= _WHY_MAX else f"{change[:_WHY_MAX]}…"
        return _DATA if reason.startswith("Updated input") else _NEW

    def _make_table(self, due: Sequence[tuple[PlannedRun, str]]) -> list[str]:
        """Return a table of configurations as lines, after a line about values that all share.

        Args:
            due: Each run to do, with the reason.
        """
        groups: dict[tuple[object, str], list[PlannedRun]] = {}
        for run, why in due:
            groups.setdefault((run.spec.point, why), []).append(run)
        rows = [self._make_row(runs, why) for (_, why), runs in groups.items()]
        names = [*rows[0]]
        fixed = [
            name
            for name in names
            if name not in ("runs", "repeats", "nodes") and len({row[name] for row in rows}) == 1
        ]
        same = [f"{name} {rows[0][name]}" for name in fixed if rows[0][name]]
        shown = [name for name in names if name not in fixed]
        rows.sort(key=lambda row: [(int(t), "") if t.isdigit() else (0, t) for t in row.values()])
        lines = text_lines.align_table(shown, [[row[n] for n in shown] for row in rows[:ROWS_MAX]])
        if left := rows[ROWS_MAX:]:
            more = text_lines.count_text(len(left), "more configuration")
            runs = text_lines.count_text(sum(int(row["runs"]) for row in left), "run")
            lines.append(f"and {more} with {runs}: {ALL} lists all jobs")
        return [f"All: {', '.join(same)}.", *lines] if same else lines

    def _make_row(self, runs: Sequence[PlannedRun], why: str) -> dict[str, str]:
        """Return column → text for the table's row of one configuration.

        Args:
            runs: The runs of the configuration that are due.
            why: Why they are due.
        """
        spec = runs[0].spec
        platform, shape = self.config.platforms[spec.point.platform], spec.geometry
        is_here, is_logical = platform.launcher == "local", platform.devices == platforms.LOGICAL
        axes = {axis: str(value) for axis, value in spec.point.axes.items()}
        return {
            **{axis: axes[axis] for axis in ("platform", "model", "strategy", "recipe")},
            "nodes": axes["nodes"],
            "gpus_per_node": axes["gpus_per_node"],
            "tasks_per_node": axes["tasks_per_node"],
            "tasks": str(shape.tasks),
            "GPUs": f"{shape.gpus} logical" if is_logical and shape.gpus else str(shape.gpus),
            "partition": "" if is_here else platform.partition or "default",
            "account": "" if is_here else platform.account or "default",
            "limit": f"{platform.runtime_min} min",
            "runs": str(len(runs)),
            "repeats": _join_spans(run.spec.repeat for run in runs),
            "reason": why,
        }

    def _estimate_lines(self, due: Sequence[PlannedRun]) -> list[str]:
        """Return [line with node-hours and cost of these runs, as in the plan]."""
        from tfscaling.plan import costed_plan, run_durations  # loads pandas

        rows = costed_plan.cost_runs(self.config, self.manifest, due, self.runs_dir)
        total = costed_plan.sum_rows(rows)
        money = f"${total.cost_usd:,.2f}"
        if total.unpriced:
            known = f"{money} + " if total.cost_usd else "cost "
            money = f"{known}unknown (no price of {', '.join(total.unpriced)})"
        line = f"Estimate: {text_lines.format_node_hours(total.node_hours)}, {money}"
        if any(row.duration_from == run_durations.TIME_LIMIT for row in rows):
            line += "; runs of configurations without a measurement count with their time limit"
        return [f"{line}."]


def _join_spans(numbers: Iterable[int]) -> str:
    """Return numbers in short: `1-3,6` for 1, 2, 3 and 6."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
