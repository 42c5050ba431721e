"""The sbatch line of the plan is the one that the plugin hands to the shell."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import raw_config
from msgspec.structs import replace
from slurm_executor import Job, Started, Sweep
from snakemake.iocontainers import ResourceList
from snakemake_executor_plugin_slurm_sweep.slurm_client import Refusal, RefusalKind, SlurmClient
from submitted import DEFAULTS, PROFILE, config_of, described, plan_of, planned_runs
from tfscaling.plan import costed_plan
from tfscaling.snakemake_adapter import submission
from tfscaling.snakemake_adapter.submission import Submission
from tfscaling.study import config_validation, platforms
from tfscaling.study.config_types import AXES
from tfscaling.study.geometry import Geometry
from tfscaling.study.platforms import Resource
from tfscaling.study.run_spec import RunSpec


def submitted_by_the_plugin(
    resources: Mapping[str, Resource], spec: RunSpec, folder: Path, **settings: Any
) -> str:
    """What the executor hands to the shell; sbatch itself is not called."""
    calls: list[str] = []

    def submit(_: Any, line: str, script: str | None = None) -> Refusal:
        calls.append(line)
        return Refusal(RefusalKind.FINAL, "stopped here by the test")

    defaults = {name: DEFAULTS[name].value for name in DEFAULTS}
    job = Job(["run.json"], [str(spec.axes[axis]) for axis in AXES])
    asked = {"slurm_extra": "", **defaults, "training_runs": 1, **resources}
    job.resources = ResourceList(fromdict=asked)
    usual = {"logdir": Path(PROFILE["slurm-sweep-logdir"])}
    with contextlib.chdir(folder):
        executor = Started(folder, Sweep(), **{**usual, **settings})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SlurmClient, "submit", submit)
        executor.run_job(job)
    executor.shutdown()
    (call,) = calls
    known = {
        executor.run_uuid.rpartition("_")[2]: submission.UUID,
        "'echo \"1\"'": f'"{submission.COMMAND}"',
    }  # fmt: skip
    for text, placeholder in known.items():
        call = call.replace(text, placeholder)
    return call


def run_name(spec: RunSpec) -> str:
    """What the plugin calls a run, in the job's comment and in a folder."""
    return "/".join(str(spec.axes[axis]) for axis in AXES)


PLATFORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partition": {"partition": "v100-x4"},
    "account": {"account": "lab,other", "qos": "high", "constraint": "a&b", "reservation": "r"},
    "memory and extra": {
        "mem_mb": 4000,
        "exclusive": True,
        "extra": "--nice=5 --hint=nomultithread",
    },
    "time limit": {"runtime_min": 90},
    "typed GPUs": {"gpu_gres": "gpu:v100"},
    "GPUs as NVML names them": {"gpu_gres": "gpu:nvidia_a100-sxm4-80gb"},
    "several gres": {"gpu_gres": "gpu:a100-40,nvme:1"},
    "memory per CPU": {"mem_mb_per_cpu": 4000},
    "memory per GPU": {"mem_mb_per_gpu": 64000},
    "no GPUs for Slurm": {"gpu_gres": None},
    "local launcher": {"launcher": "local", "devices": "logical"},
}
SHAPES = [Geometry(1, 1, 0), Geometry(3, 2, 0), Geometry(2, "2+1", 0), Geometry(2, 1, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PLATFORMS)
def test_the_line_is_the_one_that_the_plugin_hands_to_the_shell(
    name: str, shape: Geometry, tmp_path: Path
) -> None:
    platform = config_of(**PLATFORMS[name]).platforms["cluster"]
    resources = platforms.slurm_resources(platform, shape)
    spec = planned_runs(config_of())[0].spec
    spec = replace(spec, point=replace(spec.point, model="own.models:vgg"))
    line = submission.sbatch_line(resources, run_name(spec), described(folder=tmp_path))
    assert line == submitted_by_the_plugin(resources, spec, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"requeue": True}, {"qos": "low", "reservation": "night"}, {"jobname_prefix": "tf"},
        {"exclude_failed_nodes": "node7"}, {"logdir": Path("/var/log/mine")}, {"logdir": None},
    ],
    ids=str,
)  # fmt: skip
def test_the_settings_of_the_profile_reach_the_line(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    resources = platforms.slurm_resources(
        config_of(partition="cpu").platforms["cluster"], Geometry(2, 1, 0)
    )
    spec = planned_runs(config_of())[0].spec
    line = submission.sbatch_line(resources, run_name(spec), described(folder=tmp_path, **settings))
    assert line == submitted_by_the_plugin(resources, spec, tmp_path, **settings)


def test_in_a_module_the_line_has_the_name_of_the_modules_rule() -> None:
    resources = platforms.slurm_resources(config_of().platforms["cluster"], Geometry(1, 1, 0))
    line = submission.sbatch_line(resources, "a/1", replace(described(), rule="tfs_train"))
    assert "/rule_tfs_train/a/1/" in line
    assert "rule_tfs_train/a/1}}" in line


def test_the_plans_line_has_a_placeholder_for_the_name_of_the_run(tmp_path: Path) -> None:
    config = config_of(repeats=2)
    rows = costed_plan.add_submission(plan_of(config, tmp_path).rows, config, described())
    assert [row.is_sbatch for row in rows] == [True, True, False]
    assert "/rule_train/<run>/%j.log" in (rows[0].submission or "")


def test_without_the_slurm_executor_nothing_is_submitted(tmp_path: Path) -> None:
    raw = raw_config((("grid", 0, "platform"), ["cluster", "laptop"]))
    config = config_validation.convert_to_types(raw)
    rows = plan_of(config, tmp_path).rows
    local = costed_plan.add_submission(rows, config, described("local"))
    assert {row.platform: row.submission for row in local} == {
        "laptop": submission.HERE, "cluster": submission.NO_SLURM,
    }  # fmt: skip
    first, *_ = costed_plan.add_submission(rows, config, described("lsf"))
    assert not first.is_sbatch and "lsf" in (first.submission or "").split()


def test_a_workflow_without_executor_settings_and_defaults_is_described() -> None:
    workflow = SimpleNamespace(
        executor_plugin=SimpleNamespace(name="local"), executor_settings=None,
        resource_settings=SimpleNamespace(default_resources=None), workdir_init="/p",
        deployment_settings=SimpleNamespace(deployment_method={"conda"}),
    )  # fmt: skip
    assert submission.read_submission(workflow) == Submission(
        executor="local", settings={}, default_resources={}, workdir="/p", rule="train",
        deploys_software=True,
    )  # fmt: skip
