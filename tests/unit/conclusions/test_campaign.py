"""The date on which all trainings are done: rows, sentences, dates, and what they need."""

from __future__ import annotations

import datetime
import math
import random
import time
from typing import Any

import pytest
from measured import PLATFORMS, around, measured
from seeds import drawn_seed
from tfscaling.conclusions import base, campaign, headline
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.campaign import (
    NEVER_ENDS,
    NO_WAITS,
    NOT_COMPARED,
    OWN_WAITS,
    PLATFORM_WAITS,
    SHORT_WAITS,
    SIMULATED,
    TOO_FEW_RUNS,
    CampaignRow,
)
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.study.config_types import Campaign, Question, Spot
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.display import duration_text, format_value
from tfscaling.tables.row_values import is_known
from tfscaling.tables.table_files import to_rows

SEED = drawn_seed()
START = "2026-12-01T09:00+01:00"


def study(
    times: dict[int, list[float]],
    columns: dict[str, Any] | None = None,
    platform: dict[str, Any] | None = None,
    **keys: Any,
) -> Study:
    """A study of one platform with a campaign of these keys; columns are functions of a row."""
    _, runs, planned = measured({("east", n): own for n, own in times.items()}, **platform or {})
    for name, value_of in (columns or {}).items():
        runs[name] = [value_of(row) for row in runs.to_dict("records")]
    asked = Question(campaign=Campaign(**keys))
    return Study(comparison_table(runs, planned), runs, planned, question=asked)


def rows_by_nodes(made: Study) -> dict[int, CampaignRow]:
    return {row.nodes: row for row in to_rows(CampaignRow, campaign.table(made))}


def test_each_configuration_has_its_duration_and_cost() -> None:
    dice = random.Random(SEED)
    times = {n: around(dice.uniform(1000, 9000) / n, 0.01, 8) for n in (1, dice.randint(2, 9))}
    number, at_once = dice.randint(5, 40), dice.randint(1, 5)
    price = PLATFORMS["east"]["usd_per_node_hour"]
    found = rows_by_nodes(study(times, trainings=number, at_once=at_once))
    for nodes, own in times.items():
        row, mean_s = found[nodes], sum(own) / len(own)
        assert (row.status, row.runs, row.done) == (SIMULATED, 8, None)
        rounds = math.ceil(number / at_once)
        assert row.duration_s_low < row.duration_s < row.duration_s_high
        assert 0.97 < row.duration_s_low / (rounds * mean_s) < 1.02, SEED
        assert row.node_hours_low == pytest.approx(number * nodes * mean_s / 3600, rel=0.03), SEED
        for end in ("", "_low", "_high"):
            assert row[f"cost_usd{end}"] == pytest.approx(price * row[f"node_hours{end}"])


@pytest.mark.parametrize("runs", [1, RUNS_FOR_INTERVAL - 1])
def test_too_few_runs_have_no_interval(runs: int) -> None:
    made = study({1: around(100.0, 0.01, runs), 2: around(60.0)}, start=START)
    found = rows_by_nodes(made)
    assert (found[1].status, found[1].runs, found[1].done) == (TOO_FEW_RUNS, runs, None)
    assert not is_known(found[1].duration_s) and str(RUNS_FOR_INTERVAL) in found[1].reason
    assert found[2].status == SIMULATED and found[2].done is not None


def test_a_configuration_that_is_not_compared_has_the_reason() -> None:
    made = study({1: around(100.0), 2: []})
    found = rows_by_nodes(made)[2]
    assert found.status == NOT_COMPARED and "failed" in found.reason


def test_without_checkpoints_a_longer_training_never_ends() -> None:
    times = {1: around(8000.0), 2: around(3000.0)}
    without = rows_by_nodes(study(times, time_limit="1 h"))
    assert [without[n].status for n in (1, 2)] == [NEVER_ENDS, SIMULATED]
    assert without[1].unfinished == 1 and not is_known(without[1].duration_s)
    assert "no checkpoints" in without[1].reason
    saved = rows_by_nodes(study(times, time_limit="1 h", checkpoint_every="10 min"))
    assert saved[1].status == SIMULATED and saved[1].unfinished == 0
    assert saved[1].jobs >= 3 and saved[2].jobs < 2


