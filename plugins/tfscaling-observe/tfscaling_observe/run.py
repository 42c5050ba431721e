"""The command `tfscaling-observe`: run a program with a file for its events."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from .observe import VARIABLE

#: Its `sitecustomize` observes `fit`.
_SITE = Path(__file__).resolve().parent / "site"


def main() -> None:
    """Run a program whose training events are written to a file."""
    parser = argparse.ArgumentParser(prog="tfscaling-observe", description=main.__doc__)
    parser.add_argument("--events", default="events.jsonl", help="the file (events.jsonl)")
    parser.add_argument("--fit", action="store_true", help="observe Model.fit of Keras, too")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM ...")
    args = parser.parse_args()
    if not args.program:
        parser.error("give a program, such as python train.py")
    os.environ[VARIABLE] = os.path.abspath(args.events)
    if args.fit:
        paths = [str(_SITE), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.execvp(args.program[0], args.program)
