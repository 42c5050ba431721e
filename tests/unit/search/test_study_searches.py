"""The searches of a study by its table of runs."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from searched import is_made, planned_of, runs_of
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.record.run_states import RunState
from tfscaling.search import study_searches
from tfscaling.search.search_types import Reason
from tfscaling.search.study_searches import StudySearch, expected_runs, simulate_scaling_times
from tfscaling.study.config_types import POINT_AXES
from tfscaling.study.manifest import Manifest


@pytest.fixture(scope="module")
def planned() -> Manifest:
    return planned_of()


@pytest.fixture(scope="module")
def runs(planned: Manifest, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return runs_of(planned, tmp_path_factory.mktemp("runs"))


def search_of(planned: Manifest, runs: pd.DataFrame) -> StudySearch:
    (search,) = study_searches.decide_searches(planned, runs)
    return search


def place(runs: pd.DataFrame, platform: str, nodes: int, repeat: int) -> Any:
    own = (runs["platform"] == platform) & (runs["nodes"] == nodes) & (runs["repeat"] == repeat)
    return runs.index[own][0]


def test_the_best_is_shown_by_fewer_runs_than_the_full_grid(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    search = search_of(planned, runs)
    verdict = search.decision
    assert verdict.is_decided and list(search.needed_runs()) == []
    assert search.points[verdict.best or ""].nodes == 2
    assert sum(verdict.runs.values()) < 36
    assert not any(search.may_need_runs(point) for point in search.points.values())


def test_what_the_next_look_lacks_is_asked_for_block_by_block(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    nothing = search_of(planned, runs[:0])
    assert [repeat for _, repeat in nothing.needed_runs()] == [1] * 6
    search = search_of(planned, runs[runs["repeat"] <= 1])
    wanted = list(search.needed_runs())
    assert len(wanted) == 3 and {(point.nodes, repeat) for point, repeat in wanted} >= {(2, 2)}
    assert all(map(search.may_need_runs, search.points.values()))


def test_the_most_runs_are_those_of_the_most_expensive_points(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    search = search_of(planned, runs[:0])
    costs = {point: float(point.nodes) for point in search.points.values()}
    most = search.most_runs(costs)
    assert max(most.values()) == 20 and {n for p, n in most.items() if p.nodes == 4} == {20}
    done = search_of(planned, runs)
    assert sum(done.most_runs(costs).values()) == len(runs)


def test_runs_that_diverged_are_infinite_and_stale_ones_are_missing(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    changed = runs.copy()
    changed.loc[place(runs, "far", 4, 1), ["status", "execution_time_s"]] = RunState.DIVERGED, None
    changed.loc[place(runs, "far", 4, 2), "status"] = RunState.STALE
    search = search_of(planned, changed)
    (far,) = [c for c in search.candidates if search.points[c.name].path.count("far/")
              and search.points[c.name].nodes == 4]  # fmt: skip
    assert far.runs[:2] == ({"execution_time_s": math.inf}, None)
    assert far.name in search.decision.runs_to_start and not search.decision.is_decided
    changed.loc[place(runs, "far", 4, 2), "status"] = RunState.DIVERGED
    search = search_of(planned, changed)
    assert search.decision.failed == {far.name: Reason.DIVERGED} and search.decision.is_decided


def test_runs_without_times_say_nothing_of_their_point(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    """Those that went on from a checkpoint; two nodes are the best here."""
    changed = runs.copy()
    two = (runs["platform"] == "near") & (runs["nodes"] == 2)
    changed.loc[two & (runs["repeat"] <= 2), "execution_time_s"] = None
    search, whole = (search_of(planned, rows) for rows in (changed[runs["repeat"] <= 1], changed))
    (near,) = [name for name, point in search.points.items() if "near" in name and point.nodes == 2]
    assert near in search.decision.runs_to_start and not search.decision.is_decided
    assert whole.decision.best == near  # by its other runs


@pytest.mark.parametrize(
    ("kind", "failed", "is_out"),
    [("rank_failed", 0, False), ("rank_failed", 1, True), ("time_limit", 1, True),
     ("node_failed", 1, False), ("node_failed", 3, True)],
)  # fmt: skip
def test_a_point_that_fails_by_itself_leaves_and_lost_nodes_are_replaced(
    planned: Manifest, runs: pd.DataFrame, kind: str, failed: int, is_out: bool
) -> None:
    """A run of the best point failed, `failed` of its runs too often; one more run was made."""
    changed = runs.copy()
    for repeat in range(1, max(failed, 1) + 1):
        one = place(runs, "near", 2, repeat)
        changed.loc[one, ["status", "execution_time_s"]] = RunState.FAILED, None
        changed.loc[one, ["reason", "failed_too_often"]] = f"{kind}: rank 1", repeat <= failed
    search = search_of(planned, changed)
    verdict = search.decision
    out = [search.points[name] for name in verdict.failed]
    assert [(point.platform, point.nodes) for point in out] == [("near", 2)] * is_out
    assert not (verdict.is_decided and verdict.unresolved)
    if failed == 1 and not is_out:  # its next repeats stand in
        assert {(point.nodes, repeat) for point, repeat in search.needed_runs()} <= {(2, 11)}


def of_best(runs: pd.DataFrame, *endings: str) -> pd.DataFrame:
    """The runs of the best point end in these ways instead, those after them were not made."""
    changed = runs.copy()
    best = (changed["platform"] == "near") & (changed["nodes"] == 2)
    changed = changed[~best | (changed["repeat"] <= len(endings))].copy()
    for repeat, ending in enumerate(endings, 1):
        one = place(changed, "near", 2, repeat)
        if ending != RunState.OK:
            is_failure = ending not in tuple(RunState)
            status = RunState.FAILED if is_failure else ending
            changed.loc[one, ["status", "execution_time_s"]] = status, None
            changed.loc[one, ["reason", "failed_too_often"]] = f"{ending}: rank 1", is_failure
    return changed


@pytest.mark.parametrize("ending", ["time_limit", "stalled", "rank_died", "program_failed"])
def test_nothing_is_decided_against_a_point_whose_only_run_failed(
    planned: Manifest, runs: pd.DataFrame, ending: str
) -> None:
    """Two nodes are the best; no run of theirs shows how fast they are."""
    verdict = search_of(planned, of_best(runs, ending)).decision
    assert [*verdict.failed.values()] == [Reason.DOES_NOT_RUN]
    assert verdict.unresolved == tuple(verdict.failed) and not verdict.is_decided
    assert math.isinf(verdict.bound)


def test_a_run_out_of_memory_is_tried_once_more(planned: Manifest, runs: pd.DataFrame) -> None:
    once = search_of(planned, of_best(runs, RunState.DOES_NOT_FIT))
    assert not once.decision.failed and not once.decision.is_decided
    assert [(point.nodes, repeat) for point, repeat in once.needed_runs()] == [(2, 2)]
    twice = search_of(planned, of_best(runs, *[RunState.DOES_NOT_FIT] * 2)).decision
    assert [*twice.failed.values()] == [Reason.NO_MEMORY]
    assert not twice.unresolved and twice.best is not None
    # what has run, or failed in another way, is not shown not to fit
    for other in (RunState.OK, "rank_died"):
        mixed = of_best(runs, RunState.DOES_NOT_FIT, other, RunState.DOES_NOT_FIT)
        assert not search_of(planned, mixed).decision.is_decided


def test_a_run_that_diverged_is_no_missed_target(planned: Manifest, runs: pd.DataFrame) -> None:
    endings = (RunState.OK, RunState.DIVERGED, RunState.OK, RunState.OK)
    verdict = search_of(planned, of_best(runs, *endings)).decision
    assert [*verdict.failed.values()] == [Reason.DIVERGED] and not verdict.is_decided
    # half of its runs, and two, close it
    endings = (RunState.OK, RunState.DIVERGED, RunState.DIVERGED, RunState.OK)
    verdict = search_of(planned, of_best(runs, *endings)).decision
    assert [*verdict.failed.values()] == [Reason.DIVERGED] and not verdict.unresolved


@pytest.mark.parametrize(
    ("examples", "work"),
    [([768, 768, 780], 768), ([600, 768, 768.5], 768.5), ([768, 780], 780), ([], 0)],
)
def test_the_work_is_the_most_frequent_number_of_examples(
    examples: list[float], work: float
) -> None:
    assert study_searches.most_common_examples(examples) == work


@pytest.mark.parametrize("goal", ["cost_usd", "execution_time_s"])
def test_simulated_runs_have_the_level_of_measured_ones(goal: str, tmp_path: Path) -> None:
    """Longer trainings of the same shape need as many runs, whatever the unit of the goal."""
    planned = planned_of(goal=goal)
    table = runs_of(planned, tmp_path, lambda run: run.spec.repeat == 1)
    expected = []
    prices = {run.spec.point: 1.0 for run in planned.runs}
    for factor in (1.0, random.uniform(20, 200)):
        print(f"{factor=}")
        longer = table.assign(**{goal: table[goal].where(table["nodes"] == 1) * factor})
        longer = longer[longer["nodes"] == 1]
        expected.append(expected_runs(search_of(planned, longer), prices))
    first, second = ({p.path: n for p, n in each.items()} for each in expected)
    assert first == pytest.approx(second)


def test_a_point_that_did_more_work_is_compared(planned: Manifest, runs: pd.DataFrame) -> None:
    more = (runs["platform"] == "far") & (runs["nodes"] == 4)
    trained = more.map({True: 780, False: 768})
    search = search_of(planned, runs.assign(examples_trained=trained))
    assert not search.points_with_less_work and search.decision.is_decided


def test_points_that_train_fewer_examples_are_no_candidates(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    changed = runs.copy()
    near = (runs["platform"] == "near") & (runs["nodes"] == 2)
    changed.loc[near, "examples_trained"] = 600
    search = search_of(planned, changed)
    assert [point.nodes for point in search.points_with_less_work] == [2]
    assert len(search.candidates) == 5


def test_cost_is_a_goal(tmp_path: Path) -> None:
    planned = planned_of(goal="cost_usd")
    search = search_of(planned, runs_of(planned, tmp_path, lambda run: run.spec.repeat <= 10))
    usd = [run["cost_usd"] for run in search.candidates[0].runs if run]
    assert 0.01 < min(usd) <= max(usd) < 1
    assert search.points[search.decision.best or ""].nodes == 1


@pytest.fixture(scope="module")
def many(planned: Manifest, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Runs enough to name a point that has a target or a limit."""
    folder = tmp_path_factory.mktemp("many")
    return runs_of(planned, folder, lambda run: is_made(run, KEPT_RUNS))


