"""Two recipes with different qualities, of one of which less is better, through all tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import manifest_of, raw_config, write_record
from plotted import legend_of, points_of, visible_lines
from rows import point, rows_of
from tfscaling.conclusions import clouds, findings
from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.samples import SUPPORTED
from tfscaling.page import plot_quality
from tfscaling.page.plot_figure import Tables
from tfscaling.page.plot_quality import pareto_set
from tfscaling.record.rank_report import Epoch
from tfscaling.study import config_validation, run_spec
from tfscaling.study.manifest import Manifest
from tfscaling.tables import comparison, data_warnings, runs_table, table_files
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.row_values import point_of
from tfscaling.tables.run_samples import read_samples

ERROR = "test_mean_absolute_error"
QUALITY = {"metric": ERROR, "direction": "lower", "unit": "min"}
REPEATS = 6
TIME_S = {1: 100.0, 2: 40.0, 4: 30.0}
#: Nodes → the true quality after the last epoch, by recipe.
TRUE = {"weak": {1: 0.99, 2: 0.97, 4: 0.96}, "taxi": {1: 2.4, 2: 2.0, 4: 3.0}}
TARGETS = {"test_accuracy": 0.98, ERROR: 2.5}
#: How the line through a Pareto set is called.
NONE = "none has less time and"
PRICE = {"usd_per_node_hour": 1.0, "price_date": "2026", "price_source": "a list"}


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A project folder with a model of the user's, whose metrics nobody knows before a run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("project")
        (folder / "mine.py").write_text("def model():\n    return None\n")
        patch.chdir(folder)
        yield


def planned_runs(**quality: Any) -> Manifest:
    """`weak` trains a classifier, `taxi` a model of the user's that is compared by its error."""
    usual = {"nodes": list(TIME_S), "repeats": REPEATS}
    platforms = ["east", "west"]
    blocks = [
        {**usual, "platform": platforms, "model": "mnist_cnn", "recipe": "weak"},
        {**usual, "platform": platforms, "model": "mine:model", "recipe": "taxi"},
    ]
    raw = raw_config((("grid",), blocks))
    compared = QUALITY | quality
    is_higher = {"test_accuracy": True, compared["metric"]: compared.get("direction") == "higher"}
    limits = {
        metric: {"at_least" if is_higher[metric] else "at_most": target}
        for metric, target in TARGETS.items()
        if metric in is_higher
    }
    raw["question"] = {"limits": limits}
    shape = {**raw["platforms"]["cluster"], **PRICE}
    raw["platforms"] = {"east": {**shape, "cloud": "gcp"}, "west": {**shape, "cloud": "aws"}}
    raw["recipes"]["taxi"] = {
        "per_replica_batch_size": 64, "epochs": 2, "dataset": "mnist", "quality": compared,
    }  # fmt: skip
    return manifest_of(config_validation.convert_to_types(raw))


def write(folder: Path, planned: Manifest) -> None:
    """Records of the truth, which scatters by 0.01 %; the first epoch is half as good."""
    for run in planned.runs:
        spec = run.spec
        scatter = 1 + 2e-5 * (spec.repeat - 3.5)
        value = TRUE[spec.point.recipe][spec.point.nodes] * scatter
        time_s = TIME_S[spec.point.nodes] * scatter * (1.5 if spec.point.platform == "west" else 1)
        usual: dict[str, Any] = {"loss": 0.5, "duration_s": 5.0, "evaluation_time_s": 1.0}
        if spec.point.recipe == "weak":
            epochs = tuple(
                Epoch(epoch=n, accuracy=0.9, test_loss=0.5, test_accuracy=v, **usual)
                for n, v in ((1, value / 2), (2, value))
            )
            write_record(folder, run, time_s, epochs=epochs, test_accuracy=value)
            continue
        epochs = tuple(
            Epoch(
                epoch=n, accuracy=None, test_loss=0.5, metrics={"mean_absolute_error": v - 0.1},
                test_metrics={"mean_absolute_error": v}, **usual,
            )
            for n, v in ((1, 2 * value), (2, value))
        )  # fmt: skip
        write_record(folder, run, time_s, epochs=epochs, test_accuracy=None)


@dataclass(frozen=True)
class Made:
    planned: Manifest
    runs: pd.DataFrame
    epochs: pd.DataFrame
    comparison: pd.DataFrame

    @property
    def study(self) -> Study:
        return Study(self.comparison, self.runs, self.planned)

    def of(self, recipe: str) -> Made:
        """The same of one recipe."""
        tables = (t[t["recipe"] == recipe] for t in (self.runs, self.epochs, self.comparison))
        return Made(self.planned, *tables)


