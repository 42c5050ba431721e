#!/usr/bin/env python3
"""Print which tests failed in several sessions and, in the last line, how many passed.

usage: summary.py FILE…; each is the file that `pytest --junitxml` writes. One that is missing or
damaged counts as a failure: pytest did not end. Exit status 1 after a failure.
"""

import sys
from collections import Counter
from xml.etree import ElementTree


def main(*files: str) -> int:
    counts = Counter({"passed": 0, "failed": 0})
    for file in files:
        try:
            cases = list(ElementTree.parse(file).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"failed: {file} has no results: {error}")
            counts["failed"] += 1
            continue
        for case in cases:
            tags = {each.tag for each in case}
            if tags & {"failure", "error"}:
                print(f"failed: {case.get('classname')}.{case.get('name')}")
                counts["failed"] += 1
            else:
                counts["skipped" if "skipped" in tags else "passed"] += 1
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
