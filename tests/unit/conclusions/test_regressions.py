"""A study against another one: which points are compared, with what verdict, and what differed."""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import REPOSITORY
from measured import Times, around, measured
from msgspec import structs
from tfscaling.conclusions import regressions
from tfscaling.conclusions.evidence import Reference, Study
from tfscaling.conclusions.time_changes import judge_changes
from tfscaling.stages import write_tables as stages
from tfscaling.study.config_validation import ConfigError
from tfscaling.tables.comparison import DIFFERENT_WORK, comparison_table

USUAL: Times = {("east", nodes): around(40 / nodes) for nodes in (1, 2, 4)}


def study_of(times: Times, **facts: Any) -> Study:
    """A study whose valid runs have these facts, and their own times of start."""
    comparison, runs, planned = measured(times)
    runs = runs.assign(hosts="n1", started=[f"{facts.get('day', 1)}: {n}" for n in runs.index])
    return Study(comparison, runs.assign(**{k: v for k, v in facts.items() if k in runs}), planned)


def written(study: Study, folder: Path) -> Reference:
    """The study as the reference of another, read from its files."""
    (folder / "details").mkdir(parents=True)
    study.manifest.write(folder / "details/manifest.json")
    study.comparison.to_csv(folder / "comparison.csv", index=False)
    study.runs.to_csv(folder / "runs.csv", index=False)
    return Reference.read(folder)


def against(study: Study, other: Study, folder: Path) -> list[dict[str, Any]]:
    found = regressions.table(replace(study, reference=written(other, folder / "before")))
    assert list(found.columns) == list(regressions.COLUMNS)
    return [{str(key): value for key, value in row.items()} for row in found.to_dict("records")]


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["verdict"] for row in rows]


def test_slower_faster_and_the_same(tmp_path: Path) -> None:
    now = {("east", 1): around(60.0), ("east", 2): around(20.0), ("east", 4): around(5.0)}
    rows = against(study_of(now, day=2), study_of(USUAL), tmp_path)
    assert verdicts(rows) == ["slower", "same", "faster"]
    assert [row["time_ratio"] for row in rows] == pytest.approx([1.5, 1.0, 0.5])
    assert rows[0]["time_ratio_low"] < 1.5 < rows[0]["time_ratio_high"]
    assert [row["comparisons"] for row in rows] == [3, 3, 3]
    assert [row["reference_execution_time_s"] for row in rows] == [40.0, 20.0, 10.0]


def test_other_work_is_not_compared(tmp_path: Path) -> None:
    now = study_of(USUAL, day=2)
    comparison = now.comparison.assign(
        **{f"examples_trained{end}": 30_000 for end in ("", "_min", "_max")}
    )
    rows = against(replace(now, comparison=comparison), study_of(USUAL), tmp_path)
    assert verdicts(rows) == ["not compared"] * 3
    assert all(row["reason"].startswith(DIFFERENT_WORK) for row in rows)


def test_points_of_one_study_alone_are_rows(tmp_path: Path) -> None:
    now = {("east", 1): around(40.0), ("east", 8): around(5.0)}
    rows = against(study_of(now, day=2), study_of(USUAL), tmp_path)
    assert [(row["nodes"], row["verdict"]) for row in rows] == [
        (1, "same"), (8, "not compared"), (2, "not compared"), (4, "not compared"),
    ]  # fmt: skip


def test_reasons_are_a_column_if_there_are_any(tmp_path: Path) -> None:
    for name, times in {"alike": USUAL, "more": {**USUAL, ("east", 8): around(5.0)}}.items():
        (tmp_path / name).mkdir()
        rows = against(study_of(times, day=2), study_of(USUAL), tmp_path / name)
        assert ("reason" in regressions.as_text(pd.DataFrame(rows)).cells) == (name == "more")


def test_a_point_that_is_not_run_to_its_end_is_not_lost(tmp_path: Path) -> None:
    study = study_of({**USUAL, ("east", 4): []}, day=2)
    left = (study.runs["nodes"] == 4) & (study.runs["repeat"] > 1)
    rest = replace(study, runs=study.runs.assign(status=study.runs["status"].mask(left, "missing")))
    assert verdicts(against(rest, study_of(USUAL), tmp_path)) == ["same", "same", "not compared"]


@pytest.mark.parametrize(
    ("valid", "valid_there", "verdict", "reasons"),
    [
        (4, 6, "same", ()),
        (3, 6, "undecided", ("3 here, 6 there",)),
        (0, 6, "lost", ("6 failed",)),
        (1, 6, "failing", ("5 of 6 runs", "0 of 6 there")),
        (2, 6, "failing", ("4 of 6 runs", "0 of 6 there")),
        (2, 4, "undecided", ("4 of 6 runs", "2 of 6 there")),
    ],
)
def test_a_point_of_which_runs_fail(
    valid: int, valid_there: int, verdict: str, reasons: tuple[str, ...], tmp_path: Path
) -> None:
    now, before = ({**USUAL, ("east", 1): around(40.0)[:n]} for n in (valid, valid_there))
    rows = against(study_of(now, day=2), study_of(before), tmp_path)
    assert verdicts(rows) == [verdict, "same", "same"]
    assert all(reason in rows[0]["reason"] for reason in reasons)
    assert bool(stages.describe_regressions(pd.DataFrame(rows))) == (verdict in ("lost", "failing"))


