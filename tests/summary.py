#!/usr/bin/env python3
"""Print which tests failed and, in the last line, how many passed; exit with 1 after a failure.

usage: summary.py STATUS RESULTS.xml…; a STATUS other than 0 means that a part of `make test` failed
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(status: str, *results: str) -> int:
    counts = Counter({"passed": 0, "failed": 0})
    for path in map(Path, results):
        try:
            cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError):  # pytest was killed
            cases = []
        if not cases:
            print(f"failed: {path.stem} has no results")
            counts["failed"] += 1
        for case in cases:
            tags = {each.tag for each in case}
            if tags & {"failure", "error"}:
                print(f"failed: {case.get('classname')}.{case.get('name')}")
                counts["failed"] += 1
            else:
                counts["skipped" if "skipped" in tags else "passed"] += 1
    if status != "0" and not counts["failed"]:
        print("failed: a part without tests; its error is above")
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return int(status != "0" or counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
