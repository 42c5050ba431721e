"""Run records: the closed schema, and files that are whole or not there."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import DIVERGENCE, a_record, manifest_of, record_of, valid_config
from tfscaling.record import run_record
from tfscaling.record.phases import WALL_PHASES
from tfscaling.record.rank_report import Rank, TrainedRank
from tfscaling.record.run_record import RecordError, RunRecord

WAITING = ("queue_time_s", "boot_time_s")


def checked(content: dict[str, Any], where: str = "run.json") -> RunRecord:
    """The record with this content. Raises RecordError."""
    return run_record.parse_record(
        json.dumps(content).encode(), where, RunRecord, run_record.SCHEMA_VERSION
    )


def test_what_is_the_same_for_the_rank_before_is_not_repeated(tmp_path: Path) -> None:
    first, second = a_record()["ranks"]
    second["host_facts"]["cpu_mhz"] = 2000.0
    server = {key: second[key] for key in Rank.__struct_fields__}  # has fewer keys
    ranks = [first, second, {**second, "rank": 2, "use": None}, {**server, "rank": 3}]
    of_types = [*msgspec.convert(ranks[:3], list[TrainedRank]), msgspec.convert(ranks[3], Rank)]
    record = msgspec.structs.replace(checked(a_record()), ranks=tuple(of_types))
    run_record.write_record(tmp_path / "run.json", record)
    written = json.loads((tmp_path / "run.json").read_text())["ranks"]
    place = {"rank": 1, "host": "node1", "start_s": 1001.0}
    assert written[1] == {**place, "host_facts": {"cpu_mhz": 2000.0}}
    assert written[2:] == [{"rank": 2, "host": "node1", "use": None}, ranks[3]]
    assert [*run_record.restore_omitted_keys(written)] == ranks
    assert run_record.read_record(tmp_path / "run.json") == checked({**a_record(), "ranks": ranks})


def test_a_built_record_follows_the_schema_and_leaves_raw_steps_to_their_file() -> None:
    record = a_record()
    assert checked(record).is_valid and record["validity"]["status"] == "ok"
    assert record["derived"]["steps_per_epoch"] == 3
    assert all("steps" not in rank and "epochs" not in rank for rank in record["ranks"])


@pytest.mark.parametrize(
    "path",
    [(), ("axes",), ("derived",), ("phases",), ("metrics",), ("validity",)],
    ids=lambda path: ".".join(path) or "top",
)
def test_a_record_with_an_unknown_key_is_refused_and_the_key_named(path: tuple[str, ...]) -> None:
    record = a_record()
    place = record
    for step in path:
        place = place[step]
    place["surprise"] = 1
    with pytest.raises(RecordError, match="surprise: unknown key"):
        checked(record)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("axes", "nodes"), 0),
        (("parameters_hash",), "xyz"),
        (("metrics", "accuracy"), 1.5),
        (("metrics", "loss"), "low"),
        (("phases", "train_time_s"), None),
        (("validity", "valid"), None),
        (("ranks",), []),
        (("environment", "dataset", "name"), "../../mine"),
        *((("phases", name), -0.5) for name in (*WALL_PHASES, "execution_time_s", *WAITING)),
        # what counts has numbers
        *((("metrics", name), None) for name in ("loss", "test_loss", "test_accuracy")),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else repr(value),
)
def test_a_record_with_a_wrong_value_is_refused_and_its_place_named(
    path: tuple[str, ...], value: Any
) -> None:
    record = copy.deepcopy(a_record())
    place = record
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(RecordError) as caught:
        checked(record)
    assert str(caught.value).startswith(f"run.json: {'.'.join(path)}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "not JSON") for text in ('{"a": 1', "", "\x00", "[" * 200_000)),
        ("[1]", "not a JSON object"),
    ],
    ids=lambda text: text[:9],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(RecordError) as caught:
        run_record.read_record(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    "make",
    [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")],
    ids=["folder", "pipe", "device"],
)
def test_what_is_no_file_is_named_and_not_read(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(path := tmp_path / "run.json")
    with pytest.raises(RecordError, match="no regular file") as caught:
        run_record.read_outcome(path)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (path := tmp_path / "run.json").symlink_to(path)
    with pytest.raises(RecordError, match="symbolic link") as caught:
        run_record.read_record(path)
    assert str(path) in str(caught.value)


def test_a_record_with_nan_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**a_record(), "metrics": {"loss": math.nan}}))
    with pytest.raises(RecordError, match="not JSON: .*NaN") as caught:
        run_record.read_record(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("version", "age"), [(1, "an earlier"), (2, "an earlier"), (4, "a later")])
def test_a_record_of_another_version_names_both_and_says_what_to_do(
    tmp_path: Path, version: int, age: str
) -> None:
    path, old = tmp_path / "run.json", {**a_record(), "schema_version": version}
    old["metrics"].pop("examples_trained")  # what is missing is of the version, not the fault
    path.write_text(json.dumps(old))
    with pytest.raises(RecordError) as caught:
        run_record.read_record(path)
    text = str(caught.value)
    assert f"schema_version {version}" in text and str(run_record.SCHEMA_VERSION) in text
    assert age in text and "run it again" in text


def a_diverged_record() -> dict[str, Any]:
    planned = manifest_of(valid_config()).runs[1]
    return record_of(planned, divergence=DIVERGENCE)


def test_a_run_that_diverged_has_a_record_that_does_not_count() -> None:
    record = a_diverged_record()
    assert not checked(record).is_valid
    validity = record["validity"]
    assert (validity["status"], validity["reason"]) == ("diverged", DIVERGENCE)
    assert "finite" not in validity["checks"] and "learning" in validity["checks"]
    assert record["metrics"]["loss"] is None
    assert [epoch["loss"] for epoch in record["metrics"]["epochs"]] == [0.5, None]


@pytest.mark.parametrize(
    "change",
    [
        {"valid": True},
        {"status": "ok"},
        {"reason": ""},
        {"valid": True, "status": "ok"},
        {"valid": True, "status": "ok", "reason": ""},
    ],
    ids=str,
)
def test_a_run_that_diverged_cannot_pose_as_one_that_counts(change: dict[str, Any]) -> None:
    record = a_diverged_record()
    record["validity"] |= change
    with pytest.raises(RecordError):
        checked(record)


def test_a_record_of_a_program_need_not_know_what_nobody_observed() -> None:
    record = a_record()
    record["phases"]["train_time_s"] = record["metrics"]["loss"] = None
    record["metrics"] |= {"epochs": [], "examples_trained": None}
    record["environment"]["dataset"] = record["derived"]["steps_per_epoch"] = None
    with pytest.raises(RecordError, match="phases.train_time_s: null"):
        checked(record)
    record["parameters"]["program"] = ["python3", "train.py"]
    assert checked(record).metrics.epochs == ()
