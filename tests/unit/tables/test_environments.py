"""Where runs were made, who shared their machines, and what differed."""

from __future__ import annotations

import copy
import math
from typing import Any

import msgspec
import pandas as pd
import pytest
from builders import a_record
from tfscaling.record.run_record import RunRecord
from tfscaling.tables import run_environment
from tfscaling.tables.row_types import RunRow


def record(**facts: Any) -> dict[str, Any]:
    """A record of two ranks; `facts` are those of the second."""
    made = copy.deepcopy(a_record())
    made["ranks"][1]["host_facts"] |= facts
    return made


def of(content: dict[str, Any]) -> dict[str, Any]:
    """The columns of the record with this content."""
    row = RunRow()
    run_environment.set_environment(row, msgspec.convert(content, RunRecord))
    return {**msgspec.structs.asdict(row), **row.packages}


def test_facts_that_differ_between_ranks_are_all_given() -> None:
    row = of(record(cpu_model="Another", machine="other", cpu_mhz=2000.0))
    assert row["cpu_model"] == "A processor; Another"
    assert row["machines"].split()[1] == "other"
    assert row["cpu_mhz"] == 2000.0  # the slowest


def test_values_of_several_parts_are_json() -> None:
    row = of(record(network_mbit_per_s={"ib0": 200000.0, "eth0": 10000.0}))
    assert row["network_mbit_per_s"] == '{"eth0": 10000.0}; {"eth0": 10000.0, "ib0": 200000.0}'
    made = record()
    for settings, text in (
        ({}, None),
        (None, None),
        ({"b": "1", "a": "x"}, '{"a": "x", "b": "1"}'),
    ):
        made["environment"]["slurm_settings"] = settings
        assert of(made)["slurm_settings"] == text


def test_clocks_are_summed_up_by_the_worst() -> None:
    made = record()
    made["ranks"][0]["clock"] = {"offset_s": -3.0, "uncertainty_s": 0.001}
    made["ranks"][1]["clock"] = {"offset_s": 1.0, "uncertainty_s": 0.02}
    row = of(made)
    assert (row["clock_offset_max_s"], row["clock_uncertainty_max_s"]) == (3.0, 0.02)
    for rank in made["ranks"]:
        rank["clock"] = {}
    assert math.isnan(of(made)["clock_offset_max_s"])


def span(start: str, wall_time_s: float, machines: str = "m1") -> RunRow:
    started = f"2026-01-01T00:{start}.000+00:00"
    return RunRow(machines=machines, started=started, wall_time_s=wall_time_s)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([span("00:00", 60), span("01:00", 60)], [0, 0]),
        ([span("00:00", 61), span("01:00", 60)], [1, 1]),
        ([span("00:00", 61, "m1"), span("01:00", 60, "m2")], [0, 0]),
        ([span("00:00", 61, "m1 m2"), span("01:00", 60, "m2 m3")], [1, 1]),
        ([span("00:00", 600), span("01:00", 60), span("05:00", 60)], [2, 1, 1]),
        ([span("00:00", 600, "m1 m2"), span("01:00", 60, "m1 m2")], [1, 1]),
        ([span("00:00", 60), RunRow()], [0, None]),
    ],
    ids=["one after the other", "overlap", "other machines", "a common machine", "three",
         "two common machines", "not run"],
)  # fmt: skip
def test_runs_that_shared_a_machine_at_the_same_time(
    rows: list[RunRow], expected: list[int | None]
) -> None:
    assert run_environment.count_overlapping_runs(rows) == expected


def runs(*rows: dict[str, Any]) -> pd.DataFrame:
    usual = {
        **dict.fromkeys((*run_environment.ENVIRONMENT_FACTS, "unchecked")),
        "platform": "a",
        "status": "ok",
        "kernel": "6.1",
    }
    return pd.DataFrame([{**usual, **row} for row in rows])


def test_what_differs_within_a_platform_is_flagged() -> None:
    found = run_environment.varying_facts(runs({}, {"kernel": "6.2"}, {"kernel": "6.2"}))
    assert found == {"kernel": ["a"]}


def test_platforms_may_differ_from_each_other_and_failed_runs_do_not_count() -> None:
    rows = [{}, {"platform": "b", "kernel": "6.2"}, {"kernel": "5.4", "status": "failed"}]
    assert run_environment.varying_facts(runs(*rows)) == {}
