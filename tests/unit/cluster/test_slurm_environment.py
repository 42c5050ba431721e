"""What is read from Slurm's variables."""

from __future__ import annotations

import pytest
from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster.task_layout import ClusterError


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID"])
def test_is_slurm(name: str) -> None:
    assert slurm.is_slurm({name: "1"})
    assert not slurm.is_slurm({name: ""})
    assert not slurm.is_slurm({"SLURM_CONF": "slurm.conf"})


@pytest.mark.parametrize("value", ["-1", "1.0", "x", "٣", "9" * 5000])
def test_what_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(ClusterError, match="SLURM_PROCID is '.*'"):
        slurm.own_rank({"SLURM_PROCID": value})


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("", [20000, 20001]),
        ("12000", [12000]),
        ("12000-12002", [12000, 12001, 12002]),
        ("12000-12001,12005", [12000, 12001, 12005]),
        ("[12000-12001]", [12000, 12001]),
    ],
)
def test_reserved_ports(value: str, ports: list[int]) -> None:
    assert slurm.ports({"SLURM_STEP_RESV_PORTS": value}, 2) == ports


def port_base(job: int, step: int | None = None) -> int:
    step_id = {} if step is None else {"SLURM_STEP_ID": str(step)}
    return slurm.job_port_base({"SLURM_JOB_ID": str(job), **step_id})


def test_ports_of_a_job_are_in_the_safe_range() -> None:
    for job in [*range(400), 4294901760]:
        assert 20000 <= port_base(job) < 30000 - 63
    assert slurm.job_port_base({}) == 20000
    # The step numbers of a batch script and of an interactive step are just below 2**32.
    assert 20000 <= port_base(7, 4294967291) < 30000


def test_neighbouring_jobs_and_steps_do_not_share_ports() -> None:
    used = [
        port
        for job, step in [(9000, 0), (9001, 0), (9000, 1), (9000, 2), (9001, 1), (9077, 0)]
        for port in range(port_base(job, step), port_base(job, step) + 64)
    ]
    assert len(set(used)) == len(used)
    assert len({port_base(job) for job in range(1000, 1156)}) == 156
    assert len({port_base(1000, step) for step in range(156)}) == 156


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("block", 1)),
        ({"SLURM_DISTRIBUTION": "block:cyclic"}, ("block", 1)),
        ({"SLURM_DISTRIBUTION": "block,Pack"}, ("block", 1)),
        ({"SLURM_DISTRIBUTION": "unknown"}, ("block", 1)),
        ({"SLURM_DISTRIBUTION": "arbitrary"}, ("block", 1)),
        ({"SLURM_DISTRIBUTION": "cyclic"}, ("cyclic", 1)),
        ({"SLURM_DISTRIBUTION": "cyclic:block"}, ("cyclic", 1)),
        ({"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "4"}, ("plane", 4)),
        ({"SLURM_DISTRIBUTION": "plane=2"}, ("plane", 2)),
    ],
)
def test_distribution(environ: dict[str, str], expected: tuple[str, int]) -> None:
    assert slurm.distribution(environ) == expected


@pytest.mark.parametrize("name", ["plane", "plane=x", "plane="])
def test_plane_without_a_size_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match=f"SLURM_DISTRIBUTION is '{name}' without SLURM_DIST_PL"):
        slurm.distribution({"SLURM_DISTRIBUTION": name})


CLOSEST = {"SLURM_GPU_BIND": "closest", "SLURM_GPUS_ON_NODE": "4"}


@pytest.mark.parametrize(
    ("environ", "visible", "expected"),
    [
        ({}, 1, None),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4, False),
        ({"SLURM_GPUS_ON_NODE": "4"}, 2, True),
        ({"SLURM_GPUS_ON_NODE": "4"}, 0, True),
        ({"SLURM_GPU_BIND": "none", "SLURM_GPUS_ON_NODE": "4"}, 2, False),
        ({"SLURM_GPU_BIND": "single:1"}, 1, True),
        ({"SLURM_GPU_BIND": "closest"}, 2, None),
        (CLOSEST, 4, False),
        (CLOSEST, 2, None),
        # it was shown all four, and has taken its own since
        (CLOSEST | {"SLURM_STEP_GPUS": "0,1,2,3"}, 2, True),
        ({"SLURM_GPU_BIND": "verbose,closest", "SLURM_GPUS_PER_TASK": "2"}, 2, None),
        ({"SLURM_GPU_BIND": "verbose,per_task:2"}, 2, True),
        ({"SLURM_GPU_BIND": "verbose,none"}, 2, False),
        ({"SLURM_NTASKS_PER_GPU": "2"}, 1, True),
        ({"SLURM_GPUS_PER_TASK": "2"}, 2, True),
        ({"SLURM_GPUS_PER_TASK": "v100:2"}, 2, True),
        ({"SLURM_GPUS_PER_TASK": "2"}, 4, None),
    ],
)
def test_gpus_are_bound(environ: dict[str, str], visible: int, expected: bool | None) -> None:
    assert slurm.gpus_are_bound(environ, visible) is expected


@pytest.mark.parametrize(
    ("binding", "visible", "tasks", "is_refused"),
    [
        ("closest", 2, 4, True),
        ("verbose,closest", 2, 2, True),
        ("closest", 4, 4, False),  # all GPUs of the node: they are divided as without a binding
        ("closest", 2, 1, False),  # no other task on the node
        ("closest", 0, 4, False),
        ("single:1", 1, 4, False),
        ("", 2, 4, False),
    ],
)
def test_gpus_that_other_tasks_may_see_are_no_tasks_own(
    binding: str, visible: int, tasks: int, is_refused: bool
) -> None:
    environ = {"SLURM_GPU_BIND": binding, "SLURM_GPUS_ON_NODE": "4"}
    if is_refused:
        with pytest.raises(ClusterError, match="SLURM_GPU_BIND .* 2 GPUs"):
            slurm.check_gpu_sharing(environ, visible, tasks)
    else:
        slurm.check_gpu_sharing(environ, visible, tasks)


def test_a_task_that_has_taken_its_own_gpus_shares_none() -> None:
    slurm.check_gpu_sharing(CLOSEST | {"SLURM_STEP_GPUS": "0,1,2,3"}, 2, 4)


@pytest.mark.parametrize(
    ("visible", "on_node", "expected"),
    [
        ("0,1", "2", 2),
        ("1", "2", 1),
        ("", "2", 0),
        ("NoDevFiles", "2", 0),
        (None, "2", None),
        ("0,1", None, None),
        (None, None, None),
    ],
)
def test_gpus_that_slurm_gives(
    visible: str | None, on_node: str | None, expected: int | None
) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": visible, "SLURM_GPUS_ON_NODE": on_node}
    told = {name: value for name, value in environ.items() if value is not None}
    assert slurm.gpus_given(told) == expected
