"""Expected times of runs, from the records of runs of the same configuration.

The costed plan and the search's costs use them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tfscaling.record import run_record, step_estimates
from tfscaling.record.run_record import RunRecord
from tfscaling.study import variants
from tfscaling.study.config_types import AUTO, Config
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.run_spec import Point, RunSpec
from tfscaling.tables.display import count_text

#: `duration_from` of runs whose configuration has no measured run: the time limit is taken.
TIME_LIMIT = "time limit"


class DurationEstimate(NamedTuple):
    """The expected time of a run.

    Attributes:
        duration_s: The time in seconds.
        source: How it was found, in words: "measured, 3 runs", "projected, 2 short runs", or
            TIME_LIMIT.
    """

    duration_s: float
    source: str


class RunDurations:
    """The estimated durations of the runs of a study.

    Args:
        config: The configuration.
        planned: All planned runs.
        runs_dir: The folder of all runs.
    """

    def __init__(self, config: Config, planned: Sequence[PlannedRun], runs_dir: Path) -> None:
        self._config, self._runs_dir = config, runs_dir
        self._specs: dict[Point, RunSpec] = {}
        for run in planned:
            self._specs.setdefault(run.spec.point, run.spec)
        short_of = variants.complete_runs_by_point(planned)
        self._shorts = {spec.point: self._specs[short] for short, spec in short_of.items()}
        self._estimates: dict[Point, DurationEstimate] = {}

    def estimate(self, point: Point) -> DurationEstimate:
        """Estimate how long a run of a configuration takes.

        The estimate is the median over the configuration's valid runs. Without valid runs it is
        projected from the configuration's short runs. Without short runs, too, it is the time limit
        of a run, which is an upper bound.

        Other configurations are not used: start and compilation take equally long with fewer
        epochs, and the time of a step depends on nodes and batch, as this workflow measures.
        """
        if point not in self._estimates:
            self._estimates[point] = self._estimate(point)
        return self._estimates[point]

    def _estimate(self, point: Point) -> DurationEstimate:
        """Return the estimate as in `estimate`, without the cache of earlier estimates."""
        spec, short = self._specs[point], self._shorts.get(point)
        if made := list(find_valid_records(spec, self._runs_dir)):
            source = f"measured, {count_text(len(made), 'run')}"
            steps = [each.short_run.steps for each in made if each.short_run]
            if spec.recipe.stop_after_steps == AUTO and steps:
                source += f" of up to {max(steps):,} steps"
            return DurationEstimate(
                statistics.median(each.phases.wall_time_s for each in made), source
            )
        records = find_valid_records(short, self._runs_dir) if short else ()
        shorts = (
            step_estimates.treat_as_short_run(record, spec.recipe.epochs) for record in records
        )
        projected = map(step_estimates.project_training, shorts)
        if times_s := [whole.phases.wall_time_s for whole in projected if whole is not None]:
            number = count_text(len(times_s), "short run")
            return DurationEstimate(statistics.median(times_s), f"projected, {number}")
        return DurationEstimate(
            60.0 * self._config.platforms[point.platform].runtime_min, TIME_LIMIT
        )


def find_valid_records(spec: RunSpec, runs_dir: Path) -> Iterator[RunRecord]:
    """Yield the valid records of a planned run's configuration, with any seed."""
    requested = {**spec.parameters, "seed": None}
    for path in sorted((runs_dir / spec.point.path).glob(f"repeat=*/*/{run_record.RECORD}")):
        try:
            record = run_record.read_record(path)
        except run_record.RecordError:
            continue
        if record is None or not record.is_valid or record.axes.point != spec.point:
            continue
        # the last attempt of a resumed run trained only a part
        if record.resumed is None and {**record.parameters, "seed": None} == requested:
            yield record
