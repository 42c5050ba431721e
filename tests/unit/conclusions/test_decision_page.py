"""The page of the decision as it is read, and the points that no other beats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from builders import study_folder, valid_config
from measured import NOTHING_PLANNED, around, measured, nothing_measured, went_on
from tfscaling.conclusions import decision
from tfscaling.conclusions.evidence import Study
from tfscaling.stages import analyse
from tfscaling.tables import data_warnings

GOLDEN = Path(__file__).with_name("decision_page.md")


def tables_of(*arguments: Any, **settings: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    comparison, runs, _ = measured(*arguments, **settings)
    return comparison, runs


def markdown(comparison: pd.DataFrame, runs: pd.DataFrame) -> str:
    study = Study(comparison, runs, NOTHING_PLANNED)
    return decision.page(decision.table(study), study)


def test_where_nothing_is_measured_the_page_says_what_is_missing() -> None:
    comparison, runs = nothing_measured()
    assert decision.pareto(Study(comparison, runs, NOTHING_PLANNED)).empty
    text = markdown(comparison, runs)
    assert "2 points are missing" in text and "no other beats" not in text


def test_an_empty_comparison_is_no_crash() -> None:
    comparison, runs = nothing_measured()
    assert "##" in markdown(comparison.iloc[:0], runs.iloc[:0])


def points(*rows: tuple[int, float, float | None, float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Comparison and runs of points of six runs: nodes, time, cost, test accuracy."""
    comparison, runs = tables_of({("east", nodes): around(1.0) for nodes, *_ in rows})
    for name, number in (("execution_time_s", 1), ("cost_usd", 2), ("quality", 3)):
        comparison[name] = [row[number] for row in sorted(rows)]
    return comparison, runs


def test_the_pareto_set_is_what_no_other_beats_in_time_cost_and_accuracy() -> None:
    tables = points((1, 40.0, 1.0, 0.90), (2, 20.0, 2.0, 0.90), (3, 30.0, 3.0, 0.95),
                        (4, 25.0, 2.5, 0.89), (6, 41.0, 1.0, 0.90))  # fmt: skip
    best = decision.pareto(Study(*tables, NOTHING_PLANNED))
    assert best["nodes"].tolist() == [2, 3, 1]  # by time; 4 is beaten by 2, 6 by 1
    low, high = best["execution_time_s_low"], best["execution_time_s_high"]
    assert low.notna().all() and high.notna().all()


def test_equal_points_beat_each_other_in_nothing() -> None:
    same = (20.0, 2.0, 0.9)
    best = decision.pareto(
        Study(*points((1, *same), (2, *same), (4, 20.0, 2.1, 0.9)), NOTHING_PLANNED)
    )
    assert sorted(best["nodes"]) == [1, 2]


def test_without_prices_time_and_accuracy_decide() -> None:
    expensive = (20.0, 9.0, 0.95)
    study = Study(*points((1, 40.0, 1.0, 0.90), (2, *expensive)), NOTHING_PLANNED)
    assert len(decision.pareto(study)) == 2
    # where one has none, its cost is unknown and no cost can decide
    for cost in (1.0, None):
        best = decision.pareto(
            Study(*points((1, 40.0, cost, 0.90), (2, 20.0, None, 0.95)), NOTHING_PLANNED)
        )
        assert best["nodes"].tolist() == [2]


def test_cost_takes_part_though_a_point_has_no_times() -> None:
    """It has a price: 2 nodes are the dearer ones, and neither faster nor better."""
    times = {("east", 1): around(20.0), ("east", 2): around(20.0), ("east", 4): around(5.0)}
    comparison, runs, _ = went_on(measured(times), 4)
    best = decision.pareto(Study(comparison, runs, NOTHING_PLANNED))
    assert best["nodes"].tolist() == [1]
    assert "4 nodes, 0 of 6." in markdown(comparison, runs)


def test_points_that_were_not_measured_are_in_no_pareto_set() -> None:
    tables = tables_of({("east", 1): around(30.0), ("east", 2): []})
    assert decision.pareto(Study(*tables, NOTHING_PLANNED))["nodes"].tolist() == [1]


def test_points_that_take_no_part_are_in_no_pareto_set_and_named() -> None:
    comparison, runs = tables_of({("east", nodes): around(10.0 / nodes) for nodes in (1, 2, 4)})
    comparison["same_work"] = comparison["nodes"] != 4
    comparison.loc[~comparison["same_work"], "examples_trained"] = 576
    comparison.loc[comparison["nodes"] == 4, "reason"] = "does not do the same work: trained 5"
    runs.loc[(runs["nodes"] == 2) & (runs["repeat"] > 3), "status"] = "diverged"
    assert decision.pareto(Study(comparison, runs, NOTHING_PLANNED))["nodes"].tolist() == [1]
    assert "4 nodes, does not" in markdown(comparison, runs)


def test_every_kind_of_absent_point_is_named() -> None:
    times = {("east", nodes): around(10.0 * nodes) for nodes in range(1, 8)}
    comparison, runs = tables_of(times)
    gone = {2: "failed", 3: "missing", 4: "stale", 5: "unfinished", 6: "excluded", 7: "diverged"}
    for nodes, status in gone.items():
        comparison.loc[comparison["nodes"] == nodes, ["runs", "status"]] = 0, status
        runs.loc[runs["nodes"] == nodes, "status"] = status
    page = markdown(comparison, runs)
    last = page[page.index("## What would change this") :]
    assert all((f"{nodes} nodes." in last) == (nodes != 6) for nodes in gone)


def test_the_page_as_it_is_read() -> None:
    """Two points alike, one slow, one of three runs, one failed."""
    times = {("east", 1): around(60.0), ("east", 2): around(10.3, 0.1),
             ("east", 4): around(10.0, 0.1), ("east", 8): around(20.0, runs=3),
             ("east", 16): []}  # fmt: skip
    page = markdown(*tables_of(times))
    assert page == GOLDEN.read_text()


def test_the_stage_writes_the_conclusions_into_the_study(tmp_path: Path) -> None:
    comparison, runs, planned = measured({("east", 1): around(30.0), ("east", 2): around(10.0)})
    study = study_folder(tmp_path, valid_config(), planned, comparison=comparison, runs=runs)
    data_warnings.write(study.tables / "warnings.json", [])
    analyse.run(study)
    assert (study.tables / "decision.md").read_text() == markdown(comparison, runs)
    table = study.read("decision", ())
    assert table["goal"].tolist()[0] == "execution_time_s"
    assert table.set_index("goal").loc["execution_time_s", "nodes"] == 2


def test_configurations_of_several_recipes_are_named_with_their_recipe() -> None:
    comparison, runs = tables_of({("east", n): around(10.0 * n) for n in (1, 2)})
    tables = [pd.concat([t, t.assign(recipe="strong")]) for t in (comparison, runs)]
    text = markdown(*tables)
    assert "1 node (weak)" in text and "1 node (strong)" in text
