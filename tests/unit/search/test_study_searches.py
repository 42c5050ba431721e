"""The searches of a study by its table of runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from searched import is_made, planned_of, runs_of
from tfscaling.record.run_states import RunState
from tfscaling.search import study_searches
from tfscaling.search.interim import KEPT_RUNS, Reason
from tfscaling.search.study_searches import StudySearch, expected_runs
from tfscaling.spec.manifest import Manifest


@pytest.fixture(scope="module")
def planned() -> Manifest:
    return planned_of()


@pytest.fixture(scope="module")
def runs(planned: Manifest, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return runs_of(planned, tmp_path_factory.mktemp("runs"))


def search_of(planned: Manifest, runs: pd.DataFrame) -> StudySearch:
    (search,) = study_searches.of_study(planned, runs)
    return search


def place(runs: pd.DataFrame, platform: str, nodes: int, repeat: int) -> Any:
    own = (runs["platform"] == platform) & (runs["nodes"] == nodes) & (runs["repeat"] == repeat)
    return runs.index[own][0]


def test_the_best_is_shown_by_fewer_runs_than_the_full_grid(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    search = search_of(planned, runs)
    verdict = search.verdicts["execution_time_s"]
    assert verdict.is_decided and list(search.wanted()) == []
    assert search.points[verdict.best or ""].nodes == 2
    assert sum(search.decision.runs.values()) == len(runs) < 36
    assert not any(search.may_be_wanted(point) for point in search.points.values())


def test_what_the_next_look_lacks_is_asked_for_block_by_block(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    search = search_of(planned, runs[runs["repeat"] <= 2])
    assert {(point.nodes, repeat) for point, repeat in search.wanted()} == {(2, 3), (4, 3)}
    nothing = search_of(planned, runs[:0])
    assert [repeat for _, repeat in nothing.wanted()] == [1] * 6 + [2] * 6


def test_runs_that_diverged_are_infinite_and_stale_ones_are_not_there(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    changed = runs.copy()
    changed.loc[place(runs, "far", 4, 1), ["status", "execution_time_s"]] = RunState.DIVERGED, None
    changed.loc[place(runs, "far", 4, 2), "status"] = RunState.STALE
    search = search_of(planned, changed)
    (far,) = [c for c in search.candidates if search.points[c.name].path.count("far/")
              and search.points[c.name].nodes == 4]  # fmt: skip
    assert far.runs[:2] == ({"execution_time_s": math.inf}, None)
    assert [(point.nodes, repeat) for point, repeat in search.wanted()] == [(4, 2)]


def test_runs_without_times_say_nothing_of_their_point(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    """Those that went on from a checkpoint; two nodes are the best here."""
    changed = runs.copy()
    two = (runs["platform"] == "near") & (runs["nodes"] == 2)
    changed.loc[two & (runs["repeat"] <= 2), "execution_time_s"] = None
    (search, whole) = (search_of(planned, rows) for rows in (changed[runs["repeat"] <= 2], changed))
    verdict = search.verdicts["execution_time_s"]
    (near,) = [name for name, point in search.points.items() if "near" in name and point.nodes == 2]
    assert near not in {left.name for left in verdict.eliminated} and not verdict.is_decided
    assert near in search.decision.wanted
    assert whole.verdicts["execution_time_s"].best == near  # by its other runs


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
    verdict = search.verdicts["execution_time_s"]
    points = {each.name: search.points[each.name] for each in verdict.eliminated}
    left = {
        (points[each.name].platform, points[each.name].nodes): each.reason
        for each in verdict.eliminated
    }
    assert (left.get(("near", 2)) is Reason.DOES_NOT_RUN) == is_out
    assert bool(verdict.unresolved) == is_out
    if failed == 1 and not is_out:  # its next repeats stand in
        assert {(point.nodes, repeat) for point, repeat in search.wanted()} == {(2, 5)}


@pytest.mark.parametrize(
    ("examples", "work"),
    [([768, 768, 780], 768), ([600, 768, 768.5], 768.5), ([768, 780], 780), ([], 0)],
)
def test_the_work_is_the_most_frequent_number_of_examples(
    examples: list[float], work: float
) -> None:
    assert study_searches.work_of(examples) == work


def test_a_point_that_did_more_work_is_compared(planned: Manifest, runs: pd.DataFrame) -> None:
    more = (runs["platform"] == "far") & (runs["nodes"] == 4)
    trained = more.map({True: 780, False: 768})
    search = search_of(planned, runs.assign(examples_trained=trained))
    assert not search.other_work and search.verdicts["execution_time_s"].is_decided


def test_points_that_train_fewer_examples_are_no_candidates(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    changed = runs.copy()
    near = (runs["platform"] == "near") & (runs["nodes"] == 2)
    changed.loc[near, "examples_trained"] = 600
    search = search_of(planned, changed)
    assert [point.nodes for point in search.other_work] == [2]
    assert len(search.candidates) == 5


def test_cost_is_a_goal_and_decides_among_the_near(tmp_path: Path) -> None:
    planned = planned_of({"goal": ["execution_time_s", "cost_usd"]})
    search = search_of(planned, runs_of(planned, tmp_path, lambda run: is_made(run, 3)))
    run = next(run for run in search.candidates[0].runs if run)
    nodes = search.points[search.candidates[0].name].nodes
    assert run["cost_usd"] == pytest.approx(nodes * run["execution_time_s"] / 3600)
    assert search.candidates[0].cost == pytest.approx(run["cost_usd"], rel=0.1)
    assert set(search.verdicts) == {"execution_time_s", "cost_usd"}


@pytest.fixture(scope="module")
def many(planned: Manifest, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Runs enough to name a point that has a target or a limit."""
    folder = tmp_path_factory.mktemp("many")
    return runs_of(planned, folder, lambda run: is_made(run, KEPT_RUNS))


