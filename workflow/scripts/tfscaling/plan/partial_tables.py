"""Tables and page of what has finished, and files of the study that then count no more."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tfscaling.files import atomic
from tfscaling.spec.manifest import Manifest


def make(program: Path, study: Path, config: str, manifest: Manifest, log: str = "") -> Path:
    """Write them below the study's folder by a stage of `program`; return their folder.

    `program` is the folder of this library, `config` the text of the configuration's file. Output
    is copied to `log` if one is given.
    Raises subprocess.CalledProcessError.
    """
    folder = study / "partial"
    folder.mkdir(parents=True, exist_ok=True)
    # not the outputs of rules: without its memory Snakemake would not notice that they are outdated
    atomic.write_text(folder / "config.json", config)
    manifest.write(folder / "manifest.json")
    tee = f"2>&1 | tee {shlex.quote(log)}" if log else ""
    words = [sys.executable, str(program), "partial", "--study", str(study)]
    command = f"{shlex.join(words)} {tee}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True)
    return folder


def remove_outdated(paths: Iterable[str], study: Path) -> None:
    """Remove the files of the study that the next sweep makes again; no runs, data, benchmarks."""
    for path in map(Path, paths):
        if study in path.parents:
            path.unlink(missing_ok=True)
