#!/usr/bin/env python3
"""Make one all-reduce benchmark: start its ranks, watch them, check the truth, write the record.

INPUTS   the point's axes and the benchmark's parameters as flags
OUTPUTS  all_reduce.json (--record), all_reduce.csv (every rank's durations) beside it; attempt=<n>/
         with every rank's log; after a failure failure.json with the cause, and no all_reduce.json
"""

import argparse
import os
from pathlib import Path
from typing import Any

from tfscaling.jobs import attempt as launching
from tfscaling.jobs import provenance, slurm_job
from tfscaling.jobs.attempt import Attempt
from tfscaling.records import benchmark_record, checks, clock, run_record
from tfscaling.study import all_reduce_benchmark, parameters
from tfscaling.study.config import POINT_AXES
from tfscaling.study.geometry import Geometry
from tfscaling.training.strategies import STRATEGIES

LAUNCH_S = clock.now()
SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, required=True, help="the all_reduce.json to write")
    launching.add_arguments(parser)
    parameters.add_arguments(parser, POINT_AXES, all_reduce_benchmark.definitions())
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args, POINT_AXES, all_reduce_benchmark.definitions())
    jobs = STRATEGIES[axes["strategy"]].jobs(Geometry.of(axes), 0)

    def work(attempt: Attempt) -> dict[str, Any] | None:
        cause = attempt.start_ranks(
            SCRIPTS / "benchmark_rank.py", [], axes, settings, jobs, args.stall_timeout_s
        )
        if cause is None:
            attempt.wait_for_files(Geometry.of(axes).tasks, args.latency_wait_s)
            cause = finish(args.record, axes, settings, jobs, attempt)
        return cause

    launching.run(args.record.parent, axes, settings, work)


def finish(path: Path, axes: dict, settings: dict, jobs: dict, attempt: Attempt) -> dict | None:
    """Check what the ranks left and write the record; the cause if it does not count."""
    reports, geometry = attempt.reports(), Geometry.of(axes)
    derived = {
        "tasks": geometry.tasks,
        "gpus_per_task": geometry.gpus_per_task,
        "cpus_per_task": parameters.cpus_per_task(axes, settings),
        "replicas": STRATEGIES[axes["strategy"]].replicas(geometry, 0),
    }
    asked = {**axes, **settings, **derived, "jobs": jobs}
    if wrong := checks.violations(asked, reports, checks.PLACE_CHECKS):
        return {"kind": "invalid", "message": "; ".join(wrong)}
    job = slurm_job.describe(os.environ)
    environment = provenance.describe(SCRIPTS, LAUNCH_S, job, slurm_job.settings(os.environ))
    record = benchmark_record.build(
        axes,
        derived,
        settings,
        parameters.parameters_hash(axes, settings),
        attempt.number,
        reports,
        clock.now() - LAUNCH_S,
        {**environment, "unchecked": checks.unchecked(asked, reports)},
    )
    benchmark_record.write_durations(path.parent, reports)
    run_record.write_json(path, record)
    gradient = record["all_reduces"][0]
    print(f"done: {gradient['bytes']} bytes of gradient, slowest rank {gradient['slowest_s']} s")
    return None


if __name__ == "__main__":
    main()
