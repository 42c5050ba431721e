"""Write one self-contained page: the answer, the tables, the plots, and what they rest on.

INPUTS   config.json, manifest.json, tables/*.csv, tables/warnings.json, plots/<plot>.svg
OUTPUTS  report.html, which loads nothing from the network; partial/ and plots that the
         configuration no longer names are removed
"""

from __future__ import annotations

import shutil

from tfscaling.conclusions.base import CONCLUSIONS
from tfscaling.files import atomic
from tfscaling.page.html_page import Plot, Results, render
from tfscaling.page.plot_registry import PLOTS
from tfscaling.stages.draw_plots import titles_of
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import data_warnings


def run(study: StudyFolder) -> None:
    """Write the page; its links to records are relative to the study's folder."""
    comparison, shown = study.read("comparison"), titles_of(study)
    results = Results(
        study.manifest,
        study.read("runs"),
        comparison,
        data_warnings.read(study.tables / "warnings.json"),
        {name: study.read(name, ()) for name in CONCLUSIONS},
        [
            Plot(name, title, study.plot(name).read_bytes())
            for name, title in shown.items()
            if PLOTS[name].is_measured(comparison)
        ],
    )
    text = study.config.comparison
    page = render(results, text.title, text.columns, study.folder)
    atomic.write_text(study.folder / "report.html", page)
    remove_superseded(study, set(shown))


def remove_superseded(study: StudyFolder, plots: set[str]) -> None:
    """Remove the partial results and the plots that the page does not show."""
    shutil.rmtree(study.folder / "partial", ignore_errors=True)
    for path in (study.folder / "plots").glob("*.svg"):
        if path.stem not in plots:
            path.unlink()
