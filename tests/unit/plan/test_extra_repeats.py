"""Larger batches run in rounds: each after the next smaller one fits in memory."""

from __future__ import annotations

from pathlib import Path

import generator
from builders import manifest_of, raw_config
from tfscaling.plan import extra_repeats
from tfscaling.plan.retries import SlurmSweep
from tfscaling.spec import configuration
from tfscaling.spec.manifest import PlannedRun
from tfscaling.tables import runs_table


def test_a_larger_batch_follows_once_all_runs_of_the_smaller_one_fit(tmp_path: Path) -> None:
    raw = raw_config(
        (("recipes", "weak", "per_replica_batch_size"), {"from": 16, "to": 64}),
        (("grid", 0), {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1,
                       "repeats": 6}),
    )  # fmt: skip
    planned = manifest_of(configuration.validate(raw))

    def sized(size: int, *numbers: int) -> tuple[PlannedRun, ...]:
        own = [r for r in planned.runs if r.spec.per_replica_batch_size == size]
        return tuple(run for run in own if run.spec.repeat in numbers)

    def asked(*before: PlannedRun) -> set[str]:
        made, _ = extra_repeats.next_round(planned, tmp_path, [r.spec.path for r in before], 1)
        return {*made.runs} - {run.spec.path for run in before}

    first, second = sized(16, *range(1, 7)), sized(32, *range(1, 7))
    generator.write_records(first[:5], tmp_path, lambda _: 10.0, noise=0.0)
    assert asked() == set()
    generator.write_records(first[5:], tmp_path, lambda _: 10.0, noise=0.0)
    assert asked() == {run.spec.path for run in second}
    generator.write_records(second[1:], tmp_path, lambda _: 10.0, noise=0.0)
    output = tmp_path / second[0].spec.path / "run.json"
    SlurmSweep({str(output): second[0].spec}).failed(output, "7", "OUT_OF_MEMORY")
    assert asked(*second) == set()
    runs, _ = runs_table.run_tables(planned.runs, tmp_path)
    large = runs[runs["per_replica_batch_size"] == 64]
    assert len(large) == 6 and set(large["status"]) == {"does_not_fit"}
    assert all(second[0].spec.path in reason for reason in large["reason"])
