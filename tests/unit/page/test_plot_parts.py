"""What all plots share: lines with colours and labels, ticks, legends, files."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text
from plotted import comparison_of, crosses, failed, point, points_of, tables_of
from tfscaling.page import plot_figure
from tfscaling.page.plot_registry import PLOTS
from tfscaling.tables.row_values import point_of


def test_a_platform_has_its_colour_by_its_place_however_few_of_its_points_are_measured() -> None:
    points = [point(platform=name) for name in ("a", "b", "c")]
    every = {s.key[0]: s.style["color"] for s in plot_figure.make_series(comparison_of(*points))}
    assert len(set(every.values())) == 3
    points[1] = failed(1, platform="b")
    some = {s.key[0]: s.style["color"] for s in plot_figure.make_series(comparison_of(*points))}
    assert some == every


def test_series_of_a_platform_share_its_colour_and_differ_in_marker_and_line() -> None:
    points = [point(gpus_per_node=gpus) for gpus in (0, 1, 2, 4)]
    several = comparison_of(*points, point(platform="other"))
    for table, colours in ((several, 1), (comparison_of(*points), 4)):
        styles = [line.style for line in plot_figure.make_series(table)][:4]
        assert len({style["color"] for style in styles}) == colours
        assert len({style["marker"] for style in styles}) == 4
        assert len({str(style["linestyle"]) for style in styles}) == 4


def test_a_plot_shows_six_lines_and_has_the_others_to_choose(tmp_path: Path) -> None:
    points = [point(nodes, recipe=f"r{n}") for n in range(9) for nodes in (1, 2)]
    tables = tables_of(*points)
    last = point_of({**points[-1], "tasks_per_node": "1"})
    drawn = PLOTS["execution_time"].draw(replace(tables, first=[last]), "T")
    assert [label for label in points_of(drawn) if label.startswith("r")] == [
        *(f"r{n}" for n in range(5)), "r8",
    ]  # fmt: skip
    assert [*plot_figure.hidden_artists(drawn)] == ["r5", "r6", "r7"]
    (tmp_path / "plot.svg").write_text(plot_figure.to_svg(drawn))
    hidden = [
        element.get("data-line")
        for element in ElementTree.parse(tmp_path / "plot.svg").iter()
        if element.get("display") == "none"
    ]
    assert {*hidden} == {"r5", "r6", "r7"}


def test_each_of_several_lines_can_be_chosen_and_has_its_entry_and_values() -> None:
    recipes = [f"r{n}" for n in range(random.randint(2, 5))]
    points = [point(nodes, recipe=recipe) for recipe in recipes for nodes in (1, 2)]
    names = ("recipe", "nodes", "strategy", "platform", "model", "gpus_per_node", "tasks_per_node")
    epochs = [
        {**{name: each[name] for name in names}, "status": "ok", "epoch": n, "loss": 1 / n}
        for each in points
        for n in (1, 2, 3)
    ]
    tables = tables_of(*points, epochs=epochs)
    for name in ("execution_time", "epochs", "loss_quality", "quality_time"):
        drawn = plot_figure.to_svg(PLOTS[name].draw(tables, "T"))
        root = ElementTree.fromstring(drawn)
        lines = {each.get("data-line") for each in root.iter()} - {None}
        hidden = {each.get("data-line") for each in root.iter() if each.get("display") == "none"}
        entries = {each.get("data-entry") for each in root.iter()} - {None}
        assert len(lines) >= len(recipes) and lines - hidden <= entries, name
        for line in lines:
            parts = [each for each in root.iter() if each.get("data-line") == line]
            titles = [each for part in parts for each in part.iter() if each.tag.endswith("title")]
            assert titles and all(str(line) in str(title.text) for title in titles), (name, line)


def test_lines_beyond_the_limit_are_in_the_tables_alone() -> None:
    count = plot_figure.LINES_DRAWN_MAX + random.randint(1, 5)
    points = [point(nodes, recipe=f"r{n}") for n in range(count) for nodes in (1, 2)]
    best = point_of({**points[-1], "tasks_per_node": "1"})
    tables = replace(tables_of(*points), first=[best])
    lines = plot_figure.drawn_series(tables)
    assert len(lines) == plot_figure.LINES_DRAWN_MAX
    assert f"r{count - 1}" in [line.label for line in lines if line.is_shown]
    (note,) = plot_figure.line_notes(tables)
    assert note.startswith(f"{count - plot_figure.LINES_DRAWN_MAX} other line")
    assert plot_figure.line_notes(tables_of(*points[:4])) == []


def test_all_text_is_readable_on_a_phone() -> None:
    """Nine pixels high at 370 pixels, what a phone of 400 has for a plot."""
    assert plot_figure.FONT_SIZE * 370 / (72 * plot_figure.WIDTH) >= 9
    tables = tables_of(point(1), point(2, platform="b"), failed(4))
    for name, plot in PLOTS.items():
        figure = plot.draw(tables, "T")
        texts = [text for text in figure.findobj(Text) if text.get_text()]
        assert min(float(text.get_fontsize()) for text in texts) >= plot_figure.FONT_SIZE, name
        assert figure.get_figwidth() == plot_figure.WIDTH, name


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([{}, {"nodes": 2}], ["cluster"]),
        ([{"platform_title": "My cluster"}], ["My cluster"]),
        ([{"gpus_per_node": 0}, {"gpus_per_node": 1}], ["CPU", "1 GPU per node"]),
        ([{"recipe": "a"}, {"recipe": "b"}], ["a", "b"]),
        (
            [{"tasks_per_node": "1"}, {"tasks_per_node": "2+1"}],
            ["1 task per node", "2+1 tasks per node"],
        ),
        (
            [{"platform_title": "Same"}, {"platform": "other", "platform_title": "Same"}],
            ["cluster", "other"],
        ),
        ([{}, {"platform": "other", "platform_title": "Other"}], ["cluster", "Other"]),
    ],
)
def test_labels_name_the_platform_and_what_varies(changes: Any, labels: list[str]) -> None:
    table = comparison_of(*(point(**change) for change in changes))
    assert [line.label for line in plot_figure.make_series(table)] == labels


def test_error_bars_are_the_interval_else_the_range_and_nothing_for_a_single_run() -> None:
    spreads: dict[str, Any] = {"execution_time_s_min": 50.0, "execution_time_s_max": 90.0}
    interval: dict[str, Any] = {"execution_time_s_low": 55.0, "execution_time_s_high": 70.0}
    table = comparison_of(
        point(runs=6, **spreads, **interval), point(runs=3, **spreads), point(runs=1, **spreads)
    )
    below, above = plot_figure.error_bar_lengths(table, "execution_time_s")
    assert below.tolist()[:2] == [5.0, 10.0] and above.tolist()[:2] == [10.0, 30.0]
    assert np.isnan([below[2], above[2]]).all()


@pytest.mark.parametrize(
    ("names", "runs"),
    [
        (["execution_time_s"], "(3 runs, 1 with times)"),
        (["execution_time_s", "quality"], "(3 runs, 1 with times)"),
        (["cost_usd"], "(3 runs, 1 with times)"),
        (["quality"], "(3 runs)"),
        (["loss"], "(3 runs)"),
    ],
)
def test_tips_say_how_many_runs_have_times_where_they_tell_a_time(names: Any, runs: str) -> None:
    (tip,) = plot_figure.tip_texts(comparison_of(point(runs=3, runs_timed=1)), "cluster", *names)
    assert tip.endswith(runs)
    (tip,) = plot_figure.tip_texts(comparison_of(point(runs=3)), "cluster", *names)
    assert tip.endswith("(3 runs)")


def test_points_without_a_run_are_crosses_in_their_colour_above_each_other() -> None:
    table = comparison_of(point(1), failed(2), failed(2, gpus_per_node=1), failed(2, platform="b"))
    _, (axes,) = plot_figure.make_panels("T", "nodes", ["y"])
    assert plot_figure.mark_absent(axes, table, "nodes")
    (x, low, first), (other_x, high, second) = crosses(axes)
    assert x == other_x == 2 and 0 < low < high < 0.2
    assert [first, second] == list(plot_figure.COLOURS[:2])
    assert axes.get_legend_handles_labels()[1] == [f"3 configurations {plot_figure.ABSENT}"]


def test_the_same_figure_is_the_same_file_with_text_as_text() -> None:
    made = []
    for _ in range(2):
        figure, (axes,) = plot_figure.make_panels("My title", "nodes", ["y"])
        axes.plot([1, 2], [1, 2], marker="o")
        made.append(plot_figure.to_svg(figure))
    text, other = made
    assert text == other
    assert ">My title</text>" in text
    assert "sans-serif" in text and "<dc:date>" not in text


@pytest.mark.parametrize("title", ['"a" & <b>', "'a'", "\"a\" and 'b'"])
def test_a_title_with_quotes_is_the_name_of_its_line_and_entry(title: str) -> None:
    rows = [{"platform": name, "platform_title": name} for name in "cdefgh"]
    rows.append({"platform": "a", "platform_title": title})
    figure = PLOTS["execution_time"].draw(tables_of(*(point(1, **row) for row in rows)), "T")
    parts = [*ElementTree.fromstring(plot_figure.to_svg(figure)).iter()]
    own = [each for each in parts if each.get("data-line") == title]
    assert own and all(each.get("display") == "none" for each in own)
    assert not [each for each in parts if (each.get("id") or "").startswith(("line: ", "tip: "))]
    titles = [each.text for each in parts if each.tag.endswith("title")]
    assert [text for text in titles if text and text.startswith(f"1 node, {title}: ")]
