"""Limits of scaling efficiency: a ratio of a configuration's runs to the runs of its baseline.

The rule is the rule of other limits (`run_counts.RULE`): every run keeps the limit and the interval
of the mean is inside it. The baseline's own error counts too. Every run is compared with that end
of the interval of the baseline's median which makes the statement harder, and the interval of the
mean is of the ratio. How often the statements are false: benchmarks/efficiency.py.

Start-up is not scaling. A configuration misses a limit of `scaling_efficiency` only if its training
without start-up misses the limit, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from tfscaling.estimation.intervals import RUNS_FOR_INTERVAL, median_interval
from tfscaling.estimation.run_counts import is_ruled_out
from tfscaling.estimation.samples import Samples
from tfscaling.record.run_states import RunState
from tfscaling.study.config_types import Limit
from tfscaling.tables.comparison import replica_ratio
from tfscaling.tables.display import count_text, format_three_digits
from tfscaling.tables.row_types import PointRow
from tfscaling.tables.row_values import is_known, point_of

#: The efficiency of the complete run, and the efficiency of training without start-up.
RUN_EFFICIENCY, TRAINING_EFFICIENCY = "scaling_efficiency", "weak_scaling_efficiency"
#: Name of a configuration's baseline in reasons.
BASELINE = "its baseline"
#: Efficiency → the metric of runs from which it is computed.
_METRICS = {RUN_EFFICIENCY: "execution_time_s", TRAINING_EFFICIENCY: "throughput_examples_per_s"}


@dataclass(frozen=True)
class Verdict:
    """Whether runs show that a configuration keeps or misses a limit.

    The limited metric is an efficiency, or the time until all trainings are done or their cost.

    Attributes:
        unknown: Why the limited metric is not known; "" if it is.
        is_missed: Whether the runs show that the configuration misses the limit.
        is_kept: Whether the runs show that it keeps the limit.
        runs: Number of its runs that were compared with its baseline; None without such a
            comparison, as for the baseline itself.
        note: Remark on the value, such as `2 runs of its baseline, 1 node`; may be "".
    """

    unknown: str = ""
    is_missed: bool = False
    is_kept: bool = False
    runs: int | None = None
    note: str = ""


@dataclass(frozen=True)
class RatioToBaseline:
    """How many times as long the runs of a configuration take as the runs of its baseline.

    With fewer than RUNS_FOR_INTERVAL runs of either, the runs show neither that a limit of the
    ratio is kept nor that it is missed.

    Attributes:
        values: Seconds of the configuration's runs, by `_seconds_of_runs`.
        baseline_values: Seconds of the baseline's runs.
        error: Probability that the true mean ratio is beyond one given end of its interval.
        shared_error: Standard error of projections from short runs, as a fraction of the ratio.
            More runs do not reduce it.
    """

    values: Sequence[float]
    baseline_values: Sequence[float]
    error: float
    shared_error: float = 0.0

    def is_kept(self, ratio_max: float) -> bool:
        """Return whether the runs show that the ratio is at most `ratio_max`."""
        if (interval := self._log_interval()) is None:
            return False
        lowest, _ = median_interval(self.baseline_values) or (0.0, 0.0)
        return max(self.values) <= ratio_max * lowest and interval[1] <= math.log(ratio_max)

    def is_missed(self, ratio_max: float, planned: int) -> bool:
        """Return whether the runs show that the ratio is above `ratio_max`.

        Args:
            ratio_max: The highest ratio that keeps the limit.
            planned: Number of planned runs of the configuration. At least half of them
                must show it, see `is_ruled_out`.
        """
        if (interval := self._log_interval()) is None:
            return False
        _, highest = median_interval(self.baseline_values) or (0.0, math.inf)
        beyond = sum(value > ratio_max * highest for value in self.values)
        return is_ruled_out(beyond, planned) and interval[0] > math.log(ratio_max)

    def _log_interval(self) -> tuple[float, float] | None:
        """Return the interval of the logarithm of the mean ratio; None for too few runs."""
        runs = min(len(self.values), len(self.baseline_values))
        if runs < RUNS_FOR_INTERVAL:
            return None
        logs = [np.log(np.asarray(each)) for each in (self.values, self.baseline_values)]
        errors = (float(each.std(ddof=1)) / math.sqrt(len(each)) for each in logs)
        half_width = float(scipy.special.stdtrit(runs - 1, 1 - self.error))
        half_width *= math.hypot(*errors, self.shared_error)
        middle = float(logs[0].mean() - logs[1].mean())
        return middle - half_width, middle + half_width


def judge_efficiency(
    samples: Samples,
    row: PointRow,
    base: PointRow | None,
    excluded: str,
    name: str,
    limit: Limit,
    error: float,
) -> Verdict:
    """Return whether a configuration keeps an efficiency limit, by its and the baseline's runs.

    Args:
        samples: The values of the runs.
        row: The configuration.
        base: Its baseline; None if the grid has none.
        excluded: Why the baseline is in no comparison; "" if it may be compared.
        name: The efficiency, one of `config_types.EFFICIENCIES`.
        limit: Its limit, an `at_least`.
        error: Error rate, one-sided.
    """
    if row.baseline_point == point_of(row).path:
        return Verdict(is_kept=True)
    if reason := _why_efficiency_unknown(samples, row, base, excluded, name):
        return Verdict(reason)
    assert base is not None, "a configuration with an efficiency has a baseline"
    ratio = _ratio_to_baseline(samples, row, base, name, error)
    share = replica_ratio(row, base)
    most = share / limit.value
    planned = samples.status_counts(point_of(row)).total()
    is_missed = ratio.is_missed(most, planned)
    notes = []
    if len(ratio.baseline_values) < RUNS_FOR_INTERVAL:
        runs = count_text(len(ratio.baseline_values), "run")
        notes.append(f"{runs} of its baseline, {row.baseline}")
    if name == RUN_EFFICIENCY and is_known(row.steady_state_speedup):
        notes.append(f"{format_three_digits(row.steady_state_speedup * share)} without start-up")
        training = _ratio_to_baseline(samples, row, base, TRAINING_EFFICIENCY, error)
        is_missed &= training.is_missed(most, planned)
    endless = (RunState.DIVERGED, RunState.DOES_NOT_FIT)
    has_endless = any(
        samples.status_counts(point_of(each))[state] for each in (row, base) for state in endless
    )
    is_kept = not has_endless and ratio.is_kept(most) and not is_missed
    return Verdict("", is_missed, is_kept, len(ratio.values), "; ".join(notes))


def _ratio_to_baseline(
    samples: Samples, row: PointRow, base: PointRow, name: str, error: float
) -> RatioToBaseline:
    """Return the times of a configuration and of its baseline as a `RatioToBaseline`.

    The efficiency follows from this ratio and from the numbers of replicas.

    Args:
        samples: The values of the runs.
        row: The configuration.
        base: Its baseline.
        name: The efficiency.
        error: Error rate of each end of the ratio's interval.
    """
    shared_error = math.hypot(
        *(
            samples.projection_error(point_of(each), _METRICS[RUN_EFFICIENCY])
            for each in (row, base)
        )
    )
    values, baseline_values = (_seconds_of_runs(samples, each, name) for each in (row, base))
    return RatioToBaseline(values, baseline_values, error, shared_error)


def _seconds_of_runs(samples: Samples, row: PointRow, name: str) -> list[float]:
    """Return the seconds that an efficiency compares, one value for each run.

    It is the run's time for RUN_EFFICIENCY, and the time per example for TRAINING_EFFICIENCY.

    Args:
        samples: The values of the runs.
        row: The configuration.
        name: The efficiency.
    """
    values = samples.values_in_unit(point_of(row), _METRICS[name])
    if name == RUN_EFFICIENCY:
        return values
    return [1 / rate for rate in values if rate > 0]


def _why_efficiency_unknown(
    samples: Samples, row: PointRow, base: PointRow | None, excluded: str, name: str
) -> str:
    """Return why a configuration has no efficiency; "" if it has one.

    Args:
        samples: The values of the runs.
        row: The configuration.
        base: Its baseline; None if the grid has none.
        excluded: Why the baseline is in no comparison; "" if it may be compared.
        name: The efficiency.
    """
    if base is None:
        return f"it has no baseline: {row.baseline}"
    if excluded:
        return f"{BASELINE}, {row.baseline}: {excluded}"
    if base.status == "excluded":
        return f"{BASELINE}, {row.baseline}: {base.reason}"
    if is_known(row[name]):
        return ""
    for whose, each in ((BASELINE, base), ("it", row)):
        if not _seconds_of_runs(samples, each, name):
            missing = "time" if name == RUN_EFFICIENCY else "throughput"
            return f"{whose} reports no {missing} that counts"
    return "it does not do the same work as its baseline"
