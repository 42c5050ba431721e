"""Short runs with the time of the whole."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import generator
import msgspec
import pytest
from builders import local_spec
from generator import training_report
from tfscaling.record import checks, run_record, step_estimates
from tfscaling.record.rank_report import Epoch, Execution, StopPoint, TrainingReport
from tfscaling.record.run_record import RunRecord
from tfscaling.study.run_spec import RunSpec

EPOCHS, STEPS, EXAMPLES = 100, 3, 384
STEP_S, TURN_S, EVALUATION_S = 0.125, 0.5, 2.0


def short_spec(stop: int | str = 20, **recipe: Any) -> RunSpec:
    return local_spec(epochs=EPOCHS, stop_after_steps=stop, **recipe)


def short_report(stop: int = 20, evaluations: int = 1) -> TrainingReport:
    """What a rank reports that made so many steps."""
    begun = -(-stop // STEPS)
    last = stop - (begun - 1) * STEPS
    steps = [Execution(n // STEPS + 1, n % STEPS, 1, STEP_S if n else 4.0) for n in range(stop)]
    epochs = [Epoch(epoch=n, loss=0.5, accuracy=0.8, duration_s=1.0) for n in range(1, begun + 1)]
    epochs[-1] = msgspec.structs.replace(epochs[-1], evaluation_time_s=EVALUATION_S)
    return msgspec.structs.replace(
        training_report(examples_trained=EXAMPLES * (begun - 1) + 128 * last),
        epochs=tuple(epochs),
        steps=tuple(steps),
        stopped=StopPoint(steps_per_epoch=STEPS, evaluations=evaluations, epoch_turn_s=TURN_S),
    )


def short_record(stop: int = 20, evaluations: int = 1, **recipe: Any) -> RunRecord:
    """Start-up of 8 s, the first step of 4 s, and the others; evaluations took 3 s."""
    turns_s = (-(-stop // STEPS) - 1) * TURN_S
    train_s = (stop - 1) * STEP_S + turns_s
    durations = generator.phases(
        12 + train_s, train_time_s=train_s, evaluation_time_s=3.0, first_step_time_s=4.0
    )
    return generator.record(
        short_spec(stop, **recipe), [short_report(stop, evaluations)], durations
    )


@pytest.mark.parametrize("stop", [20, 21, 150, 299])
def test_the_whole_takes_its_steps_and_turns_of_epochs(stop: int) -> None:
    record = short_record(stop)
    assert record.short_run is not None
    assert (record.short_run.steps, record.short_run.steps_of_whole) == (stop, STEPS * EPOCHS)
    assert record.short_run.examples_of_whole == EXAMPLES * EPOCHS
    assert record.derived.steps_per_epoch == STEPS
    whole = step_estimates.project_training(record)
    assert whole is not None
    train_s = (STEPS * EPOCHS - 1) * STEP_S + (EPOCHS - 1) * TURN_S
    assert whole.phases.train_time_s == pytest.approx(train_s)
    assert whole.phases.execution_time_s == pytest.approx(12 + train_s)
    assert whole.phases.import_time_s == record.phases.import_time_s
    assert whole.error_s == pytest.approx(0, abs=1e-9)  # all steps take the same time
    assert record.phases.train_time_s != whole.phases.train_time_s  # the record is as measured


def test_evaluations_that_are_left_take_as_long_as_the_last_one() -> None:
    once = step_estimates.project_training(short_record())
    assert once is not None and once.phases.evaluation_time_s == 3.0
    record = short_record(evaluations=2, evaluation_interval_epochs=2)
    assert record.short_run is not None
    assert record.short_run.evaluations_of_whole == 50  # 49 between epochs and the last
    often = step_estimates.project_training(record)
    assert often is not None
    assert often.phases.evaluation_time_s == pytest.approx(3.0 + 48 * EVALUATION_S)


def test_steps_that_scatter_make_the_projection_less_sure() -> None:
    record = short_record()
    assert record.short_run is not None
    blocks = [run_record.StepBlock(steps=10, duration_s=s) for s in (1.0, 1.2, 1.1, 1.3)]
    steady = msgspec.structs.replace(record.short_run, steady=tuple(blocks))
    whole = step_estimates.project_training(msgspec.structs.replace(record, short_run=steady))
    assert whole is not None
    assert whole.error_s == pytest.approx(280 * 0.0129099 / 2, rel=1e-4)


def test_a_run_of_all_epochs_is_no_short_run() -> None:
    record = generator.record(local_spec(), [training_report()], generator.phases())
    assert record.short_run is None and step_estimates.project_training(record) is None
    # a record of before has no such key
    plain = generator.content(record)
    del plain["short_run"]
    assert msgspec.convert(plain, RunRecord).short_run is None


@pytest.mark.parametrize("stop", [20, 21, 400, "auto"])
def test_a_short_run_passes_the_checks_with_the_steps_that_were_asked(stop: int | str) -> None:
    spec, data = short_spec(stop), generator.prepared("mnist")
    made = short_report(31 if isinstance(stop, str) else min(stop, STEPS * EPOCHS))
    assert checks.TRAINING_CHECKS["examples_trained"].problem(spec, [made], data) is None
    assert checks.TRAINING_CHECKS["epochs"].problem(spec, [made], data) is None


@pytest.mark.parametrize("made", [19, 22])
def test_other_steps_than_those_asked_are_a_failure(made: int) -> None:
    spec, data = short_spec(20), generator.prepared("mnist")
    problems = [
        checks.TRAINING_CHECKS[name].problem(spec, [short_report(made)], data)
        for name in ("examples_trained", "epochs")
    ]
    assert any(problems)


def projected(times_s: list[float]) -> step_estimates.ProjectedTraining:
    """From steady steps of so many seconds, in blocks of 10."""
    record = short_record()
    assert record.short_run is not None
    blocks = [run_record.StepBlock(steps=10, duration_s=10 * s) for s in times_s]
    steady = msgspec.structs.replace(record.short_run, steady=tuple(blocks))
    found = step_estimates.project_training(msgspec.structs.replace(record, short_run=steady))
    assert found is not None
    return found


def noisy(times_s: list[float], seed: int) -> list[float]:
    dice = random.Random(seed)
    return [s * dice.gauss(1, 0.02) for s in times_s]


@pytest.mark.parametrize("slow", [6, 8, 10])
def test_after_a_warm_up_the_steps_that_follow_are_projected(slow: int) -> None:
    found = projected(noisy([1.3] * slow + [1.0] * (20 - slow), slow))
    assert 0.15 < found.trend.change < 0.35 and found.trend.is_over and found.trend.warning
    flat = projected([1.0] * 20)
    assert found.phases.execution_time_s == pytest.approx(flat.phases.execution_time_s, rel=0.05)
    assert found.error_s > 0.05 * 280  # as much as the first steps change the mean


@pytest.mark.parametrize(
    "times_s", [[1.6] * 16 + [1.0] * 4, [1 + 0.5 * math.exp(-n / 8) for n in range(20)]]
)
def test_while_the_steps_still_change_nothing_is_projected(times_s: list[float]) -> None:
    found = projected(noisy(times_s, 1) if times_s[0] == 1.6 else times_s)
    assert not found.trend.is_over


@pytest.mark.parametrize(
    ("times_s", "is_enough"),
    [
        ([0.1] * 400, True),
        ([0.1] * 200, False),  # of 20 s
        ([0.13] * 200 + [0.1] * 300, False),  # the warm-up is 9 % of the mean
        ([0.13] * 200 + [0.1] * 7800, True),
        ([0.1] * 400 + [0.2] * 100, False),
        ([0.07, 0.13] * 200, True),
        ([1.0] * 20 + [4.0] * 20, False),
    ],
)
def test_steps_are_enough_once_they_are_long_steady_and_sure(
    times_s: list[float], is_enough: bool
) -> None:
    made = [Execution(1, n, 1, s) for n, s in enumerate(times_s)]
    assert step_estimates.are_steps_enough(made) == is_enough


def test_scatter_is_no_change() -> None:
    found = [projected(noisy([1.0] * 20, seed)).trend.change for seed in range(300)]
    assert sum(map(bool, found)) <= 6
    assert not projected([*[1.0, 1.01] * 5, 3.0, *[1.01, 1.0] * 5]).trend.change


@pytest.mark.parametrize("evaluated", [0, 1, 2, 3])
def test_a_complete_run_of_few_epochs_is_a_part_of_a_longer_training(evaluated: int) -> None:
    """Its epochs end at known times, and some end with an evaluation."""
    dice = random.Random(seed := random.randrange(10**6))
    made, whole = dice.randint(4, 9), dice.randint(30, 90)
    times_s = [dice.uniform(1, 2) for _ in range(made)]
    every = made // evaluated if evaluated else made + 1
    epochs = tuple(
        Epoch(
            epoch=n, loss=0.5, accuracy=0.8, duration_s=1.0, ended_s=10 + sum(times_s[:n]),
            evaluation_time_s=0.25 if n % every == 0 else 0.0,
        )
        for n in range(1, made + 1)
    )  # fmt: skip
    record = generator.record(local_spec(epochs=made), [training_report()], generator.phases(60.0))
    metrics = msgspec.structs.replace(record.metrics, epochs=epochs, examples_trained=made * 100)
    derived = msgspec.structs.replace(record.derived, steps_per_epoch=STEPS)
    record = msgspec.structs.replace(record, metrics=metrics, derived=derived)
    short = step_estimates.treat_as_short_run(record, whole).short_run
    assert short is not None, seed
    times = sum(n % every == 0 for n in range(1, made + 1))
    assert (short.epochs, short.epochs_of_whole) == (made, whole), seed
    assert (short.steps, short.steps_of_whole) == (STEPS * made, STEPS * whole), seed
    assert short.examples_of_whole == 100 * whole, seed
    assert short.evaluations == max(1, times), seed
    assert short.evaluations_of_whole == ((whole - 1) // every + 1 if times > 1 else 1), seed
    expected = [
        later.ended_s - earlier.ended_s - later.evaluation_time_s
        for earlier, later in itertools.pairwise(epochs)
    ]
    assert [block.duration_s for block in short.steady] == pytest.approx(expected), seed