def test_a_target_that_was_missed_is_infinite(many: pd.DataFrame) -> None:
    planned = planned_of(goal="time_to_target_s", limits={"test_accuracy": {"at_least": 0.5}})
    reached_s = many["execution_time_s"].where(many["nodes"] > 1)
    reached = many.assign(time_to_target_s=reached_s, target_reached=reached_s.notna())
    search = search_of(planned, reached)
    verdict = search.decision
    missed = [name for name, why in verdict.failed.items() if why is Reason.NOT_REACHED]
    assert {search.points[name].nodes for name in missed} == {1} and len(missed) == 2
    assert verdict.is_decided and search.points[verdict.best or ""].nodes == 2
    # one run that misses it is enough: the tables have no time to the target then
    one = place(many, "near", 2, KEPT_RUNS)
    reached.loc[one, ["time_to_target_s", "target_reached"]] = math.nan, False
    search = search_of(planned, reached)
    verdict = search.decision
    assert not verdict.is_decided and search.points[verdict.best or ""].nodes == 4
    (lost,) = verdict.unresolved
    assert search.points[lost].nodes == 2


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_target_whose_quality_is_not_reported_is_unknown(many: pd.DataFrame, nodes: int) -> None:
    """No run shows that this configuration misses the target: nothing is decided."""
    planned = planned_of(goal="time_to_target_s", limits={"test_accuracy": {"at_least": 0.5}})
    unknown = many["nodes"] == nodes
    reached = many.assign(
        time_to_target_s=many["execution_time_s"].mask(unknown),
        target_reached=[None if each else True for each in unknown],
    )
    verdict = search_of(planned, reached).decision
    assert Reason.NOT_REACHED not in verdict.failed.values() and not verdict.is_decided


