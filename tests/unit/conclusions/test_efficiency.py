"""Limits of scaling efficiency: kept, missed, undecided, and not known without a baseline."""

from __future__ import annotations

import random
from typing import Any

import efficiency as simulation
import numpy as np
import pandas as pd
import pytest
from measured import around, measured
from seeds import drawn_seed
from special_cases import is_missed, simulate
from tfscaling.conclusions import findings, next_steps
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.answers.candidate_types import Candidate, State
from tfscaling.conclusions.answers.efficiency import RatioToBaseline
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED
from tfscaling.study.config_types import EFFICIENCIES, Limit, Question
from tfscaling.tables.comparison import comparison_table

OF_RUN, OF_TRAINING = EFFICIENCIES
SEED = drawn_seed()


def study(
    times: dict[int, list[float]], at_least: float, name: str = OF_RUN, **columns: Any
) -> Study:
    """A study of one platform with a limit of an efficiency."""
    _, runs, planned = measured({("east", n): own for n, own in times.items()})
    for column, value_of in columns.items():
        runs[column] = [value_of(row) for row in runs.to_dict("records")]
    asked = Question(limits={name: Limit(at_least=at_least)})
    return Study(comparison_table(runs, planned), runs, planned, question=asked)


def candidates(made: Study) -> tuple[Answer, dict[int, Candidate]]:
    (found,) = answer_questions(made)
    return found, {each.row.nodes: each for each in found.candidates}


def runs_of(value: float, runs: int = KEPT_RUNS) -> list[float]:
    return around(value, 0.01, runs)


def test_a_limit_excludes_configurations_whose_runs_miss_it() -> None:
    dice = random.Random(SEED)
    kept, few = sorted(dice.sample(range(2, 9), 2))
    one_s, at_least = dice.uniform(10, 1000), dice.uniform(0.5, 0.8)
    times = {
        1: runs_of(one_s),
        kept: runs_of(one_s / kept / (at_least * 1.1)),
        few: runs_of(one_s / few / (at_least * 0.8)),
    }
    found, named = candidates(study(times, at_least))
    assert found.support == SUPPORTED, SEED
    assert found.recommended is named[kept]
    assert (named[1].state, named[1].kept_runs) == (State.COMPARED, None)
    assert (named[kept].state, named[kept].kept_runs) == (State.COMPARED, KEPT_RUNS)
    assert named[few].state == State.INFEASIBLE and named[few].missed == (OF_RUN,)


def test_what_is_near_the_limit_is_undecided() -> None:
    _, named = candidates(study({1: runs_of(80.0), 2: runs_of(50.0)}, 0.8))
    assert named[2].state == State.UNDECIDED and named[2].undecided == (OF_RUN,)


@pytest.mark.parametrize("runs", [0, 1, RUNS_FOR_INTERVAL - 1])
def test_without_enough_runs_of_the_baseline_nothing_is_shown(runs: int) -> None:
    """The baseline failed, or has too few runs: the reason names it."""
    made = study({1: runs_of(80.0, runs), 2: runs_of(44.0), 4: runs_of(60.0)}, 0.7)
    found, named = candidates(made)
    for nodes in (2, 4):
        assert named[nodes].state == (State.UNDECIDED if runs else State.OPEN)
        assert "its baseline, 1 node" in named[nodes].reason
    assert found.support != SUPPORTED


@pytest.mark.parametrize("runs", [0, KEPT_RUNS])
def test_a_baseline_that_is_run_again_is_the_only_next_step(runs: int) -> None:
    times = {1: runs_of(80.0, runs), 2: runs_of(44.0)}
    grown = {"examples_trained": lambda row: 60_000 * row["nodes"]} if runs else {}
    rates = {"throughput_examples_per_s": lambda row: 60_000 / row["execution_time_s"]}
    made = study(times, 0.7, OF_TRAINING if runs else OF_RUN, **grown, **rates)
    assert "its baseline, 1 node" in candidates(made)[1][2].reason
    kinds = [*next_steps.table(made)["kind"]]
    assert ("work" if runs else "unfinished") in kinds and "open" not in kinds


