"""Tables and page of finished runs, made by several processes at the same time."""

from __future__ import annotations

import csv
import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import loaded_python
import msgspec
import pytest
from builders import SCRIPTS, manifest_of, valid_config, write_record
from tfscaling.console.sweep_outcome import SweepOutcome
from tfscaling.study.config_types import Config

LIBRARY = SCRIPTS / "tfscaling"


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are forks of a process that has loaded their libraries."""
    for name, value in loaded_python.environ(os.environ).items():
        monkeypatch.setenv(name, value)


def text_of(config: Config) -> str:
    return msgspec.json.encode(config).decode()


@pytest.mark.full
def test_several_at_the_same_time_are_complete(tmp_path: Path) -> None:
    """As after a failed sweep, while a user and a script look what has finished."""
    config = valid_config()
    planned, study = manifest_of(config), tmp_path / "results/main"
    for run in planned.runs:
        write_record(tmp_path / "results/runs", run)
    made = [SweepOutcome(study) for _ in range(3)]
    with ThreadPoolExecutor(len(made)) as pool:
        for each in [
            pool.submit(one.make_partial, LIBRARY, text_of(config), planned) for one in made
        ]:
            each.result()
    assert [*study.iterdir()] == [study / "partial"]
    (table, *_) = made[0].lines(is_partial=True)
    assert table.startswith("|")
    files = {str(path.relative_to(study / "partial")) for path in study.rglob("*")}
    expected = {"report.html", "runs.csv", "comparison.csv", "details/conclusions/headline.md"}
    assert files >= expected


def test_a_record_that_is_being_copied_is_no_result_yet(tmp_path: Path) -> None:
    """As by `cp` from another cluster: its file has a part of the content for a while."""
    config = valid_config()
    planned, study = manifest_of(config), tmp_path / "results/main"
    copied, *others = [write_record(tmp_path / "results/runs", run) for run in planned.runs]
    content = copied.read_bytes()
    made = SweepOutcome(study)
    for part in (random.randrange(1, len(content)), len(content)):
        copied.write_bytes(content[:part])
        made.make_partial(LIBRARY, text_of(config), planned)
        rows = list(csv.DictReader((study / "partial/runs.csv").open()))
        statuses = [row["status"] for row in rows]
        assert statuses == ["ok" if part == len(content) else "failed", *["ok"] * len(others)]
        assert copied.read_bytes() == content[:part]


def test_one_that_fails_leaves_the_earlier_one(tmp_path: Path) -> None:
    study = tmp_path / "results/main"
    (study / "partial").mkdir(parents=True)
    (study / "partial/report.html").write_text("earlier")
    config = valid_config()
    with pytest.raises(subprocess.CalledProcessError):
        SweepOutcome(study).make_partial(tmp_path / "nowhere", text_of(config), manifest_of(config))
    assert [*study.rglob("*")] == [study / "partial", study / "partial/report.html"]
