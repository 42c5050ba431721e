"""Records with known times: what changes in a real record, and what stays."""

from __future__ import annotations

import random

import pytest
import timed_runs
from builders import a_record

SEED = 44


@pytest.mark.parametrize("case", range(3))
def test_all_durations_of_the_training_change_alike(case: int) -> None:
    draws = random.Random(SEED + case)
    print("seed", SEED + case)
    before, time_s = a_record(), draws.uniform(0.5, 5000)
    before["metrics"]["step_time_s"] = draws.uniform(0.01, 1)
    after = timed_runs.timed(a_record() | {"metrics": before["metrics"]}, time_s)
    factor = time_s / before["phases"]["execution_time_s"]
    assert after["phases"]["execution_time_s"] == pytest.approx(time_s)
    for name, value in before["phases"].items():
        is_changed = name not in timed_runs.UNCHANGED and value is not None
        expected = value * factor if is_changed else value
        assert after["phases"][name] == (expected and pytest.approx(expected)), name
    old, new = before["metrics"], after["metrics"]
    assert new["step_time_s"] == pytest.approx(old["step_time_s"] * factor)
    rates = [each["throughput_examples_per_s"] for each in (old, new)]
    assert rates[1] == pytest.approx(rates[0] / factor)
    assert (new["loss"], new["examples_trained"]) == (old["loss"], old["examples_trained"])
    assert [rank["start_s"] for rank in after["ranks"]] == [r["start_s"] for r in before["ranks"]]


def test_epochs_are_equally_long_and_end_with_the_training() -> None:
    record = timed_runs.timed(a_record(), 100.0)
    epochs = record["metrics"]["epochs"]
    assert len(epochs) > 1 and len({epoch["duration_s"] for epoch in epochs}) == 1
    evaluated_s = sum(epoch.get("evaluation_time_s", 0.0) for epoch in epochs)
    assert epochs[-1]["ended_s"] == pytest.approx(100.0 + evaluated_s)
    ends_s = [epoch["ended_s"] for epoch in epochs]
    assert ends_s == sorted(ends_s)
