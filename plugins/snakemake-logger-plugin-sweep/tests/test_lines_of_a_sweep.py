"""A local Snakefile whose object turns Snakemake's events into lines."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

SNAKEFILE = """
from snakemake.logging import logger

NUMBERS = range({number})


class Sweep:
    is_over = False

    def on_event(self, event, fields, now_s):
        return [f"event {{event}}"] if event == "job_finished" else []

    def poll(self, now_s):
        return []

    def status(self, now_s):
        return ""

    def preview(self, jobs):
        return [f"preview of {{len(jobs)}}"]

    def result_lines(self):
        return ["the results"]


logger.info("a sweep of {number}", extra={{"sweep": Sweep()}})

rule all:
    input: expand("{{n}}.txt", n=NUMBERS)

rule one:
    output: "{{n}}.txt"
    shell: "touch {{output}}"
"""


@pytest.fixture
def number(tmp_path: Path) -> int:
    """How many jobs the Snakefile in the folder has, besides rule all."""
    number = random.randint(1, 4)
    (tmp_path / "Snakefile").write_text(SNAKEFILE.format(number=number))
    return number


def lines_of(folder: Path, *words: str) -> list[str]:
    command = [sys.executable, "-m", "snakemake", "--logger", "sweep", "--cores", "1", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).splitlines()


def test_lines_come_from_the_object_alone(tmp_path: Path, number: int) -> None:
    lines = lines_of(tmp_path)
    assert f"a sweep of {number}" in lines
    assert len([line for line in lines if line.endswith("event job_finished")]) == number + 1
    assert not [line for line in lines if line.startswith(("rule one", "Finished"))]


def test_a_dry_run_is_the_objects_preview(tmp_path: Path, number: int) -> None:
    assert f"preview of {number + 1}" in lines_of(tmp_path, "--dry-run")
    assert not (tmp_path / "0.txt").exists()
