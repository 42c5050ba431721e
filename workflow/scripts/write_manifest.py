#!/usr/bin/env python3
"""Write the list of expected runs and excluded points.

OUTPUTS  manifest.json (--output): one entry per run with axes, sizes, parameters and their hash
"""

import argparse
import json
from pathlib import Path

from tfscaling.records import run_record
from tfscaling.study import manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, type=json.loads, help="validated, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    expected = manifest.expected_runs(args.config)
    run_record.write_json(args.output, expected)
    print(f"{len(expected['runs'])} runs, {len(expected['excluded'])} excluded points")


if __name__ == "__main__":
    main()
