"""In which order the start of a sweep wraps Slurm's executor plugin, who hears its log first."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from builders import manifest_of, valid_config
from tfscaling.records import failure_report
from tfscaling.sweep import earlier_jobs, slurm_limits
from tfscaling.sweep.earlier_jobs import Queued, SilentQueueError
from tfscaling.sweep.queue_watch import QueueWatch
from tfscaling.sweep.sweep_jobs import SweepJobs
from tfscaling.sweep.sweep_start import SweepStart

CONFIG = valid_config()
MANIFEST = manifest_of(CONFIG)
UNSEEN_JOBS = SweepStart._unseen_jobs
#: What may refuse a sweep: each has tests of its own.
REFUSALS = (
    *("beyond_budget", "_missing_data", "_missing_libraries", "_unseen_jobs", "_in_arrays"),
    *("_refused_by_slurm", "_unbuildable"),
)


@dataclass(frozen=True)
class Submitted:
    """What the plugin says of a job that Slurm has."""

    job: Any
    external_jobid: str
    aux: Any = None


@dataclass
class Job:
    """A run's job of Snakemake, with what the wrappers ask it."""

    output: list[str]
    name: str = "train"
    jobid: int = 1
    restart_times: int = 2
    attempt: int = 1
    is_checkpoint: bool = False
    priority: int = 0

    @property
    def dag(self) -> Any:
        return SimpleNamespace(reason=lambda _: SimpleNamespace(missing_output=self.output))

    def is_group(self) -> bool:
        return False


@dataclass
class Sweep:
    """Its start, its jobs, and the plugin; `queue` has the jobs that an earlier start has left."""

    start: SweepStart
    jobs: list[Job]
    plugin: Any
    queue: list[Queued] = field(default_factory=list)
    watches: list[QueueWatch] = field(default_factory=list)
    logger: logging.Logger = field(default_factory=lambda: logging.Logger("of the sweep"))

    def leave(self, *jobs: Job) -> None:
        """Jobs in Slurm's queue for those of Snakemake, numbered from 1."""
        self.queue += [
            Queued(str(number), "RUNNING", "name", None, f"rule_train_wildcards_{job.output[0]}")
            for number, job in enumerate(jobs, 1)
        ]


