"""Names of hosts that cannot be resolved, and names in a second network of the nodes."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import REGISTRIES, SCRIPTS, raw_config
from tfscaling.cluster.resolver import resolve
from tfscaling.launch import rank_process
from tfscaling.plan.retries import is_permanent
from tfscaling.record import events
from tfscaling.record.attempts import Cause
from tfscaling.record.events import Event, EventName
from tfscaling.study import acceptance, config_validation, run_spec

#: RFC 6761 keeps this domain from ever having names.
UNKNOWN = "node{}.invalid"
PROGRAM = {"per_replica_batch_size": 8, "epochs": 1, "program": ["touch", "begun"]}


def rank_of(
    folder: Path, workers: list[str], index: int, *, of_program: bool = False
) -> tuple[subprocess.CompletedProcess[str], Event]:
    """Run one rank of a training or program among these workers; returns it and its last event."""
    kind = {"model": "mnist_cnn", "recipe": "weak", "strategy": "multi_worker_mirrored"}
    if of_program:
        kind = {"recipe": "script", "strategy": "own"}
    block = {"platform": "laptop", "nodes": len(workers), **kind}
    raw = raw_config((("grid",), [block]), (("recipes", "script"), PROGRAM))
    (run,) = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES).runs
    (folder / "spec.json").write_text(run_spec.encode_spec(run.spec))
    task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    words = ["--spec", "spec.json", "--folder", ".", "--dataset-file", "not-read.npz"]
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "run_rank.py"), *words],
        cwd=folder,
        env={**os.environ, "TF_CONFIG": json.dumps(task)},
        capture_output=True,
        text=True,
        check=False,
    )
    seen = events.read_events_by_rank(folder)
    assert index in seen, done.stderr
    return done, seen[index][-1]


@pytest.mark.parametrize("index", [0, 1])
def test_a_rank_names_the_hosts_that_it_cannot_resolve(
    index: int, tmp_path: Path, dice: random.Random
) -> None:
    unknown = UNKNOWN.format(dice.randrange(1000))
    workers = ["127.0.0.1:1", "localhost:2"]
    workers[1 - index] = f"{unknown}:{dice.randint(1024, 60000)}"
    done, last = rank_of(tmp_path, workers, index)
    assert done.returncode == 1
    assert (last.name, last.details["error"]) == ("failed", "HostNameError"), last
    message = last.details["message"]
    assert unknown in message and "localhost" not in message
    assert not is_permanent(Cause(kind="rank_failed", message="", error="HostNameError"))


def test_a_program_may_need_no_names(tmp_path: Path) -> None:
    done, last = rank_of(tmp_path, ["127.0.0.1:1", f"{UNKNOWN.format(1)}:2"], 0, of_program=True)
    assert (tmp_path / "begun").exists() and last.name is EventName.END, done.stderr


@pytest.mark.parametrize("busy", [1, 3, 9])
def test_a_busy_name_server_is_asked_again_for_some_seconds(
    busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(host: str, port: None) -> list[object]:
        asked.append(host)
        if len(asked) <= busy:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return []

    waited_s: list[float] = []
    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(time, "sleep", waited_s.append)
    cluster = resolve({**STEP, "SLURM_STEP_NODELIST": "node[7-8]"}, host_suffix="", gpus=False)
    problem = rank_process._find_unknown_hosts(cluster)
    assert bool(problem) == (busy == 9) == ("Temporary failure" in problem)
    assert sum(waited_s[: min(busy, 3) + 1]) == [0, 1, 3, 7][min(busy, 3)]


STEP = {
    "SLURM_JOB_ID": "1", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "suffix", "hosts"),
    [
        ("node[7-8]", "-ib0", ("node7-ib0", "node8-ib0")),
        ("jrc[0001-0002]", "i", ("jrc0001i", "jrc0002i")),
        ("a.site.org,b.site.org", "-hsn", ("a-hsn.site.org", "b-hsn.site.org")),
        ("node[7-8]", "", ("node7", "node8")),
    ],
)
def test_addresses_have_the_suffix_of_the_ranks_network(
    nodes: str, suffix: str, hosts: tuple[str, ...]
) -> None:
    cluster = resolve({**STEP, "SLURM_STEP_NODELIST": nodes}, host_suffix=suffix, gpus=False)
    assert cluster.hosts == hosts


NAME = """
import os
from tfscaling.launch import attempt
print(attempt._reachable_name(os.environ))
"""


def test_ranks_get_slurms_name_of_a_launcher_that_has_an_unknown_one(dice: random.Random) -> None:
    if os.geteuid():
        pytest.skip("only root may name a host")
    words = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']
    for name, expected in ((UNKNOWN.format(dice.randrange(1000)), "node7"), ("localhost",) * 2):
        done = subprocess.run(
            [*words, name, sys.executable, "-c", NAME],
            env={**os.environ, "PYTHONPATH": str(SCRIPTS), "SLURMD_NODENAME": "node7"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
