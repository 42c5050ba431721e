#!/usr/bin/env python3
"""Build the packages of this repository as wheel and source distribution, and check them.

usage: build_packages.py FOLDER, by the Python of .tools/packages. Nothing is published.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: Folder of a package.
PACKAGES = (
    "plugins/snakemake-executor-plugin-slurm-sweep",
    "plugins/snakemake-logger-plugin-sweep",
    "plugins/tfscaling-observe",
    "provision/virtual",
)


def build(folder: str, results: Path) -> None:
    """Build wheel and source distribution of a package.

    They are built from a copy, in which links are replaced by files and the licence is added.

    Args:
        folder: The package's folder in the repository.
        results: The folder for the built files.
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, "package")
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY / folder, copy, ignore=left_out)
        shutil.copy2(REPOSITORY / "LICENSE", copy)
        words = ["--no-isolation", "--outdir", str(results), str(copy)]
        subprocess.run([sys.executable, "-m", "build", *words], check=True)


def main() -> None:
    """Empty the folder that the command line names, build all packages into it, and check them."""
    results = Path(sys.argv[1]).resolve()
    shutil.rmtree(results, ignore_errors=True)
    for folder in PACKAGES:
        build(folder, results)
    files = sorted(map(str, results.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)


if __name__ == "__main__":
    main()
