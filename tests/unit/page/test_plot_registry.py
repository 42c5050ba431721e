"""Every plot is drawn from the tables' files, whatever has failed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import manifest_of, raw_config, study_folder, valid_config, write_record
from tfscaling.page import plot_figure
from tfscaling.page.plot_figure import Tables
from tfscaling.page.plot_registry import PLOTS, plot_titles
from tfscaling.stages import write_page
from tfscaling.study import config_validation
from tfscaling.study.config_types import PlotOptions, Quality
from tfscaling.tables import comparison, data_warnings, runs_table, table_files

FILES = ("comparison.csv", "epochs.csv", "warnings.json")
TIMES = {1: 60.0, 2: 40.0, 4: 20.0}


def write_tables(folder: Path, times: dict[int, float], **block: Any) -> tuple[Path, ...]:
    """Files of tables and warnings of a grid whose node counts in `times` were measured."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [4, 1, 2, 9]}
    raw = raw_config((("grid",), [{**usual, **block}]))
    planned = manifest_of(config_validation.convert_to_types(raw))
    for run in planned.runs:
        if run.spec.point.nodes in times:
            write_record(folder, run, times[run.spec.point.nodes] + run.spec.repeat)
    runs, epochs = runs_table.run_tables(planned.runs, folder)
    table = comparison.comparison_table(runs, planned)
    paths = tuple(folder / name for name in FILES)
    table.to_csv(paths[0], index=False)
    epochs.to_csv(paths[1], index=False)
    runs.to_csv(folder / "runs.csv", index=False)
    data_warnings.write_warnings(paths[2], data_warnings.find_warnings(table, runs))
    return paths


def tables_in(paths: tuple[Path, ...]) -> Tables:
    published = paths[0].with_name("published.csv")
    published.write_text("\n")
    comparison, epochs, warnings = paths
    read = [table_files.read_table(path) for path in (comparison, epochs, published)]
    return Tables(
        read[0],
        read[1],
        read[2],
        data_warnings.make_footnotes(data_warnings.read_warnings(warnings)),
    )


def draw(tables: Tables, shown: Mapping[Path, str]) -> None:
    for path, title in shown.items():
        path.write_text(plot_figure.to_svg(PLOTS[path.stem].draw(tables, title)))


def own_titles(outputs: Sequence[Path]) -> dict[Path, str]:
    shown = plot_titles(dict.fromkeys(PLOTS, PlotOptions()), [Quality()])
    return {path: shown[path.stem] for path in outputs}


@pytest.mark.parametrize("times", [{}, {4: 20.0}, TIMES], ids=["nothing", "no_baseline", "all"])
def test_every_plot_is_written_as_svg_whatever_is_missing(
    tmp_path: Path, times: dict[int, float], recwarn: pytest.WarningsRecorder
) -> None:
    outputs = [tmp_path / f"{name}.svg" for name in PLOTS]
    draw(tables_in(write_tables(tmp_path, times)), own_titles(outputs))
    for path in outputs:
        text = path.read_text()
        assert text.rstrip().endswith("</svg>")
        assert f">{own_titles([path])[path]}</text>" in text
        assert (plot_figure.NOTHING in text) == (not times)
        number = len({4, 1, 2, 9} - times.keys())
        assert f"{number} configuration{'s' if number > 1 else ''} {plot_figure.ABSENT}" in text
    assert [str(warning.message) for warning in recwarn] == []


def test_a_measured_sweep_says_what_its_points_are(tmp_path: Path) -> None:
    paths = write_tables(tmp_path, TIMES, gpus_per_node=[0, 2], repeats=2)
    outputs = [tmp_path / "execution_time.svg", tmp_path / "time_split.svg"]
    draw(tables_in(paths), own_titles(outputs))
    lines, bars = (path.read_text() for path in outputs)
    assert ">CPU</text>" in lines and "2 GPUs" in lines
    assert "4 nodes, 2 GPUs per node" in bars


def test_the_stage_draws_the_plots_of_the_configuration_with_their_titles(tmp_path: Path) -> None:
    shown = dict.fromkeys(PLOTS) | {"speedup": {"title": "Mine & yours"}, "epochs": {}}
    study = study_folder(tmp_path / "study", valid_config((("plots",), shown)))
    comparison, epochs, warnings = write_tables(tmp_path, TIMES)
    for table in (comparison, tmp_path / "runs.csv"):
        shutil.copy(table, study.folder)
    shutil.copy(epochs, study.details)
    drawn = {
        plot.name: plot.svg
        for plot in write_page.draw_plots(study, data_warnings.read_warnings(warnings))
    }
    assert sorted(drawn) == ["epochs", "speedup"]
    assert ">Mine &amp; yours</text>" in drawn["speedup"]
    draw(tables_in((comparison, epochs, warnings)), {tmp_path / "speedup.svg": "Mine & yours"})
    assert drawn["speedup"] == (tmp_path / "speedup.svg").read_text()


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_shows_something_only_where_it_was_measured(name: str) -> None:
    table = pd.DataFrame([dict.fromkeys(comparison.COLUMNS)])
    assert not PLOTS[name].is_measured(table)
    assert PLOTS[name].is_measured(table.assign(**{PLOTS[name].shows[0]: 1.0}))


def test_a_title_names_the_quality_where_there_is_one() -> None:
    options = dict.fromkeys(("quality_time", "epochs"), PlotOptions())
    loss = Quality(metric="test_loss")
    error = Quality(metric="test_mean_absolute_error", direction="lower")
    for qualities, against_time, of_epochs in (
        ([Quality(), Quality(metric="accuracy")], "Accuracy", "Loss and accuracy"),
        ([error, error], "Mean absolute error", "Loss and mean absolute error"),
        ([Quality(), error], "Quality", "Loss and quality"),
        ([loss], "Loss", "Loss"),
    ):
        found = plot_titles(options, qualities)
        assert found["quality_time"] == f"{against_time} against execution time"
        assert found["epochs"] == f"{of_epochs} of each epoch"
