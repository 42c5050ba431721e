"""Files of an environment as users have it: what ranks need, without Snakemake and pandas."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Packages that ranks need in a user's environment.
NEEDED = ("tensorflow", "msgspec", "mpi4py", "mpich")


def iterate_with_dependencies(*names: str) -> Iterator[Distribution]:
    """Yield installed packages of this environment, and all that they need."""
    found: dict[str, Distribution] = {}
    left = [*names]
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        found[name] = distribution(name)
        parsed = map(Requirement, found[name].requires or [])
        left += [
            each.name for each in parsed if not each.marker or each.marker.evaluate({"extra": ""})
        ]
    yield from found.values()


def iterate_files(prefix: Path) -> Iterator[Path]:
    """Yield the files of an environment's packages, relative to its folder.

    Args:
        prefix: The environment's folder. Of the tests' own environment only the packages that ranks
            need are included.
    """
    if prefix != Path(sys.prefix):
        files = [path for path in (prefix / "lib").rglob("*") if path.is_file()]
        yield from (path.relative_to(prefix) for path in files)
        return
    packages = Path(sysconfig.get_path("purelib")).relative_to(prefix)
    for package in iterate_with_dependencies(*NEEDED):
        for file in package.files or ():
            path = Path(os.path.normpath(packages / file))
            if (prefix / path).is_file():
                yield path
