#!/usr/bin/env python3
"""Draw one plot of the comparison.

INPUTS   comparison.csv (--comparison)
OUTPUTS  an SVG (--output)
"""

import argparse
from pathlib import Path

from tfscaling import tables
from tfscaling.plots import PLOTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", required=True, choices=list(PLOTS))
    parser.add_argument("--title", required=True)
    parser.add_argument("--comparison", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    plot(args.plot, args.title, args.comparison, args.output)


def plot(name: str, title: str, comparison: Path, output: Path) -> None:
    """Draw plot `name` of the comparison into `output`."""
    PLOTS[name].draw(tables.read_table(comparison), title).savefig(output)


if __name__ == "__main__":
    main()
