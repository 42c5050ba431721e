"""`workflow/observe`: what a program says of itself, without TensorFlow and with Keras's `fit`."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import run_python
from fit_program import EVENTS, OBSERVE, VARIABLE, fitted, of_fit
from shared import made_once
from tfscaling.launch.launchers import ReservedPorts
from tfscaling.record.observers import OBSERVERS, ObservationError
from tfscaling.record.rank_report import Observed

read = OBSERVERS["events"].read
BATCHES = [[1.0] * 4, [2.0] * 4, [3.0] * 2]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | None], Any]:
    """`observe.py` as a program imports it, with or without the variable."""

    def loaded(events: Path | None) -> Any:
        monkeypatch.delenv(VARIABLE, raising=False)
        if events is not None:
            monkeypatch.setenv(VARIABLE, str(events))
        spec = importlib.util.spec_from_file_location("observe_of_a_program", OBSERVE)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / EVENTS


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(program: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_python(program, *words, **{"PYTHONPATH": str(OBSERVE.parent), **environment})


def test_without_the_variable_nothing_is_done(load: Any, tmp_path: Path) -> None:
    observe = load(None)
    assert observe.steps(BATCHES) is BATCHES
    observe.imported()
    observe.step(examples=4)
    observe.epoch(loss="not even looked at")
    observe.eval(loss=None)
    assert not list(tmp_path.iterdir())


def test_totals_are_of_the_whole_program(load: Any, events: Path) -> None:
    observe = load(events)
    for loss in (0.5, 0.25):
        for _ in observe.steps(BATCHES):
            pass
        observe.epoch(loss=loss)
        observe.eval({"val/accuracy": 1 - loss})
    seen = read(events)
    assert (seen.steps, seen.examples) == (6, 20)
    assert [(e.epoch, e.steps, e.examples, e.metrics) for e in seen.epochs] == [
        (1, 3, 10, {"loss": 0.5}),
        (2, 6, 20, {"loss": 0.25}),
    ]
    assert [(e.epoch, e.metrics) for e in seen.evaluations] == [
        (1, {"val/accuracy": 0.5}),
        (2, {"val/accuracy": 0.75}),
    ]
    assert seen.evaluations[0].begin_s == seen.epochs[0].time_s
    assert seen.input_wait_s is not None and seen.first_step_s is not None
    assert seen.windows[0].steps == 1 and seen.windows[0].examples == 4


@pytest.mark.parametrize(("interval_s", "written"), [(1e9, [1, 100]), (0.0, list(range(1, 101)))])
def test_lines_of_steps_are_rationed_but_not_the_first_and_the_last(
    load: Any, events: Path, interval_s: float, written: list[int]
) -> None:
    observe = load(events)
    observe.INTERVAL_S = interval_s
    for _ in observe.steps(range(100), examples=1):
        pass
    observe.epoch()
    assert [line["steps"] for line in lines(events) if line["event"] == "steps"] == written


def test_a_batch_left_by_break_is_not_counted(load: Any, events: Path) -> None:
    observe = load(events)
    for number, _ in enumerate(observe.steps(itertools.repeat([1.0]))):
        if number == 3:
            break
    observe.epoch()
    for _ in observe.steps(itertools.islice(itertools.repeat([1.0]), 3)):
        pass
    observe.epoch()
    assert [epoch.steps for epoch in read(events).epochs] == [3, 6]


def test_steps_of_a_loop_that_cannot_be_wrapped(load: Any, events: Path) -> None:
    observe = load(events)
    observe.step(examples=8)
    observe.step(examples=800, steps=100)
    observe.epoch(loss=1)
    seen = read(events)
    assert (seen.steps, seen.examples, seen.input_wait_s) == (101, 808, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_null(load: Any, events: Path, value: float) -> None:
    observe = load(events)
    observe.step(1)
    observe.epoch(loss=value)
    observe.eval(loss=value)
    seen = read(events)
    assert seen.epochs[0].metrics == seen.evaluations[0].metrics == {"loss": None}


@pytest.mark.parametrize("value", [None, "high", [0.1, 0.2]])
def test_what_is_no_number_is_an_error_with_its_name(load: Any, events: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="perplexity"):
        load(events).epoch(perplexity=value)


class Array:
    def __init__(self, *shape: int | None) -> None:
        self.shape = shape


class PerReplica:
    def __init__(self, *values: Any) -> None:
        self.values = values


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (Array(32, 28, 28), 32),
        ((Array(7, 3), Array(7)), 7),
        ({"text": Array(5, 9), "label": Array(5)}, 5),
        ([Array(6), Array(6)], 6),
        ((None, Array(3)), 3),
        (["a", "b", "c"], 3),
        ((PerReplica(Array(4, 2), Array(3, 2)), PerReplica(Array(4), Array(3))), 7),
        (PerReplica(Array(4), Array(None)), None),
        (Array(), None),
        (Array(None, 3), None),
        (3.5, None),
        ((), None),
    ],
)
def test_the_examples_of_a_batch(load: Any, batch: Any, size: int | None) -> None:
    assert load(None).batch_size(batch) == size


def test_examples_that_cannot_be_counted_are_left_out(load: Any, events: Path) -> None:
    observe = load(events)
    for _ in observe.steps([1.5, 2.5]):
        pass
    observe.epoch()
    seen = read(events)
    assert (seen.steps, seen.examples) == (2, None)


def test_a_wrapped_loader_keeps_what_it_has(load: Any, events: Path) -> None:
    class Loader(list[Any]):
        sampler = "its own"

    steps = load(events).steps(Loader(BATCHES), examples=len)
    assert len(steps) == 3 and steps.sampler == "its own"
    assert [list(steps), list(steps)] == [BATCHES, BATCHES]
    # the process of the tests may have imported TensorFlow, which has a line before
    assert next(line for line in lines(events) if line["event"] == "steps")["steps"] == 1


def test_packages_imported_before_it_are_noticed(
    load: Any, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    observe = load(events)
    observe.step(1)
    assert [line["event"] for line in lines(events)] == ["imported", "steps"]
    assert read(events).imported_s == round(observe._LOADED_S, 6)


def test_the_last_steps_are_written_at_the_end_and_not_by_children(events: Path) -> None:
    program = """
