"""The configuration of a job with one process per node."""

from __future__ import annotations

from typing import Any

import pytest
from tfscaling.cluster.task_layout import ClusterError
from tfscaling.cluster.tf_config_from_slurm import tf_config_from_slurm


def set_job(monkeypatch: pytest.MonkeyPatch, nodelist: str, num_nodes: int, own: str) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodelist)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(num_nodes))
    monkeypatch.setenv("SLURMD_NODENAME", own)


@pytest.mark.parametrize(
    ("own", "job", "index"), [("p0", "ps", 0), ("p1", "worker", 0), ("p10", "worker", 2)]
)
def test_first_nodes_are_parameter_servers(
    monkeypatch: pytest.MonkeyPatch, own: str, job: str, index: int
) -> None:
    set_job(monkeypatch, "p[0-1,9-10]", 4, own)
    cluster, my_job_name, my_task_index = tf_config_from_slurm(ps_number=1)
    assert cluster == {"ps": ["p0:2222"], "worker": ["p1:2222", "p9:2222", "p10:2222"]}
    assert (my_job_name, my_task_index) == (job, index)


def test_second_parameter_server_and_another_port(monkeypatch: pytest.MonkeyPatch) -> None:
    set_job(monkeypatch, "b[001-002],a1", 3, "b002")
    assert tf_config_from_slurm(2, port_number=1234) == (
        {"ps": ["b001:1234", "b002:1234"], "worker": ["a1:1234"]},
        "ps",
        1,
    )


@pytest.mark.parametrize("nodelist", ["login", "n1", "n[1]"])
def test_single_node_with_and_without_brackets(
    monkeypatch: pytest.MonkeyPatch, nodelist: str
) -> None:
    name = nodelist.replace("[", "").replace("]", "")
    set_job(monkeypatch, nodelist, 1, name)
    assert tf_config_from_slurm(0) == ({"ps": [], "worker": [f"{name}:2222"]}, "worker", 0)


@pytest.mark.parametrize("ps_number", [2, 3, -1, "1", 1.0])
def test_wrong_number_of_parameter_servers_is_refused(
    monkeypatch: pytest.MonkeyPatch, ps_number: Any
) -> None:
    set_job(monkeypatch, "n[1-2]", 2, "n1")
    with pytest.raises(ClusterError, match="ps_number is .* for 2 nodes .n1, n2.; expected 0 to 1"):
        tf_config_from_slurm(ps_number)


def test_node_outside_its_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_job(monkeypatch, "n[1-2]", 2, "m1")
    with pytest.raises(ClusterError, match="SLURMD_NODENAME is 'm1'; expected one of the nodes"):
        tf_config_from_slurm(1)


def test_wrong_port_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_job(monkeypatch, "n[1-2]", 2, "n1")
    with pytest.raises(ClusterError, match="is 65536; expected a whole number from 1"):
        tf_config_from_slurm(1, port_number=65536)


def test_results_make_a_tensorflow_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    set_job(monkeypatch, "n[1-3]", 3, "n3")
    cluster, job, index = tf_config_from_slurm(ps_number=1)
    assert tf.train.ClusterSpec(cluster).task_address(job, index) == "n3:2222"
