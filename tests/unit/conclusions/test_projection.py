"""Whole trainings from short runs: intervals that hold, and the check by runs of the whole."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import generator
import msgspec
import numpy as np
import pandas as pd
import pytest
from builders import manifest_of, raw_config, study_folder
from scipy.signal import lfilter
from tfscaling.conclusions import decision, headline, projection
from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.evidence import Study
from tfscaling.conclusions.projection import NO_INTERVAL, NOT_CHECKED, OUTSIDE, WITHIN
from tfscaling.estimation.intervals import count_beyond_limit, keeps_limit
from tfscaling.estimation.run_counts import KEPT_RUNS
from tfscaling.plan.run_durations import RunDurations
from tfscaling.record import run_record, step_estimates
from tfscaling.record.rank_report import Epoch, Execution
from tfscaling.record.run_record import RunRecord, ShortRun, StepBlock
from tfscaling.stages import write_tables
from tfscaling.study import config_validation
from tfscaling.study.config_types import Limit, Question
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.tables import comparison, data_warnings, display, runs_table, steady_epochs
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_values import is_known, point_of
from tfscaling.tables.run_samples import read_samples
from tfscaling.tables.table_files import row_dicts

#: Of the whole training: 1,000 steps of 0.1 s after 20 s of start-up.
STEPS, STEP_S, STARTUP_S = 1000, 0.1, 20.0
WHOLE_S = STARTUP_S + STEPS * STEP_S
PRICE = {"usd_per_node_hour": 3.6, "price_date": "2026", "price_source": "a list"}


def planned_study(repeats: int, **short: Any) -> Manifest:
    """Short runs and one of the whole, on one and on two nodes."""
    whole = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 100}
    block = {"platform": "cluster", "model": "mnist_cnn", "nodes": [1, 2]}
    raw = raw_config(
        (("recipes",), {"whole": whole, "short": {**whole, "stop_after_steps": 100, **short}}),
        (("grid",), [{**block, "recipe": "short", "repeats": repeats},
                     {**block, "recipe": "whole"}]),
        (("question",), {"limits": {"test_accuracy": {"at_least": 0.5}}}),
    )  # fmt: skip
    raw["platforms"]["cluster"].update(PRICE)
    return manifest_of(config_validation.convert_to_types(raw))


def short_run(step_s: float) -> ShortRun:
    return ShortRun(
        steps=100, steps_of_whole=STEPS, epochs=1, epochs_of_whole=100, examples_of_whole=64_000,
        evaluations=1, evaluations_of_whole=1, evaluation_time_s=0.5, epoch_turn_s=0.0,
        steady=(StepBlock(steps=50, duration_s=50 * step_s),) * 2,
    )  # fmt: skip


def study_of(
    runs_dir: Path, paces: list[float], whole_s: float | None, **short: Any
) -> tuple[Study, Any]:
    """Short runs on one node with steps of these paces; the whole took this time, if it ran.

    Returns the table of epochs, too.
    """
    planned, data = planned_study(len(paces), **short), generator.prepared("mnist")
    for run in planned.runs:
        spec = run.spec
        is_short = spec.recipe.stop_after_steps is not None
        if spec.point.nodes > 1 or (not is_short and whole_s is None):
            continue
        made = generator.scattered(spec, whole_s or WHOLE_S, random.Random(1), data)
        if is_short:
            step_s = STEP_S * paces[spec.repeat - 1]
            # the first step is among the steps, too
            phases = generator.phases(STARTUP_S + 100 * step_s, train_time_s=100 * step_s)
            made = msgspec.structs.replace(made, phases=phases, short_run=short_run(step_s))
        folder = runs_dir / spec.path
        folder.mkdir(parents=True)
        run_record.write_json(folder / run_record.RECORD, made)
    runs, epochs = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    return Study(comparison_table(runs, planned), runs, planned), epochs


@pytest.mark.parametrize(
    ("paces", "whole_s", "check"),
    [
        ([1.0, 1.02, 0.98], WHOLE_S, WITHIN),
        ([1.0, 1.02, 0.98], 1.5 * WHOLE_S, OUTSIDE),
        ([1.0, 1.02, 0.98], None, NOT_CHECKED),
        ([1.0, 1.02], WHOLE_S, NO_INTERVAL),
    ],
)
def test_a_run_of_the_whole_checks_the_projection(
    tmp_path: Path, paces: list[float], whole_s: float | None, check: str
) -> None:
    study, _ = study_of(tmp_path, paces, whole_s)
    table = projection.table(study)
    assert list(table.columns) == list(projection.COLUMNS)
    (row,) = row_dicts(table)
    assert (row["recipe"], row["whole_recipe"], row["check"]) == ("short", "whole", check)
    assert (row["projected_from_steps"], row["projected_to_steps"]) == (100, STEPS)
    assert row["execution_time_s"] == pytest.approx(WHOLE_S, rel=0.01)
    assert row["startup_s"] == pytest.approx(STARTUP_S)
    assert row["node_hours"] == pytest.approx(row["execution_time_s"] / 3600)
    assert row["cost_usd"] == pytest.approx(row["execution_time_s"] / 1000)
    if len(paces) > 2:
        assert row["execution_time_s_low"] < WHOLE_S < row["execution_time_s_high"]
        assert row["cost_usd_low"] == pytest.approx(row["execution_time_s_low"] / 1000)
    if whole_s:
        assert row["whole_execution_time_s"] == pytest.approx(whole_s)
    assert len(projection.as_text(table).cells) == 1
    drawn = projection.add_intervals(study.comparison, table)
    is_short = (drawn["recipe"] == "short") & (drawn["nodes"] == row["nodes"])
    (high,) = drawn.loc[is_short, "execution_time_s_high"]
    assert high == row["execution_time_s_high"] or not is_known(row["execution_time_s_high"])
    pd.testing.assert_frame_equal(drawn[~is_short], study.comparison[~is_short])
    choice, *_ = (c for c in answers_by_goal(study) if c.question.endswith("short"))
    answer, *_ = row_dicts(headline.table(study))
    decided = decision.DecisionRow.from_answer(choice)
    if len(paces) > 2:
        assert choice.whole_run == (row["execution_time_s_low"], row["execution_time_s_high"])
        assert str(choice.whole_run) in decided.text and str(choice.whole_run) in answer["sure"]
        assert decided.whole_run_high_s == row["execution_time_s_high"]
    else:
        assert choice.whole_run is None and not is_known(decided.whole_run_high_s)


def test_the_plan_knows_how_long_the_whole_takes_from_short_runs(tmp_path: Path) -> None:
    planned = planned_study(2)
    study_of(tmp_path, [1.0, 1.0], None)
    short, whole = planned.runs[0].spec, planned.runs[-2].spec
    assert (short.point.recipe, whole.point.recipe) == ("short", "whole")
    config = config_validation.convert_to_types(raw_config())
    durations = RunDurations(config, planned.runs, tmp_path)
    found, own = durations.estimate(whole.point), durations.estimate(short.point)
    assert (found.source, own.source) == ("projected, 2 short runs", "measured, 2 runs")
    assert found.duration_s - own.duration_s == pytest.approx(900 * STEP_S)


def test_a_run_of_another_training_checks_nothing(tmp_path: Path) -> None:
    study, _ = study_of(tmp_path, [1.0, 1.0], WHOLE_S, learning_rate=0.2)
    (row,) = row_dicts(projection.table(study))
    assert (row["whole_recipe"], row["check"]) == (None, NOT_CHECKED)


def test_short_and_whole_runs_are_points_of_their_own_and_the_short_ones_are_marked(
    tmp_path: Path,
) -> None:
    study, epochs = study_of(tmp_path, [1.0, 1.02], WHOLE_S)
    short, _, whole, _ = study.points
    assert (short["recipe"], short["runs"], whole["runs"]) == ("short", 2, 1)
    assert (short["projected_from_steps"], short["projected_to_steps"]) == (100, STEPS)
    assert not is_known(whole["projected_from_steps"])
    assert short["examples_trained"] == 64_000
    # quality is not projected
    assert not any(is_known(short[n]) for n in ("loss", "test_accuracy", "quality", "target"))
    assert is_known(whole["test_accuracy"]) and is_known(whole["target"])
    assert set(epochs["recipe"]) == {"whole"}
    found = {
        warning.kind: warning
        for warning in data_warnings.find_warnings(study.comparison, study.runs)
    }
    assert [point.recipe for point in found["projected"].points] == ["short"]
    shown = comparison.comparison_text_table(study.comparison, "T", ["execution_time_s"])
    assert shown.cells[display.PROJECTED_COLUMN].tolist()[0] == "100 of 1,000"
    assert shown.cells[display.PROJECTED_COLUMN].tolist()[2] == display.MISSING
    choices = {(c.question, c.goal): decision.answer_sentence(c) for c in answers_by_goal(study)}
    assert "projected" in choices["mnist_cnn, short", "execution_time_s"]
    assert ("mnist_cnn, short", "quality") not in choices  # the same training on any nodes
    of_quality = answers_by_goal(replace(study, question=Question(goal="quality")))
    assert any("not projected" in decision.answer_sentence(c) for c in of_quality)
    assert "projected" not in choices["mnist_cnn, whole", "execution_time_s"]
    assert ("mnist_cnn, short", "time_to_target_s") not in choices
    assert "projected" in headline.add_warnings("", list(found.values()))


#: Nodes → (seconds before the first epoch, seconds of an epoch); an evaluation takes 2 s.
PACES = {1: (10.0, 6.0), 2: (30.0, 4.0)}
EPOCHS, EVALUATION_S = 5, 2.0


def complete_run(run: PlannedRun) -> RunRecord:
    """A run of EPOCHS epochs whose pace is one of PACES; with each repeat longer by 0.5 %."""
    before_s, epoch_s = PACES[run.spec.point.nodes]
    epoch_s *= 1 + 0.005 * run.spec.repeat
    epochs = [
        Epoch(epoch=n, loss=0.5, accuracy=0.8, duration_s=epoch_s, test_accuracy=0.8,
              evaluation_time_s=EVALUATION_S, ended_s=before_s + n * (epoch_s + EVALUATION_S))
        for n in range(1, EPOCHS + 1)
    ]  # fmt: skip
    reports = [
        generator.training_report(rank, examples_trained=384 * EPOCHS)
        for rank in range(run.spec.geometry.tasks)
    ]
    phases = generator.phases(
        before_s + EPOCHS * epoch_s, train_time_s=EPOCHS * epoch_s, evaluation_time_s=10.0
    )
    made = generator.record(run.spec, reports, phases, generator.prepared("mnist"))
    metrics = msgspec.structs.replace(made.metrics, epochs=tuple(epochs))
    return msgspec.structs.replace(made, metrics=metrics)


@pytest.mark.parametrize(
    ("whole_training", "time_s", "nodes"),
    [(None, 10 + 5 * 6, 1), ({"epochs": 5}, 10 + 5 * 6, 1), ({"epochs": 90}, 30 + 90 * 4, 2)],
)
def test_complete_runs_are_judged_by_the_whole_training_that_is_asked_about(
    tmp_path: Path, whole_training: dict[str, int] | None, time_s: float, nodes: int
) -> None:
    recipe = {
        "global_batch_size": 128, "learning_rate": 0.1, "epochs": EPOCHS,
        "evaluation_interval_epochs": 1,
    }  # fmt: skip
    block = {"platform": "cluster", "model": "mnist_cnn", "nodes": [1, 2]}
    limit = {"at_most": 1.2 * time_s}
    question = {"whole_training": whole_training, "limits": {"execution_time_s": limit}}
    raw = raw_config(
        (("recipes",), {"few": recipe}),
        (("grid",), [{**block, "recipe": "few", "repeats": KEPT_RUNS}]),
        (("question",), question),
    )
    raw["platforms"]["cluster"].update(PRICE)
    config = config_validation.convert_to_types(raw)
    planned = manifest_of(config)
    assert [run.spec.parameters_hash for run in planned.runs] == [
        run.spec.parameters_hash
        for run in manifest_of(msgspec.structs.replace(config, question=Question())).runs
    ]
    for run in planned.runs:
        folder = tmp_path / run.spec.path
        folder.mkdir(parents=True)
        run_record.write_json(folder / run_record.RECORD, complete_run(run))
    runs, _ = runs_table.run_tables(planned.runs, tmp_path, planned.targets)
    study = Study(comparison_table(runs, planned), runs, planned, question=config.question)
    row = next(row for row in study.points if row["nodes"] == nodes)
    assert row["execution_time_s"] == pytest.approx(time_s, rel=0.05)
    assert row["node_hours"] == pytest.approx(nodes * row["execution_time_s"] / 3600, rel=1e-3)
    is_projected = bool(whole_training and whole_training["epochs"] > EPOCHS)
    assert is_known(row["projected_from_steps"]) == is_projected
    assert is_known(row["quality"]) != is_projected  # quality is not projected
    if is_projected:
        assert row["evaluation_time_s"] == pytest.approx(90 * EVALUATION_S)
        assert row["examples_trained"] == 90 * 384
    choices = {choice.goal: choice for choice in answers_by_goal(study)}
    taken = choices["execution_time_s"]
    assert taken.point is not None
    assert (taken.point.nodes, taken.support) == (nodes, "supported")
    assert [each.missed for each in taken.not_covered] == [("execution_time_s",)]


def test_the_error_of_the_projection_is_in_decisions_and_limits(tmp_path: Path) -> None:
    study, _ = study_of(tmp_path, [1.0, 1.001] * 3, None)
    runs = study.runs.assign(projection_error_s=0.2 * study.runs["execution_time_s"])
    sure, unsure = study.samples, read_samples(runs)
    (point,) = {point_of(row) for row in study.points if is_known(row["execution_time_s"])}
    metric, limit = "execution_time_s", Limit(at_most=1.1 * WHOLE_S)
    errors = {each: each.projection_error(point, metric) for each in (sure, unsure)}
    assert errors[sure] < 1e-6 and errors[unsure] == pytest.approx(0.2)
    assert unsure.projection_error(point, "rank_memory_gb") == 0
    variances = [
        each.estimate_configurations(metric, [point]).variance[0] for each in (sure, unsure)
    ]
    assert variances[0] < 0.01**2 and variances[1] == pytest.approx(0.2**2, rel=0.01)
    kept = [
        keeps_limit(each.values_in_unit(point, metric), limit, 0.025, error)
        for each, error in errors.items()
    ]
    assert kept == [True, False]
    values = 100 * unsure.values_in_unit(point, metric)
    # no number of runs makes it smaller
    assert not keeps_limit(values, limit, 0.025, 0.2)
    assert not count_beyond_limit([1.2 * value for value in values], limit, 0.025, 0.2)


@pytest.mark.parametrize("runs", [3, 4, 6])
def test_the_interval_holds_a_run_of_the_whole_in_95_of_100(runs: int) -> None:
    numbers = np.random.default_rng(runs)
    held = 0
    for _ in range(600):
        startup_s = STARTUP_S + numbers.normal(0, 2, runs + 1)
        pace = numbers.normal(1, 0.03, runs + 1)
        # the steps within a short run scatter, too
        times_s = startup_s + STEPS * STEP_S * (pace + numbers.normal(0, 0.01, runs + 1))
        whole_s = startup_s[-1] + STEPS * STEP_S * pace[-1]
        found = projection.projection_interval(
            times_s[:-1].tolist(), [STEPS * STEP_S * 0.01] * runs
        )
        assert found is not None
        held += found.contains(whole_s)
    assert held / 600 >= 0.93


def steps_of(kind: str, size: float, numbers: np.random.Generator) -> np.ndarray:
    """Seconds of the 500 steps of a short run, 1 s at its end on average."""
    step, errors = np.arange(500), numbers.standard_normal(500)
    usual = {
        "slow start": np.where(step < size, 1.3, 1.0),
        "late change": np.where(step < size, 1 / 0.6, 1.0),
        "decay": 1 + 0.5 * np.exp(-step / size),
        "drift": 1 + size * (1 - step / 500),
    }
    if kind == "dependent":
        errors = lfilter([math.sqrt(1 - size**2)], [1, -size], errors)
    made = usual.get(kind, np.ones(500)) * np.exp(0.05 * errors)
    return np.asarray(made * numbers.normal(1, 0.01))


@pytest.mark.parametrize(
    ("kind", "size", "refused"),
    [
        ("slow start", 200, (0.0, 0.0)), ("late change", 400, (1.0, 1.0)),
        ("decay", 150, (1.0, 1.0)), ("drift", 0.02, (0.0, 0.1)), ("drift", 0.04, (0.0, 0.2)),
        ("drift", 0.1, (0.5, 0.9)), ("dependent", 0.99, (0.1, 0.5)),
    ],
)  # fmt: skip
def test_steps_that_change_are_projected_as_the_page_says(
    kind: str, size: float, refused: tuple[float, float]
) -> None:
    numbers, held, whole_s = np.random.default_rng(1), [], 50_000.0
    short = msgspec.structs.replace(short_run(1.0), steps=500, steps_of_whole=50_500)
    spec = planned_study(1).runs[0].spec
    record = generator.record(spec, [generator.training_report()], generator.phases(500.0))
    trials, ended = 60, 0
    for _ in range(trials):
        found = []
        for _ in range(4):
            steps = [Execution(1, n, 1, s) for n, s in enumerate(steps_of(kind, size, numbers))]
            steady = step_estimates.join_steps_to_blocks(steps[1:])
            made = msgspec.structs.replace(short, steady=steady)
            projected = step_estimates.project_training(
                msgspec.structs.replace(record, short_run=made)
            )
            assert projected is not None
            if projected.trend.is_over:
                found.append((projected.phases.execution_time_s - 500, projected.error_s))
        ended += len(found) == 4
        if (
            interval := projection.projection_interval(*map(list, zip(*found, strict=True)))
            if found
            else None
        ):
            held.append(interval.contains(whole_s))
            middle = float(np.median([time_s for time_s, _ in found]))
            assert middle == pytest.approx(whole_s, rel=0.06)
    low, high = refused
    assert low <= 1 - ended / trials <= high
    assert not held or np.mean(held) >= 0.85


def test_two_short_runs_have_no_interval_and_runs_that_agree_have_that_of_their_steps() -> None:
    assert projection.projection_interval([100.0, 101.0], [1.0, 1.0]) is None
    alike = projection.projection_interval([100.0] * 4, [2.0] * 4)
    assert alike is not None
    assert alike.low_s < 95 and alike.high_s > 105


#: Seconds of the first epochs of one node; two nodes always take 56 s, and are slower in the end.
FALLING_S = (100.0, 80.0, 65.0, 58.0, 54.0, 52.0, 51.0, 50.0, 50.0, 50.0)


def falling_study(runs_dir: Path, epochs: int, repeats: int, seed: int) -> Study:
    """Runs of a few epochs; those of one node get shorter."""
    recipe = {"global_batch_size": 128, "learning_rate": 0.1, "epochs": epochs}
    block = {"platform": "cluster", "model": "mnist_cnn", "nodes": [1, 2], "recipe": "few"}
    raw = raw_config(
        (("recipes",), {"few": recipe}),
        (("grid",), [{**block, "repeats": repeats}]),
        (("question",), {"whole_training": {"epochs": 90}}),
    )
    planned, dice = manifest_of(config_validation.convert_to_types(raw)), random.Random(seed)
    for run in planned.runs:
        level = dice.gauss(1, 0.01)
        times_s = [
            level * dice.gauss(1, 0.005) * (FALLING_S[n] if run.spec.point.nodes == 1 else 56.0)
            for n in range(epochs)
        ]
        made = generator.record(
            run.spec,
            [generator.training_report(n, examples_trained=384 * epochs)
             for n in range(run.spec.geometry.tasks)],
            generator.phases(10 + sum(times_s), train_time_s=sum(times_s)),
            generator.prepared("mnist"),
        )  # fmt: skip
        ends_s = [10 + s for s in itertools.accumulate(times_s)]
        shown = [
            Epoch(epoch=n, loss=0.5, accuracy=0.8, duration_s=s, ended_s=end_s)
            for n, (s, end_s) in enumerate(zip(times_s, ends_s, strict=True), 1)
        ]
        metrics = msgspec.structs.replace(made.metrics, epochs=tuple(shown))
        folder = runs_dir / run.spec.path
        folder.mkdir(parents=True)
        run_record.write_json(
            folder / run_record.RECORD, msgspec.structs.replace(made, metrics=metrics)
        )
    runs, _ = runs_table.run_tables(planned.runs, runs_dir, planned.targets)
    return Study(comparison_table(runs, planned), runs, planned)


@pytest.mark.parametrize(
    ("epochs", "repeats", "is_projected"),
    # the last two of seven epochs differ by 2 %: some sets are refused
    [(3, 6, False), (4, 6, False), (5, 20, False), (7, 6, None), (7, 20, None), (10, 6, True)],
)
def test_epochs_that_fall_support_no_claim_of_the_whole(
    tmp_path: Path, epochs: int, repeats: int, is_projected: bool | None
) -> None:
    study = falling_study(tmp_path, epochs, repeats, seed := random.randrange(10**6))
    one, two = (point_of(row) for row in study.points)
    found_projected = is_known(study.points[0]["execution_time_s"])
    assert is_projected in (found_projected, None), seed
    assert is_known(study.points[1]["execution_time_s"])
    (found,) = study.samples.compare_pairs("execution_time_s", [(two, one)], 1)
    assert found is None or found.support != "supported" or found.ratio < 1, seed
    warned = study.runs.loc[study.runs["nodes"] == 1, "warnings"]
    assert warned.str.contains("step time of the short run changed").all(), seed
    assert warned.str.contains("nothing is projected").all() != found_projected, seed


def test_epochs_that_only_scatter_are_projected(tmp_path: Path) -> None:
    dice = np.random.default_rng(seed := random.randrange(10**6))
    refused = 0
    for _ in range(300):
        runs, epochs = int(dice.integers(2, 21)), int(dice.integers(2, 12))
        times_s = 50 * np.exp(0.05 * dice.standard_normal((runs, epochs)))
        blocks = [[StepBlock(steps=1, duration_s=float(s)) for s in own] for own in times_s]
        refused += steady_epochs.first_steady_block(blocks) > 0
    assert refused <= 12, seed
    flat = [StepBlock(steps=1, duration_s=50.0)] * 2
    assert steady_epochs.first_steady_block([flat]) == steady_epochs.first_steady_block([]) == 0
    falls = [StepBlock(steps=1, duration_s=s) for s in (60.0, 50.0)]
    assert steady_epochs.first_steady_block([falls] * 3) == 1
    assert steady_epochs.first_steady_block([falls, flat[:1]]) == 0


def test_a_projected_time_has_one_interval_in_every_table(tmp_path: Path) -> None:
    config = config_validation.convert_to_types(
        raw_config(
            (("recipes", "weak", "epochs"), 100), (("recipes", "weak", "stop_after_steps"), 100),
            (("grid", 0, "repeats"), 6), (("grid", 0, "nodes"), 1),
        )
    )  # fmt: skip
    planned, dice = manifest_of(config), random.Random(seed := random.randrange(10**6))
    for run in planned.runs:
        step_s = STEP_S * dice.gauss(1, 0.03)
        made = generator.scattered(run.spec, WHOLE_S, random.Random(1), generator.prepared("mnist"))
        phases = generator.phases(STARTUP_S + 100 * step_s, train_time_s=100 * step_s)
        made = msgspec.structs.replace(made, phases=phases, short_run=short_run(step_s))
        folder = tmp_path / "runs" / run.spec.path
        folder.mkdir(parents=True)
        run_record.write_json(folder / run_record.RECORD, made)
    runs, epochs = runs_table.run_tables(planned.runs, tmp_path / "runs", planned.targets)
    study = study_folder(tmp_path / "study", config, planned, runs=runs, epochs=epochs)
    write_tables.compare(study)
    write_tables.analyse(study)
    (point,), (short,) = (
        row_dicts(study.read_table("comparison")),
        row_dicts(study.read_table("projection")),
    )
    for name in ("execution_time_s", "node_hours"):
        for end in ("low", "high"):
            assert point[f"{name}_{end}"] == pytest.approx(short[f"{name}_{end}"]), seed
