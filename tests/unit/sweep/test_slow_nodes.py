"""Nodes that were too slow for a run, or lacked GPUs, are left out at its next attempt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tfscaling.records import attempts, failure_report
from tfscaling.records.failure_report import Cause, FailureReport, Kind
from tfscaling.sweep import slow_nodes


def failed(folder: Path, attempt: int, kind: Kind, host: str | None) -> None:
    place = attempts.path(folder, attempt)
    place.mkdir()
    cause = Cause(kind=kind, message="much slower", host=host)
    failure_report.write(place, FailureReport(axes={}, attempt=attempt, cause=cause))


def test_hosts_that_barred_an_attempt_are_excluded(tmp_path: Path) -> None:
    def command(job: Any, params: str, failed_nodes: set[str], settings: Any = None) -> str:
        without = f" --exclude={','.join(sorted(failed_nodes))}" if failed_nodes else ""
        return f"sbatch {params}{without}"

    plugin = SimpleNamespace(get_submit_command=command)
    slow_nodes.install(plugin)

    def submitted(output: str, options: str = "-t 5 --exclusive") -> str:
        job: Any = SimpleNamespace(output=[str(tmp_path / output)])
        # nodes of a job that failed are those that the plugin would leave out
        command = str(plugin.get_submit_command(job, options, failed_nodes={"n[1-9]"}, **user))
        return command.removeprefix(f"sbatch {options}")

    user: dict[str, Any] = {}
    assert submitted("run.json") == ""
    failed(tmp_path, 1, "slow_node", "n7")
    failed(tmp_path, 2, "rank_died", "n8")
    failed(tmp_path, 3, "slow_node", "n3")
    assert submitted("run.json") == " --exclude=n3,n7"
    failed(tmp_path, 4, "missing_gpus", None)
    failed(tmp_path, 5, "missing_gpus", "n6")
    assert submitted("run.json") == " --exclude=n3,n6,n7"
    assert submitted("table.csv") == ""
    # with those of the platform's `extra`
    assert submitted("run.json", "--exclude=n1 -x 'n[4-5]'") == " --exclude='n[4-5],n3,n6,n7'"
    nodes = tmp_path / "nodes"
    nodes.write_text("n1\nn2\n")
    assert submitted("run.json", f"--exclude={nodes}") == " --exclude=n1,n2,n3,n6,n7"
    user = {"settings": SimpleNamespace(exclude_failed_nodes="n5, n6")}
    assert submitted("table.csv") == " --exclude=n5,n6"
