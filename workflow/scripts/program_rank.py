#!/usr/bin/env python3
"""Run a user's program as one rank of a run: cluster from the environment, start, end, report.

INPUTS   the run's specification (--spec), the prepared dataset if it names one (--dataset-file)
OUTPUTS  in --folder: rank-<n>.events.jsonl (start and end), rank-<n>.json (the report),
         rank-<n>.files (a folder for the program)
"""

import time

STARTED_S = time.monotonic()

from pathlib import Path  # noqa: E402

from tfscaling.launch import rank_process  # noqa: E402
from tfscaling.launch.user_program import UserProgram  # noqa: E402


def main() -> None:
    parser = rank_process.parser(__doc__)
    parser.add_argument("--dataset-file", type=Path, help="file of prepare_dataset")
    args = parser.parse_args()
    program = UserProgram(args.spec, args.dataset_file)
    rank_process.process(args.spec, args.folder, STARTED_S, program.run, program.usage)


if __name__ == "__main__":
    main()
