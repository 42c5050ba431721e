"""Plots and the page of a study; tables, plots and page of finished runs alone.

INPUTS   config.json, manifest.json, the tables and conclusions, warnings.json
OUTPUTS  report.html, which loads nothing from the network, with the plots; on request (`export`)
         details/plots/<plot>.svg, with the warnings; this and the tables below partial/
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.files import atomic
from tfscaling.page import plot_figure
from tfscaling.page.html_page import Plot, Results, render
from tfscaling.page.plot_figure import Tables
from tfscaling.page.plot_registry import PLOTS, plot_titles
from tfscaling.stages import write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study.config_types import Question
from tfscaling.study.run_spec import Point
from tfscaling.tables import data_warnings, timings
from tfscaling.tables.data_warnings import DataWarning
from tfscaling.tables.row_values import axes_without_nodes, point_of


def draw_plots(study: StudyFolder, warnings: Sequence[DataWarning] = ()) -> list[Plot]:
    """Draw the configured plots that have data.

    Args:
        study: The study.
        warnings: Warnings that become notes below each plot.
    """
    evidence = write_tables.load_own_evidence(study)
    comparison = evidence.comparison
    tables = Tables(
        comparison,
        study.read_table("epochs"),
        study.read_table("published"),
        data_warnings.make_footnotes(warnings),
        configurations_shown_first(study),
        timings.imported_from(evidence.runs),
        evidence.excluded,
    )
    return [
        Plot(name, title, plot_figure.to_svg(PLOTS[name].draw(tables, title)))
        for name, title in plot_titles(
            study.config.plots, study.manifest.qualities.values()
        ).items()
        if PLOTS[name].is_measured(comparison)
    ]


def configurations_shown_first(study: StudyFolder) -> list[Point]:
    """Return the configurations whose lines plots show first, the most important one first.

    These are the recommended configurations, the next best ones on other lines, the baselines, then
    all others by rank. The list is empty if a plot can show all lines.
    """
    if len(study.read_table("comparison")) <= plot_figure.LINES_MAX:
        return []
    evidence = write_tables.load_evidence(study)
    answers = answer_questions(evidence)
    taken = [found.point for found in answers if found.point]
    by_rank = [[each.point for each in found.candidates_with_value] for found in answers]
    lines = {axes_without_nodes(point.axes) for point in taken}
    next_best = (
        next((p for p in own if axes_without_nodes(p.axes) not in lines), None) for own in by_rank
    )
    baselines = (point_of(row) for row in evidence.points if row.speedup == 1)
    return [*taken, *filter(None, next_best), *baselines, *chain(*by_rank)]


def write_page(study: StudyFolder) -> None:
    """Write report.html and, if the configuration exports SVG, the plots as files.

    The folder `partial`, with the page of the sweep before it ended, is removed.
    """
    warnings = data_warnings.read_warnings(study.details / "warnings.json")
    results = Results(
        study.manifest,
        study.read_table("runs"),
        study.read_table("comparison"),
        warnings,
        {name: study.read_table(name) for name in CONCLUSIONS},
        draw_plots(study),  # the page has the warnings once, at its top
        None if study.config.question == Question() else study.config.question.goal,
    )
    text = study.config.comparison
    html = render(results, text.title, text.columns, study.place or study.folder)
    atomic.write_text(study.folder / "report.html", html)
    shutil.rmtree(study.details / "plots", ignore_errors=True)
    if "svg" in study.config.export:
        with study.replace_folder("plots") as folder:
            for plot in draw_plots(study, warnings):
                atomic.write_text(folder / f"{plot.name}.svg", plot.svg)
    shutil.rmtree(study.folder / "partial", ignore_errors=True)


#: The stages that make a page from the run records, in this order.
STAGES = (write_tables.collect, write_tables.compare, write_tables.analyse, write_page)


def write_partial_page(study: StudyFolder) -> None:
    """Write tables, plots and page of an unfinished sweep, from the records that exist.

    Args:
        study: A temporary folder inside the folder of the complete study. After this stage, the
            caller renames it to `partial`.
    """
    place = study.folder.with_name("partial")
    made = replace(study, results=study.results or place.parents[1], place=place)
    for stage in STAGES:
        stage(made)
    print(f"tables and report of what has finished: {place}")
