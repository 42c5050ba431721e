"""Sentences deny no run that was made, and name the reason and the unit that hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import measured as made_up
import pandas as pd
import pytest
from measured import around, measured
from tfscaling.conclusions import findings, headline, next_steps
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.decision import answer_sentence
from tfscaling.conclusions.evidence import Reference, Study
from tfscaling.conclusions.findings import Finding
from tfscaling.conclusions.headline import HeadlineRow
from tfscaling.conclusions.regressions import LOST, NOT_COMPARED
from tfscaling.conclusions.regressions import table as regressions_table
from tfscaling.study.config_types import Limit, Question
from tfscaling.tables.comparison import DIFFERENT_ENERGIES, DIFFERENT_WORK, comparison_table
from tfscaling.tables.table_files import to_rows


def answered(study: Study) -> Answer:
    """The answer to the only question."""
    (found,) = answer_questions(study)
    return found


def headline_text(study: Study) -> str:
    """The headline of the only question, with its explanation."""
    (row,) = to_rows(HeadlineRow, headline.table(study))
    return f"{row.text} {row.sure}"


def nodes_finding(study: Study) -> Finding:
    """The finding about the useful number of nodes."""
    rows = to_rows(Finding, findings.table(study))
    return next(row for row in rows if row.topic == "scaling" and "slower" not in row.kind)


# scaling


@pytest.mark.parametrize(
    ("largest", "status", "kind"),
    [
        ([], "ok", "pays"), (around(10.0, runs=2), "ok", "pays"),
        (around(10.0), "diverged", "pays"), (around(60.0, runs=3), "ok", "pays"),
    ],
)  # fmt: skip
def test_larger_numbers_of_nodes_with_runs_are_not_called_unmeasured(
    largest: list[float], status: str, kind: str
) -> None:
    times = {("east", 1): around(100.0), ("east", 2): around(60.0), ("east", 4): around(35.0)}
    _, runs, planned = measured(times | {("east", 8): largest} if largest else times)
    runs.loc[(runs["nodes"] == 8) & (runs["status"] == "ok"), "status"] = status
    found = nodes_finding(Study(comparison_table(runs, planned), runs, planned))
    assert (found.kind, found.nodes) == (kind, "4")
    assert ("not measured" in found.text) == (not largest)
    assert ("number compared" in found.text) == bool(largest)


def test_a_flat_line_is_flat_among_the_compared_numbers_only() -> None:
    times = {("east", 2): around(60.0), ("east", 4): around(60.2)}
    for more, is_limited in (({}, False), ({("east", 8): around(30.0, runs=3)}, True)):
        comparison, runs, planned = measured(times | more)
        found = nodes_finding(Study(comparison, runs, planned))
        assert (found.kind, found.nodes) == ("stops paying", "2")
        assert ("compared is more than" in found.text) == is_limited


def test_weak_scaling_on_the_same_nodes_names_the_devices() -> None:
    times = {("east", 1): around(100.0), ("east", 2): around(60.0)}
    _, runs, planned = measured(times)
    four = runs["nodes"] == 2
    runs["devices"], runs["nodes"] = "GPU", 1
    runs["replicas"] = runs["gpus_per_node"] = four.map({True: 4, False: 1})
    runs["throughput_examples_per_s"] = 60_000 / runs["execution_time_s"]
    limits = {"weak_scaling_efficiency": Limit(at_least=0.1)}
    comparison = comparison_table(runs, planned)
    study = Study(comparison, runs, made_up.NOTHING_PLANNED, question=Question(limits=limits))
    (text,) = findings.table(study).query("kind == 'weak scaling'")["text"]
    assert "4 GPUs" in text and "1 GPU," in text


# trade-offs


@pytest.mark.parametrize(("leader", "other"), [("east", "west"), ("west", "east")])
def test_a_free_platform_has_a_price(
    leader: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of the west cost nothing, which no configuration can be cheaper than."""
    free = {**made_up.PLATFORMS["west"], "usd_per_node_hour": 0.0}
    monkeypatch.setitem(made_up.PLATFORMS, "west", free)
    comparison, runs, planned = measured({(leader, 4): around(20.0), (other, 1): around(40.0)})
    study = Study(comparison, runs, planned)
    found, text = answered(study), headline_text(study)
    assert found.leader and found.leader.point.platform == leader
    if leader == "west":
        assert found.trade_off is None
    else:
        assert found.trade_off and found.trade_off.is_priced and found.trade_off.cost == 0
    assert "node-hours" not in text
    assert ("nothing" in text) == (leader == "east")


