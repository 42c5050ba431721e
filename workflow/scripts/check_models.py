#!/usr/bin/env python3
"""Build each of these runs' models once, on this machine's CPU, before any run starts.

INPUTS   models, each with a run (--models, a JSON array), prepared datasets below --datasets-dir
OUTPUTS  --problems, a line of JSON for each model: why no such run can begin, and warnings
"""

import argparse
import os
from pathlib import Path

import msgspec
from tfscaling.files import program_errors
from tfscaling.study import variants
from tfscaling.study.run_spec import ModelToCheck
from tfscaling.train import rank, strategies


def main() -> None:
    """Build the model of each entry of --models, and write the results to --problems."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--datasets-dir", type=Path, required=True)
    parser.add_argument("--problems", type=Path, required=True)
    args = parser.parse_args()
    models = program_errors.read_json(args.models, list[ModelToCheck])
    strategies.hide_gpus(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    rank.load_tensorflow()
    with args.problems.open("wb", buffering=0) as problems:
        for model in models:
            spec = model.spec
            print(f"{spec.point.model} with recipe {spec.point.recipe}", flush=True)
            file = args.datasets_dir / f"{variants.data_name_of_run(spec)}.npz"
            problems.write(msgspec.json.encode(rank.check_model(model, file)) + b"\n")


if __name__ == "__main__":
    program_errors.exit_on_input_error(main)
