"""Values of a training, and steps with and without input and synchronisation."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest
from tfscaling.train import measured
from tfscaling.train.measured import Steps, measured_by_itself


@pytest.mark.parametrize(
    ("metrics", "accuracy"),
    [
        ({"accuracy": 0.5, "top_accuracy": 0.9}, 0.5),
        ({"sparse_categorical_accuracy": 0.25, "mae": 3.0}, 0.25),
        ({"left_accuracy": 0.5, "right_accuracy": 0.9}, None),
        ({"mae": 0.5}, None),
        ({"accuracy": 3.0}, None),
        ({}, None),
    ],
)
def test_accuracy_of_a_model_that_trains_itself_is_its_metric(
    metrics: dict[str, float], accuracy: float | None
) -> None:
    found = measured_by_itself(8.0, {"loss": 2.0, **metrics})
    assert (found.loss, found.accuracy, found.examples) == (2.0, accuracy, 8.0)
    assert found.metrics == metrics


TRAIN_S, COMPUTE_S = 0.004, 0.0011


class Clock:
    """In the place of the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Pipeline(Iterator[str]):
    """Makes one batch after the other, as long as fewer than `ahead` are ready or being made."""

    def __init__(self, clock: Clock, made_s: float, ahead: int) -> None:
        self._clock, self._made_s = clock, made_s
        self._ready_s = deque(made_s * (place + 1) for place in range(ahead))

    def __next__(self) -> str:
        self._clock.now_s = max(self._clock.now_s, self._ready_s.popleft())
        self._ready_s.append(max([self._clock.now_s, *self._ready_s]) + self._made_s)
        return "real"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measured, "time", clock)
    return clock


def rounds_of(
    clock: Clock, made_s: float, ahead: int, mean: Any = lambda value: value
) -> tuple[list[tuple[float, ...]], Counter[tuple[str, str]]]:
    """The rounds, and how many steps of each kind were made of which batches."""
    made: Counter[tuple[str, str]] = Counter()

    def step(name: str, seconds: float) -> Any:
        def call(batch: str) -> None:
            made[name, batch] += 1
            clock.now_s += seconds

        return call

    steps = Steps(step("train", TRAIN_S), step("compute", COMPUTE_S), mean)
    pipeline, kept = Pipeline(clock, made_s, ahead), itertools.repeat("kept")
    rounds = measured.measure(steps, pipeline, kept, 1, lambda number: None)
    return [(r.real_s, r.kept_s, r.real_alone_s, r.kept_alone_s) for r in rounds], made


@pytest.mark.parametrize("ahead", [1, 6, 19])
def test_batches_that_are_ready_hide_no_input(ahead: int, clock: Clock) -> None:
    rounds, _ = rounds_of(clock, made_s=0.02, ahead=ahead)
    assert len(rounds) == measured.ROUNDS
    for seconds in rounds:
        assert seconds == pytest.approx((0.02, TRAIN_S, 0.02, COMPUTE_S))


def test_input_that_is_made_in_time_adds_nothing(clock: Clock) -> None:
    rounds, _ = rounds_of(clock, made_s=0.0005, ahead=2)
    for seconds in rounds:
        assert seconds == pytest.approx((TRAIN_S, TRAIN_S, COMPUTE_S, COMPUTE_S))


def test_all_ranks_make_as_many_steps(clock: Clock) -> None:
    """By the mean of their times."""
    _, made = rounds_of(clock, made_s=0.02, ahead=1, mean=lambda value: 2 * value)
    uncounted, blocks = measured.UNCOUNTED_STEPS, measured.ROUNDS
    before = uncounted + measured.COUNTED_MIN
    assert made == {
        ("train", "real"): before + blocks * (uncounted + measured.COUNTED_MIN),
        ("train", "kept"): 1 + before + blocks * (uncounted + 13),
        ("compute", "real"): before + blocks * (uncounted + measured.COUNTED_MIN),
        ("compute", "kept"): 1 + before + blocks * (uncounted + 46),
    }
