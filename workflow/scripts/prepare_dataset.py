#!/usr/bin/env python3
"""Fetch one dataset, verify its checksums and prepare the file that every rank reads.

OUTPUTS  the arrays as .npz (--output) and where they came from as JSON (--provenance)
"""

import argparse
import sys
from pathlib import Path

import msgspec
from tfscaling.datasets import catalogue
from tfscaling.files import program_errors
from tfscaling.study import user_code
from tfscaling.study.config_types import ParameterValue
from tfscaling.study.config_validation import list_allowed_names


def main() -> None:
    """Prepare the dataset of --dataset, write it to --output and its origin to --provenance."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", required=True, help="a name or package.module:function")
    parser.add_argument(
        "--parameters", type=parse_parameters, default={}, metavar="JSON", help="of a function"
    )
    parser.add_argument("--path", type=Path, nargs="?", help="a local copy; default: fetch it")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--provenance", type=Path, required=True)
    args = parser.parse_args()
    if args.dataset not in catalogue.DATASETS and not user_code.is_reference(args.dataset):
        allowed = list_allowed_names(catalogue.DATASETS, args.dataset)
        parser.error(f"--dataset {allowed} or {user_code.REFERENCE_FORM}")
    try:
        source = catalogue.fetch(
            args.dataset, args.path, args.output, args.provenance, args.parameters
        )
    except catalogue.DatasetError as error:
        sys.exit(f"ERROR: {error}")
    is_published = catalogue.find_dataset(args.dataset).sha256 is not None
    checked = "the published checksum" if is_published else "no published checksum"
    print(f"{args.dataset}: from {source}, {checked}")


def parse_parameters(text: str) -> dict[str, ParameterValue]:
    """Return parameter → value from --parameters, a JSON object."""
    return msgspec.json.decode(text, type=dict[str, ParameterValue])


if __name__ == "__main__":
    program_errors.exit_on_input_error(main)
