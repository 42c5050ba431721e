"""Communication: the table per point, latency and bandwidth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import all_reduce_records
import generator
import numpy as np
import pandas as pd
import pytest
from builders import manifest_of, raw_config, write_failure
from tfscaling.conclusions import communication, methodology
from tfscaling.conclusions.communication import fit
from tfscaling.conclusions.evidence import Study
from tfscaling.record.benchmark_record import folder_beside
from tfscaling.spec import configuration
from tfscaling.tables import display, runs_table
from tfscaling.tables.comparison import comparison_table

GRADIENT_S = 1e-3 + all_reduce_records.GRADIENT_BYTES / 5e8


class Timed:
    """Runs on 1 to 5 and (excluded) 9 nodes, without benchmarks; and with parameter servers."""

    def __init__(self, folder: Path, enabled: bool = True) -> None:
        point = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak"}
        blocks = [
            {**point, "nodes": [1, 2, 3, 4, 5, 9]},
            {**point, "nodes": 3, "strategy": "parameter_server"},
        ]
        raw = raw_config(
            (("grid",), blocks),
            (("all_reduce_benchmark",), {"enabled": enabled}),
        )
        self.planned = manifest_of(configuration.validate(raw))
        self.runs_dir = folder / "runs"
        self.folder = folder_beside(self.runs_dir)
        self.benchmark = {
            each.point.nodes: each for each in self.planned.all_reduce_benchmarks[::-1]
        }
        generator.write_records(self.planned.runs, self.runs_dir)

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """(runs, comparison, communication), as they are read from their files."""
        runs, _ = runs_table.run_tables(self.planned.runs, self.runs_dir)
        comparison = comparison_table(runs, self.planned)
        return (
            runs,
            comparison,
            communication.table(Study(comparison, runs, self.planned, benchmarks_dir=self.folder)),
        )

    def rows(self) -> dict[tuple[str, int], dict[str, Any]]:
        made = self.tables()[2].to_dict("records")
        return {(row["strategy"], row["nodes"]): row for row in made}


@pytest.fixture
def study(tmp_path: Path) -> Timed:
    return Timed(tmp_path)


def of_nodes(study: Timed, nodes: int) -> dict[str, Any]:
    return study.rows()["multi_worker_mirrored", nodes]


def test_a_step_stands_beside_computation_plus_all_reduce(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2])
    row = of_nodes(study, 2)
    assert (row["status"], row["reason"], row["replicas"], row["repetitions"]) == ("ok", "", 2, 3)
    assert row["gradient_bytes"] == all_reduce_records.GRADIENT_BYTES
    assert row["all_reduce_time_s"] == pytest.approx(GRADIENT_S)
    assert row["all_reduce_time_s_max"] == pytest.approx(1.1 * GRADIENT_S)
    assert pd.isna(row["all_reduce_time_s_low"])  # three repetitions are no interval
    assert row["latency_s"] == pytest.approx(1e-3, rel=1e-3)
    assert row["bandwidth_mb_per_s"] == pytest.approx(500, rel=1e-3)
    assert row["step_bound_s"] == pytest.approx(row["compute_time_s"] + row["all_reduce_time_s"])
    ratio = row["step_time_s"] / row["step_bound_s"]
    assert row["step_time_over_bound"] == pytest.approx(ratio)
    assert Path(row["record"]).is_file()


def test_enough_repetitions_give_an_interval(study: Timed) -> None:
    all_reduce_records.write(
        study.folder, study.benchmark[2], scatter=[0.5, *[0.95, 1.0, 1.05] * 6, 3.0]
    )
    row = of_nodes(study, 2)
    assert row["all_reduce_time_s_low"] == pytest.approx(0.95 * GRADIENT_S)
    assert row["all_reduce_time_s_high"] == pytest.approx(1.05 * GRADIENT_S)
    assert row["all_reduce_time_s_max"] == pytest.approx(3 * GRADIENT_S)


def test_a_point_without_a_benchmark_is_a_row_that_says_why(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2])
    write_failure(study.folder, study.benchmark[3])
    path = all_reduce_records.write(study.folder, study.benchmark[4])
    record = json.loads(path.read_text())
    record["parameters"]["repetitions"] = 7
    path.write_text(json.dumps({**record, "parameters_hash": "0" * 16}))
    rows = study.rows()
    assert {key: row["status"] for key, row in rows.items()} == {
        ("multi_worker_mirrored", 1): "single replica",
        ("multi_worker_mirrored", 2): "ok",
        ("multi_worker_mirrored", 3): "failed",
        ("multi_worker_mirrored", 4): "stale",
        ("multi_worker_mirrored", 5): "missing",
        ("multi_worker_mirrored", 9): "excluded",
        ("parameter_server", 3): "no all-reduce",
    }
    alone = rows["multi_worker_mirrored", 1]
    assert alone["step_bound_s"] == alone["compute_time_s"] and pd.isna(alone["all_reduce_time_s"])
    reasons = {key[1]: row["reason"] for key, row in rows.items() if key[0][0] == "m"}
    assert reasons[3].startswith("rank_died: ")
    assert reasons[4].endswith("repetitions: 7, now 20")
    assert reasons[9] == "9 nodes exceed nodes_max 8"
    for (_, nodes), row in rows.items():
        if row["status"] not in ("ok", "single replica"):
            assert pd.isna(row["step_bound_s"]) and pd.isna(row["latency_s"]), nodes


def test_a_broken_record_is_a_failed_row(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2]).write_text("{")
    row = of_nodes(study, 2)
    assert row["status"] == "failed" and "not JSON" in row["reason"]


def test_what_the_sizes_do_not_determine_is_refused_with_the_reason(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2], bandwidth_bytes_per_s=1e12)
    row = of_nodes(study, 2)
    assert pd.isna(row["latency_s"]) and "larger sizes are needed" in row["fit_reason"]
    assert row["all_reduce_time_s"] > 0
    page = display.markdown(communication.as_text(study.tables()[2]))
    assert "16777216 bytes" in page


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_method_page_takes_it_as_a_bound(is_complete: bool, study: Timed) -> None:
    for nodes in (2, 3, 4, 5) if is_complete else (2, 3):
        all_reduce_records.write(study.folder, study.benchmark[nodes])
    runs, comparison, made = study.tables()
    rules = methodology.table(Study(comparison, runs, study.planned), made)
    row = rules.iloc[[*methodology.RULES].index("bounds")]
    steps = "5 of 5" if is_complete else "3 of 5"
    assert str(steps) in row["evidence"]
    assert row["verdict"] == ("pass" if is_complete else "fail")


SIZES = [4, 64, 1024, 16384, 65536, 262144, 1048576, 4194304, 16777216]


def times(latency_s: float, bandwidth: float, scatter: float = 0.0, seed: int = 0) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, scatter, len(SIZES))
    exact = [latency_s + size / bandwidth for size in SIZES]
    return (np.asarray(exact) * np.exp(noise)).tolist()


@pytest.mark.parametrize("latency_s", [2e-5, 1e-3])
@pytest.mark.parametrize("bandwidth", [1e8, 1e10])
def test_exact_times_give_the_exact_parameters(latency_s: float, bandwidth: float) -> None:
    found = fit(SIZES, times(latency_s, bandwidth))
    if latency_s * bandwidth > 8e6:  # 16 MiB take less than three times as long as nothing
        assert found.fit_reason
        return
    assert found.latency_s == pytest.approx(latency_s, rel=1e-4)
    assert found.bandwidth_mb_per_s == pytest.approx(bandwidth / 1e6, rel=1e-4)
    assert found.fit_misfit_max == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_scattered_times_give_them_within_the_scatter(seed: int) -> None:
    found = fit(SIZES, times(1e-3, 5e8, 0.1, seed))
    assert found.latency_s == pytest.approx(1e-3, rel=0.2)
    assert found.bandwidth_mb_per_s == pytest.approx(500, rel=0.2)


@pytest.mark.parametrize("place", [0, 4, 8])
def test_one_odd_size_does_not_lead(place: int) -> None:
    odd = times(1e-3, 5e8)
    odd[place] *= 1.8
    found = fit(SIZES, odd)
    assert found.latency_s == pytest.approx(1e-3, rel=0.15)
    assert found.bandwidth_mb_per_s == pytest.approx(500, rel=0.35)
    assert found.fit_misfit_max > 1.3


@pytest.mark.parametrize(
    ("sizes", "values", "reason"),
    [
        (SIZES[:4], [1.0] * 4, "4 sizes"),
        (SIZES, [1e-3] * 9, "16777216 bytes"),
        (SIZES, [s / 1e8 for s in SIZES], "latency"),
        (SIZES, [*times(1e-3, 5e8)[:4], 5e-3, *times(1e-3, 5e8)[5:]], "65536 bytes"),
    ],
    ids=["few", "flat", "steep", "misfit"],
)
def test_what_is_not_determined_is_refused(
    sizes: list[float], values: list[float], reason: str
) -> None:
    found = fit(sizes, values)
    assert reason in found.fit_reason and found.latency_s is None
