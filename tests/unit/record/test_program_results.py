"""Runs of users' programs: phases and metrics of what was observed, checks of what was claimed."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from builders import REGISTRIES, raw_config
from generator import training_report
from msgspec.structs import replace
from tfscaling.record import checks, run_results, run_times
from tfscaling.record.events import Event, EventName
from tfscaling.record.rank_report import (
    Observed,
    ObservedEpoch,
    ObservedEvaluation,
    ProgramReport,
    Totals,
)
from tfscaling.study import acceptance, config_validation
from tfscaling.study.run_spec import RunSpec

#: Both ranks' hosts are 100 s behind the launcher's clock. Rank 1 starts and ends a second later.
BEHIND_S = 100.0
OBSERVED = Observed(
    imported_s=12.0,
    first_step_s=20.0,
    last_step_s=45.0,
    steps=12,
    examples=96,
    epochs=(
        ObservedEpoch(epoch=1, time_s=30.0, metrics={"loss": 0.5, "accuracy": 0.8}),
        ObservedEpoch(epoch=2, time_s=45.0, metrics={"loss": 0.25, "accuracy": 0.9}),
    ),
    evaluations=(
        ObservedEvaluation(epoch=1, begin_s=30.0, time_s=35.0, metrics={"accuracy": 0.7}),
        ObservedEvaluation(epoch=2, begin_s=45.0, time_s=48.0, metrics={"accuracy": 0.75}),
    ),
    windows=(
        Totals(time_s=20.0, steps=1, examples=8),
        Totals(time_s=30.0, steps=6, examples=48),
        Totals(time_s=45.0, steps=12, examples=96),
    ),
)


def spec(**keys: Any) -> RunSpec:
    recipe = {"per_replica_batch_size": 8, "epochs": 2, "program": ["true"], "observe": "events"}
    block = {"platform": "cluster", "recipe": "script", "strategy": "own", "nodes": 2}
    raw = raw_config((("recipes", "script"), {**recipe, **keys}), (("grid",), [block]))
    (run,) = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES).runs
    return run.spec


def reports(*observed: Observed) -> list[ProgramReport]:
    usual = msgspec.structs.asdict(training_report())
    place = {key: usual[key] for key in ProgramReport.__struct_fields__ if key in usual}
    place |= {"tensorflow_version": None, "program": ("true",), "program_time_s": 40.0}
    return [
        ProgramReport(**{**place, "rank": rank, "host": f"node{rank}", "observed": seen})
        for rank, seen in enumerate(observed)
    ]


#: When a program's rank passes its events, by its host's clock.
PROGRAM_S = {
    EventName.START: 9.0,
    EventName.PROGRAM_STARTED: 10.0,
    EventName.PROGRAM_ENDED: 50.0,
}


def events_of(observed: tuple[Observed, ...]) -> list[list[Event]]:
    return [
        [
            Event(name=name, time_s=at_s + rank + BEHIND_S, host_time_s=at_s + rank)
            for name, at_s in PROGRAM_S.items()
        ]
        for rank in range(len(observed))
    ]


def phases(*observed: Observed) -> dict[str, float | None]:
    found = run_times.compute_phases(events_of(observed), reports(*observed), 108.0, 153.0, None)
    assert found.wall_time_s == pytest.approx(45.0)
    return {name: value for name, value in msgspec.structs.asdict(found).items() if value}


def test_without_observation_start_and_end_are_measured() -> None:
    expected = {"launch_time_s": 3.0, "program_time_s": 40.0, "teardown_time_s": 2.0}
    assert phases(Observed(), Observed()) == {**expected, "execution_time_s": 41.0}


def test_what_was_observed_is_a_phase_of_its_own() -> None:
    assert phases(OBSERVED, OBSERVED) == {
        "launch_time_s": 3.0,
        "import_time_s": 1.0,
        "preparation_time_s": 8.0,
        "train_time_s": 20.0,
        "evaluation_time_s": 8.0,
        "program_time_s": 3.0,
        "teardown_time_s": 2.0,
        "execution_time_s": 33.0,
    }


def test_metrics_are_of_the_chief_and_examples_of_all_ranks() -> None:
    found = run_results.compute_metrics(reports(OBSERVED, OBSERVED))
    assert (found.loss, found.accuracy, found.test_accuracy) == (0.25, 0.9, 0.75)
    assert found.examples_trained == 192
    # the window with an evaluation in it tells no step time, but examples were trained in it
    assert found.step_time_s == pytest.approx(2.0)
    ends = changed(windows=OBSERVED.windows[::2])
    for seen in (found, run_results.compute_metrics(reports(ends, ends))):
        assert seen.throughput_examples_per_s == pytest.approx(176 / 20)
    first, second = found.epochs
    assert (first.duration_s, first.evaluation_time_s, first.test_accuracy) == (10.0, 5.0, 0.7)
    assert (second.duration_s, second.metrics) == (10.0, {"loss": 0.25, "accuracy": 0.9})
    assert run_results.steps_per_epoch(reports(OBSERVED)) == 6


@pytest.mark.parametrize(
    ("steps", "epochs", "expected"), [(12, 2, 6), (13, 2, None), (None, 2, None), (12, 0, None)]
)
def test_steps_per_epoch_are_unknown_unless_all_epochs_have_as_many(
    steps: int | None, epochs: int, expected: int | None
) -> None:
    seen = changed(steps=steps, epochs=OBSERVED.epochs[:epochs])
    assert run_results.steps_per_epoch(reports(seen)) == expected


def test_evaluations_may_be_all_that_is_told() -> None:
    found = run_results.compute_metrics(reports(changed(epochs=())))
    assert [(epoch.epoch, epoch.test_accuracy) for epoch in found.epochs] == [(1, 0.7), (2, 0.75)]
    assert (found.loss, found.test_accuracy) == (None, 0.75)


def changed(**keys: Any) -> Observed:
    return replace(OBSERVED, **keys)


def unseen(**of_last: Any) -> tuple[ObservedEvaluation, ...]:
    """Evaluations whose beginnings nobody saw, as in TensorBoard's scalars."""
    first, last = (replace(each, begin_s=None) for each in OBSERVED.evaluations)
    return first, replace(last, **of_last)


