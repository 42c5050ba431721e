"""A limit or target without a value, and costs of failed attempts, in the answers of a study."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from builders import changed, manifest_of, raw_config, write_failed_attempt, write_record
from measured import around, measured
from msgspec.structs import replace
from seeds import drawn_seed
from tfscaling.conclusions import decision, headline
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.samples import INCONCLUSIVE, NOT_COMPARED, SUPPORTED
from tfscaling.record.rank_report import Epoch
from tfscaling.study import config_validation
from tfscaling.study.config_types import Limit, Question
from tfscaling.study.manifest import Manifest
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table

SEED = drawn_seed()
#: Nodes → seconds: four nodes are the fastest.
TIMES_S = {1: 200.0, 2: 100.0, 4: 60.0}
#: Limit → a value of a run on some nodes that keeps it.
LOOSE: dict[str, tuple[Limit, Any]] = {
    "time_with_queue_s": (Limit(at_most=1e6), lambda row: row["execution_time_s"] + 60),
    "energy_kwh": (Limit(at_most=1e6), lambda row: 0.1 * row["nodes"]),
    "weak_scaling_efficiency": (Limit(at_least=0.1), lambda row: 60_000 / row["execution_time_s"]),
    "gpu_hours": (Limit(at_most=1e6), lambda row: 0.1 * row["nodes"]),
}
#: Limit that four nodes miss → the value of a run that misses it.
MISSED = {
    "execution_time_s": (Limit(at_most=150.0), 151.0),
    "cost_usd": (Limit(at_most=0.08), 0.09),
    "test_accuracy": (Limit(at_least=0.8), 0.7),
}


def answer_of(made: Study) -> tuple[Answer, dict[int, Candidate]]:
    (found,) = answer_questions(made)
    return found, {each.row.nodes: each for each in found.candidates}


def study_with_unknown_limit(unknown: str, missed: str, misses: int, runs: int) -> Study:
    """Four nodes have no value of one limit, and miss a second one in this many runs."""
    times = {("east", n): around(s, runs=runs) for n, s in TIMES_S.items()}
    _, table, planned = measured(times)
    limits = {unknown: LOOSE[unknown][0], missed: MISSED[missed][0]}
    column = {"weak_scaling_efficiency": "throughput_examples_per_s"}.get(unknown, unknown)
    four = table["nodes"] == 4
    table[column] = [LOOSE[unknown][1](row) for row in table.to_dict("records")]
    table["energy_of"] = "GPUs"
    table.loc[four, column] = None
    if missed == "execution_time_s":
        limits[missed] = Limit(at_most=250.0)  # one node keeps it
        table.loc[four & (table["repeat"] <= misses), missed] = 251.0
    else:
        names = [missed, "quality"] if missed == "test_accuracy" else [missed]
        table.loc[four & (table["repeat"] <= misses), names] = MISSED[missed][1]
    question = Question(limits=limits)
    return Study(comparison_table(table, planned), table, planned, question=question)


@pytest.mark.parametrize("unknown", LOOSE)
@pytest.mark.parametrize("missed", MISSED)
def test_a_missed_limit_excludes_a_configuration_whatever_else_is_unknown(
    unknown: str, missed: str
) -> None:
    dice = random.Random(f"{SEED} {unknown} {missed}")
    runs = dice.randint(11, 14)
    found, named = answer_of(
        study_with_unknown_limit(unknown, missed, runs - dice.randint(0, runs // 2), runs)
    )
    column = "quality" if missed == "test_accuracy" else missed
    assert (named[4].state, named[4].missed) == (State.INFEASIBLE, (column,)), SEED
    assert found.support == SUPPORTED and found.recommended is named[2], SEED


@pytest.mark.parametrize("unknown", LOOSE)
@pytest.mark.parametrize("missed", MISSED)
def test_an_unknown_value_misses_no_limit_and_is_named(unknown: str, missed: str) -> None:
    """Fewer than half of the runs miss the other limit, or none: four nodes may be the best."""
    dice = random.Random(f"{SEED} {missed} {unknown}")
    runs = dice.randint(11, 14)
    made = study_with_unknown_limit(unknown, missed, dice.randint(0, (runs - 1) // 2), runs)
    found, named = answer_of(made)
    assert (named[4].state, named[4].missed) == (State.OPEN, ()), SEED
    assert found.support == INCONCLUSIVE, SEED
    assert "4 nodes" in headline.table(made)["sure"][0] and "misses" not in named[4].reason


# the target

#: What the epochs of runs on four nodes report, and the state that follows.
EPOCHS: dict[str, tuple[dict[str, Any], State]] = {
    "reached": ({"accuracy": 0.9, "test_accuracy": 0.95}, State.COMPARED),
    "missed": ({"accuracy": 0.9, "test_accuracy": 0.5}, State.INFEASIBLE),
    "not reported": ({}, State.OPEN),
}


def planned_of(
    limits: dict[str, Any], goal: str, gpus: int = 0, trainings: int = 1, runs: int = 11
) -> tuple[Manifest, Question]:
    block = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2, 4],
             "gpus_per_node": gpus, "repeats": runs}  # fmt: skip
    question = {"goal": goal, "limits": limits, "trainings": trainings}
    raw = raw_config((("grid",), [block]), (("question",), question))
    config = config_validation.convert_to_types(raw)
    return manifest_of(config), config.question


def study_of(planned: Manifest, question: Question, folder: Path) -> Study:
    runs, _ = runs_table.run_tables(planned.runs, folder, planned.targets)
    return Study(comparison_table(runs, planned), runs, planned, question=question)


@pytest.mark.parametrize("four", EPOCHS)
def test_a_target_of_a_quality_that_is_not_reported_is_unknown(four: str, tmp_path: Path) -> None:
    dice = random.Random(f"{SEED} {four}")
    planned, question = planned_of({"test_accuracy": {"at_least": 0.8}}, "time_to_target_s")
    for run in planned.runs:
        values, _ = EPOCHS[four if run.spec.point.nodes == 4 else "reached"]
        usual = {"loss": 0.1, "duration_s": 1.0, "test_loss": 0.5, "accuracy": None, **values}
        epochs = [Epoch(epoch=n, ended_s=4.0 * n, **usual) for n in (1, 2)]
        time_s = TIMES_S[run.spec.point.nodes] * dice.uniform(0.99, 1.01)
        reported = values.get("test_accuracy")
        write_record(tmp_path, run, time_s, epochs=tuple(epochs), test_accuracy=reported)
    made = study_of(planned, question, tmp_path)
    found, named = answer_of(made)
    assert named[4].state == EPOCHS[four][1]
    assert found.is_open == (four == "not reported")
    assert ("missed the target" in named[4].remark) == (four == "missed")
    if four == "not reported":
        assert named[4].reason == "reports no test accuracy" and found.support != SUPPORTED


@pytest.mark.parametrize(
    ("reached", "state", "support"),
    [
        (0, State.INFEASIBLE, NOT_COMPARED),
        (5, State.INFEASIBLE, NOT_COMPARED),
        (8, State.UNDECIDED, INCONCLUSIVE),
    ],
)
def test_a_target_that_no_configuration_is_shown_to_reach_was_measured(
    reached: int, state: State, support: str
) -> None:
    _, table, planned = measured({("east", n): around(s, runs=11) for n, s in TIMES_S.items()})
    table["target_reached"] = table["repeat"] <= reached
    table["time_to_target_s"] = table["execution_time_s"].where(table["target_reached"])
    planned = replace(planned, targets={"test_accuracy": 0.8})
    question = Question(goal="time_to_target_s")
    made = Study(comparison_table(table, planned), table, planned, question=question)
    found, named = answer_of(made)
    assert {each.state for each in named.values()} == {state}
    assert (found.support, found.leader) == (support, None)
    assert list(headline.table(made)["badge"]) == [support]
    decisions = decision.table(made)
    (row,) = decisions[decisions["goal"] == "time_to_target_s"].to_dict("records")
    assert row["support"] == support and f"in {reached} of 11 runs" in row["not_covered"]


@pytest.mark.parametrize(("reached", "state"), [(5, State.INFEASIBLE), (6, State.OPEN)])
def test_a_missed_target_excludes_a_configuration_without_all_times(
    reached: int, state: State
) -> None:
    """One of its runs resumed from a checkpoint: its time is unknown."""
    times = {("east", n): around(s, runs=11) for n, s in TIMES_S.items()}
    _, table, planned = measured(times)
    missed = (table["nodes"] == 4) & (table["repeat"] > reached)
    table["target_reached"] = ~missed
    table["time_to_target_s"] = table["execution_time_s"].mask(missed)
    one = (table["nodes"] == 4) & (table["repeat"] == 1)
    table.loc[one, ["execution_time_s", "time_to_target_s"]] = None
    planned = replace(planned, targets={"test_accuracy": 0.8})
    question = Question(goal="time_to_target_s")
    made = Study(comparison_table(table, planned), table, planned, question=question)
    assert answer_of(made)[1][4].state == state


# failed attempts

#: Two nodes take the fewest node-hours, if none of their attempts fails.
COSTLY_S = {1: 100.0, 2: 40.0, 4: 60.0}
LOST_S = 30.0


def write_attempts(planned: Manifest, folder: Path, failed: int) -> None:
    """Write runs that scatter by 1 %; on two nodes this many attempts failed before each."""
    dice = random.Random(SEED)
    for run in planned.runs:
        nodes = run.spec.point.nodes
        path = write_record(folder, run, COSTLY_S[nodes] * dice.uniform(0.99, 1.01))
        if nodes == 2:
            with changed(path) as record:
                record |= {"attempt": failed + 1}
            for number in range(1, failed + 1):
                write_failed_attempt(folder, run, number, wall_time_s=LOST_S)


@pytest.mark.parametrize(("goal", "gpus"), [("node_hours", 0), ("core_hours", 0), ("gpu_hours", 2)])
@pytest.mark.parametrize("failed", [0, 1, 2])
def test_goals_in_hours_have_the_failed_attempts(
    goal: str, gpus: int, failed: int, tmp_path: Path
) -> None:
    planned, question = planned_of({}, goal, gpus, trainings=7)
    write_attempts(planned, tmp_path, failed)
    found, named = answer_of(study_of(planned, question, tmp_path))
    assert found.support == SUPPORTED and found.recommended is named[1 if failed else 2], SEED
    all_of_them = found.all_trainings
    assert all_of_them is not None
    spent_s = COSTLY_S[1] if failed else 2 * COSTLY_S[2]
    assert all_of_them.node_hours == pytest.approx(7 * spent_s / 3600, rel=0.02)


@pytest.mark.parametrize(("limit", "gpus"), [("node_hours", 0), ("gpu_hours", 1)])
@pytest.mark.parametrize("failed", [0, 1, 2])
def test_limits_in_hours_count_the_failed_attempts(
    limit: str, gpus: int, failed: int, tmp_path: Path
) -> None:
    """At most 100 s of a node, and a margin for scatter: two nodes keep it with 80 s alone."""
    planned, question = planned_of({limit: {"at_most": 105 / 3600}}, "execution_time_s", gpus)
    write_attempts(planned, tmp_path, failed)
    found, named = answer_of(study_of(planned, question, tmp_path))
    assert named[2].missed == ((limit,) if failed else ()), SEED
    assert found.recommended is named[1 if failed else 2], SEED
