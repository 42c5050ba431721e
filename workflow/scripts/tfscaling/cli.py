"""The command line of the library: `tfscaling STAGE... --study DIR` runs stages of a study.

The workflow's rules call it. A stage is a function of a module of `stages`, which reads files of
the study's folder and writes others there. Only the modules of the requested stages are imported.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
from pathlib import Path

from tfscaling.files import program_errors
from tfscaling.stages.study_folder import StudyFolder

#: Name on the command line → module of `stages`, and its function.
STAGES = {
    "analyse": ("write_tables", "analyse"),
    "archive": ("write_archive", "run"),
    "assess-repeats": ("write_plan", "assess_repeats"),
    "collect": ("write_tables", "collect"),
    "compare": ("write_tables", "compare"),
    "partial": ("write_page", "write_partial_page"),
    "plan": ("write_plan", "run"),
    "proposal": ("write_proposal", "run"),
    "regressions": ("write_tables", "print_regressions"),
    "report": ("write_page", "write_page"),
    "scaling-badge": ("write_badge", "run"),
}


def main() -> None:
    """Parse the command line and run the requested stages in their order.

    An error of an input file is printed in one line, and the exit status is 1.
    """
    parser = argparse.ArgumentParser(prog="tfscaling", description="Run stages of a study.")
    names = ", ".join(STAGES)
    parser.add_argument("stages", nargs="+", choices=STAGES, metavar="STAGE", help=names)
    parser.add_argument("--study", type=Path, required=True, help="folder, such as results/main")
    parser.add_argument("--round", type=int, default=0, help="round of assess-repeats, from 1")
    args = parser.parse_args()
    study = StudyFolder(args.study, round=args.round)
    gc.disable()  # tables live to the end: looking for garbage among them takes a tenth of the time
    for stage in args.stages:
        program_errors.exit_on_input_error(functools.partial(run_stage, stage, study))


def run_stage(stage: str, study: StudyFolder) -> None:
    """Run the stage with this name, a key of STAGES, on a study's folder.

    Raises:
        InputError: A file of the study is missing or wrong.
        OSError: A file cannot be read or written.
    """
    module, function = STAGES[stage]
    getattr(importlib.import_module(f"tfscaling.stages.{module}"), function)(study)
