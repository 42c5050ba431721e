#!/usr/bin/env python3
"""Run one training run: start its ranks, watch them, check the truth, write the record.

INPUTS   the prepared dataset (--dataset-file), the run's axes and parameters as flags
OUTPUTS  run.json (--record), steps.csv and events.jsonl beside it; attempt=<n>/ with every rank's
         log; after a failure failure.json with the cause, and no run.json
"""

import argparse
import contextlib
import os
import socket
import sys
import time
from pathlib import Path

from tfscaling import clock, events, parameters, provenance, records, slurm_job, supervisor, truth
from tfscaling.geometry import Geometry, batch_sizes
from tfscaling.launchers import LAUNCHERS, Request, trainer_command
from tfscaling.parameters import cpus_per_task
from tfscaling.ports import ReservedPorts
from tfscaling.strategies import STRATEGIES

LAUNCH_S = time.time()
SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of rule dataset")
    parser.add_argument("--record", type=Path, required=True, help="the run.json to write")
    parser.add_argument("--stall-timeout-s", type=float, default=600.0, help="no progress: fail")
    parameters.add_arguments(parser)
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args)
    folder = args.record.parent
    folder.mkdir(parents=True, exist_ok=True)
    attempt = 1 + max([int(p.name.partition("=")[2]) for p in folder.glob("attempt=*")], default=0)
    (folder / records.FAILURE).unlink(missing_ok=True)
    scratch = folder / f"attempt={attempt}"
    scratch.mkdir()
    geometry = Geometry.of(axes)
    cause = start_ranks(args, axes, settings, geometry, scratch)
    if cause is None:
        cause = finish(args, axes, settings, geometry, scratch, attempt)
    if cause is not None:
        failure = {
            "axes": axes,
            "attempt": attempt,
            "cause": cause,
            "parameters_hash": parameters.parameters_hash(axes, settings),
        }
        records.write_json(folder / records.FAILURE, failure)
        records.write_json(scratch / records.FAILURE, failure)
        print(f"FAILED: {cause['kind']}: {cause['message']}", file=sys.stderr)
        print("\n".join(f"    {line}" for line in cause.get("last_lines", [])), file=sys.stderr)
        sys.exit(1)


def start_ranks(
    args: argparse.Namespace, axes: dict, settings: dict, geometry: Geometry, scratch: Path
) -> dict | None:
    """Start all ranks and wait for them; the cause of a failure, or None."""
    files = ["--dataset-file", str(args.dataset_file), "--folder", str(scratch)]
    flags = [*files, *parameters.to_arguments(axes, settings)]
    command = trainer_command(SCRIPTS / "train.py", flags)
    with contextlib.ExitStack() as stack:
        ports = []
        own_host = "127.0.0.1" if settings["launcher"] == "local" else socket.gethostname()
        time_source = stack.enter_context(clock.served(own_host))
        if settings["launcher"] == "local":
            ports = stack.enter_context(ReservedPorts(geometry.tasks)).numbers
        commands = LAUNCHERS[settings["launcher"]](
            Request(
                command,
                geometry,
                STRATEGIES[axes["strategy"]].jobs(geometry, settings),
                cpus_per_task(axes, settings),
                scratch,
                gpus=geometry.gpus > 0 and settings["devices"] == "physical",
                setup=settings["setup"],
                env={**settings["env"], clock.VARIABLE: time_source},
                ports=ports,
            )
        )
        print("$", " ".join(commands[0].argv), flush=True)
        return supervisor.Supervisor(commands, scratch, args.stall_timeout_s).run()


def finish(
    args: argparse.Namespace,
    axes: dict,
    settings: dict,
    geometry: Geometry,
    scratch: Path,
    attempt: int,
) -> dict | None:
    """Check what the ranks left and write the record; the cause if it does not count."""
    reports = [
        report
        for path in scratch.glob("rank-*.json")
        if (report := records.read_json(path)) is not None
    ]
    reports.sort(key=lambda report: report["rank"])
    strategy = STRATEGIES[axes["strategy"]]
    replicas = strategy.replicas(geometry, settings)
    per_replica, total = batch_sizes(settings, geometry, replicas)
    derived = {
        "tasks": geometry.tasks,
        "gpus_per_task": geometry.gpus_per_task,
        "cpus_per_task": cpus_per_task(axes, settings),
        "replicas": replicas,
        "per_replica_batch_size": per_replica,
        "global_batch_size": total,
    }
    asked = {**axes, **settings, **derived, "jobs": strategy.jobs(geometry, settings)}
    if wrong := truth.violations(asked, reports):
        return {"kind": "invalid", "message": "; ".join(wrong)}
    job = slurm_job.describe(os.environ)
    rank_events = [
        events.on_launcher_clock(events.read(scratch / f"rank-{r['rank']}.events.jsonl"))
        for r in reports
    ]
    record = records.build(
        axes,
        derived,
        settings,
        parameters.parameters_hash(axes, settings),
        attempt,
        reports,
        records.phases(rank_events, LAUNCH_S, time.time(), job),
        provenance.describe(SCRIPTS, LAUNCH_S, job, slurm_job.settings(os.environ)),
        list(truth.CHECKS),
    )
    merged = sorted((line for lines in rank_events for line in lines), key=lambda e: e["time_s"])
    events.write(args.record.with_name(records.EVENTS), merged)
    records.write_steps(args.record.parent, reports)
    records.write_json(args.record, record)
    shown = record["metrics"]
    print(
        f"done: execution_time_s {record['phases']['execution_time_s']:.3f}, "
        f"loss {shown['loss']:.4f}, accuracy {shown['accuracy']:.4f}, "
        f"test_accuracy {shown['test_accuracy']:.4f}"
    )
    return None


if __name__ == "__main__":
    main()
