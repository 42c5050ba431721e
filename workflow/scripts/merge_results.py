#!/usr/bin/env python3
"""Take another cluster's results into these: what is planned here, all of it or nothing.

INPUTS   results/<study>/manifest.json (--study); the other project or its results (--from)
OUTPUTS  the folders of runs and benchmarks that are not here yet, below results/

`make merge FROM=DIR STUDY=name` calls it. Each conflict is a line; with one, nothing is copied.
"""

import argparse
import sys
from pathlib import Path

import msgspec
from tfscaling.console import text_lines
from tfscaling.files import atomic, program_errors
from tfscaling.plan import merging
from tfscaling.spec.manifest import Manifest

RESULTS = Path("results")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make merge", description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="there", default="")
    parser.add_argument("--study", default="main")
    args = parser.parse_args()
    there = results_of(Path(args.there or "."))
    if not args.there or not there.is_dir() or there.resolve() == RESULTS.resolve():
        sys.exit(f"FROM={args.there}: name the other project's folder, or its folder of results")
    manifest = RESULTS / args.study / "manifest.json"
    if not manifest.exists():
        sys.exit(
            f"{manifest} is missing: it says what is planned; make it first: "
            f"snakemake --profile profiles/slurm {manifest} --configfile …"
        )
    merge = merging.compare(Manifest.read(manifest), RESULTS, there)
    print("\n".join(text_lines.wrapped("\n".join(told(merge)))))
    if merge.conflicts:
        sys.exit(f"nothing is taken: {text_lines.count(len(merge.conflicts), 'conflict')}")
    merging.take(merge, RESULTS, there)
    if merge.taken:
        # an input of the tables, which have runs of other clusters that no rule makes here
        listed = msgspec.json.encode({"from": str(there), "taken": merge.taken})
        atomic.write_text(manifest.with_name("merged.json"), listed.decode())


def results_of(folder: Path) -> Path:
    """The folder of results of a project, or the folder itself."""
    return folder / RESULTS if (folder / RESULTS).is_dir() else folder


def told(merge: merging.Merge) -> list[str]:
    """What is taken, what is not, and why."""
    lines = [f"conflict: {conflict}" for conflict in merge.conflicts]
    lines.append(
        f"{text_lines.count(len(merge.taken), 'record')} to take, {merge.alike} here already"
    )
    if merge.unplanned:
        count = text_lines.count(merge.unplanned, "record")
        lines.append(f"{count} there of nothing that this study plans: left where they are")
    lines += [f"workflow's commit {commit}: {number}" for commit, number in merge.commits]
    return lines


if __name__ == "__main__":
    program_errors.told(main)
