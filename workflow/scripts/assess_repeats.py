#!/usr/bin/env python3
"""Which points need extra repeats, because their interval is still too wide.

INPUTS   manifest.json (--manifest), the run records below --runs-dir, the round before
         (--previous, none for the first)
OUTPUTS  round=<n>.json (--output): the further runs to make, and how wide each interval is
"""

import argparse
from pathlib import Path

from tfscaling.records import run_record
from tfscaling.study import manifest
from tfscaling.study.manifest import Manifest
from tfscaling.sweep import extra_repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", "--grid", dest="manifest", type=Path, required=True)
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--previous", type=Path, nargs="?")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    before = run_record.read_json(args.previous) if args.previous else None
    asked = before["runs"] if before else []
    made = extra_repeats.next_round(
        manifest.as_dict(Manifest.read(args.manifest)), args.runs_dir, asked, args.round
    )
    for point in made["points"]:
        width = point["relative_interval"]
        shown = "no interval" if width is None else f"interval {width:.1%} of the median"
        axes = ", ".join(f"{axis} {point[axis]}" for axis in ("platform", "recipe", "nodes"))
        diverged = f", {point['diverged']} diverged" if point["diverged"] else ""
        print(f"{axes}: {point['repeats']} runs{diverged}, {shown}: {point['verdict']}")
    print(f"round {args.round}: {made['added']} further runs")
    run_record.write_json(args.output, made)


if __name__ == "__main__":
    main()
