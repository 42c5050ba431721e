"""What a search decides, and which runs it needs; how often it is right: test_search_errors."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tfscaling.estimation.run_counts import KEPT_RUNS, LEADER_RUNS
from tfscaling.record.metrics import QUALITY
from tfscaling.search import scaling_search
from tfscaling.search.interim import RISK_MAX
from tfscaling.search.scaling_search import ScalingSearch
from tfscaling.search.search_state import NewRuns, SearchProblem, SearchState
from tfscaling.search.search_types import (
    PROJECTION_ERROR,
    Candidate,
    Decision,
    LimitVerdict,
    Reason,
    Run,
    list_needed_runs,
)
from tfscaling.study.config_types import SHORT_RUNS_MAX, Limit, Search

TIME, COST, TO_TARGET = "execution_time_s", "cost_usd", "time_to_target_s"
USUAL, SMOOTH = Search(), Search(basis="lines are smooth")
RUNS = USUAL.repeats_max
#: Medians of candidates that take several interim analyses to decide.
TIMES_S = (100.0, 103.0, 107.0, 112.0, 150.0, 300.0)
INFINITE = math.inf


def decide(
    candidates: Sequence[Candidate],
    search: Search = USUAL,
    goal: str = TIME,
    indifference: float = 0.05,
    **limits: Limit,
) -> Decision:
    return scaling_search.decide(candidates, search, goal, limits, indifference)


def candidate(name: str, *times_s: float | None) -> Candidate:
    return Candidate(
        name,
        tuple(None if t is None else {TIME: t, COST: t, TO_TARGET: t} for t in times_s),
        line=name,
    )


def steady(name: str, time_s: float, runs: int = RUNS) -> Candidate:
    """Runs that scatter by 2 %."""
    dice = np.random.default_rng([*name.encode()])
    return candidate(name, *(time_s * np.exp(0.02 * dice.standard_normal(runs))).tolist())


def measured(scatter: float = 0.04, seed: int = 0) -> list[Candidate]:
    """Candidates with all the runs that a search may ask for."""
    dice = np.random.default_rng(seed)
    return [
        candidate(f"c{n}", *(t * np.exp(scatter * dice.standard_normal(RUNS))))
        for n, t in enumerate(TIMES_S)
    ]


def curve(line: str, one_s: float, nodes: Sequence[int] = (1, 2, 4, 8, 16)) -> list[Candidate]:
    """Configurations on a line that scales well."""
    dice = np.random.default_rng([*line.encode()])
    return [
        Candidate(
            f"{line}{n:02}",
            tuple(
                {TIME: one_s / n**0.9 * math.exp(e), COST: one_s * n**0.1 * math.exp(e)}
                for e in 0.02 * dice.standard_normal(RUNS)
            ),
            line=line,
            nodes=n,
        )
        for n in nodes
    ]


def run_all(
    planned: Sequence[Candidate], settings: Search = USUAL, goal: str = TIME
) -> list[Decision]:
    """The decision before each round of a search that makes the runs it needs, and the last."""
    made: list[Candidate] = [replace(each, runs=()) for each in planned]
    by_name = {each.name: each for each in planned}
    decisions = [decide(made, settings, goal)]
    while decisions[-1].runs_to_start:
        runs: dict[str, list[Run | None]] = {each.name: list(each.runs) for each in made}
        for block, name in list_needed_runs(decisions[-1], made):
            assert len(runs[name]) == block  # each block follows the one before
            runs[name].append(by_name[name].runs[block])
        made = [replace(each, runs=tuple(runs[each.name])) for each in made]
        decisions.append(decide(made, settings, goal))
    return decisions


@pytest.mark.parametrize(
    ("planned", "settings", "goal"),
    [
        (measured(), USUAL, TIME),
        (curve("slow", 5000.0) + curve("fast", 600.0), SMOOTH, TIME),
        (curve("slow", 5000.0) + curve("fast", 600.0), SMOOTH, COST),
    ],
)
def test_a_decision_is_a_function_of_the_runs(
    planned: list[Candidate], settings: Search, goal: str
) -> None:
    """A search that goes on after any round, with its runs in any order, decides the same."""
    decisions = run_all(planned, settings, goal)
    assert decisions[-1] == decide(planned, settings, goal)
    assert decisions[-1].rounds == len(decisions) - 1 > 2
    assert decide(random.Random(1).sample(planned, len(planned)), settings, goal) == decisions[-1]
    for before, after in pairwise(decisions):
        made = [replace(each, runs=each.runs[: before.runs[each.name]]) for each in planned]
        assert decide(made, settings, goal) == before
        assert all(after.runs[name] == runs for name, runs in before.runs_to_start.items())


def test_the_best_is_named_after_a_run_of_each_and_more_of_those_near_it() -> None:
    first, *_, last = run_all(measured(0.02))
    assert first.runs_to_start == {f"c{n}": 1 for n in range(6)} and first.best is None
    assert (last.best, last.is_decided, last.has_ended, last.possible_runs) == (
        "c0",
        True,
        True,
        (),
    )
    assert last.runs["c5"] == 2 < last.runs["c1"] <= last.runs["c0"]
    assert last.standings["c5"].behind == pytest.approx(2.0, rel=0.1)
    assert last.standings["c5"].reason is Reason.NOT_THE_BEST
    assert sum(each.chance or 0 for each in last.standings.values()) <= RISK_MAX
    assert last.beat_by is None


def test_a_larger_indifference_needs_fewer_runs() -> None:
    strict, usual, loose = (
        decide(measured(), indifference=indifference) for indifference in (0.01, 0.05, 0.3)
    )
    assert sum(loose.runs.values()) < sum(usual.runs.values()) < sum(strict.runs.values())
    assert all(each.best == "c0" and each.is_decided for each in (strict, usual, loose))


def test_equal_candidates_end_decided_and_uncertain_ones_with_a_bound() -> None:
    assert decide([steady(f"c{n}", 100.0) for n in range(4)]).is_decided
    near = [candidate("a", 100.0, 140.0, 90.0), candidate("b", 108.0, 150.0, 95.0)]
    found = decide(near, Search(repeats_max=3))
    assert (found.is_decided, found.has_ended) == (False, True)
    assert 0.05 < found.bound < 1 and set(found.survivors) == {"a", "b"}


# ---------------------------------------------------------------- smooth lines
LINES = curve("slow", 5000.0) + curve("fast", 600.0)


def test_smooth_lines_leave_out_configurations_without_a_run() -> None:
    first, *_, last = run_all(LINES, SMOOTH)
    assert set(first.runs_to_start) == {"slow01", "slow16", "fast01", "fast16"}
    assert (last.best, last.is_decided) == ("fast16", True)
    without = [name for name, runs in last.runs.items() if not runs]
    assert without and {last.standings[name].reason for name in without} == {Reason.BY_ITS_LINE}
    assert last.beat_by is not None and 0.2 < last.beat_by < 1
    assert decide(LINES).beat_by is None and min(decide(LINES).runs.values()) == 1


def test_by_cost_the_smallest_is_the_best_of_its_line() -> None:
    last = run_all(LINES, SMOOTH, COST)[-1]
    assert (last.best, last.is_decided) == ("fast01", True)


def test_lines_that_are_not_smooth_end_in_a_run_of_each() -> None:
    dice = np.random.default_rng(2)
    rough = [
        replace(each, runs=tuple({TIME: run[TIME] * factor} for run in each.runs if run))
        for line in ("a", "b", "c")
        for each in curve(line, 600.0, (1, 2, 3, 4, 6, 8))
        for factor in [math.exp(0.8 * dice.standard_normal())]
    ]
    assert min(decide(rough, SMOOTH).runs.values()) >= 1


# ---------------------------------------------------------------- runs that fail or miss
@pytest.mark.parametrize(
    ("times_s", "reason", "unresolved"),
    [
        ((INFINITE,) * RUNS, Reason.NOT_REACHED, ()),
        ((INFINITE, 50.0, 50.0), Reason.NOT_REACHED, ("a",)),
        ((50.0, INFINITE, 50.0), Reason.NOT_REACHED, ("a",)),
        # half of its runs, and two: closed
        ((INFINITE, 50.0, INFINITE), Reason.NOT_REACHED, ()),
        ((50.0, INFINITE, INFINITE), Reason.NOT_REACHED, ()),
        ((90.0, 90.5, 91.0, INFINITE), Reason.NOT_REACHED, ("a",)),
        ((900.0, INFINITE), Reason.NOT_THE_BEST, ()),
    ],
)
def test_a_candidate_that_misses_the_target_is_out_and_may_be_better(
    times_s: tuple[float, ...], reason: Reason, unresolved: tuple[str, ...]
) -> None:
    others = [steady(f"b{n}", 100.0 + 10 * n) for n in range(5)]
    found = decide([candidate("a", *times_s), *others], goal=TO_TARGET)
    assert (found.best, found.has_ended) == ("b0", True)
    assert found.standings["a"].reason is reason
    assert (found.unresolved, found.is_decided) == (unresolved, not unresolved)


def test_with_a_target_a_candidate_is_named_from_enough_runs_on() -> None:
    times = [steady(f"c{n}", 100.0 * 2**n) for n in range(3)]
    decided = {goal: decide(times, goal=goal) for goal in (TIME, TO_TARGET)}
    assert decided[TIME].runs["c0"] < KEPT_RUNS == decided[TO_TARGET].runs["c0"]
    assert decided[TO_TARGET].runs["c2"] < KEPT_RUNS
    assert all(each.is_decided for each in decided.values())


def test_a_round_at_most_doubles_the_runs_of_one_that_may_miss_the_target() -> None:
    times = [steady(f"c{n}", 100.0 * 2**n) for n in range(3)]
    runs = [found.runs["c0"] for found in run_all(times, goal=TO_TARGET)][1:]
    assert runs[-1] == KEPT_RUNS and all(later <= 2 * runs for runs, later in pairwise(runs))


@pytest.mark.parametrize("cause", ["diverged", "out of memory", "limit"])
def test_further_runs_of_the_best_can_rule_it_out(cause: str, dice: random.Random) -> None:
    """There are runs that the search does not need; such runs of `a` missed."""
    limits = {COST: Limit(at_most=1.0)} if cause == "limit" else {}
    settings, used = Search(repeats_max=40), KEPT_RUNS if limits else LEADER_RUNS
    later = dice.randint(used, settings.repeats_max - used)
    runs = [{TIME: 50.0 + n / 10, COST: 0.5} for n in range(used)]
    good = Candidate("a", (*runs, *runs), blocks_max=settings.repeats_max, line="a")
    bad = {
        "diverged": replace(good, runs=(*runs, *[{TIME: INFINITE}] * later)),
        "limit": replace(good, runs=(*runs, *[{TIME: 50.0, COST: 2.0}] * later)),
        "out of memory": replace(
            good, runs=tuple(runs), unfit_blocks=frozenset(range(used, used + later))
        ),
    }[cause]
    others = [
        replace(each, runs=tuple({**run, COST: 0.5} for run in each.runs if run))
        for each in (steady(f"b{n}", 100.0 + 20 * n) for n in range(3))
    ]
    assert scaling_search.decide([good, *others], settings, TIME, limits).best == "a"
    found = scaling_search.decide([bad, *others], settings, TIME, limits)
    reasons = {"diverged": Reason.DIVERGED, "out of memory": Reason.NO_MEMORY}
    assert found.standings["a"].reason is reasons.get(cause, Reason.NOT_ALLOWED)
    assert (found.best, found.unresolved, found.is_decided) == ("b0", (), True)
    # a simulation makes all runs in advance: no round has asked for the later ones
    simulated = scaling_search.decide(
        [bad, *others], settings, TIME, limits, uses_further_runs=False
    )
    assert (simulated.best, simulated.is_decided) == ("a", True)


@pytest.mark.parametrize("goal", [TIME, TO_TARGET])
def test_one_further_run_that_misses_leaves_the_answer_open(goal: str, dice: random.Random) -> None:
    """As after a miss in a round, it gets no more runs, and may still be the best."""
    times_s: list[float | None] = [50.0 + n / 10 for n in range(RUNS)]
    others = [steady(f"b{n}", 100.0 + 20 * n) for n in range(3)]
    used = decide([candidate("a", *times_s), *others], goal=goal).runs["a"]
    times_s[dice.randrange(used, RUNS)] = INFINITE
    found = decide([candidate("a", *times_s), *others], goal=goal)
    assert (found.best, found.unresolved, found.is_decided) == ("b0", ("a",), False)
    assert found.runs["a"] == RUNS


def test_a_search_that_ends_early_or_waits_names_no_best_whose_further_runs_missed() -> None:
    bad = candidate("a", 50.0, *[INFINITE] * 5)
    others = [steady(f"b{n}", 52.0 + 20 * n, runs=1) for n in range(3)]
    ended = scaling_search.decide([bad, *others], USUAL, TIME, trainings=1)
    assert ended.not_worth_it and ended.best == "b0"
    assert ended.standings["a"].reason is Reason.DIVERGED
    waiting = decide([bad, *others])
    assert not waiting.has_ended and "a" not in waiting.runs_to_start


@pytest.mark.parametrize("seed", range(5))
def test_what_is_out_by_its_further_runs_stays_out(seed: int) -> None:
    """Runs of the best appear one after the other while the search waits for its rival."""
    dice = random.Random(seed)
    times_s = [50.0 + n / 10 for n in range(LEADER_RUNS)]
    others = [steady(f"b{n}", 100.0 + 20 * n, runs=2) for n in range(3)]
    was_out = False
    for _ in range(RUNS - LEADER_RUNS):
        times_s.append(dice.choice([50.0, INFINITE]))
        found = decide([candidate("a", *times_s), *others])
        is_out = found.standings["a"].reason is Reason.DIVERGED
        assert is_out is (was_out or INFINITE in times_s)
        was_out = is_out
    assert was_out


def test_a_failed_block_is_replaced_by_the_next() -> None:
    others = [steady(f"b{n}", 200 + 10 * n) for n in range(3)]
    one = replace(steady("a", 50), skipped_blocks=frozenset({0}))
    one = replace(one, runs=(None, *one.runs[1:]))
    found = decide([one, *others])
    assert (found.best, found.is_decided, found.runs["a"]) == ("a", True, 4)
    lacking_one = replace(one, runs=one.runs[:2])
    assert (2, "a") in list_needed_runs(decide([lacking_one, *others]), [lacking_one, *others])


def test_of_fewer_than_two_candidates_nothing_is_decided() -> None:
    alone = decide([steady("a", 100)])
    dead = [replace(candidate(name), failed_blocks=frozenset({0})) for name in "bc"]
    left = decide([steady("a", 100), *dead])
    for found in (alone, left):
        assert (found.is_compared, found.is_decided, found.has_ended) == (False, False, True)
        assert found.best == "a"
    assert decide(dead).best is None


def test_a_missing_run_is_waited_for_and_one_that_failed_too_often_is_out() -> None:
    others = [steady(f"b{n}", 100 + 10 * n) for n in range(3)]
    failed = replace(steady("a", 50), runs=(None, *steady("a", 50).runs[1:]))
    waiting = decide([failed, *others])
    assert (waiting.rounds, list_needed_runs(waiting, [failed, *others])) == (0, [(0, "a")])
    given_up = replace(failed, failed_blocks=frozenset({0}))
    # also while the round waits for the run of another one
    late = [given_up, replace(others[0], runs=()), *others[1:]]
    assert decide(late).runs_to_start.keys() == {"b0", "b1", "b2"}
    assert list_needed_runs(decide(late), late) == [(0, "b0")]
    found = decide([given_up, *others])
    assert found.failed == {"a": Reason.DOES_NOT_RUN} and found.best == "b0"
    assert found.has_ended and found.unresolved == ("a",) and not found.is_decided


def test_runs_without_a_value_show_nothing() -> None:
    others = [steady(f"b{n}", 100 + 30 * n) for n in range(3)]
    found = decide([candidate("a", *[math.nan] * RUNS), *others])
    assert (found.is_decided, found.has_ended, found.bound) == (False, True, INFINITE)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        decide([candidate("a"), candidate("a")])
    with pytest.raises(ValueError, match="above zero"):
        decide([candidate("a", 0.0, 1.0)])
    with pytest.raises(ValueError, match="of every run"):
        decide([candidate("a", 1.0, 1.0)], goal="cost_to_target_usd")


# ---------------------------------------------------------------- short runs
def projected(own: Candidate, factor: float = 1.0) -> Candidate:
    """With short runs, from which this multiple of the time is projected."""
    dice = np.random.default_rng([*own.name.encode(), 1])
    usual = (run[TIME] for run in own.runs if run)
    runs = [factor * t * math.exp(0.02 * dice.standard_normal()) for t in usual]
    short = candidate(f"short {own.name}", *runs[:SHORT_RUNS_MAX])
    return replace(own, short=replace(short, blocks_max=SHORT_RUNS_MAX))


STEADY = [steady(f"c{n}", 100.0 * 1.2**n) for n in range(6)]


def complete(found: Decision) -> set[str]:
    return {name for name, runs in found.runs.items() if runs}


def test_short_runs_come_first_and_the_best_is_checked_by_a_complete_run() -> None:
    planned = [projected(each) for each in STEADY]
    nothing = decide([replace(each, runs=(), short=replace(each.short, runs=())) for each in planned
                      if each.short])  # fmt: skip
    assert nothing.runs_to_start == {f"short c{n}": 1 for n in range(6)}
    tried = decide([replace(each, runs=()) for each in planned])
    assert tried.runs_to_start == {"c0": 1} and tried.best is None
    assert (
        list_needed_runs(tried, planned)
        == []
        != list_needed_runs(tried, [replace(planned[0], runs=())])
    )
    found = decide(planned)
    assert (found.best, found.is_decided, complete(found)) == ("c0", True, {"c0"})
    check = found.standings["c0"].projection_check
    assert check and check.is_within_interval and check.measured == pytest.approx(100, rel=0.05)
    assert found.standings["c5"].projection_check is None and found.standings["c5"].short_runs


def test_a_projection_that_misses_is_followed_by_complete_runs() -> None:
    """The short runs of one project half of its time; all others are right."""
    planned = [projected(each, 0.5 if each.name == "c2" else 1.0) for each in STEADY]
    found = decide(planned)
    assert (found.best, found.is_decided) == ("c0", True)
    missed, kept = (found.standings[name].projection_check for name in ("c2", "c0"))
    assert missed and kept and kept.is_within_interval and missed.measured > missed.high
    assert {"c0", "c1", "c2"} <= complete(found)


def test_a_projection_check_of_more_complete_runs_has_a_narrower_interval() -> None:
    found = decide([projected(each) for each in measured(0.08)])
    runs_and_widths = sorted(
        (found.runs[name], each.projection_check.high / each.projection_check.low)
        for name, each in found.standings.items()
        if each.projection_check
    )
    runs, widths = zip(*runs_and_widths, strict=True)
    assert len({*runs}) == len(runs) > 1
    assert [*widths] == sorted(widths, reverse=True) and widths[-1] > 1


@pytest.mark.parametrize("way", ["no time", "failed too often"])
def test_without_projected_times_a_candidate_has_complete_runs(way: str) -> None:
    first, *others = (projected(each) for each in STEADY)
    assert first.short
    runs = tuple({TIME: math.nan} for _ in range(SHORT_RUNS_MAX))
    failed = frozenset({0})
    changed: dict[str, Any] = {
        "no time": {"runs": runs},
        "failed too often": {"runs": (), "failed_blocks": failed},
    }
    refused = replace(first, short=replace(first.short, **changed[way]))
    found = decide([refused, *others])
    assert (found.best, found.is_decided, found.failed) == ("c0", True, {})
    assert found.runs["c0"] > 1 and found.standings["c0"].short_runs <= 1
    assert found.standings["c0"].projection_check is None


def test_projections_that_are_unsure_by_their_steps_count_less() -> None:
    def with_error(own: Candidate, error: float) -> Candidate:
        assert own.short
        runs = tuple({**(run or {}), PROJECTION_ERROR: error} for run in own.short.runs)
        return replace(own, short=replace(own.short, runs=runs))

    planned = [projected(each) for each in measured(0.02)]
    sure, unsure = (decide([with_error(each, error) for each in planned]) for error in (0.0, 0.1))
    assert sum(unsure.runs.values()) > sum(sure.runs.values())
    # further short ones are no surer, but show whether runs differ
    assert max(each.short_runs for each in unsure.standings.values()) == LEADER_RUNS - 1


def test_limits_are_judged_by_complete_runs() -> None:
    good, slow = with_quality("good", 100, 0.99), with_quality("slow", 200, 0.99)
    planned = [projected(each) for each in (good, slow)]
    found = decide(planned, quality=AT_LEAST)
    assert (found.best, found.runs["good"], found.is_decided) == ("good", KEPT_RUNS, True)


# ---------------------------------------------------------------- limits
AT_LEAST = Limit(at_least=0.98)


def with_quality(name: str, time_s: float, quality: float) -> Candidate:
    dice = np.random.default_rng([*name.encode()])
    runs = tuple(
        {TIME: time_s * math.exp(0.02 * a), QUALITY: quality + 0.001 * b}
        for a, b in dice.standard_normal((RUNS, 2))
    )
    return Candidate(name, runs, line=name)


def test_only_what_keeps_the_limit_is_named() -> None:
    candidates = [
        with_quality("fast", 50, 0.90),
        with_quality("good", 100, 0.99),
        with_quality("slow", 200, 0.99),
    ]
    found = decide(candidates, quality=AT_LEAST)
    assert (found.best, found.is_decided, found.runs["good"]) == ("good", True, KEPT_RUNS)
    allowed = {name: each.limit_verdict for name, each in found.standings.items()}
    assert allowed == {"fast": LimitVerdict.OUT, "good": LimitVerdict.IN, "slow": LimitVerdict.OPEN}
    assert found.standings["fast"].reason is Reason.NOT_ALLOWED and not found.unresolved
    assert decide(candidates, quality=Limit(at_most=0.98)).best == "fast"


def test_a_run_that_misses_the_limit_is_not_averaged_away() -> None:
    """The mean of `fast` keeps the limit, one of its runs does not."""
    good, fast = with_quality("good", 100, 0.99), with_quality("fast", 50, 0.995)
    runs = [dict(run or {}) for run in fast.runs]
    runs[4][QUALITY] = 0.96
    found = decide([replace(fast, runs=tuple(runs)), good], quality=AT_LEAST)
    # one run closes nothing: `fast` leaves, and may be better
    assert (found.standings["fast"].reason, found.best) == (Reason.NOT_SHOWN, "good")
    assert found.unresolved == ("fast",) and found.has_ended and not found.is_decided
    assert found.standings["fast"].runs < KEPT_RUNS
    assert decide([fast, good], quality=AT_LEAST).best == "fast"


@pytest.mark.parametrize(
    ("low", "reason", "runs"),
    [
        ({0, 1}, Reason.NOT_ALLOWED, 2),
        # a round at most doubles its runs
        ({0, 2}, Reason.NOT_ALLOWED, 4),
        ({1, 2}, Reason.NOT_ALLOWED, 4),
        ({0}, Reason.NOT_SHOWN, 4),
        ({2}, Reason.NOT_SHOWN, 4),
    ],
)
def test_half_of_the_runs_and_two_close_what_misses_a_limit(
    low: set[int], reason: Reason, runs: int
) -> None:
    fast = Candidate(
        "fast",
        tuple({TIME: 50.0 + n, QUALITY: 0.96 if n in low else 0.995} for n in range(RUNS)),
        line="fast",
    )
    found = decide([fast, with_quality("good", 100, 0.99)], quality=AT_LEAST)
    standing = found.standings["fast"]
    assert (found.best, standing.reason, standing.runs) == ("good", reason, runs)
    assert found.is_decided == (reason is Reason.NOT_ALLOWED)
    # what is shown to be worse is no rival
    slow = replace(
        fast, runs=tuple({**(run or {}), TIME: 900.0 + n} for n, run in enumerate(fast.runs))
    )
    assert decide([slow, with_quality("good", 100, 0.99)], quality=AT_LEAST).is_decided


@pytest.mark.parametrize("unknown", [{0}, {3}, set(range(1, RUNS, 2)), set(range(RUNS))])
def test_a_run_without_the_limited_metric_leaves_the_search_undecided(unknown: set[int]) -> None:
    """The other runs of `fast` keep the limit; more runs do not show what these did."""
    fast, good = with_quality("fast", 50, 0.995), with_quality("good", 100, 0.99)
    runs = [dict(run or {}) for run in fast.runs]
    for place in unknown:
        del runs[place][QUALITY]
    found = decide([replace(fast, runs=tuple(runs)), good], quality=AT_LEAST)
    standing = found.standings["fast"]
    assert (standing.reason, standing.limit_verdict) == (Reason.NOT_SHOWN, LimitVerdict.OPEN)
    assert found.best == "good" and found.unresolved == ("fast",)
    assert found.has_ended and not found.is_decided
    assert standing.runs < KEPT_RUNS, "further runs cannot show it"


def test_a_run_without_time_needs_no_limited_metric() -> None:
    """It resumed from a checkpoint: another run gives the time."""
    fast = with_quality("fast", 50, 0.995)
    runs = [dict(run or {}) for run in fast.runs]
    runs[1] = {TIME: math.nan}
    found = decide(
        [replace(fast, runs=tuple(runs)), with_quality("good", 100, 0.99)], quality=AT_LEAST
    )
    assert found.best == "fast" and found.is_decided


def test_what_is_not_shown_to_keep_a_limit_is_not_named() -> None:
    def of(name: str, *accuracies: float) -> Candidate:
        return Candidate(name, tuple({TIME: 50.0, QUALITY: a} for a in accuracies), line=name)

    settings = Search(repeats_max=KEPT_RUNS)
    wide = (0.981, 0.999, 0.9805, 0.998, 0.9801, 0.9802, *[0.9801] * 3, 0.999, 0.9801)
    found = decide([of("a", *wide), of("b", *wide[::-1])], settings, quality=AT_LEAST)
    assert (found.best, found.bound) == (None, INFINITE)
    assert found.has_ended and not found.is_decided
    assert Reason.NOT_SHOWN in {each.reason for each in found.standings.values()}


def test_a_state_is_a_value() -> None:
    """Two searches that continue from one state see nothing of each other's runs."""
    candidates = tuple(candidate(f"c{n}") for n in range(random.randint(2, 6)))
    search = ScalingSearch(SearchProblem(candidates, USUAL, TIME, {}, math.log1p(0.05)))

    def observed(state: SearchState, faster: str) -> SearchState:
        new = {
            name: NewRuns(
                number,
                tuple(
                    {TIME: random.uniform(99, 101) * (0.5 if name == faster else 1)}
                    for _ in range(number)
                ),
            )
            for name, number in search.propose(state).items()
        }
        return search.observe(state, new)

    start = SearchState.start(search.problem)
    assert search.propose(start) == {each.name: 1 for each in candidates}
    names = [each.name for each in candidates]
    ends = []
    for faster in random.sample(names, 2):
        state = start
        while search.propose(state):
            before, runs = search.propose(state), len(state.observations)
            after = observed(state, faster)
            assert (search.propose(state), len(state.observations)) == (before, runs)
            assert len(after.observations) == runs + sum(before.values())
            state = after
        ends.append(names[state.analysis.best or 0])
        assert ends[-1] == faster
    assert start.rounds == 0 and not start.observations and len({*ends}) == 2