def make(folder: Path, planned: Manifest) -> Made:
    """The tables as the next program reads them."""
    runs, epochs = runs_table.run_tables(planned.runs, folder, planned.targets)
    read = []
    for table in (runs, epochs, comparison_table(runs, planned)):
        table.to_csv(folder / "table.csv", index=False)
        read.append(table_files.read_table(folder / "table.csv"))
    return Made(planned, *read)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, project: None) -> Made:
    folder, planned = tmp_path_factory.mktemp("runs"), planned_runs()
    write(folder, planned)
    return make(folder, planned)


def test_each_run_and_point_has_the_quality_of_its_recipe(made: Made) -> None:
    for recipe, metric, direction, unit in (
        ("weak", "test_accuracy", "higher", None), ("taxi", ERROR, "lower", "min")
    ):  # fmt: skip
        for row in rows_of(made.of(recipe).comparison):
            assert row["quality"] == pytest.approx(TRUE[recipe][row["nodes"]], rel=0.002)
            assert row["quality_low"] < row["quality"] < row["quality_high"]
            assert (row["quality_metric"], row["quality_direction"]) == (metric, direction)
            assert row["quality_unit"] == unit or pd.isna(row["quality_unit"])
        assert made.of(recipe).runs["quality"].notna().all()


def test_a_target_is_of_the_quality_of_the_point_and_reached_from_its_better_side(
    made: Made,
) -> None:
    reached = {
        (row["recipe"], row["nodes"]): (row["target"], row["runs_at_target"], row["runs"])
        for row in rows_of(made.comparison)
    }
    for (recipe, nodes), (target, at_target, runs) in reached.items():
        is_there = nodes == 1 if recipe == "weak" else nodes in (1, 2)
        assert target == TARGETS["test_accuracy" if recipe == "weak" else ERROR]
        assert at_target == (runs if is_there else 0)
    row = point(made.comparison, platform="east", recipe="taxi", nodes=2)
    # the second epoch reached it: the whole time, and two evaluations of 1 s
    assert row["time_to_target_s"] == pytest.approx(row["execution_time_s"] + 2.0)


@pytest.mark.parametrize(("recipe", "best"), [("weak", 1), ("taxi", 2)])
def test_the_decision_takes_the_better_value(recipe: str, best: int, made: Made) -> None:
    (found,) = [
        choice
        for choice in answers_by_goal(made.study)
        if choice.goal == "quality" and choice.question.endswith(recipe)
    ]
    assert found.support == SUPPORTED
    assert found.point is not None and found.point.nodes == best
    assert found.title == f"Best {'test accuracy' if recipe == 'weak' else ERROR.replace('_', ' ')}"


def test_points_of_different_qualities_beat_each_other_in_nothing(made: Made) -> None:
    with pytest.raises(ValueError, match="different qualities"):
        pareto_set(rows_of(made.comparison), ["execution_time_s", "quality"])


def test_what_the_fastest_loses_is_told_in_its_own_quality(made: Made) -> None:
    found = findings.table(made.study)
    texts = found.loc[found["topic"] == "quality", "text"]
    accuracy, error = ([t for t in texts if word in t] for word in ("accuracy", "absolute error"))
    assert len(accuracy) == len(error) == 2
    assert all("the error" in text for text in accuracy)
    assert all("3.0000" in text and " min against 2.4" in text for text in error)
    assert all("1.25 times" in text for text in error)
    assert set(found.loc[found["topic"] == "quality", "support"]) == {SUPPORTED}


def test_clouds_are_compared_by_each_quality(made: Made) -> None:
    table = clouds.table(made.study)
    by_metric = {str(name): rows for name, rows in table.groupby("metric")}
    assert set(by_metric) == {"execution_time_s", "loss", "cost_usd", "test_accuracy", ERROR}
    assert set(by_metric[ERROR]["recipe"]) == {"taxi"}
    assert {"test_accuracy", ERROR} <= set(clouds.as_text(table).cells["metric"])


def test_tables_say_what_is_compared_where_it_differs(made: Made) -> None:
    columns = ["execution_time_s", "quality"]
    shown = comparison.comparison_text_table(made.comparison, "Title", columns)
    assert {"quality", "quality_metric", "quality_direction", "quality_unit"} <= set(shown.cells)
    assert any("not compared" in note for note in shown.notes)
    for recipe, heading in (("weak", "test_accuracy"), ("taxi", f"{ERROR} (min)")):
        alone = comparison.comparison_text_table(made.of(recipe).comparison, "Title", columns).cells
        assert heading in alone
        assert not any(name.startswith("quality") for name in alone.columns)
    both = ["test_accuracy", "quality"]
    alone = comparison.comparison_text_table(made.of("weak").comparison, "Title", both).cells
    assert list(alone).count("test_accuracy") == 1


