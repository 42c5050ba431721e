#!/usr/bin/env python3
"""Run one training run: start its ranks, watch them, check the truth, write the record.

INPUTS   the prepared dataset (--dataset-file), the run's axes and parameters as flags
OUTPUTS  run.json (--record), steps.csv and events.jsonl beside it; attempt=<n>/ with every rank's
         log; after a failure failure.json with the cause, and no run.json
"""

import argparse
import os
from pathlib import Path
from typing import Any

from tfscaling.jobs import attempt as launching
from tfscaling.jobs import provenance, rank_files, slurm_job
from tfscaling.jobs.attempt import Attempt
from tfscaling.records import checks, clock, events, prepared_data, run_record
from tfscaling.study import parameters
from tfscaling.study.geometry import Geometry, batch_sizes
from tfscaling.study.parameters import cpus_per_task
from tfscaling.training.strategies import STRATEGIES

LAUNCH_S = clock.now()
SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of rule dataset")
    parser.add_argument("--record", type=Path, required=True, help="the run.json to write")
    launching.add_arguments(parser)
    parameters.add_arguments(parser)
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args)

    def work(attempt: Attempt) -> dict[str, Any] | None:
        try:
            data = prepared_data.describe(args.dataset_file, settings)
        except prepared_data.PreparedDataError as error:
            return {"kind": "launch_failed", "message": str(error)}
        cause = attempt.start_ranks(
            SCRIPTS / "train_rank.py",
            ["--dataset-file", str(args.dataset_file)],
            axes,
            settings,
            STRATEGIES[axes["strategy"]].jobs(Geometry.of(axes), settings["parameter_servers"]),
            args.stall_timeout_s,
        )
        if cause is None:
            attempt.wait_for_files(Geometry.of(axes).tasks, args.latency_wait_s)
            cause = finish(args.record, axes, settings, attempt, data)
        return cause

    launching.run(args.record.parent, axes, settings, work)


def finish(path: Path, axes: dict, settings: dict, attempt: Attempt, data: dict) -> dict | None:
    """Check what the ranks left and write the record; the cause if it does not count.

    `data` is what the ranks were to read, as `prepared_data.describe` has it.
    """
    reports = attempt.reports()
    geometry, strategy = Geometry.of(axes), STRATEGIES[axes["strategy"]]
    replicas = strategy.replicas(geometry, settings["parameter_servers"])
    per_replica, total = batch_sizes(parameters.recipe_of(settings), geometry, replicas)
    derived = {
        "tasks": geometry.tasks,
        "gpus_per_task": geometry.gpus_per_task,
        "cpus_per_task": cpus_per_task(axes, settings),
        "replicas": replicas,
        "per_replica_batch_size": per_replica,
        "global_batch_size": total,
    }
    asked = {
        **axes,
        **settings,
        **derived,
        "jobs": strategy.jobs(geometry, settings["parameter_servers"]),
    }
    asked |= {"train_examples": data["train_examples"], "test_examples": data["test_examples"]}
    asked["data_sha256"] = data[prepared_data.SHA256]
    required = [name for name in checks.CHECKS if name != checks.FINITE]
    if wrong := checks.violations(asked, reports, required):
        return {"kind": "invalid", "message": "; ".join(wrong)}
    # a run that diverged is a result: it has a record, and is not tried again
    divergence = "; ".join(checks.violations(asked, reports, [checks.FINITE]))
    job = slurm_job.describe(os.environ)
    rank_events = [
        events.on_launcher_clock(events.read(rank_files.events_path(attempt.scratch, r["rank"])))
        for r in reports
    ]
    if missing := run_record.missing_phases(rank_events, reports):
        return {"kind": "invalid", "message": "; ".join(missing)}
    environment = provenance.describe(SCRIPTS, LAUNCH_S, job, slurm_job.settings(os.environ))
    environment |= {"dataset": data, "unchecked": checks.unchecked(asked, reports)}
    merged = sorted((line for lines in rank_events for line in lines), key=lambda e: e["time_s"])
    events.write(path.with_name(run_record.EVENTS), merged)
    run_record.write_steps(path.parent, reports)
    run_record.follows_schema("run_record")  # compiled now, within the wall time
    # the wall time ends here: what is left is to check the record and to write it
    durations = run_record.phases(rank_events, LAUNCH_S, clock.now(), job)
    if wrong := run_record.impossible(durations, rank_events, reports):
        return {"kind": "invalid", "message": "; ".join(wrong)}
    record = run_record.build(
        axes,
        derived,
        settings,
        parameters.parameters_hash(axes, settings),
        attempt.number,
        reports,
        durations,
        environment,
        required if divergence else list(checks.CHECKS),
        divergence,
    )
    run_record.write_json(path, record)
    if divergence:
        print(f"{divergence}: the run takes part in no median")
        return None
    shown = record["metrics"]
    print(
        f"done: execution_time_s {record['phases']['execution_time_s']:.3f}, "
        f"loss {shown['loss']:.4f}, accuracy {shown['accuracy']:.4f}, "
        f"test_accuracy {shown['test_accuracy']:.4f}"
    )
    return None


if __name__ == "__main__":
    main()
