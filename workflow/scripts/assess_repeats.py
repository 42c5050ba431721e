#!/usr/bin/env python3
"""Which points need extra repeats, because their interval is still too wide.

INPUTS   manifest.json (--manifest), the run records below --runs-dir, the round before
         (--previous, none for the first)
OUTPUTS  round=<n>.json (--output): the extra repeats to make, and how wide each interval is
"""

import argparse
from pathlib import Path

from tfscaling.files import program_errors
from tfscaling.records import run_record
from tfscaling.study.manifest import Manifest
from tfscaling.sweep import extra_repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--previous", type=Path, nargs="?")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    previous = extra_repeats.read(args.previous) if args.previous else None
    before = previous.runs if previous else ()
    planned = Manifest.read(args.manifest)
    made = extra_repeats.next_round(planned, args.runs_dir, before, args.round)
    for point in made.points:
        width = point.relative_interval
        shown = "no interval" if width is None else f"interval {width:.1%} of the median"
        axes = f"platform {point.platform}, recipe {point.recipe}, nodes {point.nodes}"
        diverged = f", {point.diverged} diverged" if point.diverged else ""
        print(f"{axes}: {point.repeats} runs{diverged}, {shown}: {point.verdict}")
    print(f"round {args.round}: {made.added} extra repeats")
    run_record.write_json(args.output, made)


if __name__ == "__main__":
    program_errors.told(main)
