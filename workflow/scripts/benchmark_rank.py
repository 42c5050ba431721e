#!/usr/bin/env python3
"""Time all-reduces on one rank of a benchmark: cluster, TF_CONFIG, strategy, times, report.

INPUTS   the benchmark's specification (--spec)
OUTPUTS  in --folder: rank-<n>.events.jsonl (each size as it is timed), rank-<n>.json (report)
"""

import argparse
import time
from pathlib import Path

from tfscaling.study import run_spec
from tfscaling.study.manifest import BENCHMARK_VERSION
from tfscaling.training import all_reduce_timing, rank


def main() -> None:
    started_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="spec.json of the attempt")
    parser.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    args = parser.parse_args()
    try:
        spec = run_spec.read(args.spec, run_spec.BenchmarkSpec)
    except run_spec.SpecError as error:
        parser.error(str(error))
    if spec.benchmark_version != BENCHMARK_VERSION:
        parser.error(
            f"{args.spec}: benchmark_version {spec.benchmark_version}, this is {BENCHMARK_VERSION}"
        )
    rank.process(spec, args.folder, started_s, lambda context: all_reduce_timing.run(context, spec))


if __name__ == "__main__":
    main()
