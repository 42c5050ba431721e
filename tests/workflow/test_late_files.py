"""A shared file system shows a record later than the job ends: it is waited for, or not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from project import Project

BLOCK = {"platform": "laptop", "strategy": "own", "recipe": "quick", "nodes": 1}
CONFIG: dict[str, Any] = {
    "grid": [BLOCK],
    "recipes": {"quick": {"per_replica_batch_size": 32, "epochs": 1, "program": ["true"]}},
}


@contextmanager
def delay_record(project: Project, seconds: float | None = None) -> Iterator[None]:
    """Takes the project's record away as soon as it is there.

    Brings it back after some seconds, or at the end of the context.
    """
    ended, moved = threading.Event(), threading.Event()

    def move() -> None:
        while not (found := project.files_of_runs("run.json")):
            if ended.wait(0.002):
                return
        found[0].rename(project.folder / "hidden")
        moved.set()
        ended.wait(seconds)
        (project.folder / "hidden").rename(found[0])

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
        assert moved.is_set()
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.overlay(CONFIG)
    return project


RECORDS = ["--until", "train"]


def test_a_record_that_comes_within_the_latency_wait_counts(project: Project) -> None:
    with delay_record(project, 2.0):
        project.snakemake(*RECORDS, "--latency-wait", "30")
    assert len(project.records()) == 1


def test_a_record_that_comes_later_is_reported_and_not_made_again(project: Project) -> None:
    with delay_record(project):
        done = project.snakemake(*RECORDS, "--latency-wait", "1", check=False)
    assert done.returncode != 0
    assert "run.json" in done.stdout and "Traceback" not in done.stdout
    made = project.made()
    assert len(made) == 1
    assert project.snakemake(*RECORDS).returncode == 0
    assert project.made() == made