def test_each_quality_has_a_panel_and_a_pareto_set_of_its_own(made: Made) -> None:
    tables = Tables(made.comparison, made.epochs, pd.DataFrame())
    figure = plot_quality.quality_time(tables, "Title")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["test accuracy", f"{ERROR.replace('_', ' ')} (min)"]
    of_panels = [
        next(points for label, points in points_of(figure, n).items() if label.startswith(NONE))
        for n in (0, 1)
    ]
    # the western platform takes longer for the same
    assert [[round(x) for x, _ in points] for points in of_panels] == [[30, 40, 100], [30, 40]]
    assert sum(text.startswith(NONE) for text in legend_of(figure)) == 2


def test_losses_and_epochs_have_a_panel_for_each_quality(made: Made) -> None:
    tables = Tables(made.comparison, made.epochs, pd.DataFrame())
    figure = plot_quality.loss_quality(tables, "Title")
    error = "test mean absolute error (min)"
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "accuracy", error]
    assert len([p for p in points_of(figure, 2).values() if p]) == 2
    figure = plot_quality.epochs(tables, "Title")
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "loss", "accuracy", "mean absolute error (min)"
    ]  # fmt: skip
    training, held_out = visible_lines(figure.axes[2])[:2]
    above = np.subtract(held_out.get_ydata(), training.get_ydata())
    assert above == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize(
    ("f1", "best", "times", "taken"),
    [
        ({1: 0.99, 2: 0.98, 4: 0.97}, None, 0.99 / 0.98, 2),
        ({1: 0.99, 2: 0.98, 4: 0.97}, 1.0, 2.0, 1),
        ({1: 99.0, 2: 98.0, 4: 97.0}, 100.0, 2.0, 1),
    ],
)
def test_with_a_best_value_errors_are_compared(
    f1: dict[int, float], best: float | None, times: float, taken: int, tmp_path: Path
) -> None:
    """0.98 is as good as 0.99 by their ratio, but has twice the error."""
    quality = {"metric": "test_f1", "direction": "higher", "unit": None, "best": best}
    planned = planned_runs(**quality)
    for run in planned.runs:
        value = f1[run.spec.point.nodes] * (1 + 2e-6 * (run.spec.repeat - 3.5))
        epoch = Epoch(
            epoch=1, accuracy=None, loss=0.5, test_loss=0.5, duration_s=5.0,
            evaluation_time_s=1.0, test_metrics={"f1": value},
        )  # fmt: skip
        time_s = TIME_S[run.spec.point.nodes]
        write_record(tmp_path, run, time_s, epochs=(epoch,), test_accuracy=None)
    made = make(tmp_path, planned).of("taxi")
    rows = [point(made.comparison, nodes=nodes, platform="east") for nodes in (1, 2)]
    assert [row["quality_best"] for row in rows] == [
        best or pytest.approx(math.nan, nan_ok=True)
    ] * 2
    pair = (point_of(rows[0]), point_of(rows[1]))
    (found,) = read_samples(made.runs).compare_pairs("quality", [pair], 1)
    assert found is not None and found.ratio == pytest.approx(times, rel=1e-4)
    (choice,) = [c for c in answers_by_goal(made.study) if c.goal == "quality"]
    assert choice.point is not None and choice.point.nodes == taken


def test_a_run_without_its_quality_counts_and_says_why(tmp_path: Path) -> None:
    planned = planned_runs(metric="test_rmse")
    planned = Manifest(
        **{
            **{name: getattr(planned, name) for name in planned.__struct_fields__},
            "runs": tuple(r for r in planned.runs if r.spec.point.recipe == "taxi"),
        }
    )
    write(tmp_path, planned)
    lacking = make(tmp_path, planned)
    assert set(lacking.runs["status"]) == {"ok"} and lacking.runs["quality"].isna().all()
    (text,) = set(lacking.runs["warnings"])
    assert "measured no test_rmse" in text and ERROR in text
    texts = [w.text for w in data_warnings.find_warnings(lacking.comparison, lacking.runs)]
    assert any("measured no test_rmse" in text for text in texts)
    (choice,) = [c for c in answers_by_goal(lacking.study) if c.goal == "quality"]
    assert choice.point is None and all("test rmse" in each.reason for each in choice.not_covered)


def test_a_change_of_the_quality_reruns_nothing() -> None:
    one, other = planned_runs(), planned_runs(unit="s", direction="higher")
    assert one.runs != other.runs
    for a, b in zip(one.runs, other.runs, strict=True):
        assert a.spec.parameters_hash == b.spec.parameters_hash
        assert run_spec.encode_spec(a.spec) == run_spec.encode_spec(b.spec)


def test_recipes_that_no_block_names_may_compare_a_metric_in_another_way() -> None:
    raw = raw_config()
    own = raw["recipes"]["weak"]
    raw["recipes"] = {"shipped": own, "weak": {**own, "quality": {"unit": "fraction"}}}
    (quality,) = manifest_of(config_validation.convert_to_types(raw)).qualities.values()
    assert quality.unit == "fraction"
