"""Reader of a rank's output by patterns."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfscaling.record import observed_output
from tfscaling.record.observations import ObservationError

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


DIVERGED = """\
epoch 1 loss 2.31 acc 0.12
epoch 2 loss 9.70 acc 0.10
epoch 3 loss nan acc 0.10
epoch 4 loss -inf acc 0.10
epoch 5 loss NaN acc 0.10
"""


@pytest.mark.parametrize("loss", [r"loss ([\d.]+)", r"loss.*?([\d.]+)", r"loss (\d+\.\d+) acc"])
def test_a_pattern_of_digits_sees_that_the_loss_is_not_finite(log: Path, loss: str) -> None:
    log.write_text(DIVERGED)
    for patterns in ({"loss": loss}, {"loss": loss, "accuracy": r"acc ([\d.]+)"}):
        seen = observed_output.read(log, patterns)
        assert [e.metrics["loss"] for e in seen.epochs] == [2.31, 9.7, None, None, None]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (DIVERGED.replace("nan", "-").replace("-inf", "-").replace("NaN", "-"), "loss 2, acc 5"),
        ("loss 1.0 acc 0.1\nloss - acc 0.2\n", "loss 1, acc 2"),
        ("acc 0.1\nloss 1.0\nacc 0.2\nloss -\n", "loss 1, acc 2"),
    ],
)
def test_metrics_that_miss_values_have_no_epochs(log: Path, text: str, counts: str) -> None:
    log.write_text(text)
    with pytest.raises(ObservationError, match=counts) as error:
        observed_output.read(log, {"loss": r"loss ([\d.]+)", "acc": r"acc ([\d.]+)"})
    assert str(log) in str(error.value)


@pytest.mark.parametrize(
    ("text", "pattern", "read", "whole"),
    [
        ("loss 1,234.5", r"loss ([\d.]+)", "1", "1,234.5"),
        ("loss 12,345,678 x", r"loss ([\d.]+)", "12", "12,345,678"),
        ("loss 2,31", r"loss ([\d.]+)", "2", "2,31"),
        ("loss 1.2e-05 acc 0.5", r"loss ([\d.]+)", "1.2", "1.2e-05"),
        ("loss 1.2E5", r"loss ([\d.]+).*", "1.2", "1.2E5"),
        ("loss 1.2D-05", r"loss ([\d.]+)", "1.2", "1.2D-05"),
        ("seen 12k", r"seen (\d+)", "12", "12k"),
        ("loss 2.31", r"loss (\d+)", "2", "2.31"),
        ("loss 2.31", r"loss.*([\d.]+)", "1", "2.31"),
        ("loss 2.31", r"(\d+)$", "31", "2.31"),
        ("loss -0.5", r"loss\D+([\d.]+)", "0.5", "-0.5"),
        ("loss -0.5", r"([\d.]+)$", "0.5", "-0.5"),
        ("loss 1 234.5", r"loss (\d+)", "1", "1 234.5"),
        ("loss 1\u202f234", r"loss (\d+)", "1", "1\u202f234"),
    ],
)
def test_a_part_of_a_number_is_refused(
    log: Path, text: str, pattern: str, read: str, whole: str
) -> None:
    log.write_text(text)
    with pytest.raises(ObservationError) as error:
        observed_output.read(log, {"loss": pattern})
    wrong = f"{log}, line 1: loss: pattern {pattern!r} gives {read!r} of {whole!r}"
    assert str(error.value).startswith(wrong)


@pytest.mark.parametrize(
    ("text", "pattern", "value"),
    [
        ("3,0.52,0.81", r"^\d+,([\d.]+),", 0.52),
        ("100,0.52", r"^(\d+),", 100.0),
        ("epoch 1 300 examples", r"epoch (\d+)", 1.0),
        ("run-12", r"run-(\d+)", 12.0),
        ("--loss 0.5", r"loss ([\d.]+)", 0.5),
        ("loss=0.5,acc=0.75", r"loss=([\d.]+)", 0.5),
        ("took 3.5s", r"took ([\d.]+)", 3.5),
        ("12ms/step", r"(\d+)ms", 12.0),
        ("accuracy 97.5%", r"accuracy ([\d.]+)", 97.5),
        ("perplexity 20. epoch 3", r"perplexity (\d+)", 20.0),
        ("loss 1.2e-05", r"loss (\S+)", 1.2e-05),
        ("information 0.5", r"([\d.]+)", 0.5),
        ("loss nan", r"loss (nan)", None),
    ],
)
def test_what_ends_a_number(log: Path, text: str, pattern: str, value: float | None) -> None:
    log.write_text(text)
    (epoch,) = observed_output.read(log, {"loss": pattern}).epochs
    assert epoch.metrics == {"loss": value}


@pytest.mark.parametrize(
    ("text", "epochs", "warned"),
    [
        ("test 0\n loss 1\n test 1\n loss 2\n test 2\n", [0, 1, 2], False),
        ("loss 1\n loss 2\n test 2\n loss 3\n loss 4 test 4\n", [2, 4], False),
        ("loss 1\n loss 2\n test 2\n loss 3\n", [2], True),
        ("loss 1\n test 1\n loss 2\n test 2\n test 2\n", [1, 2, 2], False),
        ("test 1\n loss 1\n test 2\n loss 2\n", [1, 2], False),
    ],
    ids=["one before", "every second", "none after the last", "one more at the end", "before"],
)
def test_an_evaluation_is_of_the_epoch_that_was_printed_before_it(
    log: Path, text: str, epochs: list[int], warned: bool
) -> None:
    log.write_text(text)
    seen = observed_output.read(log, {"loss": r"loss (\d)", "test_number": r"test (\d)"})
    assert [each.epoch for each in seen.evaluations] == epochs
    assert [each.metrics["number"] for each in seen.evaluations] == epochs
    assert bool(seen.warnings) == warned


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
