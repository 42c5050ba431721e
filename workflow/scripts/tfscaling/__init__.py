"""The library behind the workflow's rules: from configuration to runs, tables and conclusions.

Imports between its packages go one way. The docstring of a package says what belongs in it, its
`__all__` lists the modules that other packages may import, and `tests/unit/test_packages.py` has
the packages that it may import itself. `read_study` is the interface for other programs.
"""

from __future__ import annotations

import atexit
import gc
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfscaling.stages.study_results import StudyResults

#: Version of the built-in trainer. It increases when a change makes earlier measurements
#: incomparable; runs of older versions are then rerun.
TRAINER_VERSION = 9
#: Version of the measurement of user programs, which does not change with the trainer.
PROGRAM_VERSION = 4

# msgspec 0.21 and 0.22 may free the description of a type twice when Python ends (msgspec#717):
# what is frozen is not freed
atexit.register(gc.freeze)


def read_study(folder: str | Path) -> StudyResults:
    """Return the results of a study: its runs, configurations, tables and answers.

    Only files of the folder are read. pandas and SciPy are loaded by the first call.

    Args:
        folder: The folder of the study, such as `results/main`, or its folder `partial`.

    Raises:
        InputError: A ValueError of one line, if the folder is not a study's, has no tables yet, or
            has a file that is wrong.
    """
    from tfscaling.stages import study_results

    return study_results.StudyResults.read(Path(folder))
