"""The race: a line for each point of a search, as long as its runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from plotted import legend_of, points_of
from searched import planned_of, runs_of, study_of
from tfscaling.conclusions import search_results
from tfscaling.conclusions.search_results import OUT, TAKEN
from tfscaling.page import plot_search
from tfscaling.page.plot_figure import Tables


def test_each_point_has_a_line_and_says_how_far_it_was_behind(tmp_path: Path) -> None:
    planned = planned_of()
    study = study_of(planned, runs_of(planned, tmp_path))
    table = search_results.table(study)
    tables = Tables(study.comparison, pd.DataFrame(), pd.DataFrame(), search=table)
    figure = plot_search.race(tables, "T")
    (axes,) = figure.axes
    lengths = [line.get_xdata()[1] for line in axes.lines if len(line.get_xdata()) == 2]
    assert lengths == table["runs"].tolist()
    assert axes.get_yticklabels()[0].get_text() == "2 nodes on near"
    behind = [text.get_text() for text in axes.texts]
    assert behind == [f"{gap:+.0%}" for gap in table["behind"][1:]]
    assert set(points_of(figure)) == {TAKEN, OUT}
    assert any("not the best" in text for text in legend_of(figure))
