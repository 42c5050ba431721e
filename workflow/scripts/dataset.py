#!/usr/bin/env python3
"""Fetch one dataset, verify its checksums and prepare the file that every rank reads.

OUTPUTS  the arrays as .npz (--output) and where they came from as JSON (--provenance)
"""

import argparse
import sys
from pathlib import Path

from tfscaling import datasets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", required=True, choices=sorted(datasets.DATASETS))
    parser.add_argument("--path", type=Path, help="a local copy; default: fetch it")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--provenance", type=Path, required=True)
    args = parser.parse_args()
    try:
        source = datasets.fetch(args.dataset, args.path, args.output, args.provenance)
    except datasets.DatasetError as error:
        sys.exit(f"ERROR: {error}")
    print(f"{args.dataset}: from {source}, all checksums as published")


if __name__ == "__main__":
    main()
