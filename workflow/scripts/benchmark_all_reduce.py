#!/usr/bin/env python3
"""Make one all-reduce benchmark: start its ranks, watch them, check them, write the record.

INPUTS   the manifest (--manifest) with the point (--point)
OUTPUTS  all_reduce.json (--record), all_reduce.csv (every rank's durations) beside it; attempt=<n>/
         with every rank's log; after a failure failure.json with the cause, and no all_reduce.json
"""

import argparse
import os
from pathlib import Path

from msgspec.structs import asdict
from tfscaling.jobs import attempt as launching
from tfscaling.jobs import provenance, rank_files, slurm_job
from tfscaling.jobs.attempt import Attempt
from tfscaling.records import benchmark_record, checks, clock, run_record
from tfscaling.records.benchmark_record import BenchmarkEnvironment
from tfscaling.records.failure_report import Cause
from tfscaling.study import all_reduce_benchmark, parameters
from tfscaling.study.config import POINT_AXES
from tfscaling.study.geometry import Geometry
from tfscaling.study.manifest import BENCHMARK_VERSION
from tfscaling.study.run_spec import BenchmarkSpec
from tfscaling.training.strategies import STRATEGIES

LAUNCH_S = clock.now()
SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    launching.add_manifest_arguments(parser, "point", "the folder below results/all_reduce")
    parser.add_argument("--record", type=Path, required=True, help="the all_reduce.json to write")
    launching.add_arguments(parser)
    args, _ = parser.parse_known_args()
    if args.manifest:
        spec = launching.planned(
            parser,
            args,
            args.point,
            lambda manifest: (b.spec for b in manifest.all_reduce_benchmarks if b.spec),
        )
    else:
        spec = spec_of(parser)
    if spec.benchmark_version != BENCHMARK_VERSION:
        parser.error(
            f"{args.manifest}: benchmark_version {spec.benchmark_version}, "
            f"this is {BENCHMARK_VERSION}"
        )

    def work(attempt: Attempt) -> Cause | None:
        limits = launching.limits_of(args)
        cause = attempt.run_ranks(SCRIPTS / "benchmark_rank.py", [], spec, limits)
        return cause or finish(args.record, spec, attempt)

    launching.run(args.record.parent, spec, work)


def spec_of(parser: argparse.ArgumentParser) -> BenchmarkSpec:
    """The specification that axes and parameters as flags give, without a manifest."""
    definitions = all_reduce_benchmark.definitions()
    parameters.add_arguments(parser, POINT_AXES, definitions)
    axes, settings = parameters.from_namespace(parser.parse_args(), POINT_AXES, definitions)
    geometry, strategy = Geometry.of(axes), STRATEGIES[axes["strategy"]]
    replicas, jobs = strategy.replicas(geometry, 0), strategy.jobs(geometry, 0)
    return BenchmarkSpec.from_parameters(axes, settings, replicas, jobs)


def finish(path: Path, spec: BenchmarkSpec, attempt: Attempt) -> Cause | None:
    """Check what the ranks left and write the record; the cause if it does not count."""
    reports = rank_files.benchmark_reports(attempt.scratch)
    if wrong := checks.place_violations(spec, reports):
        return Cause(kind="invalid", message="; ".join(wrong))
    job = slurm_job.describe(os.environ)
    origin = provenance.describe(SCRIPTS, LAUNCH_S, job, slurm_job.settings(os.environ))
    unchecked = checks.unchecked(spec, reports)
    environment = BenchmarkEnvironment(**asdict(origin), unchecked=unchecked)
    wall_time_s = clock.now() - LAUNCH_S
    record = benchmark_record.build(spec, attempt.number, reports, wall_time_s, environment)
    benchmark_record.write_durations(path.parent, reports)
    run_record.write_json(path, record)
    gradient = record.all_reduces[0]
    print(f"done: {gradient.bytes} bytes of gradient, slowest rank {list(gradient.slowest_s)} s")
    return None


if __name__ == "__main__":
    main()