def test_an_interruption_of_any_node_ends_the_job() -> None:
    times = {1: around(3600.0), 8: around(3600.0)}
    calm, spot = (
        rows_by_nodes(study(times, trainings=20, spot=each))
        for each in (None, Spot(interruptions_per_hour=0.1))
    )
    assert spot[1].jobs - calm[1].jobs == pytest.approx(20 * math.expm1(0.1), abs=0.6)
    more = (spot[8].jobs - calm[8].jobs) / (20 * math.expm1(0.8))
    assert 0.9 < more < 1.4  # a training that is slow is interrupted more often


def test_waits_are_of_the_configuration_or_of_its_platform() -> None:
    times = {1: around(100.0), 2: around(100.0)}
    wait = {"queue_time_s": lambda row: 500.0}
    only_two = {"queue_time_s": lambda row: 500.0 if row["nodes"] == 2 else math.nan}
    found = [rows_by_nodes(study(times, each))[1] for each in ({}, wait, only_two)]
    assert [row.waits for row in found] == [NO_WAITS, OWN_WAITS, PLATFORM_WAITS]
    assert [round(row.duration_s / 100) for row in found] == [1, 6, 6]
    short = {**wait, "projected_from_steps": lambda row: 10, "projected_to_steps": lambda row: 99}
    assert rows_by_nodes(study(times, short))[1].waits == SHORT_WAITS


def test_a_job_is_the_complete_run_and_a_short_run_is_projected() -> None:
    times = {1: around(100.0)}
    phases = {
        "train_time_s": lambda row: row["execution_time_s"] - 30,
        "evaluation_time_s": lambda row: 5.0,
        "wall_time_s": lambda row: row["execution_time_s"] + 20,
    }
    (row,) = rows_by_nodes(study(times, phases)).values()
    assert (row.training_time_s, row.startup_s) == pytest.approx((120, 45))
    short = {"projected_from_steps": lambda row: 10, "projected_to_steps": lambda row: 99}
    (row,) = rows_by_nodes(study(times, phases | short)).values()
    assert (row.training_time_s, row.startup_s) == pytest.approx((105, 30))


def test_each_job_begins_with_the_start_up() -> None:
    """A job of 2,000 s has 1,000 s of start-up: 3,000 s of training take three jobs, not two."""
    phases = {"train_time_s": lambda row: row["execution_time_s"] - 1000}
    made = study({1: around(4000.0)}, phases, time_limit="2000 s", checkpoint_every="1 s")
    (row,) = rows_by_nodes(made).values()
    assert row.startup_s == pytest.approx(1000)
    assert 3 <= row.jobs < 4


def test_failed_attempts_take_time() -> None:
    times = {1: around(1000.0, runs=12)}
    failing = {"failed_attempts": lambda row: 1, "wall_time_s": lambda row: row["execution_time_s"]}
    calm, failed = (rows_by_nodes(study(times, c, trainings=20))[1] for c in ({}, failing))
    assert (calm.failed_attempts, failed.failed_attempts) == (0, 12)
    assert failed.jobs > 1.5 * calm.jobs and failed.node_hours > 1.2 * calm.node_hours


def test_table_page_and_headline_agree() -> None:
    made = study({1: around(9000.0), 2: around(5000.0)}, trainings=7, at_once=2, start=START)
    found = rows_by_nodes(made)
    (shown,) = headline.table(made).to_dict("records")
    done = datetime.datetime.fromisoformat(found[2].done or "")
    said = f"7 trainings on 2 nodes, 2 at once: done on {done:%A %Y-%m-%d %H:%M}"
    ends = map(datetime.datetime.fromisoformat, (found[2].done_low or "", found[2].done_high or ""))
    interval = " to ".join(f"{end:%A %Y-%m-%d %H:%M}" for end in ends)
    assert f"{said} (90%: {interval}), " in shown["sure"]
    page = base.CONCLUSIONS["campaign"].page(campaign.table(made), made)
    for row in found.values():
        for moment in (row.done, row.done_low, row.done_high):
            assert f"{datetime.datetime.fromisoformat(moment or ''):%A %Y-%m-%d %H:%M}" in page
        assert f"{row.cost_usd:.3g}" in page
        seconds = (done_at(row) - datetime.datetime.fromisoformat(START)).total_seconds()
        assert seconds == pytest.approx(row.duration_s, abs=60)