import observe, os
observe.INTERVAL_S = 1e9
for _ in observe.steps(range(5), examples=2):
    pass
if os.fork() == 0:
    observe.step(1000)
    raise SystemExit
os.wait()
raise SystemExit(3)
"""
    done = run(program, TFSCALING_EVENTS=str(events))
    assert done.returncode == 3, done.stderr
    seen = read(events)
    assert (seen.steps, seen.examples) == (5, 10)


def test_a_killed_program_leaves_what_it_reached(events: Path) -> None:
    program = "import observe, os; observe.step(4); os.kill(os.getpid(), 9)"
    done = run(program, TFSCALING_EVENTS=str(events))
    assert done.returncode == -signal.SIGKILL
    with events.open("a") as file:
        file.write('{"event": "steps", "time')
    seen = read(events)
    assert (seen.steps, seen.examples) == (1, 4)
    assert len(seen.warnings) == 1


def test_two_processes_with_one_file_are_noticed(events: Path) -> None:
    program = "import observe; [observe.step(4) for _ in range(3)]"
    for _ in range(2):
        run(program, TFSCALING_EVENTS=str(events))
    with pytest.raises(ObservationError, match="from 3 to 1.*two processes"):
        read(events)


def test_a_file_that_cannot_be_written_does_not_stop_the_training(tmp_path: Path) -> None:
    program = "import observe; [observe.step(4) for _ in range(3)]; print('trained')"
    done = run(program, TFSCALING_EVENTS=str(tmp_path / "no folder" / "file"))
    assert done.stdout == "trained\n" and done.stderr.count("No such file") == 1


def test_the_observer_of_fit_runs_the_environments_own_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of the environment')")
    environ = of_fit(tmp_path / "events", str(tmp_path))
    done = run("import sys; print('tfscaling_observe_fit' in sys.modules)", **environ)
    assert done.stdout == "of the environment\nTrue\n", done.stderr
    assert not (tmp_path / "events").exists()


#: Keras tells of the last step from a thread, when the evaluation has begun.
LATE = """
import types
import tfscaling_observe_fit as of_fit
observe = of_fit._load_observe()
observe.INTERVAL_S = 0.0
trace = observe.Trace(observe.os.environ[observe.VARIABLE])
fit = of_fit._Fit(types.SimpleNamespace(trace=trace), None, {})
fit.epoch_begin()
for batch in (0, 1):
    fit.batch_begin(batch)
    fit.batch_end(batch, 3)
fit.batch_begin(2)
fit.test_begin()
fit.batch_end(2, 3)
fit.test_end({"loss": 1.0})
fit.epoch_end({"loss": 2.0})
"""


def test_a_step_that_is_told_late_was_before_the_epochs_end(events: Path) -> None:
    done = run(LATE, **of_fit(events))
    assert done.returncode == 0, done.stderr
    seen = read(events)
    assert seen.steps == 3
    times = (seen.windows[-1].time_s, seen.epochs[0].time_s, seen.evaluations[0].begin_s)
    assert None not in times and list(times) == sorted(filter(None, times))


#: A Keras in two lines: evaluations call their callbacks, which may be none.
EVALUATED = """
import gc, types
import tfscaling_observe_fit as of_fit