@pytest.mark.parametrize(
    ("bad", "runs", "bad_there", "runs_there", "is_failing"),
    [
        (5, 6, 0, 6, True), (4, 6, 1, 6, True), (3, 6, 0, 6, False), (4, 6, 2, 6, False),
        (3, 4, 0, 4, True), (3, 4, 1, 4, True), (2, 4, 0, 4, False), (0, 6, 0, 6, False),
    ],
)  # fmt: skip
def test_failing_is_most_runs_here_and_a_quarter_there(
    bad: int, runs: int, bad_there: int, runs_there: int, is_failing: bool
) -> None:
    assert regressions.is_failing(bad, runs, bad_there, runs_there) is is_failing


def without_times(study: Study, nodes: int, timed: int) -> Study:
    """The same with so many timed runs of a point: the others went on from a checkpoint."""
    resumed = (study.runs["nodes"] == nodes) & (study.runs["repeat"] > timed)
    runs = study.runs.assign(execution_time_s=study.runs["execution_time_s"].mask(resumed))
    return replace(study, runs=runs, comparison=comparison_table(runs, study.manifest))


@pytest.mark.parametrize("timed", [1, 2, 3])
def test_runs_without_a_time_are_not_counted(timed: int, tmp_path: Path) -> None:
    now = without_times(study_of(USUAL, day=2), nodes=2, timed=timed)
    rows = against(now, study_of(USUAL), tmp_path)
    assert verdicts(rows) == ["same", "undecided", "same"]
    assert rows[1]["runs"] == timed and f"{timed} here, 6 there" in rows[1]["reason"]
    assert [row["comparisons"] for row in (rows[0], rows[2])] == [2, 2]


def test_the_same_runs_are_no_second_sweep(tmp_path: Path) -> None:
    rows = against(study_of(USUAL), study_of(USUAL), tmp_path)
    assert verdicts(rows) == ["not compared"] * 3


def test_versions_and_parameters_that_differ_are_named(tmp_path: Path) -> None:
    before = study_of(USUAL, git_commit="a" * 40, tensorflow="2.20.0", kernel="6.1")
    now = study_of(USUAL, day=2, git_commit="b" * 40, tensorflow="2.21.0", kernel="6.1")
    reference = written(before, tmp_path / "before")
    parameters = {
        point: {**values, "precision": "mixed_bfloat16", "unknown_now": 1}
        for point, values in reference.parameters.items()
    }
    found = regressions.table(replace(now, reference=replace(reference, parameters=parameters)))
    (differs,) = set(found["differs"])
    assert [each.partition(":")[0] for each in differs.split("; ")] == [
        "precision", "tensorflow", "git_commit",
    ]  # fmt: skip


def test_a_key_that_an_earlier_version_did_not_have_had_its_default_there(tmp_path: Path) -> None:
    now = study_of(USUAL, day=2)
    reference = written(study_of(USUAL), tmp_path / "before")
    assert set(regressions.table(replace(now, reference=reference))["differs"]) == {""}
    runs = [
        structs.replace(run, spec=structs.replace(run.spec, recipe=structs.replace(
            run.spec.recipe, decay="linear", label_smoothing=0.1
        )))
        for run in now.manifest.runs
    ]  # fmt: skip
    changed = replace(now, manifest=structs.replace(now.manifest, runs=tuple(runs)))
    older = {
        point: {key: value for key, value in values.items() if key != "decay"}
        for point, values in reference.parameters.items()
    }
    found = regressions.table(replace(changed, reference=replace(reference, parameters=older)))
    (differs,) = set(found["differs"])
    assert differs.split("; ") == ["decay: none, now linear", "label_smoothing: 0.0, now 0.1"]


@pytest.mark.parametrize("name", ["details/manifest.json", "runs.csv"])
def test_a_reference_without_its_files_is_one_error(name: str, tmp_path: Path) -> None:
    written(study_of(USUAL), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=f"compare_with: .*{name}"):
        Reference.read(tmp_path)


@pytest.mark.parametrize(
    ("found", "is_refused"),
    [
        (["slower", "same"], True), (["lost", "faster"], True), (["not compared"], True),
        (["failing", "same"], True), (["undecided", "undecided"], True),
        (["undecided", "not compared"], True),
        (["faster", "same", "undecided", "not compared"], False), (["same"], False),
    ],
)  # fmt: skip
def test_the_exit_status(found: list[str], is_refused: bool) -> None:
    assert bool(stages.describe_regressions(pd.DataFrame({"verdict": found}))) is is_refused


def test_pairs_drawn_from_two_real_sweeps_of_the_same_have_no_regression() -> None:
    with (REPOSITORY / "studies/two-sweeps/runs.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["sweep"] in ("before", "again")]
    points: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        point = (row["recipe"], row["nodes"])
        points.setdefault(point, []).append(float(row["execution_time_s"]))
    dice = random.Random(1)
    alarms = 0
    for _ in range(200):
        drawn = np.array([dice.sample(times, 12) for times in points.values()])
        changes = judge_changes(drawn[:, :6], drawn[:, 6:], 0.05)
        alarms += any(change.verdict == "slower" for change in changes)
    assert len(points) == 4 and alarms <= 10
