"""Every metric can be read from a record, is described, and no record's value is left out."""

from __future__ import annotations

import msgspec
import pytest
from builders import a_record
from tfscaling.record.metrics import METRICS
from tfscaling.record.phases import Phases
from tfscaling.record.rank_report import GradientNorms
from tfscaling.record.run_record import Metrics, RunRecord

RECORD = msgspec.convert(a_record(), RunRecord)


def test_the_time_with_queue_is_that_from_the_submission() -> None:
    value = METRICS["time_with_queue_s"].value
    assert value is not None
    assert value(RECORD) is None  # nobody told of a queue
    waited = msgspec.structs.replace(RECORD.phases, queue_time_s=100.0, boot_time_s=30.0)
    record = msgspec.structs.replace(RECORD, phases=waited)
    assert value(record) == RECORD.phases.execution_time_s + 130.0


@pytest.mark.parametrize(
    ("name", "value", "direction"),
    [
        ("loss", 0.25, "lower"),
        ("accuracy", 0.9, "higher"),
        ("test_loss", 0.3, "lower"),
        ("test_accuracy", 0.88, "higher"),
        ("step_time_s", 0.1, "lower"),
        ("throughput_examples_per_s", 5 * 128 / 10.0, "higher"),
    ],
)
def test_results_of_training_are_metrics(name: str, value: float, direction: str) -> None:
    metric = METRICS[name]
    assert metric.value is not None
    assert metric.value(RECORD) == pytest.approx(value)
    assert metric.direction == direction


def test_the_noise_scale_of_a_record_of_before_is_that_of_the_last_evaluation() -> None:
    norms = [
        GradientNorms(epoch=n, part_examples=8, whole_examples=16, parts=(part,), whole=(whole,))
        for n, part, whole in ((1, 101.0, 100.5), (2, 2.0, 1.5))
    ]
    metrics = msgspec.structs.replace(
        RECORD.metrics, gradient_norms=tuple(norms), gradient_noise_scale=0.1
    )
    value = METRICS["gradient_noise_scale"].value
    assert value is not None
    assert value(RECORD) is None
    assert value(msgspec.structs.replace(RECORD, metrics=metrics)) == pytest.approx(8.0)


def test_metrics_that_need_other_points_or_prices_are_left_to_the_tables() -> None:
    without = {name for name, metric in METRICS.items() if metric.value is None}
    published = {f"published_{name}" for name in ("execution_time_s", "loss", "accuracy")}
    ratios = {f"{name}_ratio" for name in ("execution_time", "loss", "accuracy")}
    target = {"time_to_target_s", "cost_to_target_usd"}
    speedups = {"speedup", "scaling_efficiency", "steady_state_speedup"}
    assert without == speedups | {"cost_usd", "quality"} | target | published | ratios


def test_every_number_of_a_record_is_a_metric() -> None:
    numbers = {*Phases.__struct_fields__, *Metrics.__struct_fields__}
    numbers -= {"epochs", "slowest_rank", "slowest_host"}  # a list, and names
    numbers -= {"attribution", "evaluations", "gradient_norms"}  # tables
    numbers -= {"examples_trained"}  # the work that metrics are of: a column of its own
    assert numbers <= set(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_direction_title_and_digits_are_given(name: str) -> None:
    metric = METRICS[name]
    assert metric.direction in ("lower", "higher") or name == "quality"
    assert metric.title
    assert metric.digits >= 0
