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
from plotted import comparison_of, crosses, failed, legend_of, point, points_of, tables_of
from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL
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


def test_a_figure_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a second time for its layout."""
    figure = PLOTS["execution_time"].draw(tables_of(point(1), point(2)), "T")
    drawn, draw = list[Any](), figure.draw

    def count(renderer: Any) -> None:
        drawn.append(renderer)
        draw(renderer)

    monkeypatch.setattr(figure, "draw", count)
    assert "<svg" in plot_figure.to_svg(figure)
    assert len(drawn) == 1


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
    rows = tables_of(point(runs=3, runs_timed=1)).points.values()
    (tip,) = plot_figure.tip_texts(rows, "cluster", *names)
    assert tip.endswith(runs)
    (tip,) = plot_figure.tip_texts(tables_of(point(runs=3)).points.values(), "cluster", *names)
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


@pytest.mark.parametrize("is_log", [False, True])
def test_a_tip_is_where_its_point_is(is_log: bool) -> None:
    figure, (axes,) = plot_figure.make_panels("T", "x", ["y"])
    xs, ys = np.array([1.0, 3.0, np.nan, 7.0]), np.array([2.0, 50.0, 4.0, 9.0])
    axes.plot(xs, ys, "o")
    if is_log:
        plot_figure.use_plain_log(axes, "y")
    plot_figure.add_tips(axes, xs, ys, "abcd")
    plot_figure.add_tips(axes, xs[:0], ys[:0], [])
    tree = ElementTree.fromstring(plot_figure.to_svg(figure))
    height = float(tree.get("viewBox", "").split()[3])
    groups = [each for each in tree.iter() if each.get("class") == "tip"]
    assert [group[0].text for group in groups] == ["a", "b", "d"]
    for group, place in zip(groups, (0, 1, 3), strict=True):
        (used,) = [each for each in group.iter() if each.tag.endswith("use")]
        x, y = axes.transData.transform((xs[place], ys[place]))
        found = [float(used.get(name, "nan")) for name in "xy"]
        assert found == pytest.approx([x, height - y], abs=0.01)


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


def new_axes(panels: int = 1) -> tuple[Any, list[Any]]:
    return plot_figure.make_panels("T", "nodes", ["y"] * panels)


@pytest.mark.parametrize(("panels", "height"), [(1, 3.2), (2, 5.0), (3, 7.5)])
def test_a_figure_is_as_high_as_its_panels(panels: int, height: float) -> None:
    figure, every = new_axes(panels)
    assert figure.get_size_inches().tolist() == pytest.approx([plot_figure.WIDTH, height])
    assert [axes.get_ylabel() for axes in every] == ["y"] * panels
    assert [axes.get_xlabel() for axes in every] == [""] * (panels - 1) + ["nodes"]
    assert [axes.get_title() for axes in every] == ["T"] + [""] * (panels - 1)


@pytest.mark.parametrize(
    ("low", "high", "room", "ends"),
    [
        (10.0, 100.0, 0.0, (10.0, 100.0)), (10.0, 12.0, 0.0, (10.0, 12.0)),
        (10.0, 11.9, 0.0, (10 / 1.5, 11.9 * 1.5)), (1.0, 100.0, 0.5, (0.1, 100.0)),
        (10.0, 1000.0, 0.08, (10 * 0.01**0.08, 1000.0)),
    ],
)  # fmt: skip
def test_a_logarithmic_axis_has_room_for_its_values_and_says_what_it_is(
    low: float, high: float, room: float, ends: tuple[float, float]
) -> None:
    for which in "xy":
        _, (axes,) = new_axes()
        getattr(axes, f"set_{which}lim")(low, high)
        plot_figure.use_plain_log(axes, which, room)
        assert getattr(axes, f"get_{which}lim")() == pytest.approx(ends)
        assert getattr(axes, f"get_{which}scale")() == "log"
        assert getattr(axes, f"get_{which}label")() == {"x": "nodes", "y": "y"}[which] + (
            ", log scale"
        )


@pytest.mark.parametrize(
    ("high", "ticks"),
    [(100.0, [10.0, 20.0, 50.0, 100.0]), (90.0, [10.0, 15, 20, 30, 40, 50, 60, 80])],
)
def test_a_short_logarithmic_axis_has_more_ticks(high: float, ticks: list[float]) -> None:
    _, (axes,) = new_axes()
    axes.set_ylim(9.5, high)
    plot_figure.use_plain_log(axes, "y")
    assert [tick for tick in axes.get_yticks() if 9 < tick <= high] == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        ([4, 1, 2, 2], (4**-0.06, 4**1.06)), ([3], (1.5, 6.0)), ([0, -1, 3, np.nan], (1.5, 6.0)),
        ([8, 32], (8 * 4**-0.06, 32 * 4**0.06)),
    ],
)  # fmt: skip
def test_an_axis_of_nodes_has_a_tick_at_each_number(
    found: list[float], ends: tuple[float, float]
) -> None:
    _, (axes,) = new_axes()
    plot_figure.use_value_ticks(axes, found)
    assert axes.get_xlim() == pytest.approx(ends)
    assert axes.get_xticks().tolist() == sorted({n for n in found if n > 0})
    plot_figure.use_value_ticks(axes, range(1, 40))
    assert 2 <= len(axes.get_xticks()) <= plot_figure.VALUE_TICKS_MAX + 1
    _, (empty,) = new_axes()
    plot_figure.use_value_ticks(empty, [])
    assert empty.get_xscale() == "log" and len(empty.get_xticks()) == 0


@pytest.mark.parametrize(
    ("width", "entries", "lines"),
    [
        (14, 3, 1), (14, 4, 2), (14, 1, 1), (15, 3, 2), (26, 2, 1), (26, 5, 3), (27, 3, 3),
        (60, 2, 2), (64, 2, 4),
    ],
)  # fmt: skip
def test_a_figure_grows_by_its_legend(width: int, entries: int, lines: int) -> None:
    figure, (axes,) = new_axes()
    for n in range(entries):
        axes.plot([1], [1], label=f"{n}" * (width // 2) + " " + "x" * (width - width // 2 - 1))
    tables = tables_of(point())
    plot_figure.add_legend_and_notes(figure, axes, tables)
    assert figure.get_figheight() == pytest.approx(3.2 + 0.178 * lines + 0.12)
    assert len(legend_of(figure)) == entries


@pytest.mark.parametrize(
    ("notes", "footnotes", "lines"),
    [([], [], 0), (["a"], [], 1), (["a", "b"], ["c"], 3), (["n " * 40], [], 2)],
)
def test_a_figure_grows_by_its_notes(notes: list[str], footnotes: list[str], lines: int) -> None:
    figure, (axes,) = new_axes()
    tables = replace(tables_of(point()), footnotes=footnotes)
    plot_figure.add_legend_and_notes(figure, axes, tables, notes)
    height = 3.2 + (0.178 * lines + 0.12) * bool(lines)
    assert figure.get_figheight() == pytest.approx(height)
    rect = figure.get_layout_engine().get()["rect"]
    assert rect == pytest.approx((0, 1 - 3.2 / height, 1, 3.2 / height))


def test_lines_at_the_same_place_are_of_different_sizes() -> None:
    lines = plot_figure.make_series(comparison_of(*(point(gpus_per_node=n) for n in range(6))))
    assert [line.style["markersize"] for line in lines] == [7.5, 6.5, 5.5, 4.5, 4.5, 4.5]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.004, "0.004"), (60.0, "60"), (2000.0, "2000"), (1.5, "1.5"), (1e-7, "0.0000001")],
)
def test_numbers_of_an_axis_have_no_exponent(value: float, text: str) -> None:
    assert plot_figure.format_plain(value) == text


@pytest.mark.parametrize(
    ("runs", "columns", "expected"),
    [
        ((1, 1), ("loss",), []), ((6, 9), ("loss",), ["interval"]), ((2, 5), ("loss",), ["range"]),
        ((1, 6), ("loss",), ["interval"]), ((5, 6), ("loss",), ["interval", "range"]),
        ((1, 2), ("loss", "execution_time_s"), ["range"]),
    ],
)  # fmt: skip
def test_a_note_says_what_error_bars_are(
    runs: tuple[int, ...], columns: tuple[str, ...], expected: list[str]
) -> None:
    tables = tables_of(*(point_with_interval(n + 1, number) for n, number in enumerate(runs)))
    notes = plot_figure.error_bar_notes(tables, *columns)
    assert len(notes) == bool(expected)
    assert [word for word in ("interval", "range") if word in "".join(notes)] == expected


def test_bars_of_projected_values_have_a_note_of_their_own() -> None:
    tables = tables_of(
        point_with_interval(1, 6), point_with_interval(2, 3, has_interval=True, **SHORT)
    )
    measured, projected = plot_figure.error_bar_notes(tables, "execution_time_s")
    assert "projected" in projected and "projected" not in measured
    # two short runs have no interval of a complete run
    tables = tables_of(point_with_interval(1, 6), point_with_interval(2, 2, **SHORT))
    assert not any("projected" in note for note in plot_figure.error_bar_notes(tables, *BARRED))


SHORT: dict[str, Any] = {"projected_from_steps": 100, "projected_to_steps": 1000}
BARRED = ("execution_time_s", "loss")


def point_with_interval(
    nodes: int, runs: int, has_interval: bool = False, **changes: Any
) -> dict[str, Any]:
    """A point whose values have ranges and, from six runs on, intervals."""
    ends = {f"{name}_{end}": 1.0 for name in BARRED for end in ("min", "max")}
    if has_interval or runs >= RUNS_FOR_INTERVAL:
        ends |= {f"{name}_{end}": 1.0 for name in BARRED for end in ("low", "high")}
    return point(nodes, runs=runs, **ends, **changes)


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("a b c", 3, "a b\n    c"), ("a\nb", 9, "a\nb"), ("", 5, ""), ("a\n\nb", 5, "a\n\nb"),
        ("abc", 3, "abc"),
    ],
)  # fmt: skip
def test_text_is_wrapped_and_keeps_its_lines(text: str, width: int, expected: str) -> None:
    assert plot_figure.wrap_lines(text, width) == expected
