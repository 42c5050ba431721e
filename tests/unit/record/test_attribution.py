"""The parts of a step from steps with and without input and synchronisation."""

from __future__ import annotations

import msgspec
import pytest
from generator import training_report
from tfscaling.record import step_estimates
from tfscaling.record.rank_report import AttributionRound, TrainingReport
from tfscaling.record.run_record import Attribution

PARTS = ("input", "computation", "stragglers", "communication")


def reports(*of_ranks: tuple[float, float, float, float]) -> list[TrainingReport]:
    """Ranks with so many milliseconds in each way; further rounds are 10 and 20 % longer."""
    return [
        training_report(
            rank,
            attribution=tuple(
                AttributionRound(*(factor * ms / 1e3 for ms in ways)) for factor in (1.1, 1.0, 1.2)
            ),
        )
        for rank, ways in enumerate(of_ranks)
    ]


def shares(found: Attribution | None) -> dict[str, float]:
    """Of the first round."""
    assert found is not None
    seconds = {part: getattr(found.rounds[0], f"{part}_s") for part in PARTS}
    return {part: value / sum(seconds.values()) for part, value in seconds.items()}


def test_runs_without_it_have_none() -> None:
    assert step_estimates.attribution([training_report(0), training_report(1)]) is None


def test_what_real_input_adds_is_input_and_its_slowest_rank_is_named() -> None:
    found = step_estimates.attribution(
        reports((40, 20, 10, 10), (40, 20, 30, 10), (40, 20, 15, 10))
    )
    assert shares(found) == pytest.approx(
        {"input": 0.5, "computation": 0.25, "stragglers": 0.0, "communication": 0.25}
    )
    assert found is not None
    assert (found.input_rank, found.input_host) == (1, "node1")
    steps_s = [sum(msgspec.structs.astuple(each)) for each in found.rounds]
    assert steps_s == pytest.approx([0.044, 0.040, 0.048])


def test_the_slowest_rank_is_waited_for() -> None:
    found = step_estimates.attribution(
        reports((40, 40, 10, 10), (40, 40, 10, 10), (40, 40, 30, 30))
    )
    assert shares(found) == pytest.approx(
        {"input": 0.0, "computation": 0.25, "stragglers": 0.5, "communication": 0.25}
    )


@pytest.mark.parametrize("fast", [1, 3])
def test_an_even_number_of_ranks_waits_as_long_for_the_slowest(fast: int) -> None:
    """Ranks of 10 ms wait 10 ms for one of 20 ms, whether they are one or three."""
    found = step_estimates.attribution(reports(*[(30, 30, 10, 10)] * fast, (30, 30, 20, 20)))
    third = 1 / 3
    assert shares(found) == pytest.approx(
        {"input": 0.0, "computation": third, "stragglers": third, "communication": third}
    )


def test_waiting_for_the_input_of_another_rank_is_input_and_no_communication() -> None:
    """Alone each rank has its own input; together all wait for the slowest one's."""
    found = step_estimates.attribution(reports((40, 10, 5, 5), (40, 10, 35, 5)))
    assert shares(found) == pytest.approx(
        {"input": 0.75, "computation": 0.125, "stragglers": 0.0, "communication": 0.125}
    )
    assert found is not None and found.input_rank == 1


@pytest.mark.parametrize(
    ("ms", "input_ms", "communication_ms"),
    [((21, 9, 20, 1), 15.5, 4.5), ((31, 31, 20, 1), 9.5, 20.5), ((29, 9, 21, 1), 20.0, 8.0)],
    ids=["hidden by input", "hiding input", "one after the other"],
)
def test_what_goes_on_at_the_same_time_is_shared_and_the_longer_one_leads(
    ms: tuple[float, float, float, float], input_ms: float, communication_ms: float
) -> None:
    found = step_estimates.attribution(reports(ms, ms))
    assert found is not None
    parts = found.rounds[1]
    assert (parts.input_s, parts.communication_s) == pytest.approx(
        (input_ms / 1e3, communication_ms / 1e3)
    )
    assert parts.computation_s == pytest.approx(0.001)


def test_one_replica_waits_for_nobody_and_noise_is_of_the_input() -> None:
    made = [msgspec.structs.replace(each, replicas=1) for each in reports((21, 20, 12, 9))]
    found = step_estimates.attribution(made)
    assert found is not None
    assert [(each.communication_s, each.stragglers_s) for each in found.rounds] == [(0.0, 0.0)] * 3
    assert [each.input_s for each in found.rounds] == pytest.approx([0.0011, 0.001, 0.0012])
    (slower,) = [msgspec.structs.replace(each, replicas=1) for each in reports((19, 20, 12, 9))]
    below = step_estimates.attribution([slower])
    assert below is not None and below.rounds[0].input_s < 0
