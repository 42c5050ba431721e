"""The times of a run from the events of its ranks: phases, ends of epochs, impossible clocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import generator
import msgspec
import pytest
from builders import local_spec, rank_events
from generator import training_report as report
from tfscaling.record import run_results, run_times
from tfscaling.record.events import Event, EventName
from tfscaling.record.phases import EVENTS, TRAINER_PHASES, Phases
from tfscaling.record.rank_report import Rank, RankReport, ServerReport, copy_fields
from tfscaling.record.run_record import SlurmJob

#: Times at which two ranks pass each boundary; neither is always the last.
PASSED: list[dict[str, float]] = [
    dict(zip(EVENTS, times_s, strict=True))
    for times_s in (
        (101.0, 105.0, 106.0, 106.5, 108.0, 111.0, 131.0, 133.0, 134.0),
        (102.0, 104.0, 106.5, 106.6, 107.0, 111.5, 130.0, 133.5, 133.9),
    )
]
LAUNCH_S, END_S = 100.0, 135.0


def measured(
    ranks: Sequence[Sequence[Event]],
    job: SlurmJob | None = None,
    launch_s: float = LAUNCH_S,
    end_s: float = END_S,
) -> Phases:
    reports: list[RankReport] = [report(rank) for rank in range(len(ranks))]
    return run_times.compute_phases(ranks, reports, launch_s, end_s, job)


def phases(*passed: dict[str, float], job: SlurmJob | None = None) -> Phases:
    given = passed or PASSED
    ranks = [rank_events(rank, times) for rank, times in enumerate(given)]
    return measured(ranks, job)


def test_a_boundary_is_when_the_last_rank_passes_it() -> None:
    expected = {
        "queue_time_s": None,
        "boot_time_s": None,
        "launch_time_s": 2.0,
        "import_time_s": 3.0,
        "rendezvous_time_s": 1.5,
        "data_time_s": 0.1,
        "build_time_s": 1.4,
        "preparation_time_s": None,
        "first_step_time_s": 3.5,
        "train_time_s": 19.5,
        "program_time_s": None,
        "checkpoint_time_s": None,
        "evaluation_time_s": 2.5,
        "probe_time_s": 0.5,
        "teardown_time_s": 1.0,
        "execution_time_s": 30.0,
    }
    found = msgspec.structs.asdict(phases())
    assert found == {
        name: time if time is None else pytest.approx(time) for name, time in expected.items()
    }


def evaluated(epochs: dict[int, tuple[float, float]]) -> list[Event]:
    """Events of epochs that end and are evaluated at these times."""
    names = (EventName.EPOCH, EventName.EPOCH_EVALUATED)
    return [
        Event(name=name, time_s=time_s, details={"epoch": epoch})
        for epoch, times_s in epochs.items()
        for name, time_s in zip(names, times_s, strict=True)
    ]


def checkpointed(time_s: float, read_s: float, written_s: float) -> Event:
    details = {"read_s": read_s, "written_s": written_s}
    return Event(name=EventName.CHECKPOINTED, time_s=time_s, details=details)


def test_the_moments_of_epochs_have_no_checkpoints_after_them() -> None:
    """The first of two epochs is saved after its evaluation."""
    ranks = [rank_events(rank, times) for rank, times in enumerate(PASSED)]
    for events_of_rank in ranks:
        place = next(i for i, e in enumerate(events_of_rank) if e.name is EventName.TRAINED)
        between = [*evaluated({1: (113.5, 115.0)}), checkpointed(118.0, 0.0, 1.0)]
        events_of_rank[place:place] = [*between, *evaluated({2: (120.0, 121.5)})]
    reports = [report(rank) for rank in range(len(ranks))]
    metrics = generator.record(local_spec(), reports, phases()).metrics
    found = run_times.add_end_times(metrics, ranks, reports)
    first_line_s = min(times["start"] for times in PASSED)
    moments = [epoch.ended_s for epoch in found.epochs]
    assert moments == pytest.approx([115.0 - first_line_s, 121.5 - first_line_s])


def add_evaluations(ranks: list[list[Event]]) -> None:
    for events_of_rank in ranks:
        place = next(i for i, e in enumerate(events_of_rank) if e.name is EventName.TRAINED)
        events_of_rank[place:place] = evaluated({1: (113.5, 115.0), 2: (118.5, 120.0)})


def add_checkpoints(ranks: list[list[Event]]) -> None:
    for events_of_rank, read_s, written_s in zip(ranks, (0.5, 0.25), (2.0, 3.0), strict=True):
        events_of_rank.append(checkpointed(130.0, read_s, written_s))


@pytest.mark.parametrize(
    ("add", "moved_s", "checkpoint_s"),
    [
        (add_evaluations,
         {"train_time_s": -3.0, "evaluation_time_s": 3.0, "execution_time_s": -3.0}, None),
        (add_checkpoints, {"first_step_time_s": -0.5, "train_time_s": -3.0}, 3.5),
    ],
)  # fmt: skip
def test_evaluations_and_checkpoints_are_no_part_of_the_training(
    add: Callable[[list[list[Event]]], None], moved_s: dict[str, float], checkpoint_s: float | None
) -> None:
    ranks = [rank_events(rank, times) for rank, times in enumerate(PASSED)]
    add(ranks)
    found, without = measured(ranks), phases()
    for name in {*TRAINER_PHASES, "execution_time_s"}:
        expected = getattr(without, name) + moved_s.get(name, 0.0)
        assert getattr(found, name) == pytest.approx(expected)
    assert found.checkpoint_time_s == pytest.approx(checkpoint_s)
    assert found.wall_time_s == pytest.approx(without.wall_time_s)


def test_a_rank_that_waits_in_an_evaluation_for_another_makes_no_time_negative() -> None:
    """Rank 0 is at the evaluation 30 ms before rank 1 has ended its only step."""
    begun = {"start": 1.0, "imported": 2.0, "rendezvous": 3.0, "data": 4.0, "built": 5.0}
    ended = {"trained": 10.034, "evaluated": 11.0, "probed": 12.0}
    ranks = [
        rank_events(rank, {**begun, "first_step": first_s, **ended})
        for rank, first_s in enumerate((10.0, 10.03))
    ]
    for events_of_rank, end_s in zip(ranks, (10.001, 10.031), strict=True):
        place = next(i for i, e in enumerate(events_of_rank) if e.name is EventName.TRAINED)
        events_of_rank[place:place] = evaluated({1: (end_s, 10.0335)})
    found = measured(ranks, None, 0.5, 13.0)
    assert found.train_time_s == pytest.approx(10.034 - 10.03 - (10.0335 - 10.031))
    assert found.evaluation_time_s == pytest.approx(11.0 - 10.034 + (10.0335 - 10.031))


def test_execution_time_begins_with_the_first_rank_and_leaves_out_waiting_and_evaluation() -> None:
    later = {**PASSED[1], "evaluated": 500.0, "probed": 501.0}
    found = phases(PASSED[0], later, job=SlurmJob(queue_time_s=77.0, boot_time_s=44.0))
    assert (found.queue_time_s, found.boot_time_s) == (77.0, 44.0)
    assert found.execution_time_s == pytest.approx(131.0 - 101.0)


@pytest.mark.parametrize("rank", [0, 1])
def test_events_that_only_one_rank_had_time_for_do_no_harm(rank: int) -> None:
    ranks = [rank_events(number, times) for number, times in enumerate(PASSED)]
    details = {"epoch": 1}
    ranks[rank].append(Event(name=EventName.PROGRESS, time_s=120.0, rank=rank, details=details))
    assert measured(ranks) == phases()


def wrong(
    *passed: dict[str, float], launch_s: float = LAUNCH_S, end_s: float = END_S, **changes: Any
) -> list[str]:
    """What is impossible of these times, with reports whose steps take 2.6 s."""
    ranks = [rank_events(rank, times) for rank, times in enumerate(passed or PASSED)]
    reports = [report(rank, **changes) for rank in range(len(ranks))]
    durations = measured(ranks, None, launch_s, end_s)
    return run_times.find_impossible_durations(durations, ranks, reports)


@pytest.mark.parametrize(
    ("times", "phase"),
    [
        ({"launch_s": 103.0}, "launch_time_s"),  # as after a step of the launcher's clock
        ({"end_s": 120.0}, "teardown_time_s"),
    ],
)
def test_a_negative_phase_is_refused_and_named(times: dict[str, float], phase: str) -> None:
    (text,) = wrong(**times)
    assert text.startswith(f"{phase} is -")


def stepped(passed: dict[str, float], since: str, seconds: float) -> dict[str, float]:
    """The times of a rank whose clock is set on by so much before this event."""
    names = list(passed)
    moved = names[names.index(since) :]
    return {name: time + (seconds if name in moved else 0.0) for name, time in passed.items()}


def test_clocks_that_go_back_during_the_training_are_found_out() -> None:
    both = [stepped(passed, "trained", -25.0) for passed in PASSED]
    text = "; ".join(wrong(*both))
    assert "train_time_s is -" in text
    assert "rank 0 " in text and "2.600 s" in text


NO_CLOCK: dict[str, float] = {}


@pytest.mark.parametrize("ahead_s", [-20.0, 20.0])
def test_a_clock_that_is_off_by_nobody_knows_what_makes_no_run_invalid(ahead_s: float) -> None:
    given = [PASSED[0], stepped(PASSED[1], "start", ahead_s)]
    ranks = [rank_events(rank, times) for rank, times in enumerate(given)]
    reports = [report(0), report(1, clock=NO_CLOCK)]
    of_all = measured(ranks)
    assert ahead_s < 0 or run_times.find_impossible_durations(of_all, ranks, reports)
    timed, _ = run_times.select_synchronised_ranks(ranks, reports)
    found = measured(timed)
    assert found == phases(PASSED[0])
    assert run_times.find_impossible_durations(found, ranks, reports) == []
    (warning,) = run_results.collect_warnings(local_spec(), reports)
    assert "rank 1 (node1)" in warning


@pytest.mark.parametrize("unknown", [(), (0,), (0, 1)])
def test_all_ranks_make_the_times_if_the_first_one_has_no_clock_either(
    unknown: tuple[int, ...],
) -> None:
    ranks = [rank_events(rank, times) for rank, times in enumerate(PASSED)]
    reports = [report(k, **({"clock": NO_CLOCK} if k in unknown else {})) for k in range(2)]
    assert run_times.select_synchronised_ranks(ranks, reports) == (ranks, reports)
    assert len(run_results.collect_warnings(local_spec(), reports)) == bool(unknown)


def test_an_execution_shorter_than_its_steps_is_refused() -> None:
    """Both clocks are set back by less than the training took: no phase is negative."""
    both = [stepped(passed, "trained", -10.0) for passed in PASSED]
    assert wrong(*both) == []
    found = wrong(*both, steps=[(1, 0, 10, 18.0)])
    assert len(found) == 2 and "from built to trained" in found[0]
    assert all("steps of 18.000 s" in text for text in found)


def test_a_duration_that_is_no_number_is_refused() -> None:
    durations = msgspec.structs.replace(phases(), train_time_s=float("nan"))
    assert run_times.find_impossible_durations(durations, [], [])[0].startswith(
        "train_time_s is nan"
    )


def test_a_rank_that_trained_must_have_passed_all_phases() -> None:
    ranks = [rank_events(rank, times) for rank, times in enumerate(PASSED)]
    reports = [report(rank) for rank in range(2)]
    assert run_times.find_missing_events(ranks, reports) == []
    del ranks[1][-2:]
    (missing,) = run_times.find_missing_events(ranks, reports)
    assert missing.startswith("rank 1 ") and missing.endswith(" evaluated, probed")


def test_a_parameter_server_passes_the_first_phases_only() -> None:
    served = rank_events(1, {"start": 1.0, "imported": 2.0, "rendezvous": 3.0, "end": 9.0})
    server = ServerReport(**msgspec.structs.asdict(copy_fields(report(1, job="ps"), Rank)))
    assert (
        run_times.find_missing_events([rank_events(0, PASSED[0]), served], [report(0), server])
        == []
    )
    del served[2]
    assert run_times.find_missing_events([served], [server]) == ["rank 1 has no event rendezvous"]
