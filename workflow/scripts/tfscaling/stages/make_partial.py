"""Tables, plots and page of the runs that have finished; starts no training and waits for none.

INPUTS   partial/config.json, partial/manifest.json, the run and benchmark records
OUTPUTS  tables/, plots/ and report.html below partial/
"""

from __future__ import annotations

import shutil

from tfscaling.stages import analyse, collect, compare, draw_plots, write_page
from tfscaling.stages.study_folder import StudyFolder

#: What each rule makes of all records, in this order.
STAGES = (collect, compare, analyse, draw_plots, write_page)


def run(study: StudyFolder) -> None:
    """Run every stage with the records that exist, in the folder `partial` of the study."""
    partial = StudyFolder(study.folder / "partial", study.results or study.folder.parent)
    for name in ("tables", "plots"):  # of platforms and plots that no longer exist
        shutil.rmtree(partial.folder / name, ignore_errors=True)
    (partial.folder / "report.html").unlink(missing_ok=True)
    partial.tables.mkdir()
    for stage in STAGES:
        stage.run(partial)
    print(f"tables, plots and report of what has finished: {partial.folder}")
