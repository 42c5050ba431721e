"""What ends a sweep before anything is submitted, and what follows its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import snakemake_executor_plugin_slurm as plugin
from builders import manifest_of
from msgspec.structs import replace
from slurm_executor import Log, Slurm
from snakemake.settings.types import DAGSettings
from snakemake_interface_common.exceptions import WorkflowError
from submitted import DEFAULTS, config_of
from tfscaling.plan import local_checks, preflight
from tfscaling.plan.retries import SlurmSweep
from tfscaling.plan.sweep_start import PLUGIN_ADVICE, SweepStart
from tfscaling.snakemake_adapter.sweep_jobs import SweepJobs
from tfscaling.study.config_types import Config

NO_ACCOUNTING = "AccountingStorageType = (null)"
Begin = Callable[..., "Outcome"]


class Outcome:
    """What the begin of a sweep of two runs did: warnings, what it follows, and its refusal."""

    def __init__(self, start: SweepStart, followed: list[Any]) -> None:
        logger, self.refusal = Log(), ""
        try:
            start.begin(logger)
        except SystemExit as error:
            self.refusal = str(error)
        self.warnings, self.followed = logger.warnings, followed


def follower(followed: list[Any], error: str) -> Callable[..., None]:
    """The method of the executor that gets the sweep; it raises this error, if any."""

    def follow(sweep: Any, workdir: str, log: Callable[[str], None]) -> None:
        if error:
            raise WorkflowError(error)
        followed.append((sweep, workdir))

    return follow


@pytest.fixture
def begin(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begins a sweep with this executor, as Snakemake describes it; Slurm takes all jobs."""
    monkeypatch.chdir(tmp_path)
    slurm.answer("sbatch", "exit 0")
    for asked in (preflight.controller_problem, preflight.account_with_parents):
        asked.cache_clear()

    def make(
        executor: str,
        config: Config | None = None,
        error: str = "",
        deployed: frozenset[str] = frozenset(),
        **settings: Any,
    ) -> Outcome:
        config = config or config_of()
        followed: list[Any] = []
        manifest = manifest_of(config)
        runs = {run.spec.path: run for run in manifest.runs}
        records = [f"results/runs/{path}/run.json" for path in runs]
        jobs = [SimpleNamespace(output=[record], is_checkpoint=False) for record in records]
        usual = {"status_command": "squeue"}
        workflow = SimpleNamespace(
            executor_plugin=SimpleNamespace(
                name=executor, executor=SimpleNamespace(follow=follower(followed, error))
            ),
            executor_settings=plugin.ExecutorSettings(**{**usual, **settings}),
            resource_settings=SimpleNamespace(default_resources=DEFAULTS),
            workdir_init=str(tmp_path),
            deployment_settings=SimpleNamespace(deployment_method=deployed),
            dag=SimpleNamespace(needrun_jobs=lambda: iter(jobs)),
            dag_settings=DAGSettings(),
        )
        swept = SweepJobs(workflow, runs, "results")
        return Outcome(SweepStart(config, manifest, (), swept, "train"), followed)

    yield make
    for asked in (preflight.controller_problem, preflight.account_with_parents):
        asked.cache_clear()


@pytest.mark.parametrize("executor", ["slurm-sweep", "slurm-allocation"])
def test_the_projects_executors_follow_the_runs_to_do(
    executor: str, begin: Begin, tmp_path: Path
) -> None:
    found = begin(executor)
    assert (found.refusal, found.warnings) == ("", [])
    ((sweep, workdir),) = found.followed
    assert isinstance(sweep, SlurmSweep) and workdir == str(tmp_path)


@pytest.mark.parametrize(("executor", "warnings"), [("slurm", [PLUGIN_ADVICE]), ("local", [])])
def test_snakemakes_own_executor_of_slurm_is_a_warning(
    executor: str, warnings: list[str], begin: Begin
) -> None:
    found = begin(executor)
    assert (found.refusal, found.warnings, found.followed) == ("", warnings, [])


def test_a_sweep_that_cannot_be_followed_ends_with_the_reason(begin: Begin) -> None:
    found = begin("slurm-sweep", error="two sweeps of one study")
    assert (found.refusal, found.followed) == ("two sweeps of one study", [])


@pytest.mark.parametrize("executor", ["slurm-sweep", "slurm", "local"])
def test_runs_beyond_the_budget_are_not_begun(executor: str, begin: Begin) -> None:
    found = begin(executor, config_of({"node_hours": 1.25}))
    reason, end = found.refusal.splitlines()
    assert "budget.node_hours" in reason and "1.50 node-hours" in reason
    assert end == "Nothing is submitted." and found.followed == []


@pytest.mark.parametrize(
    ("executor", "status_command", "accounting", "is_refused"),
    [
        ("slurm-sweep", "sacct", NO_ACCOUNTING, True),
        ("slurm", "sacct", NO_ACCOUNTING, True),
        ("slurm-sweep", "squeue", NO_ACCOUNTING, False),
        ("slurm-sweep", "sacct", "AccountingStorageType = accounting_storage/slurmdbd", False),
        ("local", "sacct", NO_ACCOUNTING, False),
    ],
)
def test_sacct_needs_accounting(
    executor: str,
    status_command: str,
    accounting: str,
    is_refused: bool,
    begin: Begin,
    slurm: Slurm,
) -> None:
    slurm.answer("scontrol", f'[ "$2" = config ] && echo "{accounting}"; exit 0')
    found = begin(executor, status_command=status_command)
    assert (f"--{executor}-status-command squeue" in found.refusal) is is_refused
    assert bool(found.refusal) is is_refused


@pytest.mark.parametrize(("executor", "is_refused"), [("slurm-sweep", True), ("local", False)])
def test_jobs_are_no_array(executor: str, is_refused: bool, begin: Begin) -> None:
    found = begin(executor, array_jobs="train")
    assert ("array-jobs train" in found.refusal) is is_refused


def test_what_slurm_refuses_is_not_begun(begin: Begin, slurm: Slurm) -> None:
    slurm.answer("sbatch", "echo allocation failure: no such node >&2\nexit 1")
    assert "no such node" in begin("slurm-sweep").refusal
    assert begin("local").refusal == ""


@pytest.mark.parametrize(
    ("deployed", "check_models", "problems"),
    [(set(), True, ["GPUs", "models"]), (set(), False, ["GPUs"]), ({"conda"}, True, [])],
)
def test_what_this_machine_lacks_is_checked_unless_jobs_have_another_environment(
    deployed: set[str],
    check_models: bool,
    problems: list[str],
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        local_checks, "cuda_problem", lambda runs, config: "GPUs" * (len(runs) == 2)
    )
    monkeypatch.setattr(local_checks, "model_problem", lambda runs, results: "models")
    config = replace(config_of(), check_models=check_models)
    found = begin("slurm-sweep", config, deployed=frozenset(deployed))
    assert found.refusal.splitlines()[:-1] == problems
    assert bool(found.followed) is not bool(problems)
