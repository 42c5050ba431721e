"""Every distribution strategy by the local launcher: learning, compared, timed, ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from project import BIN, QUICK, REPOSITORY, SMALL_MODEL, Project
from tfscaling.spec import run_spec
from tfscaling.spec.manifest import Manifest

#: Strategies of several workers that exchange gradients, a device each.
WORKERS = ("multi_worker_mirrored", "mpi_all_reduce")
SIZES = [4, 1024, 65536, 262144, 4194304]
#: Of the model: 784 pixels and a bias for ten classes.
PARAMETERS = 785 * 10


@pytest.fixture(scope="module")
def swept(new_project: Callable[[str], Project]) -> Project:
    project = new_project("strategies")
    strong = {**QUICK, "per_replica_batch_size": None, "global_batch_size": 64, "epochs": 2,
              "train_examples_max": 960, "evaluation_interval_epochs": 1}  # fmt: skip
    base = {"platform": "laptop", "model": SMALL_MODEL, "recipe": "strong"}
    project.overlay(
        {
            # as on many clusters, and no way to the other ranks
            "platforms": {"laptop": {"env": {"http_proxy": "http://127.0.0.1:9"}}},
            "grid": [
                {**base, "strategy": "single", "nodes": 1},
                {**base, "strategy": "mirrored", "nodes": 1, "gpus_per_node": 2},
                # a coordinator, a parameter server and two workers
                {**base, "strategy": ["parameter_server", "synchronous_parameter_server"],
                 "nodes": 2, "tasks_per_node": 2},
                {**base, "strategy": list(WORKERS), "nodes": 2},
            ],
            "recipes": {"strong": strong},
            "question": {"limits": {"test_accuracy": {"at_least": 0.6}}},
            "all_reduce_benchmark": {"enabled": True, "sizes_bytes": SIZES, "repetitions": 7},
        }
    )  # fmt: skip
    project.snakemake()
    return project


def test_all_strategies_learn(swept: Project) -> None:
    rows = {row["strategy"]: row for row in swept.table()}
    assert len(rows) == 6
    for row in rows.values():
        assert row["status"] == "ok"
        assert row["global_batch_size"] == "64"
        assert float(row["test_accuracy"]) > 0.6  # chance is 0.1


def test_time_to_the_target_is_that_of_the_first_evaluation_at_it(swept: Project) -> None:
    rows = {row["strategy"]: row for row in swept.table()}
    for record in swept.records():
        row, (first, last) = rows[record["axes"]["strategy"]], record["metrics"]["epochs"]
        assert last["test_accuracy"] == pytest.approx(float(row["test_accuracy"]))
        assert first["evaluation_time_s"] > 0
        assert first["duration_s"] < first["ended_s"] < last["ended_s"]
        reached = first if first["test_accuracy"] >= 0.6 else last
        assert float(row["time_to_target_s"]) == pytest.approx(reached["ended_s"])


def test_synchronous_strategies_give_the_same_model(swept: Project) -> None:
    """The same global batches in the same order: only float summation differs."""
    loss = {row["strategy"]: float(row["loss"]) for row in swept.table()}
    del loss["parameter_server"]
    alone = loss.pop("single")
    assert loss == {strategy: pytest.approx(alone, rel=1e-4) for strategy in loss}


def benchmarks(project: Project) -> dict[str, dict[str, Any]]:
    """Strategy → record of its benchmark."""
    paths = project.folder.glob("results/all_reduce/**/all_reduce.json")
    found = [json.loads(path.read_text()) for path in paths]
    return {record["axes"]["strategy"]: record for record in found}


def test_all_reduces_are_timed_where_the_strategy_trains_by_them(swept: Project) -> None:
    found = benchmarks(swept)
    assert set(found) == {"mirrored", *WORKERS}
    for strategy, record in found.items():
        assert len(record["ranks"]) == (1 if strategy == "mirrored" else 2)
        assert {rank["replicas"] for rank in record["ranks"]} == {2}
        sizes = [(row["payload"], row["bytes"]) for row in record["all_reduces"]]
        assert sizes == [("gradient", PARAMETERS * 4), *(("sweep", size) for size in SIZES)]
        for row in record["all_reduces"]:
            assert len(row["slowest_s"]) == 7
        smallest, largest = (record["all_reduces"][n]["slowest_s"] for n in (1, -1))
        assert min(smallest) < min(largest)
    found = swept.folder.glob("results/all_reduce/**/strategy=multi*/**/all_reduce.csv")
    (csv,) = (path for path in found if not path.parent.name.startswith("attempt="))
    assert len(csv.read_text().splitlines()) == 1 + 2 * 6 * 7


def test_a_step_stands_beside_computation_plus_all_reduce(swept: Project) -> None:
    rows = {row["strategy"]: row for row in swept.table("results/main/tables/communication.csv")}
    assert {name: row["status"] for name, row in rows.items()} == {
        "single": "single replica", "mirrored": "ok", **dict.fromkeys(WORKERS, "ok"),
        "parameter_server": "no all-reduce", "synchronous_parameter_server": "no all-reduce",
    }  # fmt: skip
    for name in ("mirrored", *WORKERS):
        row = rows[name]
        assert float(row["all_reduce_time_s_low"]) <= float(row["all_reduce_time_s_high"])
        assert (row["latency_s"] != "") == (row["fit_reason"] == "")
        parts = float(row["compute_time_s"]) + float(row["all_reduce_time_s"])
        assert float(row["step_bound_s"]) == pytest.approx(parts)
        # nothing here is exact on a busy machine, but a wrong unit or a forgotten part would show
        assert 0.1 < float(row["step_time_over_bound"]) < 20
    assert rows["single"]["step_bound_s"] == rows["single"]["compute_time_s"]
    assert (
        "computation plus all-reduce"
        in (swept.folder / "results/main/tables/methodology.md").read_text()
    )
    assert 'id="communication"' in (swept.folder / "results/main/report.html").read_text()


def test_a_benchmark_that_fails_leaves_its_cause(swept: Project) -> None:
    """Its platform's setup ends the rank before it starts."""
    planned = Manifest.read(swept.folder / "results/main/manifest.json")
    (benchmark,) = [
        each
        for each in planned.all_reduce_benchmarks
        if each.point.strategy == "multi_worker_mirrored"
    ]
    assert benchmark.spec is not None
    measured = replace(benchmark.spec.measured, setup=("exit 3",))
    failed = swept.folder / "failed"
    failed.mkdir()
    broken = run_spec.encode(replace(benchmark.spec, measured=measured))
    (failed / "spec.json").write_text(broken)
    script = REPOSITORY / "workflow/scripts/benchmark_all_reduce.py"
    words = ["--spec", failed / "spec.json", "--record", failed / "all_reduce.json"]
    done = subprocess.run([str(BIN / "python"), str(script), *map(str, words)], check=False)
    assert done.returncode == 1
    failure = json.loads((failed / "failure.json").read_text())
    assert (failure["cause"]["kind"], failure["axes"]) == ("rank_died", benchmark.point.axes)
    assert not (failed / "all_reduce.json").exists()


def test_coordinator_servers_and_workers_have_ended(swept: Project) -> None:
    logs = [path.read_text() for path in swept.folder.glob("results/runs/**/repeat=*/launch.log")]
    assert len(logs) == 6
    assert all("train_rank.py --spec " in log and "/recipe=strong/" in log for log in logs)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    ranks = [line for line in running.stdout.splitlines() if "train_rank.py --spec " in line]
    assert [line for line in ranks if "/recipe=strong/" in line] == []