def test_node_hours_of_a_trade_off_are_the_ones_of_the_table() -> None:
    """One node needs twice its node-hours because of failed attempts: it saves nothing."""
    _, runs, planned = measured({("east", 1): around(70.0), ("east", 2): around(40.0)})
    runs["cost_usd"] = None
    plain = answered(Study(comparison_table(runs, planned), runs, planned)).trade_off
    assert plain and plain.cost == pytest.approx(70 / 80, abs=0.01) and not plain.is_priced
    runs.loc[runs["nodes"] == 1, "node_hours"] *= 2
    assert answered(Study(comparison_table(runs, planned), runs, planned)).trade_off is None


# runs without times


@pytest.mark.parametrize("reason", ["resumed", "overlapping", "not steady", "not reported"])
@pytest.mark.parametrize("shared_with", [0, 1])
def test_a_next_step_follows_from_the_reason_of_a_run_without_times(
    reason: str, shared_with: int
) -> None:
    _, runs, planned = measured({("east", 1): around(70.0), ("east", 2): around(40.0)})
    number = random.randint(1, 6)
    gone = (runs["nodes"] == 2) & (runs["repeat"] <= number)
    runs.loc[gone, ["execution_time_s", "cost_usd", "node_hours"]] = None
    runs["untimed_reason"] = pd.Series(reason, runs.index, dtype=object).where(gone)
    runs["shared_with"] = shared_with
    steps = next_steps.table(Study(comparison_table(runs, planned), runs, planned))
    found = steps[steps["kind"].isin(["resumed", "overlapping", "not steady", "not reported"])]
    assert found["kind"].tolist() == [reason]
    assert f" {number} " in found["text"].iloc[0]
    assert ("compare_resumed" in found["text"].iloc[0]) == (reason == "resumed")


# limits


@pytest.mark.parametrize("goal", ["execution_time_s", "energy_kwh"])
def test_energies_of_different_parts_in_one_configuration_keep_no_limit(goal: Any) -> None:
    _, runs, planned = measured({("east", n): around(30.0, runs=12) for n in (1, 2)})
    runs["energy_kwh"] = 0.1
    parts = runs["repeat"].map(lambda number: "GPUs and processors" if number % 2 else "GPUs")
    runs["energy_of"] = parts.where(runs["nodes"] == 2, "GPUs")
    for most, state in ((0.5, State.OPEN), (0.05, State.INFEASIBLE)):
        question = Question(goal=goal, limits={"energy_kwh": Limit(at_most=most)})
        study = Study(comparison_table(runs, planned), runs, planned, question=question)
        (mixed,) = (each for each in answered(study).candidates if each.row.nodes == 2)
        assert mixed.state == state
        assert mixed.reason.startswith(DIFFERENT_ENERGIES) == (state == State.OPEN)
        assert "without" not in mixed.reason


@pytest.mark.parametrize("goal", ["time_with_queue_s", "core_hours", "execution_time_s"])
@pytest.mark.parametrize("most_s", [1000, 50, 1])
def test_a_limit_is_no_reason_where_only_the_goal_is_unknown(goal: Any, most_s: float) -> None:
    times = {("east", n): around(100 / n, runs=12) for n in (1, 4)}
    comparison, runs, planned = measured(times)
    question = Question(goal=goal, limits={"execution_time_s": Limit(at_most=most_s)})
    text = headline_text(Study(comparison, runs, planned, question=question))
    is_unknown = goal != "execution_time_s" and most_s > 1
    assert ("Not measured" in text) == is_unknown
    assert ("shown to keep the limits." in text) == (most_s == 1)


