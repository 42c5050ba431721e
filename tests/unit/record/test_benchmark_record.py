"""The record of a benchmark: the slowest rank counts, raw durations stay, the schema is closed."""

from __future__ import annotations

from pathlib import Path

import all_reduce_records
import pytest
from builders import manifest_of, raw_config
from msgspec.structs import replace
from tfscaling.record import benchmark_record, run_record
from tfscaling.record.rank_report import BenchmarkReport
from tfscaling.spec import configuration
from tfscaling.spec.manifest import PlannedBenchmark


@pytest.fixture
def planned() -> PlannedBenchmark:
    """Two nodes of the cluster."""
    raw = raw_config((("all_reduce_benchmark",), {"enabled": True}))
    return manifest_of(configuration.validate(raw)).all_reduce_benchmarks[1]


def reports() -> list[BenchmarkReport]:
    times = [[(8, [1.0, 2.0, 3.0]), (4, [0.1, 0.1, 0.1])], [(8, [3.0, 1.0, 2.0]), (4, [0.2] * 3)]]
    return [all_reduce_records.rank_report(rank, 2, rows) for rank, rows in enumerate(times)]


def test_in_each_repetition_the_slowest_rank_counts() -> None:
    gradient, sweep = benchmark_record.slowest([r.all_reduces for r in reports()])
    assert gradient.slowest_s == (3.0, 2.0, 3.0)
    assert sweep.slowest_s == (0.2, 0.2, 0.2)
    assert (gradient.payload, gradient.bytes, sweep.bytes) == ("gradient", 8, 4)


def test_the_durations_of_every_rank_are_kept(tmp_path: Path) -> None:
    benchmark_record.write_durations(tmp_path, reports())
    header, *lines = (tmp_path / "all_reduce.csv").read_text().splitlines()
    assert header == "rank,payload,bytes,repetition,duration_s"
    assert len(lines) == 2 * 2 * 3
    assert lines[1] == "0,gradient,8,2,2.000000000"
    assert lines[-1] == "1,sweep,4,3,0.200000000"


def test_a_record_is_read_as_it_was_made(tmp_path: Path, planned: PlannedBenchmark) -> None:
    path = all_reduce_records.write(tmp_path, planned)
    record = benchmark_record.read(path)
    assert (
        record is not None
        and record.parameters_hash == all_reduce_records.spec_of(planned).parameters_hash
    )
    assert record.validity.checks[-1] == "sums"
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert benchmark_record.read(tmp_path / "none.json") is None


def test_a_time_that_cannot_be_is_named(planned: PlannedBenchmark) -> None:
    record = all_reduce_records.record_of(planned)
    gradient, *others = record.all_reduces
    wrong = (replace(gradient, slowest_s=(1.0, 0.0)), *others)
    with pytest.raises(run_record.RecordError, match=r"all_reduces\[0\].slowest_s\[1\]: Expected"):
        run_record.checked(replace(record, all_reduces=wrong), "all_reduce.json")
