"""Observers: what each reads from a program's report, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import REPOSITORY
from tfscaling.record import observers
from tfscaling.record.observers import OBSERVERS, ObservationError
from tfscaling.record.rank_report import Observed, Totals


def read(
    folder: Path, way: str, lines: list[Any], patterns: dict[str, str] | None = None
) -> Observed:
    path = folder / "report"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return OBSERVERS[way].read(path, patterns)


def step(time_s: float, steps: int, **more: Any) -> dict[str, Any]:
    return {"event": "steps", "time_s": time_s, "steps": steps, **more}


EPOCH = {"event": "epoch", "time_s": 120, "epoch": 1, "steps": 9, "metrics": {}}


def test_events(tmp_path: Path) -> None:
    lines = [
        {"event": "imported", "time_s": 100},
        step(110, 1, examples=32, input_wait_s=0.5),
        "",
        step(120, 11, examples=352, input_wait_s=1.5),
        {"event": "epoch", "time_s": 121, "epoch": 1, "steps": 11, "metrics": {"loss": 2}},
        {"event": "evaluation", "time_s": 125, "epoch": 1, "metrics": {"bleu": None}},
        {"event": "imported", "time_s": 126},
        step(130, 21, examples=600, input_wait_s=2.5),
    ]
    seen = read(tmp_path, "events", lines)
    assert (seen.imported_s, seen.first_step_s, seen.last_step_s) == (100, 110, 130)
    assert (seen.steps, seen.examples, seen.input_wait_s) == (21, 600, 2.5)
    assert seen.epochs[0].metrics == {"loss": 2.0} and seen.epochs[0].examples is None
    assert (seen.evaluations[0].begin_s, seen.evaluations[0].time_s) == (121, 125)
    assert seen.windows[1] == Totals(time_s=120, steps=11, examples=352, input_wait_s=1.5)


@pytest.mark.parametrize(("epochs", "last_step_s"), [([], 110), ([115], 115)])
def test_the_last_step_has_ended_when_its_epochs_values_came(
    tmp_path: Path, epochs: list[float], last_step_s: float
) -> None:
    ends = [{**EPOCH, "time_s": time_s} for time_s in epochs]
    seen = read(tmp_path, "events", [step(100, 1), step(110, 9), *ends, step(130, 9)])
    assert seen.last_step_s == last_step_s


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "programs.md").read_text()
    (block,) = (
        each.split("```")[0] for each in text.split("```json\n") if '"event": "epoch"' in each
    )
    seen = read(tmp_path, "events", block.splitlines())
    assert (seen.steps, len(seen.epochs), len(seen.evaluations)) == (9, 1, 1)


OUTPUT = """\
Epoch 1: loss=0.75, 100 steps
Epoch 2: loss=nan, 200 steps
val acc 0.5
Epoch 3: loss=2.5e-1, 300 steps
val acc 0.75
"""


@pytest.mark.parametrize(
    ("way", "lines", "message"),
    [
        ("events", [step(110, 5), step(120, 4)], "line 2: steps .* 5 to 4"),
        ("events", [step(110, 5, examples=9), step(120, 6, examples=8)], "line 2: examples"),
        ("events", [step(110, 5, input_wait_s=9), step(120, 6, input_wait_s=8)], "line 2: input"),
        ("events", [step(110, 5), step(109, 6)], "line 2: time_s .* 110"),
        ("events", [step(110, 1), EPOCH, EPOCH], "line 3: epoch 1 after epoch 1"),
        ("events", [step(110, 1), {**EPOCH, "epoch": 2}], "line 2: epoch 2 after epoch 0"),
        ("events", [step(110, 1), {**EPOCH, "metrics": {"loss": "low"}}], "line 2: no event"),
        ("events", [step(110, -1)], "line 1: no event"),
        ("events", [{"event": "step", "time_s": 1, "steps": 1}], "line 1: no event.*'step'"),
        ("events", [step(110, 1, exampels=4)], "line 1: no event.*exampels"),
        ("events", ['{"event": "steps", "time_s": 110, "ste', step(120, 2)], "line 1: no event"),
        ("events", ['{"event": "steps", "time_s": NaN, "steps": 1}'], "line 1: NaN .* null"),
        ("events", [{"event": "imported", "time_s": 100}], "no step"),
        ("events", [step(110, 0)], "no step"),
        ("events", [], "no step"),
    ],
)
def test_what_is_refused(tmp_path: Path, way: str, lines: list[Any], message: str) -> None:
    with pytest.raises(ObservationError, match=message) as error:
        read(tmp_path, way, lines)
    assert str(tmp_path / "report") in str(error.value)


@pytest.mark.parametrize(
    ("way", "message"), [("events", "wrote no events"), ("output", "cannot be read")]
)
def test_a_report_that_is_missing(tmp_path: Path, way: str, message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        OBSERVERS[way].read(tmp_path / "report", {"loss": "(.)"})


def test_successive_matches_are_epochs_and_the_last_one_is_the_total(tmp_path: Path) -> None:
    patterns = {"loss": r"loss=(\S+),", "steps": r"(\d+) steps", "test_accuracy": "val acc (.+)"}
    seen = read(tmp_path, "output", [OUTPUT], patterns)
    assert [e.metrics["loss"] for e in seen.epochs] == [0.75, None, 0.25]
    assert (seen.steps, seen.examples) == (300, None)
    assert [(e.epoch, e.metrics) for e in seen.evaluations] == [
        (2, {"accuracy": 0.5}),
        (3, {"accuracy": 0.75}),
    ]


def test_a_metric_that_is_printed_once_is_of_the_last_epoch(tmp_path: Path) -> None:
    patterns = {"loss": r"loss=(\S+),", "bleu": r"val acc (0.75)"}
    seen = read(tmp_path, "output", [OUTPUT], patterns)
    assert [e.metrics for e in seen.epochs][1:] == [{"loss": None}, {"loss": 0.25, "bleu": 0.75}]


DIVERGED = """\
epoch 1 loss 2.31 acc 0.12
epoch 2 loss 9.70 acc 0.10
epoch 3 loss nan acc 0.10
epoch 4 loss -inf acc 0.10
epoch 5 loss NaN acc 0.10
"""


@pytest.mark.parametrize("loss", [r"loss ([\d.]+)", r"loss.*?([\d.]+)", r"loss (\d+\.\d+) acc"])
@pytest.mark.parametrize("others", [{}, {"accuracy": r"acc ([\d.]+)"}])
def test_a_pattern_of_digits_sees_that_the_loss_is_not_finite(
    tmp_path: Path, loss: str, others: dict[str, str]
) -> None:
    seen = read(tmp_path, "output", [DIVERGED], {"loss": loss, **others})
    assert [e.metrics["loss"] for e in seen.epochs] == [2.31, 9.7, None, None, None]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (DIVERGED.replace("nan", "-").replace("-inf", "-").replace("NaN", "-"), "loss 2, acc 5"),
        ("loss 1.0 acc 0.1\nloss - acc 0.2\n", "loss 1, acc 2"),
        ("acc 0.1\nloss 1.0\nacc 0.2\nloss -\n", "loss 1, acc 2"),
    ],
)
def test_metrics_that_miss_values_have_no_epochs(tmp_path: Path, text: str, counts: str) -> None:
    with pytest.raises(ObservationError, match=counts):
        read(tmp_path, "output", [text], {"loss": r"loss ([\d.]+)", "acc": r"acc ([\d.]+)"})


@pytest.mark.parametrize(
    ("text", "pattern", "part", "whole"),
    [
        ("loss 1,234.5", r"loss ([\d.]+)", "1", "1,234.5"),
        ("loss 12,345,678 x", r"loss ([\d.]+)", "12", "12,345,678"),
        ("loss 1.2e-05 acc 0.5", r"loss ([\d.]+)", "1.2", "1.2e-05"),
        ("seen 12k", r"seen (\d+)", "12", "12k"),
        ("loss 2.31", r"loss (\d+)", "2", "2.31"),
        ("loss 2.31", r"(\d+)$", "31", "2.31"),
        ("loss -0.5", r"loss\D+([\d.]+)", "0.5", "-0.5"),
        ("loss 1 234.5", r"loss (\d+)", "1", "1 234.5"),
        ("loss 1\u202f234", r"loss (\d+)", "1", "1\u202f234"),
    ],
)
def test_a_part_of_a_number_is_refused(
    tmp_path: Path, text: str, pattern: str, part: str, whole: str
) -> None:
    with pytest.raises(ObservationError) as error:
        read(tmp_path, "output", [text], {"loss": pattern})
    for named in ("line 1", "loss", repr(pattern), repr(part), whole):
        assert named in str(error.value)


@pytest.mark.parametrize(
    ("text", "pattern", "value"),
    [
        ("3,0.52,0.81", r"^\d+,([\d.]+),", 0.52),
        ("100,0.52", r"^(\d+),", 100.0),
        ("epoch 1 300 examples", r"epoch (\d+)", 1.0),
        ("--loss 0.5", r"loss ([\d.]+)", 0.5),
        ("accuracy 97.5%", r"accuracy ([\d.]+)", 97.5),
        ("perplexity 20. epoch 3", r"perplexity (\d+)", 20.0),
        ("loss 1.2e-05", r"loss (\S+)", 1.2e-05),
        ("information 0.5", r"([\d.]+)", 0.5),
        ("accuracy nan loss 0.5", r"loss ([\d.]+)", 0.5),
        ("loss 0.5 accuracy nan", r"loss ([\d.]+)", 0.5),
        ("loss nan", r"loss (nan)", None),
    ],
)
def test_what_ends_a_number(tmp_path: Path, text: str, pattern: str, value: float | None) -> None:
    (epoch,) = read(tmp_path, "output", [text], {"loss": pattern}).epochs
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
    tmp_path: Path, text: str, epochs: list[int], warned: bool
) -> None:
    patterns = {"loss": r"loss (\d)", "test_number": r"test (\d)"}
    seen = read(tmp_path, "output", [text], patterns)
    assert [each.epoch for each in seen.evaluations] == epochs
    assert [each.metrics["number"] for each in seen.evaluations] == epochs
    assert bool(seen.warnings) == warned


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"loss": "loss=.*"}, "'loss=.*' has 0 groups"),
        ({"loss": "(loss)=(.*)"}, "has 2 groups"),
        ({"loss": "loss=("}, "no regular expression"),
        ({"loss": "perplexity=(.*)"}, "never matched in 6 lines"),
        ({"loss": r"(Epoch) \d"}, "line 1: .* gives 'Epoch'"),
        ({"loss": r"loss=(\d+x)?"}, "line 1: .* gives None"),
        ({"steps": r"loss=(\S+),"}, "gives 0.25, .* steps"),
    ],
)
def test_patterns_that_are_refused(tmp_path: Path, patterns: dict[str, str], message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        read(tmp_path, "output", [OUTPUT], patterns)


def test_a_pattern_that_does_not_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "_PATTERN_S", 0.2)
    with pytest.raises(ObservationError, match="loss: pattern .* takes longer"):
        read(tmp_path, "output", ["a" * 60], {"loss": r"^(?:a|a?)+(\d)$"})


@pytest.mark.parametrize("sign", ["-", "\u2212", "\u2013"])
def test_every_minus_sign_is_read_or_refused(tmp_path: Path, sign: str) -> None:
    text = f"loss {sign}0.5"
    (epoch,) = read(tmp_path, "output", [text], {"loss": r"loss (\S+)"}).epochs
    assert epoch.metrics == {"loss": -0.5}
    with pytest.raises(ObservationError, match="a part of a number"):
        read(tmp_path, "output", [text], {"loss": r"([\d.]+)"})


@pytest.mark.parametrize("separator", ["'", "\u2019", "\u02bc", "\u202f", "\u00a0", ","])
def test_a_number_with_thousands_separators_is_not_cut(tmp_path: Path, separator: str) -> None:
    for rest in ("234.5", "234"):
        with pytest.raises(ObservationError, match="a part of a number"):
            read(tmp_path, "output", [f"loss 1{separator}{rest}"], {"loss": r"loss (\d+)"})