class Array:
    pass

class Callback:
    pass

class Model:
    def fit(self, x=None, y=None, callbacks=None):
        pass
    def evaluate(self, x=None, y=None, callbacks=None):
        for each in callbacks or ():
            each.on_test_begin()
            each.on_test_end({"number": numbers.pop()})

observe = of_fit._load_observe()
observer = of_fit._Observer(observe.Trace(observe.os.environ[observe.VARIABLE]))
callbacks = types.SimpleNamespace(Callback=Callback)
observer._patch(types.SimpleNamespace(Model=Model, callbacks=callbacks))
observer.trace.step(1)
model, train, second, test, numbers = Model(), Array(), Array(), Array(), [3.0, 2.0, 1.0, 0.0]
model.fit(train)
model.fit({"a": train, "b": [second]})
model.fit([1, 2, 3])
model.evaluate(test)  # 0
model.evaluate(x=train)
model.evaluate({"b": [second], "a": train})
model.evaluate([train, test])  # 1
model.evaluate([1, 2, 3])  # 2
model.evaluate()  # 3
del train, second
gc.collect()
assert not observer._trained._known
"""


def test_an_evaluation_of_the_very_data_of_a_fit_is_not_of_held_out_examples(events: Path) -> None:
    done = run(EVALUATED, **of_fit(events))
    assert done.returncode == 0, done.stderr
    seen = read(events)
    assert [each.metrics["number"] for each in seen.evaluations] == [0.0, 1.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def with_keras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "fit", lambda f: fitted(f, "generator"))


@pytest.fixture(scope="module")
def seen(with_keras: Path) -> Observed:
    return read(with_keras / EVENTS)


def test_fit_is_observed_with_its_incomplete_batches(seen: Observed) -> None:
    # 70 examples by 16, twice; then the same by a generator; then by 32 with a step of its own
    assert [(e.epoch, e.steps, e.examples) for e in seen.epochs] == [
        (1, 5, 70),
        (2, 10, 140),
        (3, 15, 210),
        (4, 18, 280),
    ]
    assert (seen.windows[0].steps, seen.windows[0].examples) == (1, 16)
    assert (seen.steps, seen.examples, seen.input_wait_s) == (18, 280, None)


def test_fit_reports_metrics_and_held_out_ones_apart(seen: Observed) -> None:
    assert all(epoch.metrics.keys() == {"accuracy", "loss"} for epoch in seen.epochs[:3])
    assert seen.epochs[3].metrics["loss"] is None  # NaN
    assert seen.epochs[3].metrics["mine"] == 1.5
    assert [e.epoch for e in seen.evaluations] == [1, 2, 2]
    assert all(e.metrics.keys() == {"accuracy", "loss"} for e in seen.evaluations)


def test_times_of_fit_follow_each_other(seen: Observed) -> None:
    times = [seen.imported_s, seen.first_step_s, seen.epochs[0].time_s]
    times += [seen.evaluations[0].begin_s, seen.evaluations[0].time_s]
    times += [seen.epochs[1].time_s, seen.evaluations[1].time_s, seen.evaluations[2].begin_s]
    known = [time_s for time_s in times if time_s is not None]
    assert len(known) == len(times) and known == sorted(known)


def test_an_error_in_fit_is_not_in_a_file_of_the_observer(with_keras: Path) -> None:
    text = (with_keras / "stderr").read_text()
    assert text.count("Traceback") == 1 and "tfscaling_observe_fit" not in text


UNDISTRIBUTED = """
import numpy as np
import tensorflow as tf
import keras
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((64, 4)), np.ones((64, 1)), batch_size=16, verbose=0)
"""


@pytest.mark.full
def test_fit_of_keras_3_under_two_workers_fails_with_the_ways_out(tmp_path: Path) -> None:
    """If it trains one day, docs/programs.md, docs/training.md and this sentence are to go."""
    with ReservedPorts(2) as ports:
        workers = [f"127.0.0.1:{port}" for port in ports.numbers]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", UNDISTRIBUTED],
                env={
                    **os.environ,
                    **of_fit(tmp_path / f"events-{rank}"),
                    "CUDA_VISIBLE_DEVICES": "-1",
                    "TF_CONFIG": json.dumps(
                        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
                    ),
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in (0, 1)
        ]
        texts = [rank.communicate(timeout=900)[1] for rank in ranks]
    for rank, text in zip(ranks, texts, strict=True):
        assert rank.returncode == 1
        # the rank that ends last may also miss the other one, in further lines
        kind = "tfscaling_observe_fit.DistributionError: "
        (error,) = [line for line in text.splitlines() if line.startswith(kind)]
        assert "keras#20585" in error and "tf_keras" in error
