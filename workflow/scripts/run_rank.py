#!/usr/bin/env python3
"""Run one rank of a run: cluster from the environment, training or the user's program, report.

INPUTS   the run's specification (--spec), the prepared dataset if it names one (--dataset-file)
OUTPUTS  events, heartbeats and the report, sent to the launcher, or written to --folder without a
         connection; rank-<n>.files there, a folder for a program that asks for one
"""

import time

STARTED_S = time.monotonic()  # execution_time_s begins with the trainer's first line

import sys  # noqa: E402

import check_python  # noqa: E402

# in a user's Python, where the sweep's checks could not be made
if not check_python.can_import_library():
    missing, command = check_python.find_missing(["msgspec"])
    sys.exit(f"{sys.executable} lacks {', '.join(missing)}; install it: {command}")

from collections.abc import Callable  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402

from tfscaling.launch import forked_ranks, rank_process  # noqa: E402
from tfscaling.launch.user_program import UserProgram  # noqa: E402


def main() -> None:
    """Train as one rank, or run the user's program as one, and report to the launcher."""
    parser = rank_process.make_parser(__doc__)
    parser.add_argument("--dataset-file", type=Path, help="file of prepare_dataset")
    args = parser.parse_args()
    process = partial(rank_process.run_as_rank, args.spec, args.folder, STARTED_S)
    load: Callable[[], object] | None
    if args.spec.recipe.program:
        program, load = UserProgram(args.spec, args.dataset_file), None
        be_rank = partial(process, program.run, program.usage, program.give_up)
    elif args.dataset_file is None:
        parser.error("--dataset-file: missing")
    else:
        from tfscaling.train import rank  # NumPy, which no rank of a program needs

        load = rank.load_tensorflow
        be_rank = partial(
            process, partial(rank.train_as_rank, spec=args.spec, dataset_file=args.dataset_file)
        )

    if args.forks_ranks:
        forked_ranks.fork_all(args.forks_ranks, load, be_rank)
    be_rank()


if __name__ == "__main__":
    main()
