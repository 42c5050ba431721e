"""Tables and page of what has finished, and files of the study that then count no more."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tfscaling.files import atomic
from tfscaling.study.manifest import Manifest


def make(program: Path, study: Path, config: str, manifest: Manifest, log: str = "") -> Path:
    """Write them below the folder of the study by `program`, partial.py; returns their folder.

    `config` is the text of the configuration's file. Rows of failed runs say why. What the program
    prints goes to the log, too, if there is one.
    Raises subprocess.CalledProcessError.
    """
    folder = study / "partial"
    folder.mkdir(parents=True, exist_ok=True)
    # not the outputs of rules: without its memory Snakemake would not notice that they are outdated
    files = {"--config": folder / "config.json", "--manifest": folder / "manifest.json"}
    atomic.write_text(files["--config"], config)
    manifest.write(files["--manifest"])
    given = {**files, "--runs-dir": study.parent / "runs", "--output-dir": folder}
    options = [str(word) for option in given.items() for word in option]
    tee = f"2>&1 | tee {shlex.quote(log)}" if log else ""
    command = f"{shlex.join([sys.executable, str(program), *options])} {tee}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True)
    return folder


def remove_outdated(paths: Iterable[str], study: Path) -> None:
    """Remove the files of the study that the next sweep makes again; no runs, data, benchmarks."""
    for path in map(Path, paths):
        if study in path.parents:
            path.unlink(missing_ok=True)