def executor_class() -> type[Any]:
    """A class of its own for each test, as the wrappers replace its methods."""

    class Executor:
        def __init__(self, folder: Path) -> None:
            self._job_submission_executor = ThreadPoolExecutor(max_workers=1)
            self.slurm_logdir, self.logger = folder, logging.Logger("of the plugin")
            self.submitted: list[Job] = []
            self.taken: list[str] = []
            self.cancelled: list[str] = []

        def run_jobs(self, jobs: list[Job]) -> None:
            for job in jobs:
                self.run_job(job)

        def run_job(self, job: Job) -> None:
            self.submitted.append(job)

        def _report_job_submission_threadsafe(self, info: Submitted) -> None:
            self.taken.append(info.external_jobid)

        def report_job_success(self, info: Submitted) -> None:
            pass

        def report_job_error(self, info: Submitted, **settings: Any) -> None:
            pass

        def cancel_jobs(self, infos: list[Submitted]) -> None:
            self.cancelled += [info.external_jobid for info in infos]

        def shutdown(self) -> None:
            pass

    return Executor


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Nothing refuses it, and nothing is asked of Slurm."""
    plugin = SimpleNamespace(
        Executor=executor_class(),
        SubmittedJobInfo=Submitted,
        get_job_wildcards=lambda job: job.output[0],
        get_submit_command=lambda *_, **__: "sbatch",
        query_job_status=None,
        query_job_status_squeue=lambda name: name,
        query_job_status_sacct=lambda name: name,
        get_min_job_age=lambda: None,
    )
    runs = {run.spec.path: run for run in MANIFEST.runs}
    jobs = [Job([str(tmp_path / "runs" / path / "run.json")]) for path in runs]
    workflow = SimpleNamespace(
        executor_plugin=SimpleNamespace(name="slurm"),
        workdir_init=tmp_path,
        dag=SimpleNamespace(needrun_jobs=lambda: jobs),
    )
    of_sweep: Any = SimpleNamespace()  # what is made again is none of this
    planned = SweepJobs(workflow, runs, {}, str(tmp_path))
    start = SweepStart(CONFIG, MANIFEST, (), planned, of_sweep, "train")
    made = Sweep(start, jobs, plugin)
    for name in REFUSALS:
        nothing = [] if name == "_missing_libraries" else ""
        monkeypatch.setattr(SweepStart, name, lambda _, nothing=nothing: nothing)
    monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_slurm", plugin)
    monkeypatch.setattr(slurm_limits, "ping", lambda: slurm_limits.Ping(False, ""))
    monkeypatch.setattr(earlier_jobs, "in_queue", lambda *_: made.queue)
    monkeypatch.setattr(QueueWatch, "start", lambda watch: made.watches.append(watch))
    return made


def test_jobs_of_an_earlier_start_are_taken_until_the_sweep_is_cancelled(
    sweep: Sweep, tmp_path: Path
) -> None:
    """Taken later, a job would be one that nobody waits for, or be cancelled unseen."""
    first, second = sweep.jobs
    sweep.leave(first, second)
    sweep.start.begin(sweep.logger)
    executor = sweep.plugin.Executor(tmp_path)
    executor.run_jobs([first])
    executor.cancel()
    assert executor.taken == executor.cancelled == ["1"]
    executor.run_job(second)  # of a thread that was about to submit it
    assert executor.taken == ["1"] and executor.submitted == []


@pytest.mark.parametrize(
    ("state", "kind", "attempt"),
    [("OUT_OF_MEMORY", "out_of_memory", 3), ("NODE_FAIL", "node_failed", 1)],
)
def test_what_slurm_ended_a_job_of_decides_whether_it_is_tried_again(
    state: str, kind: str, attempt: int, sweep: Sweep
) -> None:
    """Its launcher has left no reason: what Slurm says is written before anyone looks at it."""
    failed, other = sweep.jobs
    heard: list[int] = []
    sweep.logger.addHandler(console := logging.Handler())
    console.emit = lambda _: heard.append(failed.attempt)  # type: ignore[method-assign]
    sweep.start.begin(sweep.logger)
    said = f"SLURM-job '17' failed, SLURM status is: '{state}'. "
    words = {"levelno": 40, "event": "job_error", "rule_msg": said, "output": failed.output}
    sweep.logger.handle(logging.makeLogRecord(words))
    failure = failure_report.read(Path(failed.output[0]).parent)
    assert failure is not None and failure.cause.kind == kind
    assert (failed.attempt, other.attempt) == (attempt, 1)
    assert heard == [attempt]  # the console tells whether there is another attempt


def test_all_obstacles_are_named_at_once(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SweepStart, "_missing_libraries", lambda _: ["", "no MPI"])
    monkeypatch.setattr(SweepStart, "_refused_by_slurm", lambda _: "no partition")
    with pytest.raises(SystemExit) as ended:
        sweep.start.begin(sweep.logger)
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
    asks: str, kind: str, refused: bool, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SweepStart, "_unseen_jobs", UNSEEN_JOBS)
    monkeypatch.setattr(SweepJobs, "specs_to_do", lambda _: [])
    settings = SimpleNamespace(status_command=asks)
    sweep.start.jobs.workflow.executor_settings = settings
    shown = [f"AccountingStorageType   = {kind}"]
    monkeypatch.setattr(slurm_limits, "told", lambda *_, **__: shown)
    assert bool(sweep.start._unseen_jobs()) == refused


def test_a_sweep_that_does_not_see_the_queue_ends_before_anything_watches_it(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> NoReturn:
        raise SilentQueueError("Slurm does not show its queue")

    monkeypatch.setattr(earlier_jobs, "in_queue", silent)
    with pytest.raises(SystemExit, match="does not show"):
        sweep.start.begin(sweep.logger)
    assert sweep.watches == sweep.logger.handlers == []
    monkeypatch.setattr(earlier_jobs, "in_queue", lambda *_: [])
    sweep.start.begin(sweep.logger)
    assert len(sweep.watches) == 1