def test_a_target_that_was_missed_is_infinite(many: pd.DataFrame) -> None:
    planned = planned_of(
        {"goal": "time_to_target_s"}, comparison={"targets": {"test_accuracy": 0.5}}
    )
    reached_s = many["execution_time_s"].where(many["nodes"] > 1)
    search = search_of(planned, many.assign(time_to_target_s=reached_s))
    verdict = search.verdicts["time_to_target_s"]
    missed = {left.name for left in verdict.eliminated if left.reason is Reason.NOT_REACHED}
    assert {search.points[name].nodes for name in missed} == {1} and len(missed) == 2
    assert verdict.is_decided and search.points[verdict.best or ""].nodes == 2
    # one run that misses it is enough: the tables have no time to the target then
    one = many.index[(many["platform"] == "near") & (many["nodes"] == 2)][-1]
    search = search_of(planned, many.assign(time_to_target_s=reached_s.drop(one)))
    verdict = search.verdicts["time_to_target_s"]
    assert not verdict.is_decided and search.points[verdict.best or ""].nodes == 4
    (lost,) = verdict.unresolved
    assert search.points[lost].nodes == 2


def test_a_constraint_is_judged_by_the_quality_of_the_runs(many: pd.DataFrame) -> None:
    planned = planned_of({"constraint": {"test_accuracy": {"at_least": 0.9, "indifference": 0.01}}})
    steady = many.assign(quality=0.95)
    assert search_of(planned, steady).verdicts["execution_time_s"].is_decided
    low = steady["nodes"] == 2
    search = search_of(planned, steady.assign(quality=steady["quality"].where(~low, 0.8)))
    verdict = search.verdicts["execution_time_s"]
    out = {left.name for left in verdict.eliminated if left.reason is Reason.NOT_ALLOWED}
    assert {search.points[name].nodes for name in out} == {2}
    assert search.points[verdict.best or ""].nodes == 4
    most = {"test_accuracy": {"at_most": 0.85, "indifference": 0.01}}
    search = search_of(planned_of({"constraint": most}), steady)
    assert search.verdicts["execution_time_s"].best is None


def test_expected_runs_lie_between_two_of_each_and_all(
    planned: Manifest, runs: pd.DataFrame
) -> None:
    before = expected_runs(search_of(planned, runs[:0]), {}, trials=5)
    assert len(before) == 6 and all(2 <= number <= 20 for number in before.values())
    limited = planned_of({"constraint": {"test_accuracy": {"at_least": 0.9}}})
    with_limit = expected_runs(search_of(limited, runs[:0]), {}, trials=5)
    assert min(with_limit.values()) < 20  # else nothing would be in, and no point leave
    done = search_of(planned, runs)
    after = expected_runs(done, {}, trials=2)
    assert {p.path: n for p, n in after.items()} == pytest.approx(dict(done.decision.runs))
