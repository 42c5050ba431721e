#!/usr/bin/env python3
"""Open the page of a study in a browser, and print its path.

INPUTS   results/<study>/report.html (--study), else the newest page
OUTPUTS  one line with the path

`make view` and `make view STUDY=demo` call it. Where no browser is, the line says so.
"""

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

RESULTS = Path("results")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make view", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="")
    args = parser.parse_args()
    page = page_of(args.study)
    if page is None:
        known = sorted(path.parent.name for path in pages())
        rule = f"there are pages of {', '.join(known)}" if known else "`make demo` makes one"
        sys.exit(f"no page{' of ' + args.study if args.study else ''} in {RESULTS}/; {rule}")
    print(shown(page))


def pages() -> list[Path]:
    return list(RESULTS.glob("*/report.html"))


def page_of(study: str) -> Path | None:
    """The page of the study, or the newest of all; None if there is none."""
    found = [path for path in pages() if study in ("", path.parent.name)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def shown(page: Path, open_page: Callable[[str], bool] = webbrowser.open) -> str:
    """Open the page; the line to print."""
    path = page.resolve()
    if open_page(path.as_uri()):
        return str(path)
    return f"{path}\nNo browser was found here: open this file in one, or copy it; it is complete."


if __name__ == "__main__":
    main()
