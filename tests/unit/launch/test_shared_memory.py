"""A host whose shared memory is full: MPI's ranks would be killed by SIGBUS, without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import REGISTRIES, SCRIPTS, raw_config
from tfscaling.record import events
from tfscaling.record.events import Event
from tfscaling.study import acceptance, config_validation, run_spec

MOUNT = 'mount -t tmpfs -o "size=$0" tmpfs /dev/shm && exec "$@"'
IN_SMALL = ("unshare", "--mount", "sh", "-c", MOUNT)


def last_event(folder: Path, ranks: int, strategy: str, size: str) -> Event:
    """Run the first of several ranks where /dev/shm has this size; return its last event."""
    block = {"platform": "laptop", "model": "mnist_cnn", "recipe": "weak", "strategy": strategy}
    raw = raw_config((("grid",), [{**block, "nodes": ranks}]))
    (run,) = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES).runs
    (folder / "spec.json").write_text(run_spec.encode_spec(run.spec))
    workers = [f"127.0.0.1:{number}" for number in range(1, ranks + 1)]
    task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    words = ["--spec", "spec.json", "--folder", ".", "--dataset-file", "not-there.npz"]
    done = subprocess.run(
        [*IN_SMALL, size, sys.executable, str(SCRIPTS / "run_rank.py"), *words],
        cwd=folder,
        env={**os.environ, "TF_CONFIG": json.dumps(task)},
        capture_output=True,
        text=True,
        check=False,
    )
    seen = events.read_events_by_rank(folder)
    assert 0 in seen, done.stderr
    return seen[0][-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
@pytest.mark.parametrize("size", ["4k", "1m", "5m"])
def test_a_rank_names_the_host_and_what_it_lacks(size: str, tmp_path: Path) -> None:
    last = last_event(tmp_path, 3, "mpi_all_reduce", size)
    assert (last.name, last.details["error"]) == ("failed", "SharedMemoryError"), last
    assert "/dev/shm of " in last.details["message"] and "6.3 MB" in last.details["message"]
