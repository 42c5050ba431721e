#!/usr/bin/env python3
"""Print which tests and parts failed and, in the last line, how many tests passed.

usage: summary.py FOLDER PART…; FOLDER has PART.passed of each part of `make test` that passed, and
PART.xml of those that have tests. Exit status 1 after a failure.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(folder: str, *parts: str) -> int:
    counts = Counter({"passed": 0, "failed": 0})
    for part in parts:
        before = counts["failed"]
        for case in _cases(Path(folder, f"{part}.xml")):
            tags = {each.tag for each in case}
            if tags & {"failure", "error"}:
                print(f"failed: {case.get('classname')}.{case.get('name')}")
                counts["failed"] += 1
            else:
                counts["skipped" if "skipped" in tags else "passed"] += 1
        if not Path(folder, f"{part}.passed").exists() and counts["failed"] == before:
            print(f"failed: {part}; its error is above")
            counts["failed"] += 1
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return int(counts["failed"] > 0)


def _cases(path: Path) -> list[ElementTree.Element]:
    """The tests of a part; none where it has no tests, or pytest was killed while it wrote."""
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
