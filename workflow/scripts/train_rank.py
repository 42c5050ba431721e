#!/usr/bin/env python3
"""Train one rank of a run: cluster from the environment, TF_CONFIG, strategy, training, report.

INPUTS   the prepared dataset (--dataset-file), the run's axes and parameters as flags
OUTPUTS  in --folder: rank-<n>.events.jsonl (phases as they pass), rank-<n>.json (the report)
"""

import time

STARTED_S = time.monotonic()  # execution_time_s begins with the trainer's first line

import argparse  # noqa: E402
from pathlib import Path  # noqa: E402

from tfscaling import TRAINER_VERSION  # noqa: E402
from tfscaling.study import parameters  # noqa: E402
from tfscaling.training import rank  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of rule dataset")
    parser.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    parameters.add_arguments(parser)
    args = parser.parse_args()
    axes, settings = parameters.from_namespace(args)
    if settings["trainer_version"] != TRAINER_VERSION:
        parser.error(f"this is trainer_version {TRAINER_VERSION}")
    rank.process(
        axes,
        settings,
        args.folder,
        STARTED_S,
        lambda own, events: rank.run(own, axes, settings, args.dataset_file, args.folder, events),
    )


if __name__ == "__main__":
    main()
