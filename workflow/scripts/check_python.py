#!/usr/bin/env python3
"""Print what the Python that runs this program lacks to run ranks.

It runs in users' environments, also those that are too old: it needs the standard library of Python
3.8 and nothing else.

INPUTS   --trainer if the ranks train a Keras model, --mpi if they sum by MPI
OUTPUTS  one line of JSON: `missing`, a list of words, and `command`, which installs it
"""

import argparse
import importlib
import importlib.util
import json
import re
import sys
from typing import List, Optional, Sequence, Tuple

#: Oldest Python of ranks: the types of configuration and records are unions such as `int | None`,
#: which msgspec evaluates.
OLDEST_PYTHON = (3, 10)
#: Module → its name in messages, the distributions that may contain it, the first version that is
#: allowed, the first that is not, and the requirement for pip.
TENSORFLOW_NAMES = ("tensorflow", "tensorflow-cpu", "intel-tensorflow", "tensorflow-rocm")
MODULES = {
    "msgspec": ("msgspec", ("msgspec",), (0, 20), (0, 22), "msgspec>=0.20,<0.22"),
    "tensorflow": ("TensorFlow", TENSORFLOW_NAMES, (2, 16), (2, 22), "tensorflow>=2.16,<2.22"),
    "keras": ("Keras", ("keras",), (3, 0), (4, 0), "keras>=3,<4"),
    "mpi4py": ("mpi4py", ("mpi4py",), (4, 0), (5, 0), "mpi4py>=4,<5"),
}


def main() -> None:
    """Print, as one line of JSON, what this Python lacks and how to install it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", action="store_true", help="the ranks train a Keras model")
    parser.add_argument("--mpi", action="store_true", help="the ranks sum by MPI")
    args = parser.parse_args()
    names = ["msgspec"]
    names += ["tensorflow", "keras"] if args.trainer else []
    names += ["mpi4py"] if args.mpi else []
    missing, command = find_missing(names)
    print(json.dumps({"missing": missing, "command": command}))


def find_missing(names: Sequence[str]) -> Tuple[List[str], str]:
    """Return what this Python lacks, in words, and the command that installs it.

    Args:
        names: Modules that the ranks import, keys of MODULES.

    Returns:
        A list such as ["msgspec 0.20 to 0.21"], empty if nothing is missing, and a shell command.
        If this Python is too old, the command makes an environment with a newer one.
    """
    if sys.version_info[:2] < OLDEST_PYTHON:
        oldest, own = join_version(OLDEST_PYTHON), join_version(sys.version_info[:3])
        return [f"Python {oldest} or later (it is {own})"], "python3.11 -m venv FOLDER"
    missing, requirements = [], []
    for module in names:
        title, distributions, first, end, requirement = MODULES[module]
        version = find_version(module, distributions)
        if version is None or not first <= parse_version(version) < end:
            last = (end[0], end[1] - 1)
            allowed = f"{join_version(first)} to {join_version(last)}" if end[1] else first[0]
            found = f" ({version} is installed)" if version else ""
            missing.append(f"{title} {allowed}{found}")
            requirements.append(f"'{requirement}'")
    has_pip = importlib.util.find_spec("pip") is not None
    own = sys.executable
    begins = f"{own} -m pip install" if has_pip else f"uv pip install --python {own}"
    return missing, " ".join([begins, *requirements])


def can_import_library() -> bool:
    """Return whether this Python is recent enough and has msgspec, so that `tfscaling` can load."""
    is_recent = sys.version_info[:2] >= OLDEST_PYTHON
    return is_recent and importlib.util.find_spec("msgspec") is not None


def find_version(module: str, distributions: Sequence[str]) -> Optional[str]:
    """Return the version of an installed module; None if it is not installed.

    Args:
        module: Name of the module. It is imported only if no distribution has a version.
        distributions: Names of the distributions that may contain it.
    """
    from importlib import metadata

    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return str(importlib.import_module(module).__version__)


def parse_version(text: str) -> Tuple[int, ...]:
    """Return the first two numbers of a version, such as (2, 17) for 2.17.0+nv24.10 or 2.17rc1."""
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def join_version(numbers: Sequence[int]) -> str:
    """Return the numbers of a version as text, such as "2.17" for (2, 17)."""
    return ".".join(map(str, numbers))


if __name__ == "__main__":
    main()
