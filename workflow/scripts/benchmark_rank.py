#!/usr/bin/env python3
"""Time all-reduces on one rank of a benchmark: cluster, TF_CONFIG, strategy, times, report.

INPUTS   the point's axes and the benchmark's parameters as flags
OUTPUTS  in --folder: rank-<n>.events.jsonl (each size as it is timed), rank-<n>.json (report)
"""

import argparse
import time
from pathlib import Path

from tfscaling.study import all_reduce_benchmark, parameters
from tfscaling.study.config import POINT_AXES
from tfscaling.training import all_reduce_timing, rank


def main() -> None:
    started_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    parameters.add_arguments(parser, POINT_AXES, all_reduce_benchmark.definitions())
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args, POINT_AXES, all_reduce_benchmark.definitions())
    if settings["benchmark_version"] != all_reduce_benchmark.BENCHMARK_VERSION:
        parser.error(f"this is benchmark_version {all_reduce_benchmark.BENCHMARK_VERSION}")
    rank.process(
        axes,
        settings,
        args.folder,
        started_s,
        lambda own, events: all_reduce_timing.run(own, axes, settings, events),
    )


if __name__ == "__main__":
    main()