# ---------------------------------------------------------------- numbers
def unsure(own: Candidate) -> Candidate:
    """With short runs whose projections are 1 % unsure by their steps."""
    own = projected(own)
    assert own.short
    runs = tuple({**(run or {}), PROJECTION_ERROR: 0.01} for run in own.short.runs)
    return replace(own, short=replace(own.short, runs=runs))


#: Candidates, settings, goal, limits.
SEARCHES: dict[str, tuple[list[Candidate], Search, str, dict[str, Limit]]] = {
    "usual": (measured(), USUAL, TIME, {}),
    "few runs": (measured(0.1), Search(repeats_max=4), TIME, {}),
    "smooth": (curve("slow", 1500.0) + curve("fast", 600.0), SMOOTH, TIME, {}),
    "smooth, by cost": (curve("slow", 700.0) + curve("fast", 600.0), SMOOTH, COST, {}),
    "short runs": ([unsure(each) for each in measured(0.03)], USUAL, TIME, {}),
    "a target": (
        [candidate("a", 50, INFINITE, *[50.0] * 18), *measured(0.05)], USUAL, TO_TARGET, {},
    ),
    "a limit": (
        [with_quality(f"q{n}", 100.0 * 1.1**n, 0.9799 + 0.001 * n) for n in range(5)],
        USUAL, TIME, {"quality": AT_LEAST},
    ),
}  # fmt: skip
#: Search, and whether it has all its runs → its summary.
COURSES: dict[tuple[str, bool], tuple[Any, ...]] = {
    ("usual", False): (
        ("c0", 2, False, False, 6), {"c0": 3, "c1": 3, "c3": 2},
        [2, 2, 2, 1, 1, 1], [0, 0, 0, 0, 0, 0],
        [0, 0.0559, 0.0756, 0.1104, 0.524, 2.0833],
        [0, 0.04973, 0.03935, 0.04196, 0.00109, 3e-05],
        [INFINITE, 0],
    ),
    ("usual", True): (
        ("c0", 9, True, True, 0), {},
        [10, 5, 5, 5, 2, 2], [0, 0, 0, 0, 0, 0],
        [0, 0.0408, 0.0873, 0.1155, 0.4828, 2.0821],
        [0, 0.00065, 0.00011, 3e-05, 1e-05, 0.0],
        [0.006, 0],
    ),
    ("few runs", False): (
        ("c0", 2, False, False, 6), {"c0": 3, "c3": 2, "c2": 3},
        [2, 2, 2, 1, 1, 1], [0, 0, 0, 0, 0, 0],
        [0, 0.096, 0.0843, 0.0872, 0.5468, 2.1793],
        [0, 0.11216, 0.15317, 0.1811, 0.00984, 0.00036],
        [INFINITE, 0],
    ),
    ("few runs", True): (
        ("c0", 6, False, True, 0), {},
        [4, 4, 4, 4, 2, 2], [0, 0, 0, 0, 0, 0],
        [0, 0.0355, 0.1153, 0.0912, 0.4468, 2.1836],
        [0, 0.09464, 0.02271, 0.03739, 0.0011, 1e-05],
        [0.14525, 0],
    ),
    ("smooth", False): (
        ("fast16", 2, False, False, 10), {"fast16": 4, "slow16": 2},
        [1, 1, 0, 1, 2, 1, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [10.5815, 5.2992, 2.4143, 0.8525, 0, 29.9837, 13.7928, 7.2021, 3.5454, 1.5249],
        [0.0, 0.0, 0.00067, 0.00014, 0, 0.0, 0.00208, 0.00177, 0.00135, 4e-05],
        [INFINITE, 0.7211],
    ),
    ("smooth", True): (
        ("fast16", 3, True, True, 0), {},
        [1, 1, 0, 1, 4, 1, 0, 0, 0, 2], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [10.6079, 5.3267, 2.4289, 0.8596, 0, 30.0629, 13.7291, 7.1463, 3.5024, 1.4922],
        [0.0, 0.0, 8e-05, 3e-05, 0, 0.0, 0.00051, 0.00042, 0.00026, 0.0],
        [0.0, 0.7222],
    ),
    ("smooth, by cost", False): (
        ("fast01", 2, False, False, 10), {"fast01": 3, "fast04": 1, "slow04": 1},
        [2, 1, 0, 0, 1, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0.0742, 0.1656, 0.2652, 0.3723, 0.24, 0.2612, 0.37, 0.4886, 0.6176],
        [0, 0.05971, 0.20061, 0.12935, 0.00196, 0.00623, 0.00499, 0.0833, 0.05374, 0.00049],
        [INFINITE, 0.1829],
    ),
    ("smooth, by cost", True): (
        ("fast01", 9, True, True, 0), {},
        [10, 5, 2, 2, 1, 4, 2, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0.0707, 0.1389, 0.2398, 0.3371, 0.1884, 0.252, 0.2938, 0.429, 0.5738],
        [0, 2e-05, 0.00022, 3e-05, 0.00022, 0.0, 3e-05, 0.00031, 0.00041, 5e-05],
        [0.0, 0.3335],
    ),
    ("short runs", False): (
        (None, 3, False, False, 12), {"short c0": 4, "short c1": 4, "short c3": 2},
        [0, 0, 0, 0, 0, 0], [3, 3, 3, 1, 1, 1],
        [0, 0.035, 0.0941, 0.1165, 0.5467, 1.9316],
        [0, 0.07256, 0.01499, 0.03537, 0.00086, 3e-05],
        [INFINITE, 0],
    ),
    ("short runs", True): (
        ("c0", 10, True, True, 0), {},
        [4, 1, 0, 0, 0, 0], [6, 6, 5, 5, 2, 2],
        [0, 0.0319, 0.0846, 0.124, 0.4913, 1.9869],
        [0, 0.00423, 0.00128, 0.0002, 3e-05, 0.0],
        [0.02981, 0],
    ),
    ("a target", False): (
        (None, 2, False, False, 7), {"a": 3, "c1": 2, "c3": 2},
        [2, 2, 1, 2, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0],
        [0, 0.983, 1.0437, 1.1357, 1.188, 2.0214, 5.1293],
        [0, 0.00038, 0.00057, 0.00034, 0.00041, 0.00012, 2e-05],
        [INFINITE, 0],
    ),
    ("a target", True): (
        ("c0", 10, False, True, 0), {},
        [3, 11, 5, 5, 5, 2, 2], [0, 0, 0, 0, 0, 0, 0],
        [-0.4996, 0, 0.0474, 0.0976, 0.1175, 0.4818, 2.1129],
        [1.0, 0, 0.00151, 0.00025, 0.00012, 2e-05, 0.0],
        [1.17787, 0],
    ),
    ("a limit", False): (
        (None, 2, False, False, 5), {"q0": 3, "q1": 3, "q2": 3},
        [2, 2, 2, 1, 1], [0, 0, 0, 0, 0],
        [0, 0.1061, 0.189, 0.2959, 0.4616],
        [0, 0.00475, 0.00079, 0.00153, 0.00044],
        [INFINITE, 0],
    ),
    ("a limit", True): (
        ("q2", 9, False, True, 0), {},
        [3, 4, 11, 5, 4], [0, 0, 0, 0, 0],
        [-0.171, -0.0931, 0, 0.1002, 0.2182],
        [0.99994, 0.99331, 0, 1e-05, 0.0],
        [0.14474, 0],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "is_complete"), COURSES)
def test_the_course_of_a_search_is_known(name: str, is_complete: bool) -> None:
    """It follows from constants that simulations chose: who changes one, means the change."""
    candidates, settings, goal, limits = SEARCHES[name]
    if not is_complete:
        candidates = [
            replace(each, runs=each.runs[:2],
                    short=each.short and replace(each.short, runs=each.short.runs[:3]))
            for each in candidates
        ]  # fmt: skip
    found = decide(candidates, settings, goal, 0.05, **limits)
    state, wanted, runs, shorts, behind, chances, ends = COURSES[name, is_complete]
    assert (
        found.best,
        found.rounds,
        found.is_decided,
        found.has_ended,
        len(found.possible_runs),
    ) == state
    assert found.runs_to_start == wanted
    each = found.standings.values()
    assert [standing.runs for standing in each] == runs
    assert [standing.short_runs for standing in each] == shorts
    assert [standing.behind for standing in each] == pytest.approx(behind, rel=1e-3, abs=1e-4)
    assert [standing.chance for standing in each] == pytest.approx(chances, rel=1e-2, abs=1e-5)
    assert [found.bound, found.beat_by or 0] == pytest.approx(ends, rel=1e-3, abs=1e-4)
