"""Draw the plots of the configuration, one SVG each.

INPUTS   config.json, manifest.json, tables/{comparison,epochs,published,search}.csv,
         tables/warnings.json
OUTPUTS  plots/<plot>.svg, with the warnings at its foot
"""

from __future__ import annotations

from tfscaling.page import plot_figure
from tfscaling.page.plot_figure import Tables
from tfscaling.page.plot_registry import PLOTS, titles
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import data_warnings


def run(study: StudyFolder) -> None:
    """Draw each plot below its title."""
    shown = titles_of(study)
    tables = tables_of(study)
    (study.folder / "plots").mkdir(exist_ok=True)
    for name, title in shown.items():
        plot_figure.save(PLOTS[name].draw(tables, title), study.plot(name))


def titles_of(study: StudyFolder) -> dict[str, str]:
    """Name → title of the plots that the configuration names."""
    manifest = study.manifest
    return titles(study.config.plots, manifest.qualities.values(), bool(manifest.searches))


def tables_of(study: StudyFolder) -> Tables:
    """What the plots show; published results and the search may be files without a column."""
    return Tables(
        study.read("comparison"),
        study.read("epochs"),
        study.read("published", ()),
        data_warnings.footnotes(data_warnings.read(study.tables / "warnings.json")),
        study.read("search", ()),
    )
