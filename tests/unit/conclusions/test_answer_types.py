"""What follows from the candidates of an answer, at the boundaries."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tfscaling.conclusions.answers.answer_types import BY_LINE, STARTUP, AllTrainings, Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.estimation.run_counts import KEPT_RUNS, miss_rate_bound, miss_rate_text
from tfscaling.estimation.samples import NOT_MEASURED
from tfscaling.study.config_types import Limit
from tfscaling.tables.row_types import PointRow

TIME, TO_TARGET = "execution_time_s", "time_to_target_s"


def candidate(nodes: int = 1, state: Any = State.COMPARED, **values: Any) -> Candidate:
    """A configuration; `values` are fields of its row, or of the candidate."""
    own = {name: values.pop(name) for name in {*values} & {*Candidate.__dataclass_fields__}}
    usual = {"status": "ok", "execution_time_s": 100.0, "train_time_s": 90.0}
    return Candidate(PointRow(nodes=nodes, **{**usual, **values}), f"n{nodes}", state, **own)


def answer(*candidates: Candidate, goal: str = TIME, **fields: Any) -> Answer:
    """An answer whose leader is the first of its candidates."""
    leader = candidates[0] if candidates else None
    return Answer("w", goal, "t", 0.05, candidates, leader=leader, **fields)


def test_an_answer_without_evidence_claims_nothing() -> None:
    found = Answer("w", TIME, "t", 0.05)
    assert (found.recommended, found.leader, found.rival, found.next_best) == (None,) * 4
    assert (found.support, found.bound, found.choice_reason, found.point) == (
        NOT_MEASURED,
        None,
        "",
        None,
    )
    assert not (found.is_best or found.is_near_best or found.is_only_feasible or found.is_decided)
    assert (found.comparisons, found.trainings, found.repeats) == (0, 1, None)
    assert (found.candidates, found.other_goals, found.whole_run) == ((), (), None)
    assert found.is_measured and not found.is_open and found.leader_keeps_limits
    assert not replace(found, runs_by_status={}).is_measured
    assert found.startup is None and found.trade_off is None and found.all_trainings is None
    assert found.kept_text == found.not_covered_text() == ""
    one = candidate()
    assert (one.reason, one.value, one.remark, one.runs, one.kept_runs) == ("", "", "", 0, None)
    assert not (
        one.is_near_best or one.is_not_shown_worse or one.missed or one.undecided or one.difference
    )


@pytest.mark.parametrize(
    ("state", "has_value", "is_open"),
    [
        (State.COMPARED, True, False), (State.TOO_FEW, True, False),
        (State.UNDECIDED, False, True), (State.OPEN, False, True), (State.NOT_RUN, False, True),
        (State.INFEASIBLE, False, False), (State.EXCLUDED, False, False),
    ],
)  # fmt: skip
def test_a_state_is_compared_open_or_closed(state: State, has_value: bool, is_open: bool) -> None:
    own = candidate(2, state, remark="1 failed")
    other = candidate(4, State.COMPARED)
    found = answer(own, other)
    assert (own.has_value, own.is_open, own.name_with_remark) == (
        has_value,
        is_open,
        "n2 (1 failed)",
    )
    assert found.candidates_with_value == ((own, other) if has_value else (other,))
    assert found.is_open is is_open
    assert found.with_few_runs == ((own,) if state is State.TOO_FEW else ())
    assert found.not_covered == (() if has_value else (own,))
    assert own.name in found.not_covered_text() or has_value
    assert found.not_covered_text([other]) == f"Not compared: {other.name}, ."


def test_what_the_grid_excludes_or_a_search_need_not_run_is_not_missing() -> None:
    excluded = candidate(1, State.EXCLUDED, status="excluded")
    others = [
        candidate(2, State.EXCLUDED, reason=BY_LINE), candidate(3, State.NOT_RUN),
        candidate(4, State.OPEN, reason="x"),
    ]  # fmt: skip
    found = answer(excluded, *others)
    assert found.not_covered == tuple(others)
    search: Any = object()
    assert replace(found, search=search).not_covered == (others[-1],)


def test_equal_and_alike_candidates_are_listed() -> None:
    each = [
        candidate(n, is_near_best=is_near, is_not_shown_worse=is_alike)
        for n, (is_near, is_alike) in enumerate([(False, False), (True, False), (True, True)], 1)
    ]
    found = answer(*each)
    assert found.near_best_others == (each[1], each[2]) and found.not_shown_worse == (each[2],)


@pytest.mark.parametrize(
    ("kept_runs", "is_kept"),
    [(None, True), (0, False), (KEPT_RUNS - 1, False), (KEPT_RUNS, True), (KEPT_RUNS + 1, True)],
)
@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize(
    ("goal", "limits", "what"),
    [(TIME, {"cost_usd": Limit(at_most=1)}, "limits"), (TO_TARGET, None, "target")],
)
def test_enough_runs_must_have_kept_the_limits(
    kept_runs: int | None, is_kept: bool, is_near: bool, goal: str, limits: Any, what: str
) -> None:
    own = candidate(kept_runs=kept_runs)
    found = answer(own, goal=goal, recommended=own, limits=limits, is_near_best=is_near)
    assert (found.leader_keeps_limits, found.is_decided) == (is_kept, is_kept and is_near)
    assert bool(found.kept_text) is bool(kept_runs)
    if kept_runs:
        assert f" {kept_runs} runs kept the {what}" in found.kept_text
        assert f"{miss_rate_text(kept_runs)} of its runs" in found.kept_text
        assert f"{miss_rate_text(kept_runs)}" != f"{miss_rate_text(kept_runs + 2)}"


JUDGED = (State.INFEASIBLE, State.UNDECIDED, State.TOO_FEW, State.COMPARED)


@pytest.mark.parametrize("others", [0, 1, 3, 8])
def test_the_share_that_may_miss_is_for_all_configurations_together(others: int) -> None:
    own = candidate(kept_runs=KEPT_RUNS)
    rivals = [candidate(2 + n, JUDGED[n % len(JUDGED)]) for n in range(others)]
    left_out = [candidate(50, State.OPEN), candidate(51, State.EXCLUDED)]
    limits = {TIME: Limit(at_most=1.0)}
    found = answer(own, *rivals, *left_out, recommended=own, limits=limits)
    bound = miss_rate_bound(KEPT_RUNS, 1 + others)
    assert f"fewer than {miss_rate_text(KEPT_RUNS, 1 + others)} of its" in found.kept_text
    assert float(miss_rate_text(KEPT_RUNS, 1 + others).removesuffix("%")) >= 100 * bound
    # so often one of them keeps a limit in all its runs that this share misses
    assert (1 + others) * (1 - bound) ** KEPT_RUNS == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("spent_s", "changes", "share"),
    [
        ([8.5] * 6, {}, 0.51), ([8.0] * 6, {}, None), ([60.0, *[math.nan] * 5], {}, 0.6),
        ([8.5] * 6, {"execution_time_s": math.nan}, None),
        ([8.5] * 6, {"train_time_s": math.nan}, None),
    ],
)  # fmt: skip
def test_a_start_that_takes_more_than_half_of_the_time_is_named_with_the_fastest_training(
    spent_s: list[float], changes: dict[str, Any], share: float | None
) -> None:
    phases: dict[str, Any] = dict(zip(STARTUP, spent_s, strict=True))
    others = [candidate(n, train_time_s=s) for n, s in ((2, 50.0), (4, 45.0), (8, math.nan))]
    out = candidate(16, State.OPEN, train_time_s=1.0)
    found = answer(candidate(1, **phases, **changes), *others, out)
    if share is None:
        assert found.startup is None
        return
    assert found.startup is not None
    assert found.startup.fastest is others[1]
    assert (found.startup.share, found.startup.ratio) == pytest.approx((share, 2.0))
    assert replace(found, goal="cost_usd").startup is None
    assert replace(found, leader=None).startup is None


def test_a_start_without_a_known_training_is_not_judged() -> None:
    phases: dict[str, Any] = dict.fromkeys(STARTUP, 30.0)
    leader = candidate(1, train_time_s=0.0, **phases)
    assert answer(leader, candidate(2, train_time_s=0.0)).startup is None
    other = candidate(2, train_time_s=0.5)
    found = answer(leader, other).startup
    assert found is not None and (found.fastest, found.ratio) == (other, 0.0)


TRADES = [
    # time and cost relative to the leader's, and whether it is named
    (1.0, 0.9, True), (0.99, 0.5, False), (3.0, 0.5, True), (3.01, 0.5, False),
    (2.0, 0.91, False), (2.0, 0.05, True),
]  # fmt: skip


@pytest.mark.parametrize(("time", "cost", "is_named"), TRADES)
@pytest.mark.parametrize("goal", [TIME, TO_TARGET])
def test_a_trade_off_costs_clearly_less_and_is_not_far_slower(
    time: float, cost: float, is_named: bool, goal: str
) -> None:
    money = "cost_usd" if goal == TIME else "cost_to_target_usd"
    leader = candidate(8, **{goal: 10.0, money: 20.0})
    own = candidate(4, **{goal: 10.0 * time, money: 20.0 * cost})
    slow = candidate(2, **{goal: 1000.0, money: 20.0})
    found = answer(leader, slow, own, goal=goal).trade_off
    assert (found is not None) is is_named
    if found:
        assert (found.cheaper, found.is_priced) == (own, True)
        assert (found.time, found.cost) == pytest.approx((time, cost))
    assert answer(leader, own, goal="cost_usd").trade_off is None
    assert answer(leader, replace(own, state=State.OPEN), goal=goal).trade_off is None


@pytest.mark.parametrize(("nodes", "time", "is_named"), [(1, 3.0, True), (4, 1.9, False)])
def test_without_all_prices_node_hours_decide(nodes: int, time: float, is_named: bool) -> None:
    leader = candidate(8, execution_time_s=10.0, cost_usd=1.0)
    own = candidate(nodes, execution_time_s=10.0 * time, cost_usd=math.nan)
    found = answer(leader, own).trade_off
    assert (found is not None) is is_named
    if found:
        assert (found.cost, found.is_priced) == (pytest.approx(nodes / 8 * time), False)


@pytest.mark.parametrize("nodes", [1, 8, 16])
def test_a_price_of_zero_is_a_price(nodes: int) -> None:
    leader = candidate(8, execution_time_s=10.0, cost_usd=1.0)
    free = candidate(nodes, execution_time_s=19.0, cost_usd=0.0)
    found = answer(leader, free).trade_off
    assert found and (found.cheaper, found.cost, found.is_priced) == (free, 0.0, True)
    faster = replace(free, row=msgspec.structs.replace(free.row, execution_time_s=5.0))
    assert answer(faster, leader).trade_off is None


@pytest.mark.parametrize("usd", [2.5, math.nan])
@pytest.mark.parametrize("trainings", [1, 2, 30])
def test_all_trainings_take_a_multiple_of_one(trainings: int, usd: float) -> None:
    ends = {"execution_time_s_low": 90.0, "execution_time_s_high": 120.0, "cost_usd_high": 3.0}
    leader = candidate(4, cost_usd=usd, node_hours=0.5, ends=ends, runs_timed=6)
    found = answer(leader, trainings=trainings).all_trainings
    if trainings == 1:
        assert found is None
        return
    assert found is not None
    assert (found.number, found.time_s, found.node_hours) == (
        trainings, 100.0 * trainings, 0.5 * trainings
    )  # fmt: skip
    assert found.cost_usd == (2.5 * trainings if usd == usd else None)
    assert found.intervals == {TIME: (90.0 * trainings, 120.0 * trainings)}
    short = msgspec.structs.replace(leader.row, projected_from_steps=100)
    projected = answer(replace(leader, row=short), trainings=trainings).all_trainings
    assert projected and projected.intervals == {}, "its interval is of one run"
    unknown = candidate(4, execution_time_s=math.nan)
    assert answer(unknown, trainings=trainings).all_trainings is None


@pytest.mark.parametrize("usd", [12.0, 0.0, None])
def test_the_sentence_on_all_trainings_has_their_cost_if_it_is_known(usd: float | None) -> None:
    text = str(AllTrainings(3, 7200.0, 8.0, usd, {"node_hours": (7.0, 9.0)}))
    assert "3 trainings" in text and "7.00–9.00" in text
    assert ("US dollars" in text) is (usd is not None)
