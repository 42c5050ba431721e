"""Reader of a rank's output by patterns."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfscaling.records import observed_output
from tfscaling.records.observations import ObservationError

OUTPUT = """\
Epoch 1: loss=0.75, 100 steps
Epoch 2: loss=nan, 200 steps
val acc 0.5
Epoch 3: loss=2.5e-1, 300 steps
val acc 0.75
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rank-0.log"
    path.write_text(OUTPUT)
    return path


def test_successive_matches_are_epochs_and_the_last_one_is_the_total(log: Path) -> None:
    patterns = {"loss": r"loss=(\S+),", "steps": r"(\d+) steps", "test_accuracy": "val acc (.+)"}
    seen = observed_output.read(log, patterns)
    assert [e.metrics["loss"] for e in seen.epochs] == [0.75, None, 0.25]
    assert (seen.steps, seen.examples) == (300, None)
    assert [(e.epoch, e.metrics) for e in seen.evaluations] == [
        (2, {"accuracy": 0.5}),
        (3, {"accuracy": 0.75}),
    ]


def test_a_metric_that_is_printed_once_is_of_the_last_epoch(log: Path) -> None:
    seen = observed_output.read(log, {"loss": r"loss=(\S+),", "bleu": r"val acc (0.75)"})
    assert [e.metrics for e in seen.epochs][1:] == [{"loss": None}, {"loss": 0.25, "bleu": 0.75}]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"loss": "loss=.*"}, "'loss=.*' has 0 groups"),
        ({"loss": "(loss)=(.*)"}, "has 2 groups"),
        ({"loss": "loss=("}, "no regular expression"),
        ({"loss": "perplexity=(.*)"}, "never matched in 5 lines"),
        ({"loss": r"(Epoch) \d"}, "line 1: .* gives 'Epoch', expected a number"),
        ({"loss": r"loss=(\d+x)?"}, "line 1: .* gives None"),
        ({"steps": r"loss=(\S+),"}, "gives 0.25, expected a number of steps"),
    ],
)
def test_what_is_refused(log: Path, patterns: dict[str, str], message: str) -> None:
    with pytest.raises(ObservationError, match=message) as error:
        observed_output.read(log, patterns)
    assert str(log) in str(error.value)


def test_a_log_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="no output"):
        observed_output.read(tmp_path / "rank-0.log", {"loss": "(.)"})