@pytest.mark.parametrize("usd", [0.045, 45.0])
def test_a_cost_and_its_margin_have_the_same_unit(usd: float) -> None:
    times = {("east", n): around(seconds, runs=12) for n, seconds in {1: 120, 2: 70}.items()}
    comparison, runs, planned = measured(times, usd_per_node_hour=usd / 0.045)
    question = Question(limits={"cost_usd": Limit(at_most=usd)})
    found = answered(Study(comparison, runs, planned, question=question))
    (cost,) = (part for part in found.leader_details.split("; ") if part.startswith("cost"))
    assert "1,000 runs" not in cost
    value, margin = float(cost.split()[1]), float(cost.split(", ")[1].split()[0])
    assert value + margin == pytest.approx(usd, rel=0.01)


# quality


@pytest.mark.parametrize(
    ("metric", "direction", "best", "more", "bound_of"),
    [
        ("bleu", "higher", None, "less bleu", "the best bleu"),
        ("perplexity", "lower", None, "the perplexity", "the best perplexity"),
        ("test_accuracy", "higher", 1.0, "the error", "the least error"),
    ],
)
def test_the_words_about_a_quality_follow_from_its_metric(
    metric: str, direction: str, best: float | None, more: str, bound_of: str
) -> None:
    _, runs, planned = measured({("east", n): around(100 / n) for n in (1, 2, 4)})
    runs["quality_metric"], runs["quality_direction"] = metric, direction
    runs["quality_best"] = best
    values = {1: 0.9, 2: 0.8999, 4: 0.7 if direction == "higher" else 1.2}
    runs["quality"] = runs["nodes"].map(values) + runs["repeat"] * 1e-5
    question = Question(goal="quality", indifference=0.05)
    study = Study(comparison_table(runs, planned), runs, planned, question=question)
    found, text = answered(study), headline_text(study)
    assert found.bound and f"of {bound_of}" in text and f"of {bound_of}" in answer_sentence(found)
    assert f") {more}." in text
    others = {"less bleu", "the perplexity", "the error"} - {more}
    assert not any(f") {each}." in text for each in others)


# two sweeps


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({"examples_trained": 50_000.0}, NOT_COMPARED, DIFFERENT_WORK),
        ({"status": "diverged"}, LOST, "diverged"),
    ],
)
def test_valid_runs_of_other_work_are_not_lost(
    changes: dict[str, Any], verdict: str, reason: str, tmp_path: Path
) -> None:
    comparison, runs, planned = measured({("east", 1): around(100.0), ("east", 2): around(50.0)})
    reference = Reference(comparison, runs, tmp_path, {})
    now = runs.copy()
    own = now["nodes"] == 1
    now.loc[own & (now["repeat"] == 1), "status"] = "failed"
    for name, value in changes.items():
        now.loc[own & (now["repeat"].between(2, 4)), name] = value
    study = Study(comparison_table(now, planned), now, planned, reference=reference)
    found = regressions_table(study).set_index("nodes").loc[1]
    assert found["verdict"] == verdict and reason in found["reason"]


# a goal without any value


@pytest.mark.parametrize("metric", ["test_accuracy", "bleu", "perplexity"])
def test_a_question_by_quality_without_a_valid_run_has_a_headline(metric: str) -> None:
    """The direction of the quality is known of a configuration with results only."""
    _, runs, planned = measured({("east", 1): around(10.0), ("east", 2): around(9.0)})
    runs = runs.assign(status="failed", reason="rank_failed: x", quality_metric=metric)
    none_valid = comparison_table(runs, planned)
    study = Study(none_valid, runs, planned, question=Question(goal="quality"))
    found = answered(study)
    assert found.leader is None
    assert headline_text(study)
