"""The parts of a step from steps with and without input and synchronisation."""

from __future__ import annotations

import msgspec
import pytest
from generator import training_report
from tfscaling.records import attribution
from tfscaling.records.rank_report import AttributionRound, TrainingReport
from tfscaling.records.run_record import Attribution

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


def medians(found: Attribution | None) -> dict[str, float]:
    assert found is not None
    return {part: getattr(found, part).median for part in PARTS}


def test_runs_without_it_have_none() -> None:
    assert attribution.attribution([training_report(0), training_report(1)]) is None


def test_what_real_input_adds_is_input_and_its_slowest_rank_is_named() -> None:
    found = attribution.attribution(reports((40, 20, 10, 10), (40, 20, 30, 10), (40, 20, 15, 10)))
    assert medians(found) == pytest.approx(
        {"input": 0.5, "computation": 0.25, "stragglers": 0.0, "communication": 0.25}
    )
    assert found is not None
    assert (found.input_rank, found.input_host) == (1, "node1")
    assert found.rounds == 3
    assert found.step_time_s == pytest.approx(0.044)


def test_the_slowest_rank_is_waited_for() -> None:
    found = attribution.attribution(reports((40, 40, 10, 10), (40, 40, 10, 10), (40, 40, 30, 30)))
    assert medians(found) == pytest.approx(
        {"input": 0.0, "computation": 0.25, "stragglers": 0.5, "communication": 0.25}
    )


def test_shares_have_the_range_of_the_rounds_and_sum_to_the_step() -> None:
    rounds = (AttributionRound(0.04, 0.02, 0.01, 0.01), AttributionRound(0.04, 0.03, 0.01, 0.01))
    found = attribution.attribution([training_report(0, attribution=rounds)])
    assert sum(medians(found).values()) == pytest.approx(1.0)
    assert found is not None
    assert msgspec.structs.astuple(found.input) == pytest.approx((0.375, 0.25, 0.5))
