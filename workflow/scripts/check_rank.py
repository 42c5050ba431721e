#!/usr/bin/env python3
"""Check the node of one rank before a run: how fast it computes and sends; report.

INPUTS   the run's specification (--spec)
OUTPUTS  in --folder: rank-<n>.events.jsonl, rank-<n>.json (the report)
"""

import time

STARTED_S = time.monotonic()

from tfscaling.jobs import rank_process  # noqa: E402
from tfscaling.study.run_spec import RunSpec  # noqa: E402
from tfscaling.training import node_rates  # noqa: E402


def main() -> None:
    args = rank_process.parser(__doc__, RunSpec).parse_args()
    threads = args.spec.cpus_per_task
    rank_process.process(
        args.spec, args.folder, STARTED_S, lambda context: node_rates.run(context, threads)
    )


if __name__ == "__main__":
    main()
