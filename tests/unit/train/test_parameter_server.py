"""Training with parameter servers: a coordinator, a server and two workers as real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ranks import run_tensorflow
from strategy_rank import GLOBAL_BATCH, PARAMETERS, TRAIN_EXAMPLES, synthetic_arrays
from tfscaling.launch.launchers import ReservedPorts

Trainings = dict[str, list[dict[str, Any]]]
STEPS, EPOCHS = -(-TRAIN_EXAMPLES // GLOBAL_BATCH), PARAMETERS["epochs"]
BOTH = ["parameter_server", "synchronous_parameter_server"]


def test_a_synchronous_update_takes_the_examples_of_all_workers(trainings: Trainings) -> None:
    chief = trainings["synchronous_parameter_server"][0]
    assert chief["examples_per_step"] == GLOBAL_BATCH
    assert chief["steps"] == [
        [epoch, step, 1] for epoch in range(1, EPOCHS + 1) for step in range(STEPS)
    ]


def test_an_asynchronous_update_takes_the_examples_of_one_worker(trainings: Trainings) -> None:
    chief = trainings["parameter_server"][0]
    assert chief["examples_per_step"] == GLOBAL_BATCH // 2
    assert chief["examples_trained"] == TRAIN_EXAMPLES * EPOCHS
    counts = [sum(count for epoch, _, count in chief["steps"] if epoch == n) for n in (1, 2, 3)]
    # a batch of padding alone is not trained: of the last global batch one part has examples
    assert (
        counts == [-(-TRAIN_EXAMPLES // (GLOBAL_BATCH // 2))] * EPOCHS == [2 * STEPS - 1] * EPOCHS
    )


def test_the_first_asynchronous_batches_are_a_row_of_their_own(trainings: Trainings) -> None:
    # they compile the step on both workers
    assert trainings["parameter_server"][0]["steps"][0] == [1, 0, 2]


@pytest.mark.parametrize("training", BOTH)
def test_held_out_examples_are_counted_once(trainings: Trainings, training: str) -> None:
    correct = trainings[training][0]["test"][1] * len(synthetic_arrays().y_test)
    assert correct == pytest.approx(round(correct), abs=1e-6)


@pytest.mark.parametrize("training", BOTH)
def test_servers_and_workers_end_when_the_coordinator_has_ended(
    trainings: Trainings, training: str
) -> None:
    chief, *others = trainings[training]
    assert chief["job"] == "chief"
    assert chief["replicas"] == 2
    assert others == [
        {"job": job, "ended_well": True} for job in ("ps", "worker", "worker")
    ]  # fmt: skip


#: Servers beside coordinators that behave differently; whenever one looks, 500 s have passed.
SERVE = """
import json, os, pathlib, sys
from tfscaling.cluster import resolver
from tfscaling.launch import heartbeat
from tfscaling.record.events import EventLog
from tfscaling.train import parameter_server

class Clock:
    def __init__(self, folder, live):
        self.now, self.folder, self.live = 0.0, folder, live
    def monotonic(self):
        return self.now
    def sleep(self, _):
        self.now += 500
        self.live(self.folder, self.now)

def write(folder, event):
    line = json.dumps({"event": event, "time_s": 1.0})
    (folder / "rank-0.events.jsonl").write_text(line + chr(10))

def beat(folder, now):
    heartbeat.path(folder, 0).write_text(json.dumps([int(now), 1.0, 100]))
    if now > 3 * parameter_server.COORDINATOR_TIMEOUT_S:
        write(folder, "end")

found = {}
coordinators = {
    "failed": ("failed", None),
    "silent": ("built", lambda *_: None),
    "beats": ("built", beat),
}
for port, (name, (event, live)) in zip(sys.argv[2:], coordinators.items()):
    folder = pathlib.Path(sys.argv[1], name)
    folder.mkdir()
    write(folder, event)
    parameter_server.time = Clock(folder, live)
    cluster = {"cluster": {"ps": ["127.0.0.1:" + port]}, "task": {"type": "ps", "index": 0}}
    own = resolver.resolve({"TF_CONFIG": json.dumps(cluster)})
    try:
        ended = parameter_server.serve(own, folder, EventLog(folder / "rank-1.events.jsonl", 1))
    except parameter_server.CoordinatorSilentError:
        ended = "silent"
    log = (folder / "rank-1.events.jsonl").read_text()
    found[name] = [ended, [json.loads(line)["event"] for line in log.splitlines()]]
print(json.dumps(found), flush=True)
os._exit(0)
"""


def test_a_server_ends_with_its_coordinator_and_waits_while_it_beats(tmp_path: Path) -> None:
    with ReservedPorts(3) as ports:
        done = run_tensorflow(SERVE, str(tmp_path), *map(str, ports.numbers))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "failed": [False, ["rendezvous"]],
        "silent": ["silent", ["rendezvous"]],
        "beats": [True, ["rendezvous"]],
    }
