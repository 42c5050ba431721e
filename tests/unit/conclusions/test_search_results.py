"""What is said of a search: who left, by what margin, at what cost, and how sure the answer is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from searched import is_made, planned_of, runs_of, study_of
from tfscaling.conclusions import decision, headline, next_steps, search_results
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.search_results import IN, LEFT, TAKEN
from tfscaling.search.interim import Reason
from tfscaling.tables.estimates import INCONCLUSIVE, SUPPORTED


def made_after(folder: Path, repeats: int, **search: float) -> Study:
    planned = planned_of(search)
    runs = runs_of(
        planned, folder, lambda run: is_made(run, repeats) and run.spec.repeat <= repeats
    )
    return study_of(planned, runs)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return made_after(tmp_path_factory.mktemp("decided"), 4)


def choice_of(study: Study) -> pd.Series:
    table = decision.table(study)
    return table[table["goal"] == "execution_time_s"].iloc[0]


def test_the_table_has_each_point_with_its_round_margin_and_cost(decided: Study) -> None:
    table = search_results.table(decided)
    assert table["place"].tolist() == [TAKEN, *[LEFT] * 5]
    assert table["round"].tolist()[1:] == [3, 1, 1, 1, 1]
    assert set(table["why"][1:]) == {Reason.NOT_THE_BEST.value}
    near = table.iloc[1]
    assert (near["nodes"], near["runs"], near["rival"]) == (4, 4, "2 nodes on near")
    assert 0 < near["at_least"] < near["gap"] < 0.35
    assert table["at_least"].isna().sum() == 5  # amounts need four runs
    wall_s = decided.runs["wall_time_s"] * decided.runs["nodes"]
    assert table["node_hours"].sum() == pytest.approx(wall_s.sum() / 3600)
    assert table["full_node_hours"].sum() > 1.9 * table["node_hours"].sum()


def test_a_decided_search_is_a_supported_choice(decided: Study) -> None:
    choice = choice_of(decided)
    assert (choice["support"], choice["nodes"], choice["bound"]) == (SUPPORTED, 2, 0.05)
    (row,) = headline.table(decided).to_dict("records")
    assert row["badge"] == SUPPORTED and "16 runs" in row["sure"]


def test_an_undecided_one_names_the_bound(tmp_path: Path) -> None:
    study = made_after(tmp_path, 3)
    choice = choice_of(study)
    assert choice["support"] == INCONCLUSIVE and 0.05 < choice["bound"] < 0.1
    table = search_results.table(study)
    assert table["place"].tolist()[:2] == [TAKEN, IN]
    steps = next_steps.table(study, decision.table(study))
    assert steps["runs"].tolist() == [2]


def test_points_left_out_by_a_bound_are_named_and_their_saving_is_a_least_one(
    tmp_path: Path,
) -> None:
    planned = planned_of({"at_most_linear": True}, goal="cost_usd")
    runs = runs_of(planned, tmp_path, lambda run: not run.extra_repeat)
    assert set(runs["nodes"]) == {1} and len(runs) == 4
    study = study_of(planned, runs)
    table = search_results.table(study)
    best, *others = table.to_dict("records")
    assert (best["platform"], best["nodes"], best["place"]) == ("near", 1, TAKEN)
    assert best["is_decided"]
    never = [row for row in others if not row["runs"]]
    assert [(row["why"], row["round"]) for row in never] == [(Reason.BOUNDED.value, 0)] * 4
    assert {row["rival"] for row in never} == {"1 node on near", "1 node on far"}
    # at linear speed-up as many node-hours as the smallest point of the line
    for _, full in table.groupby("platform")["full_node_hours"]:
        assert full.tolist() == pytest.approx([full.iloc[0]] * 3)
    assert "89% less" in search_results.page(table, study)
    assert next_steps.table(study, decision.table(study)).empty


def test_limits_are_a_column_and_a_sentence(tmp_path: Path) -> None:
    limits = {"test_accuracy": {"at_least": 0.8}, "cost_usd": {"at_most": 1.0}}
    planned = planned_of(limits=limits)
    study = study_of(planned, runs_of(planned, tmp_path))
    table = search_results.table(study)
    assert set(table["limits"]) == {"in"}
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
    assert (last["place"], last["why"], last["runs"]) == (LEFT, search_results.OTHER_WORK, 2)
    assert table["runs"].sum() == len(runs)
