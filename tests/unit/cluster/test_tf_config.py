"""TF_CONFIG is read and checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tfscaling.cluster.task_layout import ClusterError
from tfscaling.cluster.tf_config import TfConfig, read_tf_config

CLUSTER = {"worker": ["b:2", "a:1"], "ps": ["c:1"]}
JOBS = {"ps": ("c:1",), "worker": ("b:2", "a:1")}


def text(cluster: Any = CLUSTER, **other: Any) -> str:
    return json.dumps({"cluster": cluster, **other})


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"type": "ps", "index": 0}, TfConfig(JOBS, "ps", 0, 0)),
        ({"type": "worker", "index": 0}, TfConfig(JOBS, "worker", 0, 1)),
        ({"type": "worker", "index": "1"}, TfConfig(JOBS, "worker", 1, 2)),
    ],
)
def test_tasks(task: Any, expected: TfConfig) -> None:
    config = read_tf_config(text(task=task, rpc_layer="grpc"))
    assert config == expected
    assert list(config.jobs) == ["ps", "worker"]


def test_single_task_needs_no_task() -> None:
    assert read_tf_config(text({"chief": ["a:1"], "ps": []})).job == "chief"


def test_address_of_internet_protocol_6() -> None:
    assert read_tf_config(text({"worker": ["[::1]:80"]})).jobs == {"worker": ("[::1]:80",)}


def test_jobs_must_agree() -> None:
    task = {"type": "ps", "index": 0}
    assert read_tf_config(text(task=task), {"worker": 2, "ps": 1, "chief": 0}).rank == 0
    with pytest.raises(ClusterError, match="{'worker': 3} tasks"):
        read_tf_config(text(task=task), {"worker": 3})


BROKEN = {
    "no_json": ("{", "expected JSON"),
    "huge_number": (f'{{"cluster": {"9" * 5000}}}', "expected JSON"),
    "no_object": ("[]", 'an object with "cluster"'),
    "empty_object": ("{}", 'an object with "cluster"'),
    "cluster_is_a_list": (text([]), 'an object with "cluster"'),
    "empty_cluster": (text({}), "at least one task"),
    "empty_jobs": (text({"worker": []}), "at least one task"),
    "job_is_no_list": (text({"worker": "a:1"}), "a list of \"host:port\" for job 'worker'"),
    "no_port": (text({"worker": ["a"]}), 'a list of "host:port"'),
    "no_host": (text({"worker": [":1"]}), 'a list of "host:port"'),
    "port_zero": (text({"worker": ["a:0"]}), 'a list of "host:port"'),
    "port_too_high": (text({"worker": ["a:65536"]}), 'a list of "host:port"'),
    "address_is_no_text": (text({"worker": [1]}), 'a list of "host:port"'),
    "address_twice": (text({"worker": ["a:1"], "ps": ["a:1"]}), "each address once"),
    "no_task": (text(), 'a "task" with "type" and "index"'),
    "task_is_no_object": (text(task=0), 'a "task" with "type" and "index"'),
    "no_index": (text(task={"type": "worker"}), "index None"),
    "negative_index": (text(task={"type": "worker", "index": -1}), "index -1"),
    "index_is_no_number": (text(task={"type": "worker", "index": "x"}), "index 'x'"),
    "index_too_high": (text(task={"type": "worker", "index": 2}), "'worker' with index 2"),
    "no_type": (text(task={"index": 0}), "not type None"),
    "unknown_type": (text(task={"type": "boss", "index": 0}), "not type 'boss'"),
    "type_is_no_text": (text(task={"type": ["ps"], "index": 0}), "not type"),
}


@pytest.mark.parametrize(("broken", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_text_is_shown_with_what_was_expected(broken: str, message: str) -> None:
    with pytest.raises(ClusterError) as caught:
        read_tf_config(broken)
    assert str(caught.value).startswith(f"TF_CONFIG is {broken!r}; expected ")
    assert message in str(caught.value)