def done_at(row: CampaignRow) -> datetime.datetime:
    return datetime.datetime.fromisoformat(row.done or "")


def test_without_a_campaign_nothing_is_shown() -> None:
    comparison, runs, planned = measured({("east", n): around(100.0 / n) for n in (1, 2)})
    made = Study(comparison, runs, planned)
    assert campaign.table(made).empty
    assert "trainings on" not in headline.table(made)["sure"][0]


def test_dates_are_in_the_local_zone_also_when_clocks_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert campaign.moment_after("2026-10-24T12:00", 86_400) == "2026-10-25T11:00+01:00"
        assert campaign.moment_after("2026-10-24T12:00Z", 86_400) == "2026-10-25T12:00+00:00"
        assert campaign.moment_after("2026-10-24T12:00+05:30", 60) == "2026-10-24T12:01+05:30"
        assert campaign.moment_after("2026-10-24T12:00", math.nan) is None
        assert campaign.moment_after("9999-12-31T12:00", 86_400 * 9) is None
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("price", [None, 0.0, 3.0])
def test_the_sentence_has_the_cost_or_else_the_node_hours(price: float | None) -> None:
    """With their intervals; one that never ends costs nothing only if nodes are free."""
    cost = {"usd_per_node_hour": price}
    limits: dict[str, Any] = {"time_limit": "1 h", "trainings": random.Random(SEED).randint(2, 30)}
    made = study({1: around(5000.0), 2: around(800.0)}, platform=cost, **limits)
    ends, never_ends = (rows_by_nodes(made)[n] for n in (2, 1))
    low, high = ends.node_hours_low, ends.node_hours_high
    assert ends.node_hours_text == format_value(ends.node_hours, None, low, high)
    (shown,) = headline.table(made).to_dict("records")
    usd = "0 (0–0)" if price == 0 else ends.cost_text
    said = f"{ends.node_hours_text} node-hours" if price is None else f"{usd} US dollars"
    assert f"), {said}" in str(ends) and str(ends) in shown["sure"]
    interval = " to ".join(map(duration_text, (ends.duration_s_low, ends.duration_s_high)))
    assert f"done after {duration_text(ends.duration_s)} (90%: {interval}), " in str(ends)
    assert ("node-hours" in str(ends)) == (price is None) != is_known(ends.cost_usd)
    assert not is_known(never_ends.cost_usd) and not is_known(never_ends.cost_usd_low)
    assert "hours" not in str(never_ends).partition("(")[0]


def test_trainings_that_never_end_have_no_total() -> None:
    """Neither here nor as the number of trainings times the cost of one."""
    _, table, planned = measured({("east", 1): around(5000.0)})
    asked = Question(campaign=Campaign(time_limit="1 h"), trainings=9)
    made = Study(comparison_table(table, planned), table, planned, question=asked)
    (found,) = answer_questions(made)
    assert found.campaign is not None and found.campaign.status == NEVER_ENDS
    assert found.all_trainings is None and [*map(str, found.totals)] == [str(found.campaign)]


@pytest.mark.parametrize("runs", [RUNS_FOR_INTERVAL, RUNS_FOR_INTERVAL - 1])
@pytest.mark.parametrize("is_of_campaign", [False, True])
def test_there_is_one_cost_of_all_trainings(runs: int, is_of_campaign: bool) -> None:
    """With a date the campaign has it; without one, the totals of the same number of trainings."""
    number = random.Random(SEED).randint(2, 99)
    _, table, planned = measured({("east", n): around(5000.0 / n, runs=runs) for n in (1, 2)})
    asked = Question(campaign=Campaign(), trainings=number)
    if is_of_campaign:
        asked = Question(campaign=Campaign(trainings=number))
    (found,) = answer_questions(
        Study(comparison_table(table, planned), table, planned, question=asked)
    )
    assert found.campaign is not None and found.campaign.trainings == number
    has_date = runs == RUNS_FOR_INTERVAL
    assert found.campaign.has_date == has_date == (found.all_trainings is None)
    assert len(found.totals) == 2 - has_date
    assert found.all_trainings is None or "none repeated" in str(found.all_trainings)
