"""Sets of records with known truth through all tables and conclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import claims
import known_truth
import pandas as pd
import pytest
from known_truth import DIVERGED, NODES, OK, PLATFORMS, REPEATS, STEPPED, TrueSet, Writer
from tfscaling.conclusions import clouds, findings
from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.record import attempts
from tfscaling.tables import runs_table, table_files
from tfscaling.tables.comparison import comparison_table

#: Numbers of sets: each kind once and twice, and enough to count what is seldom wrong.
SETS = [26, pytest.param(150, marks=pytest.mark.full)]
FALSE_MAX = 0.05


@dataclass(frozen=True)
class Made:
    """The tables of one set beside its truth."""

    truth: TrueSet
    runs: pd.DataFrame
    comparison: pd.DataFrame
    clouds: pd.DataFrame
    findings: pd.DataFrame
    choices: list[Answer]

    @cached_property
    def rows(self) -> dict[known_truth.Key, dict[str, Any]]:
        """Point → its row of the comparison."""
        rows = self.comparison.to_dict("records")
        return {
            (row["platform"], row["nodes"]): {str(name): value for name, value in row.items()}
            for row in rows
        }


@pytest.fixture(scope="module", params=SETS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    writer, folder = Writer(), tmp_path_factory.mktemp("sets")
    planned, sets = writer.planned, []
    for number in range(request.param):
        truth = known_truth.draw(number)
        writer.write(truth, folder / str(number))
        table, _ = runs_table.run_tables(planned.runs, folder / str(number), planned.targets)
        runs = _as_read(table, folder)
        comparison = _as_read(comparison_table(runs, planned), folder)
        study = Study(comparison, runs, planned)
        between = clouds.table(study)
        found = findings.table(study)
        sets.append(Made(truth, runs, comparison, between, found, list(answers_by_goal(study))))
    return sets


def _as_read(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """The table as the next program reads it."""
    path = folder / "table.csv"
    table.to_csv(path, index=False)
    return table_files.read_table(path)


def points(one: Made) -> Iterator[tuple[known_truth.TruePoint, dict[str, Any]]]:
    """Every point of the set with its row of the comparison."""
    assert one.rows.keys() == one.truth.points.keys()
    for key, point in one.truth.points.items():
        yield point, one.rows[key]


def test_every_kind_of_set_is_there(made: list[Made]) -> None:
    assert Counter(one.truth.kind for one in made).keys() == set(known_truth.KINDS)


def test_every_run_is_a_row_with_its_true_status_and_a_reason(made: list[Made]) -> None:
    for one in made:
        assert len(one.runs) == len(PLATFORMS) * len(NODES) * REPEATS
        for row in one.runs.to_dict("records"):
            run = one.truth.points[row["platform"], row["nodes"]].runs[row["repeat"] - 1]
            status = "failed" if run.outcome == STEPPED else run.outcome
            assert row["status"] == status, (one.truth.number, row["reason"])
            assert bool(row["reason"]) == (run.outcome != OK)


def test_medians_and_counts_are_those_of_the_runs_that_count(made: list[Made]) -> None:
    for one in made:
        for point, row in points(one):
            outcomes = Counter(run.outcome for run in point.runs)
            assert row["runs"] == outcomes[OK] and row["runs_planned"] == REPEATS
            assert row["runs_diverged"] == outcomes[DIVERGED]
            assert (row["status"] == "ok") == (outcomes[OK] == REPEATS)
            assert (row["reason"] == "") == (row["status"] == "ok" and row["same_work"] is True)
            if not point.counted:
                assert pd.isna(row["execution_time_s"]) and pd.isna(row["loss"])
                continue
            assert row["execution_time_s"] == pytest.approx(point.median_time_s)
            errors = [run.error for run in point.counted]
            assert row["loss"] == pytest.approx(median(errors))
            assert row["accuracy"] == pytest.approx(1 - median(errors))
            usd = PLATFORMS[row["platform"]][1]
            paid_s = median(run.time_s + run.lost_s for run in point.counted)
            assert row["cost_usd"] == pytest.approx(row["nodes"] * usd * paid_s / 3600)


def test_the_time_to_the_target_is_known_where_all_runs_reached_it(made: list[Made]) -> None:
    missed = 0
    for one in made:
        for point, row in points(one):
            outcomes = Counter(run.outcome for run in point.runs)
            times_s = [run.to_target_s for run in point.counted if run.to_target_s is not None]
            assert row["runs_at_target"] == len(times_s)
            if times_s and len(times_s) == outcomes[OK] + outcomes[DIVERGED]:
                assert row["time_to_target_s"] == pytest.approx(median(times_s))
                own = [s + run.lost_s for s, run in zip(times_s, point.counted, strict=True)]
                usd = row["nodes"] * PLATFORMS[row["platform"]][1] * median(own) / 3600
                assert row["cost_to_target_usd"] == pytest.approx(usd)
            else:
                assert pd.isna(row["time_to_target_s"])
                missed += bool(point.counted)
    assert missed > len(made) // 20


def test_failed_attempts_are_counted_and_paid_once(made: list[Made]) -> None:
    for one in made:
        if one.truth.kind == "retried":
            for row in one.runs.to_dict("records"):
                run = one.truth.points[row["platform"], row["nodes"]].runs[row["repeat"] - 1]
                assert row["failed_attempts"] == (run.lost_s > 0)
                assert row["lost_time_s"] == pytest.approx(run.lost_s)
            lost = [
                (nodes * run.lost_s, nodes * PLATFORMS[platform][1] * run.lost_s)
                for (platform, nodes), point in one.truth.points.items()
                for run in point.runs
            ]
            spent = attempts.sum_node_hours(one.runs.to_dict("records"))
            hours, usd = (sum(each) / 3600 for each in zip(*lost, strict=True))
            assert spent.lost_node_hours == pytest.approx(hours)
            assert spent.lost_cost_usd == pytest.approx(usd)


def test_a_choice_for_the_target_names_every_configuration_that_missed_it(made: list[Made]) -> None:
    named = 0
    for one in made:
        missing = {
            key for key, point in one.truth.points.items()
            if any(run.outcome == OK and run.to_target_s is None for run in point.runs)
        }  # fmt: skip
        for choice in one.choices:
            if choice.goal == "time_to_target_s":
                rows = [each.row for each in choice.not_covered]
                assert missing <= {(row["platform"], row["nodes"]) for row in rows}
                assert choice.support != SUPPORTED or not missing
                named += len(missing)
    assert named > 0


def test_speedups_are_those_of_the_medians_and_of_the_same_work_only(made: list[Made]) -> None:
    barred = 0
    for one in made:
        for point, row in points(one):
            base = one.truth.points[row["platform"], 1]
            if not (point.counted and base.counted):
                assert pd.isna(row["speedup"])
                continue
            same = point.runs[0].share == base.runs[0].share
            assert row["same_work"] is same, one.truth
            if same:
                ratio = base.median_time_s / point.median_time_s
                assert row["speedup"] == pytest.approx(ratio)
                assert row["scaling_efficiency"] == pytest.approx(ratio / row["nodes"])
            else:
                barred += 1
                for name in ("speedup", "scaling_efficiency", "steady_state_speedup"):
                    assert all(pd.isna(row[name + end]) for end in ("", "_low", "_high"))
    assert barred > len(made) // 10


def test_an_interval_is_of_six_runs_at_least(made: list[Made]) -> None:
    for one in made:
        for point, row in points(one):
            assert pd.notna(row["execution_time_s_low"]) == (len(point.counted) >= 6)


def is_fit(one: Made, key: known_truth.Key) -> bool:
    """Return whether a configuration is compared with the others of the set, one task.

    It trained as many examples as most configurations, or more. It is closed if half of its
    planned runs diverged.
    """
    runs = one.truth.points[key].runs
    shares = Counter(point.counted[0].share for point in one.truth.points.values() if point.counted)
    work = max(shares, key=lambda share: (shares[share], share))
    outcomes = Counter(run.outcome for run in runs)
    return outcomes[OK] > 0 and runs[0].share >= work and 2 * outcomes[DIVERGED] < REPEATS


def true_value(one: Made, goal: str, key: known_truth.Key) -> float | None:
    point, (_, usd) = one.truth.points[key], PLATFORMS[key[0]]
    return {
        "execution_time_s": point.runs[0].share * point.time_s,
        "time_to_target_s": point.runs[0].share * point.time_s - point.runs[0].pause_s,
        "cost_usd": point.runs[0].share * point.time_s * key[1] * usd / 3600,
        **dict.fromkeys(("quality", "loss", "test_accuracy"), point.error),
    }.get(goal)


def is_false_choice(one: Made, choice: Answer) -> bool:
    """Whether a supported choice names a point that is not within the indifference of the best."""
    if choice.support != SUPPORTED or choice.point is None:
        return False
    own = true_value(one, choice.goal, (choice.point.platform, choice.point.nodes))
    best = min(
        value for key in one.truth.points
        if is_fit(one, key) and (value := true_value(one, choice.goal, key)) is not None
    )  # fmt: skip
    return own is not None and own > best * (1 + choice.indifference) + 1e-9


def test_a_point_that_must_not_be_taken_never_is(made: list[Made]) -> None:
    taken = 0
    for one in made:
        for choice in one.choices:
            if choice.point is not None:
                taken += 1
                key = (choice.point.platform, choice.point.nodes)
                assert is_fit(one, key), (one.truth.number, choice.question)
    assert taken > len(made)


def test_a_choice_that_is_supported_is_true(made: list[Made]) -> None:
    for goal in ("execution_time_s", "cost_usd", "quality"):
        of_goal = [[c for c in one.choices if c.goal == goal] for one in made]
        false = [
            any(is_false_choice(one, choice) for choice in choices)
            for one, choices in zip(made, of_goal, strict=True)
        ]
        sure = sum(c.support == SUPPORTED for choices in of_goal for c in choices)
        assert sum(false) <= FALSE_MAX * len(made), goal
        assert sure > 0, goal


def test_a_cloud_that_wins_by_support_is_better(made: list[Made]) -> None:
    false = []
    for one in made:
        wrong = False
        for row in one.clouds.to_dict("records"):
            true = {
                cloud: true_value(one, str(row["metric"]), (name, row["nodes"])) or 0.0
                for name, (cloud, _) in PLATFORMS.items()
            }
            if row["verdict"] == SUPPORTED:
                wrong |= true[row["winner"]] >= max(true.values()) * (1 - 1e-9)
        false.append(wrong)
    assert sum(false) <= FALSE_MAX * len(made)


def test_no_pair_of_clouds_is_left_out(made: list[Made]) -> None:
    for one in made:
        for nodes in NODES:
            both = all(is_fit(one, (platform, nodes)) for platform in PLATFORMS)
            rows = one.clouds[one.clouds["nodes"] == nodes]
            if both:
                compared = {"test_accuracy", *clouds.METRICS_COMPARED} - {"quality"}
                assert set(rows["metric"]) == compared, one.truth.number


def test_a_finding_that_is_supported_is_true(made: list[Made]) -> None:
    """By topic: where more nodes pay, and quality, which one platform's first point has more of."""
    for topic in ("scaling", "quality"):
        false, sure = [], 0
        for one in made:
            rows = one.findings[
                (one.findings["topic"] == topic) & (one.findings["support"] == SUPPORTED)
            ]
            sure += len(rows)
            false.append(any(is_false_finding(one, row) for row in rows.to_dict("records")))
        assert sum(false) <= FALSE_MAX * len(made), topic
        assert sure > 0 or topic == "quality"


def is_false_finding(one: Made, row: dict[Any, Any]) -> bool:
    if row["topic"] == "quality":
        return one.truth.kind != "scaling" or not row["subject"].startswith(next(iter(PLATFORMS)))
    if row["kind"] == "weak scaling":
        (platform,) = (name for name in PLATFORMS if row["subject"].startswith(name))
        (nodes,) = claims.nodes_of(row)
        base_s, own_s = (one.truth.points[platform, n].time_s for n in (1, nodes))
        return bool((row["ratio"] < 1) != (base_s < nodes * own_s))
    true_s = {
        n: one.truth.points[platform, n].runs[0].share * one.truth.points[platform, n].time_s
        for platform in PLATFORMS
        for n in NODES
        if row["subject"].startswith(platform) and is_fit(one, (platform, n))
    }
    return claims.is_false(row, true_s)
