#!/usr/bin/env python3
"""Make one all-reduce benchmark: start its ranks, watch them, check them, write the record.

INPUTS   the benchmark's specification (--spec)
OUTPUTS  all_reduce.json (--record), all_reduce.csv (every rank's durations) next to it;
attempt=<n>/
         with every rank's log; after a failure failure.json with the cause, and no all_reduce.json
"""

import argparse
from pathlib import Path

from msgspec.structs import asdict
from tfscaling.files import program_errors
from tfscaling.launch import attempt as launching
from tfscaling.launch import provenance, rank_files
from tfscaling.launch.attempt import Attempt, Limits
from tfscaling.record import attempts, benchmark_record, checks, clock, run_record
from tfscaling.record.attempts import Cause
from tfscaling.record.benchmark_record import BenchmarkEnvironment
from tfscaling.spec import user_code
from tfscaling.spec.run_spec import BenchmarkSpec

LAUNCH_S = clock.now()
SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    launching.add_arguments(parser, BenchmarkSpec)
    parser.add_argument("--record", type=Path, required=True, help="the all_reduce.json to write")
    args = parser.parse_args()
    spec: BenchmarkSpec = args.spec

    def work(attempt: Attempt) -> Cause | None:
        limits = Limits(args.stall_timeout_s, args.latency_wait_s)
        cause = attempt.run_ranks(SCRIPTS / "benchmark_rank.py", [], spec, limits)
        return cause or finish(args.record, spec, attempt)

    launching.run(args.record.parent, spec, work)


def finish(path: Path, spec: BenchmarkSpec, attempt: Attempt) -> Cause | None:
    """Check what the ranks left and write the record; the cause if it does not count."""
    reports = rank_files.reports(attempt.scratch, rank_files.BENCHMARK)
    if wrong := checks.place_problems(spec, reports):
        return Cause(kind="invalid", message="; ".join(wrong.values()))
    code = user_code.of_names(spec.point.model).checksums()
    origin = provenance.describe(SCRIPTS, LAUNCH_S, code)
    unchecked = checks.unchecked(spec, reports)
    environment = BenchmarkEnvironment(**asdict(origin), unchecked=unchecked)
    wall_time_s = clock.now() - LAUNCH_S
    record = benchmark_record.build(spec, attempt.number, reports, wall_time_s, environment)
    benchmark_record.write_durations(attempt.scratch, reports)
    run_record.write_json(attempt.scratch / attempts.RECORD, record)
    launching.publish_record(attempt.scratch, path, [benchmark_record.DURATIONS])
    gradient = record.all_reduces[0]
    print(f"done: {gradient.bytes} bytes of gradient, slowest rank {list(gradient.slowest_s)} s")
    return None


if __name__ == "__main__":
    program_errors.told(main)
