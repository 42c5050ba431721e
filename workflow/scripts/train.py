#!/usr/bin/env python3
"""Train one rank of a run: cluster from the environment, TF_CONFIG, strategy, training, report.

INPUTS   the prepared dataset (--dataset-file), the run's axes and parameters as flags
OUTPUTS  in --folder: rank-<n>.events.jsonl (phases as they pass), rank-<n>.json (the report)
"""

import time

START_S = time.time()  # execution_time_s begins with the trainer's first line

import argparse  # noqa: E402
import dataclasses  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tfscaling import TRAINER_VERSION, clock, cluster, parameters, rank  # noqa: E402
from tfscaling.events import EventLog  # noqa: E402
from tfscaling.geometry import Geometry  # noqa: E402
from tfscaling.records import write_json  # noqa: E402
from tfscaling.slurm_environment import gpus_given  # noqa: E402
from tfscaling.strategies import STRATEGIES  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of rule dataset")
    parser.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    parameters.add_arguments(parser)
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args)
    if settings["trainer_version"] != TRAINER_VERSION:
        parser.error(f"this is trainer_version {TRAINER_VERSION}")
    train(axes, settings, args.dataset_file, args.folder)


def train(axes: dict, settings: dict, dataset_file: Path, folder: Path) -> None:
    """Run this rank from its first line to its report."""
    geometry = Geometry.of(axes)
    on_gpus = axes["gpus_per_node"] > 0 and settings["devices"] == "physical"
    jobs = STRATEGIES[axes["strategy"]].jobs(geometry, settings)
    own = cluster.resolve(os.environ, jobs=jobs, gpus_per_node=None if on_gpus else 0)
    given = gpus_given(os.environ)
    os.environ.update(own.environment())
    events = EventLog(folder / f"rank-{own.rank}.events.jsonl", own.rank)
    host = socket.gethostname()
    offset = clock.measure(os.environ)
    off = {} if offset is None else dataclasses.asdict(offset)
    events.add("start", START_S, host=host, pid=os.getpid(), job=own.job, source=own.source, **off)
    print(f"rank {own.rank} on {host}: {own.job} {own.index} of {own.tf_config()}", flush=True)
    try:
        report = {"rank": own.rank, "job": own.job, "host": host, "start_s": START_S, "clock": off}
        report["gpus_given"] = given
        report |= rank.run(own, axes, settings, dataset_file, folder, events)
    except Exception as error:
        events.add("failed", error=type(error).__name__, message=str(error)[:2000])
        raise
    write_json(folder / f"rank-{own.rank}.json", report)
    events.add("end")
    sys.stdout.flush()
    if len(jobs) > 1:
        # TensorFlow's servers and coordinator have no shutdown; their threads outlive main
        os._exit(0)


if __name__ == "__main__":
    main()
