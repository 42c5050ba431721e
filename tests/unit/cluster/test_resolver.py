"""From environments to clusters."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tfscaling.cluster.gpu_allocation import ClusterError
from tfscaling.cluster.nodelist import expand_task_counts
from tfscaling.cluster.resolver import Cluster, resolve

# No nvidia-smi, whatever this machine has.
NO_GPU_TOOLS = {"PATH": "/nonexistent"}
PS = {"ps": 1, "worker": 3}


def step(rank: int, nodes: str, tasks: str, total: int) -> dict[str, str]:
    """The environment of one task of a Slurm step."""
    return {
        **NO_GPU_TOOLS,
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_STEP_NUM_TASKS": str(total),
    }


@dataclass(frozen=True)
class Case:
    """One line of the table of Slurm steps."""

    environ: dict[str, str]
    arguments: dict[str, Any]
    jobs: dict[str, tuple[str, ...]]
    task: str
    gpus: tuple[str, ...] | None


def read_cases() -> dict[str, Case]:
    cases = {}
    for line in (Path(__file__).parents[1] / "data" / "slurm_steps.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("|")]
        name, rank, nodes, tasks, variables, arguments, jobs, task, gpus = fields
        environ = step(int(rank), nodes, tasks, sum(expand_task_counts(tasks)))
        for variable in variables.split() if variables != "-" else ():
            key, _, value = variable.partition("=")
            environ["CUDA_VISIBLE_DEVICES" if key == "CUDA" else f"SLURM_{key}"] = value
        pairs = [argument.split("=") for argument in arguments.split() if argument != "-"]
        cases[name] = Case(
            environ,
            {key: ast.literal_eval(value) for key, value in pairs},
            read_jobs(jobs),
            task,
            {"None": None, "none": ()}.get(gpus, tuple(gpus.split(","))),
        )
    return cases


def read_jobs(text: str) -> dict[str, tuple[str, ...]]:
    jobs = {}
    for job in text.split("; "):
        name, _, tasks = job.partition(": ")
        pairs = (task.rsplit("+", 1) for task in tasks.split())
        jobs[name] = tuple(f"{host}:{20000 + int(offset)}" for host, offset in pairs)
    return jobs


CASES = read_cases()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_slurm_step(case: Case) -> None:
    before = dict(case.environ)
    cluster = resolve(case.environ, **case.arguments)
    assert case.environ == before
    assert cluster.jobs == case.jobs
    assert f"{cluster.job} {cluster.index}" == case.task
    assert cluster.gpus == case.gpus
    assert cluster.rank == int(case.environ["SLURM_PROCID"])
    assert cluster.source == "slurm"
    # What it sets for TensorFlow leads to the same cluster again.
    again = resolve(case.environ | cluster.environment())
    assert (again.jobs, again.job, again.index) == (cluster.jobs, cluster.job, cluster.index)
    assert (again.rank, again.gpus, again.source) == (cluster.rank, None, "TF_CONFIG")


def test_empty_tf_config_counts_as_none() -> None:
    assert resolve(step(0, "n1", "1", 1) | {"TF_CONFIG": " "}).source == "slurm"


OK = step(0, "n[1-2]", "2,1", 3)
ERRORS: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "batch_script_without_srun": (
        {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n[1-2]"}, {},
        "SLURM_STEP_NODELIST is not set.*start the program with srun"),
    "allocation_without_srun": ({"SLURM_JOB_ID": "7"}, {}, "SLURM_STEP_NODELIST is not set"),
    "no_rank": (OK | {"SLURM_PROCID": ""}, {}, "SLURM_PROCID is not set"),
    "no_task_counts": (OK | {"SLURM_STEP_TASKS_PER_NODE": ""}, {}, "TASKS_PER_NODE is not set"),
    "rank_too_high": (OK | {"SLURM_PROCID": "3"}, {}, "SLURM_PROCID is 3; expected 0 to 2"),
    "rank_negative": (OK | {"SLURM_PROCID": "-1"}, {}, "SLURM_PROCID is '-1'; expected a whole"),
    "broken_node_list": (OK | {"SLURM_STEP_NODELIST": "n[1-2"}, {}, "SLURM_STEP_NODELIST: "),
    "node_twice": (OK | {"SLURM_STEP_NODELIST": "n1,n1"}, {}, "each node of the step once"),
    "broken_task_counts": (OK | {"SLURM_STEP_TASKS_PER_NODE": "2,x"}, {}, "TASKS_PER_NODE: "),
    "too_few_counts": (OK | {"SLURM_STEP_TASKS_PER_NODE": "3"}, {}, "for 1 nodes, but there are 2"),
    "contradicting_number": (OK | {"SLURM_STEP_NUM_TASKS": "4"}, {}, "SLURM_STEP_NUM_TASKS is '4'"),
    "heterogeneous_job": (
        OK | {"SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_HET_SIZE": "2"}, {},
        "heterogeneous",
    ),
    "too_few_jobs": (OK, {"jobs": {"worker": 2}}, "in all 2 tasks, but 3 tasks run"),
    "too_many_jobs": (OK, {"jobs": PS}, "in all 4 tasks, but 3 tasks run"),
    "too_few_reserved_ports": (OK | {"SLURM_STEP_RESV_PORTS": "12000"}, {}, "--resv-ports=2"),
    "broken_reserved_ports": (OK | {"SLURM_STEP_RESV_PORTS": "a-b"}, {}, "RESV_PORTS is 'a-b'"),
    "broken_job_number": (OK | {"SLURM_JOB_ID": "x"}, {}, "SLURM_JOB_ID is 'x'"),
    "other_node": (OK | {"SLURM_NODEID": "1"}, {}, "SLURM_NODEID is '1'.*0 was expected"),
    "cyclic_distribution": (
        step(1, "a,b", "2(x2)", 4) | {"SLURM_NODEID": "1", "SLURM_DISTRIBUTION": "cyclic"}, {},
        "SLURM_NODEID is '1'.*cyclic.*srun --distribution=block"),
    "other_position": (OK | {"SLURM_LOCALID": "1"}, {}, "SLURM_LOCALID is '1'.*0 was expected"),
    "shared_gpu": (
        OK | {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1"}, {}, "2 tasks run on a node"),
    "gpus_of_several_tasks": (
        OK | {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "4"}
        | {"SLURM_GPU_BIND": "closest"}, {}, "SLURM_GPU_BIND is 'closest'.*2 GPUs of 4"),
    "broken_tf_config": (OK | {"TF_CONFIG": "{"}, {}, "TF_CONFIG is '{'; expected JSON"),
    "jobs_outside_slurm": (NO_GPU_TOOLS, {"jobs": PS}, "in all 4 tasks, but 1 tasks run"),
}  # fmt: skip


@pytest.mark.parametrize(("environ", "arguments", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_name_the_variable_its_value_and_what_was_expected(
    environ: dict[str, str], arguments: Any, message: str
) -> None:
    with pytest.raises(ClusterError, match=f"(?s){message}"):
        resolve(environ, **arguments)


def test_tf_config_comes_first() -> None:
    text = '{"cluster": {"worker": ["b:1", "a:1"], "ps": ["b:2"]}, "task": %s}'
    environ = OK | {"TF_CONFIG": text % '{"type": "worker", "index": 1}'}
    cluster = resolve(environ, jobs={"ps": 1, "worker": 2})
    jobs = {"ps": ("b:2",), "worker": ("b:1", "a:1")}
    assert cluster == Cluster(jobs, "worker", 1, 2, None, "TF_CONFIG")
    assert json.loads(cluster.tf_config()) == json.loads(environ["TF_CONFIG"])


def test_single_worker_outside_slurm() -> None:
    cluster = resolve({"CUDA_VISIBLE_DEVICES": "0"})
    assert (cluster.job, cluster.index, cluster.rank) == ("worker", 0, 0)
    assert (cluster.gpus, cluster.source, cluster.num_tasks) == (None, "single", 1)
    host, port = cluster.jobs["worker"][0].split(":")
    assert host == "localhost" and 20000 <= int(port) < 30000
    assert list(resolve({}, jobs={"chief": 1, "ps": 0}).jobs) == ["chief"]


def test_properties() -> None:
    jobs = {"chief": ("b:1",), "ps": ("a:1",), "worker": ("b:2", "[::1]:1")}
    cluster = Cluster(jobs, "worker", 0, 2, ("0", "1"), "slurm")
    assert cluster.num_tasks == 4
    assert cluster.hosts == ("b", "a", "[::1]")
    assert cluster.environment({}) == {
        "TF_CONFIG": cluster.tf_config(), "CUDA_VISIBLE_DEVICES": "0,1",
        "no_grpc_proxy": "b,a,::1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "n1,n2"),
        ({"no_proxy": ""}, "n1,n2"),
        ({"no_proxy": ".site.org, 10.0.0.0/8"}, ".site.org, 10.0.0.0/8,n1,n2"),
        ({"no_proxy": ".site.org", "no_grpc_proxy": "n9"}, "n9,n1,n2"),
        ({"no_proxy": ".site.org", "no_grpc_proxy": ""}, "n1,n2"),  # as gRPC reads them
    ],
)
def test_no_proxy_is_between_the_nodes(environ: dict[str, str], expected: str) -> None:
    cluster = resolve(step(0, "n[1-2]", "2,1", 3))
    assert cluster.environment(environ)["no_grpc_proxy"] == expected


@pytest.mark.parametrize(
    ("jobs", "task", "is_chief"),
    [
        ({"worker": ("a:1", "a:2")}, ("worker", 0), True),
        ({"ps": ("a:1",), "worker": ("a:2",)}, ("worker", 0), True),
        ({"chief": ("a:1",), "worker": ("a:2",)}, ("worker", 0), False),
        ({"chief": ("a:1",), "worker": ("a:2",)}, ("chief", 0), True),
    ],
)
def test_chief(jobs: Any, task: tuple[str, int], is_chief: bool) -> None:
    assert Cluster(jobs, *task, 0, None, "slurm").is_chief is is_chief


CLUSTER = {"worker": ["b:2", "a:1"], "ps": ["c:1"]}


def text(cluster: Any = CLUSTER, **other: Any) -> str:
    return json.dumps({"cluster": cluster, **other})


@pytest.mark.parametrize(
    ("task", "rank"),
    [
        ({"type": "ps", "index": 0}, 0),
        ({"type": "worker", "index": 0}, 1),
        ({"type": "worker", "index": "1"}, 2),
    ],
)
def test_tasks_of_tf_config(task: Any, rank: int) -> None:
    environ = {"TF_CONFIG": text(task=task, rpc_layer="grpc")}
    cluster = resolve(environ, jobs={"worker": 2, "ps": 1, "chief": 0})
    assert cluster.jobs == {"ps": ("c:1",), "worker": ("b:2", "a:1")}
    assert (cluster.job, cluster.index) == (task["type"], int(task["index"]))
    assert cluster.rank == rank
    with pytest.raises(ClusterError, match="{'worker': 3} tasks"):
        resolve(environ, jobs={"worker": 3})


def test_a_single_task_of_tf_config_needs_no_task() -> None:
    cluster = resolve({"TF_CONFIG": text({"chief": ["[::1]:80"], "ps": []})})
    assert (cluster.job, cluster.jobs) == ("chief", {"chief": ("[::1]:80",)})


BROKEN = {
    "no_json": ("{", "expected JSON"),
    "huge_number": (f'{{"cluster": {"9" * 5000}}}', "expected JSON"),
    "empty_object": ("{}", 'an object with "cluster"'),
    "empty_cluster": (text({}), "at least one task"),
    "job_is_no_list": (text({"worker": "a:1"}), "a list of \"host:port\" for job 'worker'"),
    "no_port": (text({"worker": ["a"]}), 'a list of "host:port"'),
    "port_too_high": (text({"worker": ["a:65536"]}), 'a list of "host:port"'),
    "address_twice": (text({"worker": ["a:1"], "ps": ["a:1"]}), "each address once"),
    "no_task": (text(), 'a "task" with "type" and "index"'),
    "no_index": (text(task={"type": "worker"}), "index None"),
    "index_too_high": (text(task={"type": "worker", "index": 2}), "'worker' with index 2"),
    "no_type": (text(task={"index": 0}), "not type None"),
    "unknown_type": (text(task={"type": "boss", "index": 0}), "not type 'boss'"),
}


@pytest.mark.parametrize(("broken", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_text_is_shown_with_what_was_expected(broken: str, message: str) -> None:
    with pytest.raises(ClusterError) as caught:
        resolve({"TF_CONFIG": broken})
    assert str(caught.value).startswith(f"TF_CONFIG is {broken!r}; expected ")
    assert message in str(caught.value)