def test_limits_are_judged_by_the_runs(many: pd.DataFrame) -> None:
    accuracy = {"test_accuracy": {"at_least": 0.9}}
    planned, steady = planned_of(limits=accuracy), many.assign(quality=0.95)
    assert search_of(planned, steady).decision.is_decided

    def out(search: StudySearch) -> set[int]:
        found = search.decision.standings.items()
        return {search.points[n].nodes for n, own in found if own.reason is Reason.NOT_ALLOWED}

    low = steady["nodes"] == 2
    search = search_of(planned, steady.assign(quality=steady["quality"].where(~low, 0.8)))
    assert out(search) == {2} and search.points[search.decision.best or ""].nodes == 4
    # of near the larger cost more, of far all do
    budget = {**accuracy, "cost_usd": {"at_most": 0.035}}
    search = search_of(planned_of(limits=budget), steady)
    best = search.points[search.decision.best or ""]
    assert (best.platform, best.nodes) == ("near", 2) and len(search.decision.survivors) < 4
    assert out(search) == {4} and search.decision.is_decided  # the others are worse
    search = search_of(planned_of(limits={"test_accuracy": {"at_least": 0.97}}), steady)
    assert search.decision.best is None and out(search) == {1, 2, 4}


def test_recipes_compete_where_they_may_be_chosen(many: pd.DataFrame) -> None:
    """Those that train other numbers of examples are other work of their own recipe alone."""
    planned = planned_of(choose=[*POINT_AXES], limits={"test_accuracy": {"at_least": 0.9}})
    (asked,) = planned.searches
    points = [
        structs.replace(
            each,
            point=structs.replace(each.point, recipe="large" if each.point.nodes > 1 else "weak"),
        )
        for each in asked.points
    ]
    planned = structs.replace(planned, searches=(structs.replace(asked, points=tuple(points)),))
    is_large = many["nodes"] > 1
    runs = many.assign(
        quality=0.95,
        recipe=is_large.map({True: "large", False: "weak"}),
        examples_trained=is_large.map({True: 1536, False: 768}),
    )
    search = search_of(planned, runs)
    assert search.planned.question == "all configurations" and not search.points_with_less_work
    best = search.points[search.decision.best or ""]
    assert (best.recipe, best.nodes, search.decision.is_decided) == ("large", 2, True)


