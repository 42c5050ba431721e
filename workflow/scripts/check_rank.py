#!/usr/bin/env python3
"""Check the node of one rank before a run: how fast it computes and sends; report.

INPUTS   the run's specification (--spec)
OUTPUTS  in --folder: rank-<n>.events.jsonl, rank-<n>.json (the report)
"""

import time

STARTED_S = time.monotonic()

from tfscaling.launch import rank_process  # noqa: E402
from tfscaling.spec.run_spec import RunSpec  # noqa: E402
from tfscaling.train import node_rates  # noqa: E402


def main() -> None:
    parser = rank_process.parser(__doc__, RunSpec)
    words = "how much later than this rank others may begin"
    parser.add_argument("--meet-s", type=float, required=True, help=words)
    args = parser.parse_args()
    threads, meet_s = args.spec.cpus_per_task, args.meet_s
    rank_process.process(
        args.spec,
        args.folder,
        STARTED_S,
        lambda context: node_rates.rates_of_node(context, threads, meet_s),
    )


if __name__ == "__main__":
    main()
