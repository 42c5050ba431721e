"""How long a run that is still to do takes, by the run records that are there."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfscaling.record import run_record, step_estimates
from tfscaling.record.run_record import RunRecord
from tfscaling.spec import variants
from tfscaling.spec.run_spec import Point, RunSpec

#: `Estimate.source` of a point of which nothing is measured.
TIME_LIMIT = "time limit"


class Estimate(NamedTuple):
    """How long a run takes, and where that comes from."""

    duration_s: float
    source: str


def estimate(
    spec: RunSpec, runs_dir: Path, limit_s: float, short: RunSpec | None = None
) -> Estimate:
    """How long a planned run takes.

    The median of the point's own valid runs, else what is projected from those of `short`, the same
    training with `stop_after_steps`; else the time limit: an upper bound. Nothing is scaled
    from other points: the start and the compilation do not shrink with the epochs, and the time of
    a step depends on nodes and batch in a way that this workflow is there to measure.
    """
    if times_s := measured_s(spec, runs_dir):
        number = f"{len(times_s)} run{'s' if len(times_s) > 1 else ''}"
        return Estimate(statistics.median(times_s), f"measured, {number}")
    found = (
        [step_estimates.projected(record) for record in _records(short, runs_dir)] if short else []
    )
    times_s = [whole.phases.wall_time_s for whole in found if whole is not None]
    if times_s:
        number = f"{len(times_s)} short run{'s' if len(times_s) > 1 else ''}"
        return Estimate(statistics.median(times_s), f"projected, {number}")
    return Estimate(limit_s, TIME_LIMIT)


def shorts(specs: Iterable[RunSpec]) -> dict[Point, RunSpec]:
    """Point → a short run of the same training there."""
    first = {spec.point: spec for spec in specs}
    wholes = variants.wholes(first.values())
    return {whole.point: first[point] for point, whole in wholes.items()}


def measured_s(spec: RunSpec, runs_dir: Path) -> list[float]:
    """Wall times in seconds of the valid runs of a planned run's point, whatever their seed."""
    return [record.phases.wall_time_s for record in _records(spec, runs_dir)]


def _records(spec: RunSpec, runs_dir: Path) -> Iterator[RunRecord]:
    """Those of the valid runs of a planned run's point, whatever their seed."""
    requested = {**spec.parameters, "seed": None}
    for path in sorted((runs_dir / spec.path).parent.glob(f"repeat=*/{run_record.RECORD}")):
        try:
            record = run_record.read(path)
        except run_record.RecordError:
            continue
        if record is None or not record.is_valid or record.axes.point != spec.point:
            continue
        if record.resumed is not None:  # its last attempt did a part only
            continue
        if {**record.parameters, "seed": None} == requested:
            yield record
