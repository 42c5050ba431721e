"""Programs under the command `tfscaling-observe`, and their lines."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("tfscaling-observe")
LOOP = """
import sys
import tfscaling_observe as observe
epochs, batches, size = map(int, sys.argv[1:])
for epoch in range(epochs):
    for batch in observe.steps([[0.0] * size] * batches):
        pass
    observe.epoch(loss=1 / (epoch + 1))
    observe.eval(accuracy=epoch)
"""


def events(folder: Path, *words: str) -> list[dict[str, Any]]:
    """The events of a program."""
    command = [str(COMMAND), "--events", "events.jsonl", *words]
    done = subprocess.run(command, cwd=str(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file = folder / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_loop_of_four_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    epochs, batches, size = (random.randint(1, 5) for _ in range(3))
    found = events(tmp_path, sys.executable, "train.py", *map(str, (epochs, batches, size)))
    ended = [event for event in found if event["event"] == "epoch"]
    assert [event["metrics"]["loss"] for event in ended] == [1 / (n + 1) for n in range(epochs)]
    assert ended[-1]["steps"] == epochs * batches
    assert ended[-1]["examples"] == epochs * batches * size
    assert len([event for event in found if event["event"] == "evaluation"]) == epochs


@pytest.mark.parametrize("options", [[], ["--fit"]], ids=str)
def test_fit_is_observed_by_a_site_that_programs_start_with(
    tmp_path: Path, options: list[str]
) -> None:
    show = "import sys; print('tfscaling_observe_fit' in sys.modules, file=open('seen', 'w'))"
    events(tmp_path, *options, sys.executable, "-c", show)
    assert (tmp_path / "seen").read_text().strip() == str(bool(options))
