"""The quality of a run: the metric of its record by which its recipe says it is compared."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from msgspec import UNSET

from tfscaling.record.rank_report import Epoch
from tfscaling.record.run_record import RunRecord
from tfscaling.spec.config import HELD_OUT, OF_CLASSIFIERS, Quality

#: Why the time to a target is unknown although the run reached it.
_UNKNOWN = "its time to the target is not known: "
_NO_TIMES = f"{_UNKNOWN}the program reports no times for all later epochs"
_NO_MOMENTS = f"{_UNKNOWN}its record has no moments of epochs, checkpoints and probes"


class Found(NamedTuple):
    """The value, or None and the reason."""

    value: float | None
    reason: str = ""


def of_epoch(epoch: Epoch, metric: str) -> float | None:
    """The metric after an epoch; None if it was not measured then, or is not finite."""
    if metric in OF_CLASSIFIERS:
        value = getattr(epoch, metric)
        return None if value is UNSET else value
    if metric.startswith(HELD_OUT):
        name = metric.removeprefix(HELD_OUT)
        return epoch.test_metrics.get(name, epoch.metrics.get(metric))
    return epoch.metrics.get(metric)


def of_run(record: RunRecord, quality: Quality) -> Found:
    """The quality after the last epoch, of held-out examples that of the last evaluation."""
    metric, epochs = quality.metric, record.metrics.epochs
    is_of_record = metric in OF_CLASSIFIERS
    if is_of_record and (value := getattr(record.metrics, metric)) is not None:
        return Found(value)
    told = [epoch for epoch in epochs if metric in _names(epoch)]
    if told and not is_of_record:
        last = told[-1]
        if not quality.is_held_out and last is not epochs[-1]:
            reason = f"{metric} is of epoch {last.epoch}, not of the last, {epochs[-1].epoch}"
            return Found(None, reason)
        if (value := of_epoch(last, metric)) is not None:
            return Found(value)
    if told:
        return Found(None, f"{metric} is not finite")
    known = dict.fromkeys(name for epoch in epochs for name in _names(epoch))
    only = f", only {', '.join(known)}" if known else ""
    return Found(None, f"the run measured no {metric}{only}")


def _names(epoch: Epoch) -> list[str]:
    """The metrics that were measured after an epoch."""
    of_classifiers = [n for n in OF_CLASSIFIERS if of_epoch(epoch, n) is not None]
    own = [*epoch.metrics, *(HELD_OUT + name for name in epoch.test_metrics)]
    return list(dict.fromkeys([*of_classifiers, *own]))


class Reached(NamedTuple):
    """Whether a run reached a target, and after how many seconds; if that is not known, why."""

    is_reached: bool
    time_s: float | None = None
    reason: str = ""


def reached(record: RunRecord, quality: Quality, target: float) -> Reached:
    """Whether an epoch or evaluation found the target, and when the first one that did ended.

    The clock begins with execution_time_s, the trainer's first line, initialisation included, and
    ends with the evaluation, as MLPerf's clock does. In a resumed run, the training before it
    counts, too.
    """
    sign = 1.0 if quality.better == "higher" else -1.0

    def is_reached(value: float | None) -> bool:
        return value is not None and sign * value >= sign * target

    for number, epoch in enumerate(record.metrics.epochs, 1):
        for each in record.metrics.evaluations:
            found = each.metrics.get(quality.metric.removeprefix(HELD_OUT))
            if each.epoch == epoch.epoch and quality.is_held_out and is_reached(found):
                return Reached(True, each.ended_s, "" if each.ended_s is not None else _NO_TIMES)
        if is_reached(of_epoch(epoch, quality.metric)):
            return _reached_with(record, number)
    return Reached(False)


def _reached_with(record: RunRecord, number: int) -> Reached:
    """The time up to the end of the epoch with this number (from 1).

    Where the record has no moment of the epoch (older records, epochs before a resumption), the
    later epochs are subtracted from execution_time_s and the evaluations so far are added. What
    checkpoints and probes took after the epoch is then unknown, and the time with it.
    """
    epochs, resumed = record.metrics.epochs, record.resumed
    evaluations_s = [epoch.evaluation_time_s or 0.0 for epoch in epochs[:number]]
    if (ended_s := epochs[number - 1].ended_s) is not None:
        if resumed is None:
            return Reached(True, ended_s)
        if resumed.trained_before_s is not None:
            before = [epoch.ended_s is None for epoch in epochs[:number]]
            earlier_s = sum(itertools.compress(evaluations_s, before))
            return Reached(True, resumed.trained_before_s + earlier_s + ended_s)
    later_s = [epoch.duration_s for epoch in epochs[number:]]
    known_s = [duration_s for duration_s in later_s if duration_s is not None]
    if len(known_s) < len(later_s):
        return Reached(True, None, _NO_TIMES)
    has_probes = record.metrics.gradient_noise_scale is not None
    if (later_s and record.phases.checkpoint_time_s) or has_probes:
        return Reached(True, None, _NO_MOMENTS)
    return Reached(True, record.phases.execution_time_s - sum(known_s) + sum(evaluations_s))