def test_expected_runs_lie_between_one_of_each_and_all(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    before = expected_runs(search_of(planned, runs[:0]), {}, trials=5)
    assert len(before) == 6 and all(1 <= number <= 20 for number in before.values())
    limited = planned_of(limits={"test_accuracy": {"at_least": 0.9}})
    with_limit = expected_runs(search_of(limited, runs[:0]), {}, trials=5)
    assert min(with_limit.values()) < 20  # else nothing would be in, and no point leave
    done = search_of(planned, runs)
    after = expected_runs(done, {}, trials=2)
    assert {p.path: n for p, n in after.items()} == pytest.approx(dict(done.decision.runs))


@pytest.mark.parametrize(
    ("goal", "far_usd", "axis", "usual"),
    [
        ("execution_time_s", 1.0, "nodes", 4),
        ("cost_usd", 1.0, "nodes", 1),
        ("cost_usd", 9.0, "platform", "near"),
        ("cost_usd", 0.1, "platform", "far"),
    ],
)
def test_most_runs_are_expected_of_points_that_are_usually_best(
    goal: str, far_usd: float, axis: str, usual: object, runs: pd.DataFrame
) -> None:
    """More nodes are usually quicker, fewer nodes usually cheaper."""
    search = search_of(planned_of(goal=goal), runs[:0])
    prices = {p: far_usd if p.platform == "far" else 1.0 for p in search.all_points.values()}
    found: dict[object, float] = defaultdict(float)
    for point, expected in expected_runs(search, prices, trials=3).items():
        found[getattr(point, axis)] += expected
    assert max(found, key=found.__getitem__) == usual


def test_simulated_times_follow_from_a_seed() -> None:
    """How large they are and how they scale was fitted to measured ones."""
    devices, lines = np.array([1.0, 2, 4, 8] * 2), np.repeat([0, 1], 4)
    found = simulate_scaling_times(devices, lines, np.random.default_rng(3))
    assert found == pytest.approx(
        [1636.123, 1071.112, 676.334, 509.737, 166.246, 94.866, 59.407, 42.709], rel=1e-5
    )
