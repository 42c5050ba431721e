"""The quality of a run: the metric of its record by which its recipe says it is compared."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET

from tfscaling.records.rank_report import Epoch
from tfscaling.records.run_record import RunRecord
from tfscaling.study.config import HELD_OUT, OF_CLASSIFIERS, Quality

#: Why the time to a target is not known that a run reached.
_NO_TIMES = "its time to the target is not known: the program tells no times of all later epochs"


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
    ends with the evaluation, as MLPerf's clock does. Where the record has no moment of the epoch
    (older records, resumed runs), the later epochs are subtracted from execution_time_s and the
    evaluations so far are added; if a program reports no duration of a later epoch, the time is not
    known.
    """
    sign = 1.0 if quality.better == "higher" else -1.0
    evaluations_s, epochs = 0.0, record.metrics.epochs

    def is_reached(value: float | None) -> bool:
        return value is not None and sign * value >= sign * target

    for number, epoch in enumerate(epochs, 1):
        for each in record.metrics.evaluations:
            found = each.metrics.get(quality.metric.removeprefix(HELD_OUT))
            if each.epoch == epoch.epoch and quality.is_held_out and is_reached(found):
                return Reached(True, each.ended_s, "" if each.ended_s is not None else _NO_TIMES)
        evaluations_s += epoch.evaluation_time_s or 0.0
        if is_reached(of_epoch(epoch, quality.metric)):
            if epoch.ended_s is not None and record.resumed is None:
                return Reached(True, epoch.ended_s)
            later = epochs[number:]
            later_s = [after.duration_s for after in later if after.duration_s is not None]
            if len(later_s) < len(later):
                return Reached(True, None, _NO_TIMES)
            return Reached(True, record.phases.execution_time_s - sum(later_s) + evaluations_s)
    return Reached(False)
