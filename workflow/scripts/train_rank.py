#!/usr/bin/env python3
"""Train one rank of a run: cluster from the environment, TF_CONFIG, strategy, training, report.

INPUTS   the prepared dataset (--dataset-file), the run's specification (--spec)
OUTPUTS  in --folder: rank-<n>.events.jsonl (phases as they pass), rank-<n>.json (the report)
"""

import time

STARTED_S = time.monotonic()  # execution_time_s begins with the trainer's first line

import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tfscaling.launch import forked_ranks, rank_process  # noqa: E402
from tfscaling.train import rank  # noqa: E402


def main() -> None:
    parser = rank_process.parser(__doc__)
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of prepare_dataset")
    args = parser.parse_args()
    rank_process.process(
        args.spec,
        args.folder,
        STARTED_S,
        lambda context: rank.run(context, args.spec, args.dataset_file),
    )


if __name__ == "__main__":
    if forked_ranks.is_asked(sys.argv):
        forked_ranks.fork_all(rank.load_tensorflow, main)
    main()
