#!/usr/bin/env python3
"""Train one rank of a run: cluster from the environment, TF_CONFIG, strategy, training, report.

INPUTS   the prepared dataset (--dataset-file), the run's specification (--spec)
OUTPUTS  in --folder: rank-<n>.events.jsonl (phases as they pass), rank-<n>.json (the report)
"""

import time

STARTED_S = time.monotonic()  # execution_time_s begins with the trainer's first line

import argparse  # noqa: E402
from pathlib import Path  # noqa: E402

from tfscaling import TRAINER_VERSION  # noqa: E402
from tfscaling.study import run_spec  # noqa: E402
from tfscaling.training import rank  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="spec.json of the attempt")
    parser.add_argument("--dataset-file", type=Path, required=True, help="file of prepare_dataset")
    parser.add_argument("--folder", type=Path, required=True, help="where to leave the report")
    args = parser.parse_args()
    try:
        spec = run_spec.read(args.spec, run_spec.RunSpec)
    except run_spec.SpecError as error:
        parser.error(str(error))
    if spec.trainer_version != TRAINER_VERSION:
        parser.error(
            f"{args.spec}: trainer_version {spec.trainer_version}, this is {TRAINER_VERSION}"
        )
    rank.process(
        spec, args.folder, STARTED_S, lambda context: rank.run(context, spec, args.dataset_file)
    )


if __name__ == "__main__":
    main()
