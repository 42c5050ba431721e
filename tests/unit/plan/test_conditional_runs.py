"""Larger batches run in rounds: each after the next smaller one fits in memory."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import generator
import pytest
from builders import manifest_of, raw_config, write_failure
from tfscaling.conclusions import next_steps
from tfscaling.conclusions.evidence import Study
from tfscaling.plan import conditional_runs
from tfscaling.plan.retries import SlurmSweep
from tfscaling.record import attempts
from tfscaling.record.attempts import ATTEMPTS_MAX
from tfscaling.search import study_searches
from tfscaling.study import config_validation
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.runs_table import NOT_RUN


def test_a_larger_batch_follows_once_all_runs_of_the_smaller_one_fit(tmp_path: Path) -> None:
    raw = raw_config(
        (("recipes", "weak", "per_replica_batch_size"), {"from": 16, "to": 64}),
        (("grid", 0), {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1,
                       "repeats": 6}),
    )  # fmt: skip
    planned = manifest_of(config_validation.convert_to_types(raw))

    def sized(size: int, *numbers: int) -> tuple[PlannedRun, ...]:
        own = [r for r in planned.runs if r.spec.per_replica_batch_size == size]
        return tuple(run for run in own if run.spec.repeat in numbers)

    def asked(*before: PlannedRun) -> set[str]:
        made, _ = conditional_runs.next_round(planned, tmp_path, [r.spec.path for r in before], 1)
        return {*made.runs} - {run.spec.path for run in before}

    first, second = sized(16, *range(1, 7)), sized(32, *range(1, 7))
    generator.write_records(first[:5], tmp_path, lambda _: 10.0, noise=0.0)
    assert asked() == set()
    generator.write_records(first[5:], tmp_path, lambda _: 10.0, noise=0.0)
    assert asked() == {run.spec.path for run in second}
    # one run out of memory, as another process may cause it, stops nothing
    generator.write_records(second[4:], tmp_path, lambda _: 10.0, noise=0.0)
    for number, is_next in enumerate((True, True, False, False)):
        # of six runs, so many do not fit; the others do
        for run in second[:4]:
            shutil.rmtree(tmp_path / run.spec.path, ignore_errors=True)
        generator.write_records(second[number + 1 : 4], tmp_path, lambda _: 10.0, noise=0.0)
        for run in second[: number + 1]:
            output = str(tmp_path / run.spec.path / "run.json")
            SlurmSweep({output: run.spec}).report_failure(Path(output), "7", "OUT_OF_MEMORY")
        large_paths = {run.spec.path for run in sized(64, *range(1, 7))}
        assert asked(*second) == (large_paths if is_next else set())
        runs, _ = runs_table.run_tables(planned.runs, tmp_path)
        large = runs[runs["per_replica_batch_size"] == 64]
        assert len(large) == 6 and set(large["status"]) == {"missing"}
        assert large["reason"].str.startswith(NOT_RUN + ":").all() != is_next
        assert large["reason"].str.endswith(second[0].spec.path).all() != is_next
    # a batch that fitted itself is only not run yet
    generator.write_records(sized(64, 1, 2, 3), tmp_path, lambda _: 10.0, noise=0.0)
    runs, _ = runs_table.run_tables(planned.runs, tmp_path)
    large = runs[runs["per_replica_batch_size"] == 64]
    assert sorted(large["status"]) == ["missing"] * 3 + ["ok"] * 3
    assert not large["reason"].str.startswith(NOT_RUN + ":").any()


@pytest.mark.parametrize("ending", ["OUT_OF_MEMORY", "rank_died"])
@pytest.mark.parametrize("short", [{}, {"stop_after_steps": 40}])
def test_a_search_over_doublings_ends_without_the_batches_that_it_never_runs(
    tmp_path: Path, ending: str, short: dict[str, int]
) -> None:
    first_unfit = random.Random(ending + str(short)).choice([32, 64, 128])
    raw = raw_config(
        (("recipes", "weak", "per_replica_batch_size"), {"from": 16, "to": 256}),
        (("grid", 0), {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": 1}),
        (("search",), short),
        (("question",), {"choose": ["recipe"], "limits": {"test_accuracy": None}}),
    )  # fmt: skip
    planned = manifest_of(config_validation.convert_to_types(raw))
    runs = {run.spec.path: run for run in planned.runs}

    def make(run: PlannedRun) -> None:
        size = run.spec.per_replica_batch_size
        if size < first_unfit:
            generator.write_records([run], tmp_path, lambda _: 1000 / size, noise=0.01)
        elif ending == "OUT_OF_MEMORY":
            output = str(tmp_path / run.spec.path / "run.json")
            SlurmSweep({output: run.spec}).report_failure(Path(output), "7", ending)
        else:
            write_failure(tmp_path, run, kind=ending, message="it ended")
            for number in range(1, ATTEMPTS_MAX + 1):
                folder = attempts.attempt_folder(tmp_path / run.spec.path, number)
                folder.mkdir()
                shutil.copy(folder.parent / "failure.json", folder)

    made = [run for run in planned.runs if not run.is_conditional]
    requested: tuple[str, ...] = ()
    for number in range(1, 100):
        for run in made:
            make(run)
        round_, searches = conditional_runs.next_round(planned, tmp_path, requested, number)
        made = [runs[path] for path in round_.runs if path not in requested]
        requested = round_.runs
        if not round_.added:
            break
    (search,) = searches
    assert search.decision.has_ended and search.decision.best
    sizes = {run.spec.point: run.spec.per_replica_batch_size for run in planned.runs}
    assert sizes[search.points[search.decision.best]] == first_unfit // 2
    table, _ = runs_table.run_tables(planned.runs, tmp_path, planned.targets)
    study = Study(comparison_table(table, planned), table, planned)
    # the larger batches are not what another start would make
    assert "unfinished" not in set(next_steps.table(study)["kind"])
    started = {runs[path].spec.per_replica_batch_size for path in requested}
    assert max(started) == first_unfit
    # nor does the plan count them
    expected = study_searches.expected_runs(search, {}, trials=3)
    assert {p: n for p, n in expected.items() if n and sizes.get(p, 0) > first_unfit} == {}
