"""Reader of MLPerf's log lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tfscaling.record import observed_mllog
from tfscaling.record.observations import ObservationError, Observed


def line(time_s: float, key: str, value: Any = None, **metadata: Any) -> str:
    """As mlperf-logging writes it, behind what a launcher puts before each line."""
    entry = {
        "namespace": "",
        "time_ms": int(time_s * 1000),
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }
    return f"0: :::MLLOG {json.dumps(entry)}"


def read(folder: Path, *lines: str) -> Observed:
    path = folder / "rank-0.log"
    path.write_text("\n".join(["some other output", *lines, ""]))
    return observed_mllog.read(path)


def test_epochs_and_evaluations(tmp_path: Path) -> None:
    seen = read(
        tmp_path,
        line(1, "submission_benchmark", "resnet"),
        line(1, "init_start"),
        line(2, "global_batch_size", 256),
        line(3, "init_stop"),
        line(4, "run_start"),
        line(4, "epoch_start", epoch_num=1),
        line(9, "train_loss", 0.5, samples_count=512),
        line(10, "epoch_stop", epoch_num=1, step_num=4),
        line(10, "eval_start", epoch_num=1),
        line(11, "eval_samples", 100),
        line(12, "eval_accuracy", 0.25, epoch_num=1),
        line(13, "eval_stop", epoch_num=1),
        line(13, "epoch_start", epoch_num=2),
        line(19, "train_loss", float("nan"), samples_count=1024),
        line(20, "epoch_stop", epoch_num=2, step_num=8),
        line(21, "eval_error", 0.125),
        line(22, "run_stop"),
    )
    assert (seen.imported_s, seen.last_step_s) == (3, 20)
    assert (seen.steps, seen.examples, seen.examples_of_all_ranks) == (8, None, 1024)
    assert [(e.epoch, e.time_s, e.metrics) for e in seen.epochs] == [
        (1, 10, {"loss": 0.5}),
        (2, 20, {"loss": None}),
    ]
    assert [(e.epoch, e.begin_s, e.time_s, e.metrics) for e in seen.evaluations] == [
        (1, 10, 13, {"accuracy": 0.25}),
        (2, 21, 21, {"error": 0.125}),
    ]


def test_blocks_take_the_place_of_epochs(tmp_path: Path) -> None:
    seen = read(
        tmp_path,
        line(1, "block_start", first_epoch_num=1, epoch_count=4),
        line(5, "block_stop", first_epoch_num=1, epoch_count=4),
        line(6, "eval_accuracy", 0.5),
    )
    assert [(e.epoch, e.time_s) for e in seen.epochs] == [(4, 5)]
    assert seen.evaluations[0].epoch == 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no line with :::MLLOG"),
        ([":::MLLOG {"], "line 2: no :::MLLOG line"),
        ([':::MLLOG {"time_ms": 1}'], "line 2: no :::MLLOG line.*key"),
        ([line(2, "run_start"), line(1, "run_stop")], "line 3: time_ms goes back from 2000"),
    ],
)
def test_what_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        read(tmp_path, *lines)


def test_the_one_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text("nothing")
    with pytest.raises(ObservationError, match="none, expected one"):
        observed_mllog.find(tmp_path)
    (tmp_path / "deep").mkdir()
    found = tmp_path / "deep" / "result.txt"
    found.write_text(line(1, "run_start"))
    assert observed_mllog.find(tmp_path) == found


def test_evaluations_are_of_the_epoch_that_they_name_or_of_the_one_under_way(
    tmp_path: Path,
) -> None:
    seen = read(
        tmp_path,
        line(1, "eval_accuracy", 0.1),
        line(2, "epoch_start", epoch_num=1),
        line(3, "eval_accuracy", 0.7, epoch_num=0.5),
        line(4, "eval_accuracy", 0.8, epoch_num=0.9),
        line(5, "epoch_stop", epoch_num=1),
        line(6, "eval_accuracy", 0.81, epoch_num=1),
        line(7, "epoch_start", epoch_num=2),
        line(8, "eval_accuracy", 0.9),
        line(9, "epoch_stop", epoch_num=2),
    )
    found = [(each.epoch, each.metrics["accuracy"]) for each in seen.evaluations]
    assert found == [(0, 0.1), (1, 0.7), (1, 0.8), (1, 0.81), (2, 0.9)]
