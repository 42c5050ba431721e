#!/usr/bin/env python3
"""Time all-reduces on one rank of a benchmark: cluster, TF_CONFIG, strategy, times, report.

INPUTS   the benchmark's specification (--spec)
OUTPUTS  in --folder: rank-<n>.events.jsonl (each size as it is timed), rank-<n>.json (report)
"""

import time

STARTED_S = time.monotonic()

import sys  # noqa: E402

from tfscaling.launch import forked_ranks, rank_process  # noqa: E402
from tfscaling.spec.run_spec import BenchmarkSpec  # noqa: E402
from tfscaling.train import all_reduce_timing, rank  # noqa: E402


def main() -> None:
    args = rank_process.parser(__doc__, BenchmarkSpec).parse_args()
    rank_process.process(
        args.spec,
        args.folder,
        STARTED_S,
        lambda context: all_reduce_timing.run(context, args.spec),
    )


if __name__ == "__main__":
    if forked_ranks.is_asked(sys.argv):
        forked_ranks.fork_all(rank.load_tensorflow, main)
    main()