#: What else was observed → seconds of each epoch, and of its evaluation.
DURATIONS: dict[str, tuple[Observed, list[tuple[float | None, float | None]]]] = {
    "printed without times": (
        changed(
            epochs=tuple(replace(epoch, time_s=None) for epoch in OBSERVED.epochs),
            evaluations=unseen(time_s=None), first_step_s=None, windows=(),
        ),
        [(None, None)] * 2),
    "evaluation after the epoch": (
        changed(evaluations=unseen(time_s=48.0), first_step_s=None),
        [(None, None), (13.0, None)]),
    "evaluation with the epoch": (
        changed(evaluations=unseen(time_s=45.0), first_step_s=None),
        [(None, None), (10.0, None)]),
    "something before the evaluation": (
        changed(evaluations=(
            OBSERVED.evaluations[0], replace(OBSERVED.evaluations[1], begin_s=46.0))),
        [(10.0, 5.0), (11.0, 2.0)]),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "durations_s"), DURATIONS.values(), ids=DURATIONS)
def test_what_is_not_known_to_be_evaluation_is_part_of_the_epoch(
    seen: Observed, durations_s: list[tuple[float | None, float | None]]
) -> None:
    found = run_results.compute_metrics(reports(seen))
    assert [(epoch.duration_s, epoch.evaluation_time_s) for epoch in found.epochs] == durations_s


#: Check → the recipe's keys, what ranks 0 and 1 report, the values that the message names.
BROKEN: dict[str, tuple[dict[str, Any], list[Observed], str]] = {
    "report": ({}, [Observed(), Observed()], "events"),
    "reported_steps": ({}, [OBSERVED, changed(steps=11)], "{0: 12, 1: 11}"),
    "reported_epochs": (
        {}, [OBSERVED, changed(epochs=OBSERVED.epochs[:1])], "{0: 2, 1: 1}"),
    "reported_epochs, too many": (
        {"epochs": 1}, [OBSERVED, Observed()], "reported 2 or more"),
    "reported_examples": (
        {"train_examples": 79}, [OBSERVED, OBSERVED], "192"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_true_fails_the_run(name: str) -> None:
    keys, observed, value = BROKEN[name]
    ((check, wrong),) = checks.find_problems(spec(**keys), None, reports(*observed)).items()
    assert check == name.split(",")[0]
    assert value in wrong


def test_every_check_of_programs_was_broken_once() -> None:
    assert set(checks.PROGRAM_CHECKS) == {name.split(",")[0] for name in BROKEN} | {checks.FINITE}


@pytest.mark.parametrize("observed", [(OBSERVED, OBSERVED), (OBSERVED, Observed())])
def test_what_may_be_true_passes(observed: tuple[Observed, ...]) -> None:
    assert checks.find_problems(spec(train_examples=90), None, reports(*observed)) == {}


def test_a_loss_that_is_not_finite_is_a_divergence() -> None:
    lost = ObservedEpoch(epoch=3, time_s=60.0, metrics={"loss": None})
    found = reports(changed(epochs=(*OBSERVED.epochs, lost)))
    wrong = checks.find_problems(spec(epochs=3), None, found)
    assert "epoch 3" in wrong[checks.FINITE]


@pytest.mark.parametrize(("share", "warnings"), [(0.75, 0), (0.8, 1)])
def test_of_several_evaluations_after_the_last_epoch_a_warning_says_which_counts(
    share: float, warnings: int
) -> None:
    more = replace(OBSERVED.evaluations[-1], metrics={"accuracy": share})
    found = reports(changed(evaluations=(*OBSERVED.evaluations, more)))
    assert run_results.compute_metrics(found).test_accuracy == share
    texts = run_results.collect_warnings(spec(), found)
    assert len(texts) == warnings


def test_fewer_epochs_and_percentages_are_warned_of() -> None:
    seen = changed(epochs=(ObservedEpoch(epoch=1, time_s=30.0, metrics={"accuracy": 97.5}),))
    found = reports(seen)
    assert run_results.compute_metrics(found).accuracy is None
    texts = run_results.collect_warnings(spec(), found)
    of_epochs, of_accuracy = texts
    assert re.findall(r"\d+", of_epochs) == ["1", str(spec().recipe.epochs)]
    assert "accuracy" in of_accuracy


def test_epochs_end_when_the_program_says_and_not_with_what_follows_the_last() -> None:
    """The clock begins with the first rank's program, at 10 s of the host's clock."""
    seen = replace(
        OBSERVED,
        evaluations=(
            ObservedEvaluation(epoch=1, begin_s=24.0, time_s=25.0, metrics={"accuracy": 0.6}),
            *OBSERVED.evaluations,
        ),
    )
    told = reports(seen, seen)
    found = run_times.add_end_times(
        run_results.compute_metrics(told), events_of((seen, seen)), told
    )
    assert [epoch.ended_s for epoch in found.epochs] == pytest.approx([25.0, 38.0])
    assert [(each.epoch, each.ended_s) for each in found.evaluations] == [(1, 15.0)]
