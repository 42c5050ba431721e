"""What is said of a search: who left, by what margin, at what cost, and how sure the answer is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import generator
import msgspec
import pandas as pd
import pytest
import searched
from builders import manifest_of, write_failure
from searched import config_of, planned_of, runs_of, study_of
from tfscaling.conclusions import decision, headline, next_steps, search_results
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.search_results import OUT, TAKEN
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED
from tfscaling.plan import costed_plan
from tfscaling.record.run_record import RECORD
from tfscaling.record.run_states import RunState
from tfscaling.search import study_searches
from tfscaling.search.search_types import Reason
from tfscaling.study.config_types import Question
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Study:
    planned = planned_of()
    return study_of(planned, runs_of(planned, tmp_path_factory.mktemp("decided")))


def choice_of(study: Study) -> pd.Series:
    table = decision.table(study)
    return table[table["goal"] == "execution_time_s"].iloc[0]


def test_the_table_has_each_point_with_its_distance_and_cost(decided: Study) -> None:
    table = search_results.table(decided)
    assert table["place"].tolist() == [TAKEN, *[OUT] * 5]
    assert set(table["why"][1:]) == {Reason.NOT_THE_BEST.value}
    near = table.iloc[1]
    assert (near["nodes"], near["platform"]) == (4, "near")
    assert near["behind"] == pytest.approx(0.18, abs=0.06) and 0 <= near["chance"] < 0.01
    assert table["behind"].is_monotonic_increasing
    heads = [*search_results.as_text(table).cells]
    assert {"runs", "chance to be better"} <= {*heads}
    assert not {"short runs", "complete runs", "limits"} & {*heads}
    cells = search_results.as_text(table).cells
    assert [*map(str, cells["runs"])] == [str(runs) for runs in table["runs"]]
    for name in ("node_hours", "cost_usd"):
        assert [*map(str, cells[name])] == [f"{value:.4f}" for value in table[name]]
    on_gpus = table.assign(gpus_per_node=2 * (table["nodes"] > 1))
    on_gpus["devices"] = on_gpus["gpus_per_node"].map(lambda gpus: "GPU" if gpus else "CPU")
    assert set(search_results.as_text(on_gpus).cells["devices"]) == {"2 GPUs", "CPU"}
    wall_s = decided.runs["wall_time_s"] * decided.runs["nodes"]
    assert table["node_hours"].sum() == pytest.approx(wall_s.sum() / 3600)


def test_a_decided_search_is_a_supported_choice(decided: Study) -> None:
    choice = choice_of(decided)
    assert (choice["support"], choice["nodes"], choice["bound"]) == (SUPPORTED, 2, 0.05)
    (row,) = headline.table(decided).to_dict("records")
    assert row["badge"] == SUPPORTED and f"{len(decided.runs)} runs" in row["sure"]
    assert "undecided search" not in {*next_steps.table(decided)["kind"]}


def test_each_search_answers_a_question_of_the_study(tmp_path: Path) -> None:
    planned = planned_of(choose=["nodes"])
    made = study_of(planned, runs_of(planned, tmp_path, lambda run: run.spec.point.nodes < 4))
    study = replace(made, question=Question(choose=("nodes",)))
    assert len(study.searches) == len(study.tasks) == 2
    for task in study.tasks:  # configurations without runs, too
        assert {row.nodes for row in task.all_rows} == {1, 2, 4}
    table = decision.table(study)
    answers = table[table["goal"] == "execution_time_s"]
    # an undecided search may still run the others: they are not left out
    assert len(answers) == 2 and set(answers["not_covered"]) == {""}


def test_an_undecided_one_names_what_comes_next(decided: Study) -> None:
    study = study_of(decided.manifest, decided.runs[decided.runs["repeat"] <= 2])
    choice = choice_of(study)
    assert choice["support"] == INCONCLUSIVE
    assert search_results.table(study)["place"].tolist()[0] == TAKEN
    steps = next_steps.table(study)
    assert steps["runs"].tolist()[0] > 0 and "undecided search" not in {*steps["kind"]}


def test_an_undecided_search_names_the_lowest_indifference_with_which_it_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_s(run: PlannedRun) -> float:
        point = run.spec.point
        usual_s = searched.TIMES_S[point.platform, point.nodes]
        return usual_s * (1 + 0.15 * (-1) ** (run.spec.repeat + point.nodes // 2))

    monkeypatch.setattr(searched, "time_s", time_s)
    planned = planned_of({"repeats_max": 6}, indifference=0.01)
    runs = runs_of(planned, tmp_path, lambda run: run.spec.repeat <= 6)
    study = study_of(planned, runs)
    (step,) = next_steps.table(study).to_dict("records")
    assert (step["kind"], step["runs"]) == ("undecided search", 0)
    bounds = {*search_results.table(study)["bound"]}
    assert bounds == {study.searches[0][1].decision.bound} and 0 < min(bounds) < 1
    found = re.search(r"`indifference` of (0\.\d+),", step["text"])
    assert found and 0 <= float(found[1]) - min(bounds) < 0.01, step["text"]
    enough = planned_of({"repeats_max": 6}, indifference=float(found[1]))
    assert choice_of(study_of(enough, runs_of(enough, tmp_path)))["is_decided"]


def test_points_without_runs_are_named_and_their_saving_is_a_least_one(tmp_path: Path) -> None:
    planned = planned_of({"basis": "lines are smooth"}, goal="cost_usd")
    runs = runs_of(
        planned, tmp_path, lambda run: run.spec.repeat <= 10 and run.spec.point.nodes != 2
    )
    study = study_of(planned, runs)
    search = search_results.table(study)
    assert set(search[search["runs"] == 0]["nodes"]) == {2}
    table = decision.table(study)
    (answer,) = table[table["goal"] == "cost_usd"].to_dict("records")
    assert answer["not_covered"] == ""  # the verdict is about them, too
    # as many node-hours as the smallest point of the line at linear speed-up
    for _, own in search.groupby("platform"):
        one, two = (own[own["nodes"] == n]["full_node_hours"].iloc[0] for n in (1, 2))
        assert two == pytest.approx(one)


def test_limits_are_a_column_and_a_sentence(tmp_path: Path) -> None:
    limits = {"test_accuracy": {"at_least": 0.8}, "cost_usd": {"at_most": 1.0}}
    planned = planned_of(limits=limits)
    study = study_of(planned, runs_of(planned, tmp_path))
    table = search_results.table(study)
    assert set(table["limits"]) <= {"in", "open"}
    assert "limits" in search_results.as_text(table).cells
    page = search_results.page(table, study)
    assert "at least 0.8" in page and "at most 1" in page
    unmet = {"test_accuracy": {"at_least": 0.99}}
    assert pd.isna(choice_of(study_of(planned_of(limits=unmet), study.runs))["nodes"])


def test_points_of_other_work_are_rows_and_their_runs_are_counted(decided: Study) -> None:
    runs = decided.runs.copy()
    runs.loc[(runs["platform"] == "far") & (runs["nodes"] == 1), "examples_trained"] = 1
    table = search_results.table(study_of(decided.manifest, runs))
    last = table.iloc[-1]
    assert (last["place"], last["why"], last["runs"]) == (OUT, search_results.OTHER_WORK, 3)
    assert table["runs"].sum() == len(runs)
    # the verdict says among how many, if not among all
    verdicts = [last["verdict"], search_results.table(decided)["verdict"][0]]
    assert [re.findall(r"among the (\d+)", text) for text in verdicts] == [["5"], []]


def test_failed_repeats_of_a_decided_search_are_not_made_again(tmp_path: Path) -> None:
    """The search needs none of them: neither does a next step count them, nor the plan."""
    config = config_of({})
    planned = manifest_of(config)
    runs_of(planned, tmp_path)
    for run in planned.runs:
        if run.spec.repeat == 3 and run.spec.point.nodes == 1:
            (tmp_path / run.spec.path / RECORD).unlink()
            write_failure(tmp_path, run)
    runs, _ = runs_table.run_tables(planned.runs, tmp_path, planned.targets)
    study = study_of(planned, runs)
    assert study.searches[0][1].decision.is_decided
    assert "unfinished" not in next_steps.table(study)["kind"].tolist()
    assert not costed_plan.make_plan(config, planned, tmp_path).runs


@pytest.mark.parametrize("is_best", [False, True])
def test_no_view_compares_what_runs_rule_out_that_the_search_did_not_need(
    is_best: bool, tmp_path: Path
) -> None:
    """Most runs of a configuration diverged, all of them after the runs that the search used."""
    planned = planned_of()
    runs = runs_of(planned, tmp_path, lambda _: True)
    (_, search) = study_of(planned, runs).searches[0]
    best = search.decision.best
    name = best if is_best else next(each for each in search.points if each != best)
    assert best and name
    point, used = search.points[name], search.decision.runs[name]
    own = (runs["platform"] == point.platform) & (runs["nodes"] == point.nodes)
    later = own & (runs["repeat"] > used)
    assert later.sum() > used
    runs.loc[later, ["status", "reason"]] = [RunState.DIVERGED, "loss is NaN"]
    study = study_of(planned, runs)
    (_, search) = study.searches[0]
    assert point in study.excluded and search.decision.is_decided
    answers = [own for every in answer_questions(study) for own in (every, *every.other_goals)]
    for answer in answers:
        (candidate,) = (each for each in answer.candidates if each.point == point)
        assert not candidate.has_value and candidate.reason
    # only the runs that exist count
    expected = study_searches.expected_runs(search, dict.fromkeys(search.points.values(), 1.0))
    if is_best:
        assert expected[point] == own.sum() == search.finished_runs[point]
    choice = choice_of(study)
    assert (choice["platform"], choice["nodes"]) != (point.platform, point.nodes)
    assert choice["support"] == SUPPORTED and "diverged" in choice["not_covered"]


def test_no_further_runs_are_expected_of_a_best_that_is_out(tmp_path: Path) -> None:
    """Two of its six runs diverged, both after the runs that the search used."""
    planned = planned_of()
    runs = runs_of(planned, tmp_path, lambda run: run.spec.repeat <= 6)
    (_, search) = study_of(planned, runs).searches[0]
    assert search.decision.best
    point = search.points[search.decision.best]
    own = (runs["platform"] == point.platform) & (runs["nodes"] == point.nodes)
    late = own & runs["repeat"].isin([5, 6])
    runs.loc[late, ["status", "reason"]] = [RunState.DIVERGED, "loss is NaN"]
    (_, search) = study_of(planned, runs).searches[0]
    assert search.decision.standings[point.path].reason is Reason.DIVERGED
    expected = study_searches.expected_runs(search, dict.fromkeys(search.points.values(), 1.0))
    assert expected[point] == 6


def test_further_runs_of_a_rival_that_miss_a_limit_are_shown_for_every_goal(tmp_path: Path) -> None:
    """The search needed two of its runs, which kept the limit; all later ones missed it."""
    config = config_of({}, question={"limits": {"test_accuracy": {"at_least": 0.8}}})
    planned = manifest_of(config)
    runs = runs_of(planned, tmp_path, lambda _: True)
    rival = (runs["platform"] == "near") & (runs["nodes"] == 1)
    runs.loc[rival & (runs["repeat"] > 2), "quality"] = 0.5
    study = Study(comparison_table(runs, planned), runs, planned, question=config.question)
    (_, search) = study.searches[0]
    used = {search.points[name].nodes: number for name, number in search.decision.runs.items()}
    assert used[1] <= 2 and search.decision.is_decided
    (answer,) = answer_questions(study)
    for own in (answer, *answer.other_goals):
        states = {
            each.point.nodes: each for each in own.candidates if each.point.platform == "near"
        }
        if own.goal in ("execution_time_s", "cost_usd"):
            assert states[1].state == State.INFEASIBLE and "misses a limit" in states[1].reason
            assert states[2].has_value


def test_short_runs_name_nothing_before_a_complete_run(tmp_path: Path) -> None:
    planned = planned_of({"stop_after_steps": 100})
    made = [run for run in planned.runs if not run.extra_repeat]
    generator.write_records(made, tmp_path)
    study = study_of(planned, runs_of(planned, tmp_path, lambda _: False))
    table = search_results.table(study)
    assert table["short_runs"].tolist() == [1] * 6 and not table["runs"].any()
    assert TAKEN not in table["place"].tolist() and table["measured"].isna().all()
    heads = [*search_results.as_text(table).cells]
    assert {"short runs", "complete runs"} <= {*heads}
    assert not {"runs", "short_runs", "limits"} & {*heads}
    cells = search_results.as_text(table).cells
    assert {*map(str, cells["short runs"])} == {"1"}
    assert {*map(str, cells["complete runs"])} == {"0"}
    assert table["node_hours"].sum() < table["full_node_hours"].sum() / 6
    assert decision.table(study).empty and len(headline.table(study)) <= 1
    assert next_steps.table(study)["runs"].tolist()[0] > 0


@pytest.mark.parametrize("goal", ["execution_time_s", "time_to_target_s"])
def test_a_best_with_too_few_runs_kept_limits_only_if_there_are_any(
    decided: Study, goal: str
) -> None:
    (_, search) = decided.searches[0]
    open_yet = replace(search.decision, bound=0.01, is_decided=False, has_ended=False)
    planned = msgspec.structs.replace(search.planned, goal=goal)
    text = search_results.verdict_text(replace(search, planned=planned, decision=open_yet))
    assert ("kept the target or limits" in text) == (goal == "time_to_target_s"), text
    assert ("too few of its runs" in text) == (goal == "execution_time_s"), text


def test_a_search_that_is_not_worth_more_runs_says_so_everywhere(tmp_path: Path) -> None:
    """One training does not pay for a second round: every view has the reason and the chance."""
    planned = planned_of(trainings=1)
    once = runs_of(planned, tmp_path, lambda run: run.spec.repeat == 1)
    study = study_of(planned, once)
    (_, search) = study.searches[0]
    further = search.decision.not_worth_it
    assert further and further.price > further.saving and not list(search.needed_runs())
    text = search_results.verdict_text(search)
    table = search_results.table(study)
    for name, value in (
        ("further_price", further.price),
        ("further_saving", further.saving),
        ("chance_of_better", further.chance),
    ):
        assert set(table[name]) == {value}
    assert text in table["verdict"][0] and not table["is_decided"].any()
    choice = choice_of(study)
    assert (choice["support"], choice["is_decided"]) == (INCONCLUSIVE, False)
    assert text in choice["text"] and not choice["text"].startswith("Use ")
    (row,) = headline.table(study).to_dict("records")
    assert text in row["text"] and row["badge"] == INCONCLUSIVE
    steps = next_steps.table(study)
    assert "search" not in {*steps["kind"]} >= {"ended search"} and not steps["runs"].any()
    # without the number of trainings the search continues, and with enough of them, too
    for trainings in (None, 10**6):
        other = planned_of(trainings=trainings)
        (_, open_yet) = study_of(other, once).searches[0]
        assert open_yet.decision.not_worth_it is None and list(open_yet.needed_runs())
