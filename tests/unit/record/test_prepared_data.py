"""What a run is told of its data, and records of other data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import generator
import msgspec
import numpy as np
import pytest
from builders import SCRIPTS, local_spec
from tfscaling.record import prepared_data, run_states
from tfscaling.record.prepared_data import PreparedDataError
from tfscaling.record.run_record import PreparedData
from tfscaling.study import run_spec
from tfscaling.study.config_types import Recipe

ALL = Recipe(per_replica_batch_size=1, learning_rate=0.1, epochs=1)
FACTS = {
    "dataset": "own.data:small",
    "source": "function",
    "sha256": "a" * 64,
    "examples": {"x_train": 6, "y_train": 6, "x_test": 4, "y_test": 4},
}


def prepared(folder: Path, facts: Any = FACTS) -> Path:
    file = folder / "own.data:small.npz"
    np.savez(file, y_train=np.zeros(1))
    file.with_suffix(".json").write_text(facts if isinstance(facts, str) else json.dumps(facts))
    return file


def test_a_recipe_that_cuts_its_data_uses_no_more_than_there_are(tmp_path: Path) -> None:
    cut = msgspec.structs.replace(ALL, train_examples_max=5, test_examples_max=100)
    data = prepared_data.describe_data(prepared(tmp_path), cut)
    assert (data.train_examples, data.test_examples) == (5, 4)
    held_out = msgspec.structs.replace(ALL, validation_examples=1)
    data = prepared_data.describe_data(prepared(tmp_path), held_out)
    assert (data.train_examples, data.test_examples) == (5, 1)


@pytest.mark.parametrize(
    "facts", ["", "[]", {**FACTS, "sha256": None}, {"dataset": "old"}, {**FACTS, "examples": {}}]
)
def test_a_file_without_its_checksum_is_refused(tmp_path: Path, facts: Any) -> None:
    if isinstance(facts, dict):
        facts = {key: value for key, value in facts.items() if value is not None}
    with pytest.raises(PreparedDataError, match="delete both"):
        prepared_data.describe_data(prepared(tmp_path, facts), ALL)


def used(name: str, sha256: str) -> PreparedData:
    return generator.prepared(name, sha256 * 64)


def test_each_dataset_is_compared_with_itself_only(tmp_path: Path) -> None:
    made = [used("one", "a"), None, used("two", "b"), used("one", "a"), used("one", "c")]
    reasons = run_states.describe_data_changes(made, tmp_path)
    assert [bool(reason) for reason in reasons] == [False, False, False, False, True]
    assert "cccccccccccc" in reasons[4] and "aaaaaaaaaaaa" in reasons[4]


def test_no_rank_is_started_for_data_without_a_checksum(tmp_path: Path) -> None:
    """The launcher says so at once, rather than after a training that cannot count."""
    spec = local_spec()
    file = prepared(tmp_path, {"dataset": "mnist"})
    folder = tmp_path / "run"
    (tmp_path / "spec.json").write_text(run_spec.encode_spec(spec))
    script = [sys.executable, str(SCRIPTS / "train.py")]
    paths = ["--dataset-file", str(file), "--record", str(folder / "run.json")]
    paths += ["--spec", str(tmp_path / "spec.json")]
    done = subprocess.run([*script, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    cause = json.loads((folder / "failure.json").read_text())["cause"]
    assert cause["kind"] == "launch_failed"
    assert str(file) in cause["message"]
    assert [path.name for path in (folder / "attempt=1").iterdir() if path.is_file()] == [
        "failure.json"
    ]
