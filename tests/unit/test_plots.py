"""Plots show every measured point, and can be drawn whatever has failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import raw_config, run_python, write_record
from tfscaling import configuration, expectations, tables
from tfscaling.plots import PLOTS

TIMES = {1: 60.0, 2: 40.0, 4: 20.0}


def table_of(runs_dir: Path, times: dict[int, float], **block: Any) -> pd.DataFrame:
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [4, 1, 2, 9]}
    raw = raw_config((("grid",), [{**usual, **block}]))
    expected = expectations.expected_runs(configuration.validate(raw))
    for entry in expected["runs"]:
        if entry["axes"]["nodes"] in times:
            write_record(runs_dir, entry, times[entry["axes"]["nodes"]] + entry["axes"]["repeat"])
    runs = tables.runs_table(expected, runs_dir)
    table = tables.comparison_table(runs, expected["excluded"])
    table.to_csv(runs_dir / "comparison.csv", index=False)
    return pd.read_csv(runs_dir / "comparison.csv")


def lines_of(figure: Any) -> dict[str, list[tuple[float, float]]]:
    """Label → points of the lines that stand in the legend."""
    (axes,) = figure.axes
    handles, labels = axes.get_legend_handles_labels()
    lines = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
    return {
        label: list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for label, line in zip(labels, lines, strict=True)
    }


def test_execution_times_are_drawn_over_the_nodes(tmp_path: Path) -> None:
    figure = PLOTS["execution_time"].draw(table_of(tmp_path, TIMES, repeats=3), "My title")
    assert figure.axes[0].get_title() == "My title"
    assert lines_of(figure) == {"cluster": [(1, 62.0), (2, 42.0), (4, 22.0)]}
    assert "s" in figure.axes[0].get_ylabel()


def test_speedups_are_drawn_over_the_nodes(tmp_path: Path) -> None:
    figure = PLOTS["speedup"].draw(table_of(tmp_path, {1: 59.0, 2: 29.0, 4: 14.0}), "T")
    assert lines_of(figure) == {"cluster": [(1, 1.0), (2, 2.0), (4, 4.0)]}


def test_points_that_were_not_measured_are_not_drawn(tmp_path: Path) -> None:
    figure = PLOTS["execution_time"].draw(table_of(tmp_path, {1: 60.0, 4: 20.0}), "T")
    assert lines_of(figure) == {"cluster": [(1, 61.0), (4, 21.0)]}


def test_each_series_is_a_line_named_after_what_varies(tmp_path: Path) -> None:
    figure = PLOTS["speedup"].draw(table_of(tmp_path, TIMES, gpus_per_node=[0, 2]), "T")
    assert set(lines_of(figure)) == {"cluster, gpus_per_node 0", "cluster, gpus_per_node 2"}
    styles = {(line.get_color(), line.get_marker()) for line in figure.axes[0].lines[:2]}
    assert len({marker for _, marker in styles}) == 2
    assert len({colour for colour, _ in styles}) == 1  # a platform keeps its colour


def test_platforms_have_different_colours(tmp_path: Path) -> None:
    figure = PLOTS["speedup"].draw(table_of(tmp_path, TIMES, platform=["cluster", "laptop"]), "T")
    assert len({line.get_color() for line in figure.axes[0].lines[:2]}) == 2


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_single_point_is_visible(tmp_path: Path, nodes: int) -> None:
    figure = PLOTS["execution_time"].draw(table_of(tmp_path, {nodes: 20.0}), "T")
    (axes,) = figure.axes
    ((x, y),) = lines_of(figure)["cluster"]
    for value, (low, high) in ((x, axes.get_xlim()), (y, axes.get_ylim())):
        assert low < 0.99 * value
        assert high > 1.01 * value


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("times", [{}, {4: 20.0}, TIMES], ids=["nothing", "no_baseline", "all"])
def test_every_plot_is_written_as_svg_whatever_is_missing(
    tmp_path: Path, name: str, times: dict[int, float], recwarn: pytest.WarningsRecorder
) -> None:
    output = tmp_path / "plot.svg"
    PLOTS[name].draw(table_of(tmp_path, times), PLOTS[name].title).savefig(output)
    assert output.read_text().rstrip().endswith("</svg>")
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_needs_only_the_columns_that_it_names(tmp_path: Path, name: str) -> None:
    table = table_of(tmp_path, TIMES)
    derived = [c for c in table.columns if any(c.startswith(need) for need in PLOTS[name].needs)]
    others = {"execution_time_s", "speedup"} - set(PLOTS[name].needs)
    kept = [c for c in table.columns if c in derived or not any(c.startswith(o) for o in others)]
    assert PLOTS[name].draw(table[kept], "T").axes


def test_names_of_plots_are_known_without_importing_matplotlib() -> None:
    code = "import sys; from tfscaling.plots import PLOTS; print('matplotlib' in sys.modules)"
    assert run_python(code).stdout == "False\n"
