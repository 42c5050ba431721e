"""What is read from Slurm's variables."""

from __future__ import annotations

import pytest
from tfscaling.cluster import slurm_environment as slurm
from tfscaling.cluster.gpu_allocation import ClusterError


@pytest.mark.parametrize("value", ["-1", "1.0", "x", "٣", "9" * 5000])
def test_what_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(ClusterError, match="SLURM_PROCID is '.*'"):
        slurm.own_rank({"SLURM_PROCID": value})


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("", [20000, 20001]),
        ("12000-12001", [12000, 12001]),
        ("12000-12002", [12000, 12001, 12002]),
        ("12000-12001,12005", [12000, 12001, 12005]),
        ("[12000-12001]", [12000, 12001]),
    ],
)
def test_reserved_ports(value: str, ports: list[int]) -> None:
    assert slurm.task_ports({"SLURM_STEP_RESV_PORTS": value}, 2) == ports


def port_base(job: int, step: int | None = None) -> int:
    step_id = {} if step is None else {"SLURM_STEP_ID": str(step)}
    return slurm.task_ports({"SLURM_JOB_ID": str(job), **step_id}, 1)[0]


def test_ports_of_a_job_are_in_the_safe_range() -> None:
    for job in [*range(400), 4294901760]:
        assert 20000 <= port_base(job) < 30000 - 63
    assert slurm.task_ports({}, 1) == [20000]
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
    ("job", "step", "expected"),
    [("12", "0", "12.0"), ("12", "", None), ("12", None, None), (None, "0", None), ("", "", None)],
)
def test_a_step_is_named_with_its_job(
    job: str | None, step: str | None, expected: str | None
) -> None:
    names = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step}
    environ = {name: value for name, value in names.items() if value is not None}
    assert slurm.step_id(environ) == expected
