"""What ends a sweep before its start, and which executor follows its jobs."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import manifest_of, valid_config
from slurm_executor import Log
from snakemake_executor_plugin_slurm_sweep import Executor, NoSweep, queue
from snakemake_executor_plugin_slurm_sweep.queue import QueuedJob
from snakemake_interface_common.exceptions import WorkflowError
from tfscaling.plan import preflight
from tfscaling.plan.retries import SlurmSweep
from tfscaling.plan.sweep_jobs import SweepJobs
from tfscaling.plan.sweep_start import MISSING, SweepStart

CONFIG = valid_config()
MANIFEST = manifest_of(CONFIG)
#: What may refuse a sweep: each has tests of its own.
REFUSALS = ("beyond_budget", "_missing_data", "_local_problems", "_slurm_problems")


def sweep(folder: Path, executor: str = "slurm-sweep", **settings: Any) -> SweepStart:
    workflow = SimpleNamespace(
        executor_plugin=SimpleNamespace(name=executor),
        executor_settings=SimpleNamespace(**settings),
        workdir_init=folder,
        dag=SimpleNamespace(needrun_jobs=lambda: []),
    )
    of_sweep: Any = SimpleNamespace()  # nothing is made again here
    runs = {run.spec.path: run for run in MANIFEST.runs}
    return SweepStart(
        CONFIG, MANIFEST, (), SweepJobs(workflow, runs, {}, str(folder)), of_sweep, "train"
    )


@pytest.fixture(autouse=True)
def nothing_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And Slurm has no jobs."""
    for name in REFUSALS:
        nothing = [] if name.endswith("problems") else ""
        monkeypatch.setattr(SweepStart, name, lambda _, nothing=nothing: nothing)
    monkeypatch.setattr(queue, "answers", lambda: True)
    for name, value in (
        ("_sweep", NoSweep()),
        ("_earlier", {}),
        ("_names", ()),
        ("_awaits_pings", False),
    ):
        monkeypatch.setattr(Executor, name, value)


def test_the_executor_follows_the_sweep_and_adopts_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        QueuedJob("1", "RUNNING", "name", None, "a"),
        QueuedJob("2", "COMPLETED", "name", None, "b"),
    ]
    monkeypatch.setattr(queue, "jobs_of", lambda folder, clusters: jobs * (folder == str(tmp_path)))
    sweep(tmp_path).begin(log := Log())
    assert isinstance(Executor._sweep, SlurmSweep) and Executor._awaits_pings
    assert Executor._earlier == {job.comment: job for job in jobs} and Executor._names == ("name",)
    assert len(log.warnings) == 1 and log.warnings[0].startswith("1 ")


@pytest.mark.parametrize(("executor", "said"), [("slurm", [MISSING]), ("local", [])])
def test_without_the_plugin_one_line_names_what_is_missing(
    executor: str, said: list[str], tmp_path: Path
) -> None:
    sweep(tmp_path, executor).begin(log := Log())
    assert log.warnings == said
    assert isinstance(Executor._sweep, NoSweep)


def test_a_sweep_that_does_not_see_the_queue_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> list[QueuedJob]:
        raise WorkflowError("Slurm does not show its queue")

    monkeypatch.setattr(queue, "jobs_of", silent)
    with pytest.raises(SystemExit, match="does not show"):
        sweep(tmp_path).begin(Log())
    assert isinstance(Executor._sweep, NoSweep)


def test_all_obstacles_are_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SweepStart, "_local_problems", lambda _: ["", "no MPI"])
    monkeypatch.setattr(SweepStart, "_slurm_problems", lambda _: ["no partition"])
    with pytest.raises(SystemExit) as ended:
        sweep(tmp_path).begin(logging.getLogger())
    assert str(ended.value).splitlines()[:-1] == ["no MPI", "no partition"]


@pytest.mark.parametrize(
    ("asks", "kind", "refused"),
    [
        ("sacct", "accounting_storage/none", True),
        ("squeue", "accounting_storage/none", False),
        ("sacct", "accounting_storage/slurmdbd", False),
    ],
)
def test_a_sweep_that_would_never_see_its_jobs_end_is_refused(
    asks: str, kind: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SweepJobs, "specs_to_do", lambda _: [])
    shown = [f"AccountingStorageType   = {kind}"]
    monkeypatch.setattr(preflight, "ask_slurm", lambda *_, **__: shown)
    assert bool(sweep(tmp_path, status_command=asks)._unseen_jobs()) == refused
