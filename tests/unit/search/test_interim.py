"""Who leaves a search, what it says, and which runs it needs; how often it is right: test_race."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tfscaling.record.metrics import QUALITY
from tfscaling.search import interim
from tfscaling.search.interim import (
    BOUNDS_SHARE,
    KEPT_RUNS,
    SCREEN_SHARE,
    Allowed,
    Candidate,
    Decision,
    Elimination,
    Reason,
    Run,
    lacking,
)
from tfscaling.spec.config import LOOKS, Limit, Search

TIME, COST, TO_TARGET = "execution_time_s", "cost_usd", "time_to_target_s"
USUAL = Search()
#: Medians of candidates that take several interim analyses to decide.
TIMES_S = (100.0, 103.0, 107.0, 112.0, 150.0, 300.0)


def decide(
    candidates: Sequence[Candidate],
    search: Search = USUAL,
    goal: str = TIME,
    indifference: float = 0.05,
    **limits: Limit,
) -> Decision:
    return interim.decide(candidates, search, goal, limits, indifference)


def candidate(name: str, *times_s: float | None, cost: float | None = None) -> Candidate:
    return Candidate(
        name,
        tuple(None if t is None else {TIME: t, COST: t, TO_TARGET: t} for t in times_s),
        cost=cost,
    )


def measured(scatter: float = 0.04, seed: int = 0) -> list[Candidate]:
    """Candidates with all the runs that a search may ask for."""
    dice = np.random.default_rng(seed)
    return [
        candidate(f"c{n}", *(t * np.exp(scatter * dice.standard_normal(LOOKS[-1]))))
        for n, t in enumerate(TIMES_S)
    ]


def with_runs(candidates: Sequence[Candidate], decision: Decision) -> list[Candidate]:
    return [replace(each, runs=each.runs[: decision.runs[each.name]]) for each in candidates]


def test_two_candidates_by_hand() -> None:
    # scatter of 4 % about 100 and 200; at two runs each a gap of 1.45 is the least that counts
    verdict = decide([candidate("a", 100, 104), candidate("b", 200, 208)])
    assert (verdict.best, verdict.bound, verdict.is_decided) == ("a", 0, True)
    (left,) = verdict.eliminated
    assert left == Elimination("b", 1, Reason.NOT_THE_BEST, "a", pytest.approx(1.0))


def test_the_bound_by_hand() -> None:
    verdict = decide([candidate("a", 100, 104), candidate("b", 110, 114.4)])
    assert (verdict.best, verdict.is_decided, verdict.eliminated) == ("a", False, ())
    assert verdict.bound == pytest.approx(1.45 / 1.1 - 1)


def test_a_claim_by_hand() -> None:
    # logs -0.01, 0.01, 0.01, -0.01 about 100 and 125: undecided at 2 and 3 runs for the early gaps
    times = [100 * math.exp(d) for d in (-0.01, 0.01, 0.01, -0.01)]
    found = decide([candidate("a", *times), candidate("b", *(1.25 * t for t in times))])
    assert [left.round for left in found.eliminated] == [3]
    variance = (4 / 3) * 1e-4  # of each, and the pooled one
    quantile = 4.6979  # of t with 6 degrees of freedom at 1 - 0.05 · (0.4 / 6) / 2
    at_least = 1.25 * math.exp(-quantile * math.sqrt(2 * variance / 4)) - 1
    (behind,) = found.eliminated
    assert (behind.name, behind.rival) == ("b", "a")
    assert behind.at_least == pytest.approx(at_least, rel=1e-4)


def run_all(
    planned: Sequence[Candidate], settings: Search = USUAL, goal: str = TIME
) -> tuple[list[Decision], int]:
    """Every round of a search that makes the runs it asks for: (decisions, rounds)."""
    made: list[Candidate] = [replace(each, runs=()) for each in planned]
    by_name = {each.name: each for each in planned}
    decisions = [decide(made, settings, goal)]
    while decisions[-1].wanted:
        runs: dict[str, list[Run | None]] = {each.name: list(each.runs) for each in made}
        for block, name in lacking(decisions[-1], made):
            assert len(runs[name]) == block  # each block follows the one before
            runs[name].append(by_name[name].runs[block])
        made = [replace(each, runs=tuple(runs[each.name])) for each in made]
        decisions.append(decide(made, settings, goal))
    return decisions, len(decisions) - 1


def test_a_search_that_goes_on_after_any_round_decides_the_same() -> None:
    decisions, rounds = run_all(measured())
    at_once = decide(measured())
    assert decisions[-1] == at_once and rounds == at_once.rounds > 2
    for before, after in pairwise(decisions):
        assert decide(with_runs(measured(), before)) == before
        assert set(after.wanted) <= set(before.wanted)


def test_another_indifference_needs_no_other_runs() -> None:
    strict, usual, loose = (
        decide(measured(), indifference=indifference) for indifference in (0.01, 0.05, 0.3)
    )
    assert loose.rounds < usual.rounds < strict.rounds
    again = decide(with_runs(measured(), usual), indifference=0.3)
    assert again == loose
    # those that left, and when, are the same as far as both went
    left = usual.eliminated
    assert strict.eliminated[: len(left)] == left


INFINITE = math.inf
MISSED = {TIME: INFINITE, COST: INFINITE}


@pytest.mark.parametrize(
    ("times_s", "unresolved"),
    [
        ((INFINITE, INFINITE), ()),
        ((INFINITE, 50.0), ("a",)),
        ((INFINITE, 900.0), ()),
        ((90.0, 90.5, 91.0, INFINITE), ("a",)),
        ((190.0, 190.5, 191.0, INFINITE), ()),
    ],
)
def test_a_candidate_that_misses_the_target_leaves_and_may_be_better(
    times_s: tuple[float, ...], unresolved: tuple[str, ...]
) -> None:
    others = [candidate(f"b{n}", *(100 + n, 101 + n, 100 + n) * 2) for n in range(5)]
    verdict = decide([candidate("a", *times_s), *others])
    left = {each.name: each.reason for each in verdict.eliminated}
    is_behind = times_s[0] == 190.0
    assert left["a"] is (Reason.NOT_THE_BEST if is_behind else Reason.NOT_REACHED)
    assert verdict.best == "b0" and verdict.unresolved == unresolved


def test_what_left_behind_a_candidate_that_then_missed_the_target_runs_again() -> None:
    """`a` is the fastest in two runs, lets all leave, and fails in its third."""
    others = [candidate(f"b{n}", *(200.0 + n, 201.0 + n) * 10) for n in range(3)]
    begun = decide([candidate("a", 100.0, 101.0), *others], goal=TO_TARGET)
    assert begun.wanted == ("a",) and not begun.is_decided
    found = decide([candidate("a", 100.0, 101.0, INFINITE), *others], goal=TO_TARGET)
    verdict = found
    assert verdict.best == "b0" and verdict.is_decided and verdict.unresolved == ("a",)
    assert "b0" not in {each.name for each in verdict.eliminated}


def test_with_a_target_a_candidate_is_named_from_enough_runs_on() -> None:
    times = [candidate(f"c{n}", *(100.0 * 2**n, 101.0 * 2**n) * 10) for n in range(3)]
    decided = {
        has_target: decide(times, goal=TO_TARGET if has_target else TIME)
        for has_target in (False, True)
    }
    assert decided[False].runs["c0"] < KEPT_RUNS <= decided[True].runs["c0"]
    assert decided[True].runs["c2"] < KEPT_RUNS
    assert all(each.is_decided for each in decided.values())


def test_a_failed_block_is_replaced_by_the_next() -> None:
    others = [candidate(f"b{n}", 200 + n, 201 + n) for n in range(3)]
    one = candidate("a", None, 50, 51)
    skipped = replace(one, skipped_blocks=frozenset({0}))
    decision = decide([skipped, *others])
    assert (decision.best, decision.is_decided) == ("a", True)
    assert decision.runs["a"] == 2
    lacking_one = replace(skipped, runs=skipped.runs[:2])
    assert lacking(decide([lacking_one, *others]), [lacking_one, *others]) == [(2, "a")]


def test_of_fewer_than_two_candidates_nothing_is_decided() -> None:
    alone = decide([candidate("a", 100, 101)])
    dead = candidate("b"), candidate("c")
    others = [replace(each, failed_blocks=frozenset({0})) for each in dead]
    left = decide([candidate("a", 100, 101), *others])
    for verdict in (alone, left):
        assert (verdict.is_compared, verdict.is_decided, verdict.has_ended) == (False, False, True)
        assert verdict.best == "a"


def test_what_the_infrastructure_ended_is_run_again_in_its_block() -> None:
    others = [candidate(f"b{n}", 100 + n, 101 + n) for n in range(3)]
    failed = candidate("a", None, 50)
    decision = decide([failed, *others])
    assert (decision.rounds, decision.runs_next) == (0, 2)
    assert lacking(decision, [failed, *others]) == [(0, "a")]
    again = decide([candidate("a", 51, 50), *others])
    assert (again.best, again.is_decided) == ("a", True)
    never = replace(failed, failed_blocks=frozenset({0}))
    verdict = decide([never, *others])
    assert (
        verdict.eliminated == (Elimination("a", 1, Reason.DOES_NOT_RUN),) and verdict.best == "b0"
    )


def test_the_cheapest_of_those_shown_to_be_near() -> None:
    near = [candidate("a", *[100.0, 100.1] * 10, cost=8), candidate("b", *[100.2, 100.3] * 10)]
    found = decide([near[0], replace(near[1], cost=1)])
    assert (found.best, found.cheapest, found.is_decided) == ("a", "b", True)
    assert decide(near).cheapest == "a"
    far = candidate("c", *[130.0, 130.2] * 10, cost=0.1)
    found = decide([near[0], far])
    assert found.cheapest == "a"


def with_quality(times_s: float, quality: float, name: str) -> Candidate:
    dice = np.random.default_rng([*name.encode()])
    runs = tuple(
        {TIME: times_s * math.exp(0.02 * a), QUALITY: quality + 0.001 * b}
        for a, b in dice.standard_normal((LOOKS[-1], 2))
    )
    return Candidate(name, runs)


def test_only_what_keeps_the_constraint_is_named() -> None:
    candidates = [
        with_quality(50, 0.90, "fast"),
        with_quality(100, 0.99, "good"),
        with_quality(200, 0.99, "slow"),
    ]
    limit = Limit(at_least=0.98)
    found = decide(candidates, quality=limit)
    verdict = found
    assert (verdict.best, verdict.is_decided) == ("good", True)
    assert (found.allowed["fast"], found.allowed["good"]) == (Allowed.OUT, Allowed.IN)
    assert {left.name: left.reason for left in verdict.eliminated}["fast"] is Reason.NOT_ALLOWED
    at_most = Limit(at_most=0.98)
    assert decide(candidates, quality=at_most).best == "fast"


def test_a_run_that_misses_the_limit_is_not_averaged_away() -> None:
    """The mean of `fast` keeps the limit, one of its runs does not."""
    good = with_quality(100, 0.99, "good")
    fast = with_quality(50, 0.995, "fast")
    runs = [dict(run or {}) for run in fast.runs]
    runs[4][QUALITY] = 0.96
    limit = Limit(at_least=0.98)
    found = decide([replace(fast, runs=tuple(runs)), good], quality=limit)
    assert found.allowed["fast"] is Allowed.OUT and found.best == "good"
    whole = decide([fast, good], quality=limit)
    assert (whole.best, whole.runs["fast"]) == ("fast", KEPT_RUNS)


def test_what_is_open_goes_on_and_nothing_is_named() -> None:
    def of(name: str, times_s: float, *accuracies: float) -> Candidate:
        return Candidate(name, tuple({TIME: times_s, QUALITY: a} for a in accuracies))

    limit = Limit(at_least=0.98)
    settings = Search(repeats_max=3)
    fast, slow = of("a", 50, 0.981, 0.984, 0.9815), of("b", 100, 0.982, 0.983, 0.981)
    found = decide([fast, slow], settings, quality=limit)
    verdict = found
    assert (verdict.best, verdict.bound, verdict.is_decided) == (None, math.inf, False)
    assert verdict.has_ended and set(found.allowed.values()) == {Allowed.OPEN}
    # nor is one that is open named where a slower one is in; it stays in the race
    found = decide([fast, of("b", 100, 0.999, 0.998, 0.999)], settings, quality=limit)
    verdict = found
    assert (verdict.best, verdict.is_decided) == ("b", False) and "a" in verdict.survivors


def test_one_candidate_is_the_best_and_what_cannot_be_compared_is_refused() -> None:
    assert decide([candidate("a", 1, 2)]).best == "a"
    with pytest.raises(ValueError, match="same name"):
        decide([candidate("a"), candidate("a")])
    with pytest.raises(ValueError, match="above zero"):
        decide([candidate("a", 0.0, 1.0)])
    with pytest.raises(ValueError, match="of every run"):
        decide([candidate("a", 1.0, 1.0)], goal="cost_to_target_usd")


SCREENED = Search(screen=True)


def test_a_screen_lets_leave_what_is_far_behind_in_its_only_run() -> None:
    firsts = {"a": 100.0, "b": 300.0, "c": 600.0, "d": INFINITE}
    found = decide([candidate(name, t) for name, t in firsts.items()], SCREENED)
    verdict = found
    assert verdict.eliminated == (Elimination("c", 0, Reason.SCREENED, "a", pytest.approx(5.0)),)
    assert (found.wanted, found.runs_next, found.runs["c"]) == (("a", "b", "d"), 2, 1)
    usual = decide([candidate(name, t) for name, t in firsts.items()])
    assert usual.eliminated == () and len(usual.wanted) == 4


def test_a_screen_waits_for_the_first_run_of_each_and_the_search_goes_on_after_it() -> None:
    waiting = decide([candidate("a", 100.0), candidate("b")], SCREENED)
    assert (waiting.wanted, waiting.runs_next) == (("a", "b"), 1)
    assert lacking(waiting, [candidate("a", 100.0), candidate("b")]) == [(0, "b")]
    after = [candidate("a", 100.0, 101.0), candidate("b", 900.0), candidate("c", 200.0, 202.0)]
    verdict = decide(after, SCREENED)
    assert (verdict.best, verdict.is_decided, verdict.rounds) == ("a", True, 1)
    assert [left.round for left in verdict.eliminated] == [0, 1]


BOUNDED = Search(at_most_linear=True)


def on_lines(times_s: dict[str, dict[int, float]], goal: str = TIME) -> list[Candidate]:
    """Candidates by line and nodes, with all the runs that a search may ask for, by a goal."""
    dice = np.random.default_rng(3)
    return [
        replace(
            candidate(
                f"{line}{nodes}",
                *(t * (nodes if goal == COST else 1) * np.exp(0.005 * dice.standard_normal(20))),
            ),
            line=line,
            nodes=nodes,
        )
        for line, by_nodes in times_s.items()
        for nodes, t in by_nodes.items()
    ]


#: `slow` is not as fast on 4 nodes, even at linear speed-up, as `fast` on one.
LINES = {"fast": {1: 100.0, 2: 60.0, 4: 33.0}, "slow": {1: 800.0, 2: 700.0, 4: 600.0}}


def test_bounds_leave_out_what_linear_speed_up_would_not_make_the_best() -> None:
    decisions, _ = run_all(on_lines(LINES), BOUNDED)
    first, second, *_ = decisions
    assert (first.due, first.waiting) == (("fast1", "slow1"), ("fast2", "fast4", "slow2", "slow4"))
    # 800 s on one node are at least 200 s on four: twice what `fast` takes on one
    bounded = {left.name: left for left in second.eliminated}
    assert set(bounded) == {"slow2", "slow4"}
    assert (bounded["slow4"].rival, bounded["slow4"].reason) == ("fast1", Reason.BOUNDED)
    assert bounded["slow4"].gap == pytest.approx(1.0, rel=0.1)
    assert second.due == ("fast1", "fast4", "slow1") and second.waiting == ("fast2",)
    verdict = decisions[-1]
    assert (verdict.best, verdict.is_decided) == ("fast4", True)
    # 100 s on one node are at least 50 s on two
    assert [left.reason for left in verdict.eliminated if left.name == "fast2"] == [Reason.BOUNDED]
    assert {name for name, runs in decisions[-1].runs.items() if not runs} == {
        "fast2", "slow2", "slow4",
    }  # fmt: skip


def test_on_cost_the_smallest_of_each_line_run_alone() -> None:
    candidates = on_lines(LINES, COST)
    decisions, rounds = run_all(candidates, BOUNDED, COST)
    verdict = decisions[-1]
    assert (verdict.best, verdict.is_decided, rounds) == ("fast1", True, 1)
    assert {name for name, runs in decisions[-1].runs.items() if runs} == {"fast1", "slow1"}
    assert {left.rival for left in verdict.eliminated if left.name in ("fast2", "fast4")} == {
        "fast1"
    }


def test_a_point_that_may_not_be_named_leaves_out_no_larger_one() -> None:
    unreached = [
        replace(each, runs=(MISSED,) * 20) if each.name == "fast1" else each
        for each in on_lines(LINES, COST)
    ]
    assert decide(unreached, BOUNDED, COST).best == "fast2"
    once = [
        replace(each, runs=(MISSED, *each.runs[1:])) if each.name == "fast1" else each
        for each in on_lines(LINES, COST)
    ]
    left = {each.name: each.reason for each in decide(once, BOUNDED, COST).eliminated}
    assert left.get("fast2") is not Reason.BOUNDED and left["slow2"] is Reason.BOUNDED
    dead = [
        replace(each, runs=(), failed_blocks=frozenset({0})) if each.name == "fast1" else each
        for each in on_lines(LINES, COST)
    ]
    assert decide(dead, BOUNDED, COST).best == "fast2"
    poor = [
        replace(each, runs=tuple({**(run or {}), QUALITY: quality} for run in each.runs))
        for each in on_lines(LINES, COST)
        for quality in [0.9 if each.nodes == 1 else 0.99]
    ]
    found = decide(poor, BOUNDED, COST, quality=Limit(at_least=0.98))
    assert found.best == "fast2" and found.allowed["fast1"] is Allowed.OUT


@pytest.mark.parametrize("goal", [TIME, COST])
def test_a_bounded_search_depends_on_its_runs_alone(goal: str) -> None:
    lines = {**LINES, "near": {1: 105.0, 2: 62.0, 4: 34.0}}
    candidates = on_lines(lines)
    decisions, _ = run_all(candidates, BOUNDED, goal)
    assert decisions[-1] == decide(candidates, BOUNDED, goal)
    assert decide(random.Random(1).sample(candidates, 9), BOUNDED, goal) == decisions[-1]
    for before in decisions:
        assert decide(with_runs(candidates, before), BOUNDED, goal) == before


@pytest.mark.parametrize(
    ("settings", "before"),
    [
        (USUAL, 0.0),
        (Search(repeats_max=7), 0.0),
        (SCREENED, SCREEN_SHARE * 0.05),
        (BOUNDED, BOUNDS_SHARE * 0.05),
    ],
)
def test_the_analyses_have_what_screens_and_bounds_leave_of_the_error(
    settings: Search, before: float
) -> None:
    errors = [interim.error(settings, number) for number in range(len(settings.looks))]
    assert sum(errors) + before == pytest.approx(0.05)
