"""The table of communication: a row for every point, and why it has what it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import all_reduce_records
import generator
import pandas as pd
import pytest
from builders import manifest_of, raw_config, write_failure
from tfscaling.conclusions import communication, methodology
from tfscaling.conclusions.evidence import Study
from tfscaling.record.benchmark_record import folder_beside
from tfscaling.spec import configuration
from tfscaling.tables import display, runs_table, table_rows
from tfscaling.tables.comparison import comparison_table

GRADIENT_S = 1e-3 + all_reduce_records.GRADIENT_BYTES / 5e8


class Timed:
    """Runs on 1 to 5 and (excluded) 9 nodes, without benchmarks; and with parameter servers."""

    def __init__(
        self, folder: Path, enabled: bool = True, average_every: int | None = None
    ) -> None:
        point = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak"}
        blocks = [
            {**point, "nodes": [1, 2, 3, 4, 5, 9]},
            {**point, "nodes": 3, "strategy": "parameter_server"},
        ]
        if average_every is not None:  # no strategy with parameter servers does
            blocks.pop()
        raw = raw_config(
            (("grid",), blocks),
            (("all_reduce_benchmark",), {"enabled": enabled}),
            (("recipes", "weak", "average_every"), average_every),
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


def test_an_all_reduce_counts_by_the_steps_for_which_it_is_made(tmp_path: Path) -> None:
    study = Timed(tmp_path, average_every=4)
    all_reduce_records.write(study.folder, study.benchmark[2])
    row = of_nodes(study, 2)
    assert row["steps_per_synchronisation"] == 4
    assert row["step_bound_s"] == pytest.approx(row["compute_time_s"] + GRADIENT_S / 4)
    shown = communication.as_text(study.tables()[2]).cells
    assert set(shown["steps_per_synchronisation"]) == {"4", "–"}  # excluded


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
    reasons = {key[1]: row["reason"] for key, row in rows.items() if key[0][0] == "m"}
    assert reasons[3] == "rank_died: rank 1 on node1: exit code 3"
    assert reasons[4] == "made with other parameters: repetitions: 7, now 20"
    assert reasons[9] == "9 nodes exceed nodes_max 8"
    for (_, nodes), row in rows.items():
        if row["status"] not in ("ok", "single replica"):
            assert pd.isna(row["step_bound_s"]) and pd.isna(row["latency_s"]), nodes


def test_the_bound_of_a_single_replica_is_its_computation(study: Timed) -> None:
    row = of_nodes(study, 1)
    assert row["step_bound_s"] == row["compute_time_s"]
    assert pd.isna(row["all_reduce_time_s"])


def test_a_broken_record_is_a_failed_row(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2]).write_text("{")
    row = of_nodes(study, 2)
    assert row["status"] == "failed" and "not JSON" in row["reason"]


def test_without_a_valid_run_the_benchmark_is_still_there(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2])
    (study.runs_dir / study.benchmark[2].point.path / "repeat=1/run.json").unlink()
    row = of_nodes(study, 2)
    assert row["status"] == "ok" and row["all_reduce_time_s"] > 0
    assert pd.isna(row["step_bound_s"])


def test_what_the_sizes_do_not_determine_is_refused_with_the_reason(study: Timed) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2], bandwidth_bytes_per_s=1e12)
    row = of_nodes(study, 2)
    assert pd.isna(row["latency_s"]) and "larger sizes are needed" in row["fit_reason"]
    assert row["all_reduce_time_s"] > 0
    page = display.markdown(communication.as_text(study.tables()[2]))
    assert "no latency and bandwidth: 16777216 bytes take only" in page


def test_the_table_for_people(study: Timed, tmp_path: Path) -> None:
    all_reduce_records.write(study.folder, study.benchmark[2], scatter=[0.9, 1.0, 1.1] * 3)
    csv = tmp_path / "communication.csv"
    study.tables()[2].to_csv(csv, index=False)
    shown = communication.as_text(table_rows.read_table(csv))
    row = shown.cells[shown.cells["status"] == "ok"].iloc[0]
    assert row["gradient_bytes"] == "11082536"
    assert row["all_reduce_time_s"] == "0.0232 (0.0208–0.0255)"
    assert row["latency_s"] == "0.001000 (0.001000–0.001000)"
    assert row["bandwidth_mb_per_s"] == "500 (500–500)"
    assert shown.above == "All points: cluster, mnist_cnn, recipe weak, CPU, 1 task per node."
    assert "without overlap" in " ".join(shown.notes)


def test_without_benchmarks_there_is_a_word_and_no_row(tmp_path: Path) -> None:
    made = Timed(tmp_path, enabled=False).tables()[2]
    assert made.empty and tuple(made) == communication.COLUMNS
    assert "`all_reduce_benchmark.enabled` is false" in display.markdown(
        communication.as_text(made)
    )


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_method_page_takes_it_as_a_bound(is_complete: bool, study: Timed) -> None:
    for nodes in (2, 3, 4, 5) if is_complete else (2, 3):
        all_reduce_records.write(study.folder, study.benchmark[nodes])
    runs, comparison, made = study.tables()
    rules = methodology.table(Study(comparison, runs, study.planned), made)
    row = rules.iloc[[*methodology.RULES].index("bounds")]
    steps = "5 of 5" if is_complete else "3 of 5"
    assert f"{steps} steps are compared with computation plus all-reduce" in row["evidence"]
    assert row["verdict"] == ("pass" if is_complete else "fail")
