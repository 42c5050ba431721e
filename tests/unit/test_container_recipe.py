"""provision/container/tfscaling.def copies what set-up needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from project import REPOSITORY

RECIPE = (REPOSITORY / "provision/container/tfscaling.def").read_text()
BODIES = dict(re.findall(r"^%(\S+)\n((?:(?!%).*\n)*)", RECIPE, re.MULTILINE))
#: What `%files` copies: Apptainer reads one source and one destination from a line, and no more.
COPIED = [line.split() for line in BODIES["files"].splitlines() if line.strip()]


def test_the_copied_files_are_all_that_set_up_needs(tmp_path: Path) -> None:
    for source, destination in COPIED:
        own, copy = REPOSITORY / source, tmp_path / destination.removeprefix("/opt/tfscaling/")
        (shutil.copytree if own.is_dir() else shutil.copy2)(own, copy)
    assert "make --directory=/opt/tfscaling setup TRAINER=1\n" in BODIES["post"]
    planned = subprocess.run(
        ["make", "--dry-run", "setup", "TRAINER=1"], cwd=tmp_path, capture_output=True, text=True
    )
    assert planned.returncode == 0, planned.stderr
    named = set(re.findall(r"\b(?:provision/\S+|requirements[\w-]*\.txt)", planned.stdout))
    assert named >= {"requirements.txt", "requirements-trainer.txt"}
    assert all((tmp_path / name.rstrip(");")).exists() for name in named)