def test_an_excluded_baseline_is_named() -> None:
    made = study({1: runs_of(80.0), 2: runs_of(44.0)}, 0.7)
    runs = made.runs.copy()
    runs.loc[runs["nodes"] == 1, "status"] = "diverged"
    closed = Study(
        comparison_table(runs, made.manifest), runs, made.manifest, question=made.question
    )
    found, named = candidates(closed)
    assert named[2].state == State.OPEN and "diverged" in named[2].reason
    assert found.support == INCONCLUSIVE


def throughput(startup_s: float) -> Any:
    """Examples per second of a run after its start-up."""

    def value(row: dict[str, Any]) -> float:
        return 60_000 / (float(row["execution_time_s"]) - startup_s)

    return value


@pytest.mark.parametrize("startup_s", [0.0, 20.0])
def test_start_up_alone_misses_no_limit(startup_s: float) -> None:
    """On two nodes the training takes half the time, or more where there is no start-up."""
    times = {1: runs_of(60.0), 2: runs_of(40.0)}
    made = study(times, 0.9, throughput_examples_per_s=throughput(startup_s))
    _, named = candidates(made)
    assert named[2].state == (State.UNDECIDED if startup_s else State.INFEASIBLE)
    assert ("1.00 without start-up" in named[2].reason) == (startup_s > 0)


def test_weak_scaling_is_of_throughput_and_has_a_finding() -> None:
    """Two nodes train twice the examples in 1.25 times the time."""
    times = {1: runs_of(60.0), 2: runs_of(75.0)}
    made = study(
        times,
        0.9,
        OF_TRAINING,
        examples_trained=lambda row: 60_000 * row["nodes"],
        throughput_examples_per_s=lambda row: 60_000 * row["nodes"] / row["execution_time_s"],
    )
    (row,) = [row for row in made.points if row.nodes == 2]
    assert row.weak_scaling_efficiency == pytest.approx(0.8)
    low, high = row.ends["weak_scaling_efficiency_low"], row.ends["weak_scaling_efficiency_high"]
    assert 0.78 < low < 0.8 < high < 0.82 and np.isnan(row.scaling_efficiency)
    rows = findings.table(made).query("kind == 'weak scaling'")
    (found,) = rows.to_dict("records")
    assert found["support"] == SUPPORTED and found["ratio"] == pytest.approx(0.8)
    assert found["low"] <= low and high <= found["high"]
    assert "on 2 nodes has" in found["text"] and "of one on 1 node, without" in found["text"]


def test_strong_scaling_has_no_weak_efficiency() -> None:
    made = study({1: runs_of(60.0), 2: runs_of(40.0)}, 0.5, throughput_examples_per_s=throughput(0))
    runs = made.runs.assign(batch_scaling="strong")
    assert comparison_table(runs, made.manifest)["weak_scaling_efficiency"].isna().all()
    weak = pd.Series(comparison_table(made.runs, made.manifest)["weak_scaling_efficiency"])
    assert weak.tolist() == pytest.approx([1.0, 0.75])


def test_a_run_beyond_the_limit_or_few_runs_show_nothing() -> None:
    own, base = around(1.0, 0.01, 11), around(2.0, 0.01, 6)

    def ratio(
        values: list[float] = own, baseline_values: list[float] = base, shared_error: float = 0.0
    ) -> RatioToBaseline:
        return RatioToBaseline(values, baseline_values, 0.025, shared_error)

    assert ratio().is_kept(0.6) and not ratio().is_missed(0.6, 11)
    assert not ratio([*own[:-1], 1.3]).is_kept(0.6)
    assert not ratio(own[:5]).is_kept(0.6) and not ratio(baseline_values=base[:5]).is_kept(0.6)
    assert not ratio(shared_error=0.2).is_kept(0.6)
    assert ratio().is_missed(0.4, 22) and not ratio().is_missed(0.4, 23)
    assert not ratio(own[:5]).is_missed(0.4, 5)
    assert not ratio(baseline_values=base[:5]).is_missed(0.4, 11)
    assert not ratio(shared_error=0.2).is_missed(0.4, 11)


@pytest.mark.full
@pytest.mark.parametrize("cell", simulation.CELLS[::7], ids=lambda cell: cell.name)
def test_simulated_statements_are_seldom_false(cell: Any) -> None:
    rates = simulate(cell, 200)
    assert not is_missed(rates.false, 200) and rates.false <= 2 * 0.05
