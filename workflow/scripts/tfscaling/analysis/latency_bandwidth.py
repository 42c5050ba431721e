"""Latency and bandwidth from the times of messages of several sizes.

Source: R. W. Hockney, "The communication challenge for MPP" (Parallel Computing 20, 1994):
message of so many bytes takes t = latency + bytes / bandwidth. Here the message is a whole
all-reduce, so both are those of the operation: a ring of n replicas sends 2 (n - 1) / n times the
bytes over each link and waits 2 (n - 1) times for the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

_Sizes = TypeVar("_Sizes", float, np.ndarray)

#: Fewer sizes leave nothing to check the two parameters by.
SIZES_MIN = 5
#: The largest size must take so many times as long as the smallest, or bandwidth shows nowhere.
RANGE_MIN = 3.0
#: No size may take so many times as long, or as short, as the model says. Two is not rare: a small
#: message may go another way through the software than a larger one.
MISFIT_MAX = 3.0
#: Neither parameter may change by such a factor when any one size is left out.
CHANGE_MAX = 2.0


@dataclass(frozen=True)
class Fit:
    """`misfit_max` is the largest factor between a size's time and the model's, 1 or more.

    The ranges are those of the fits that each leave one size out.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    latency_range_s: tuple[float, float]
    bandwidth_range_bytes_per_s: tuple[float, float]
    misfit_max: float


@dataclass(frozen=True)
class Refusal:
    """The times do not determine the two parameters, or do not follow the model."""

    reason: str


def time_s(latency_s: float, bandwidth_bytes_per_s: float, size_bytes: _Sizes) -> _Sizes:
    """What the model says of a size, or of an array of them."""
    return latency_s + size_bytes / bandwidth_bytes_per_s


def fit(sizes_bytes: Sequence[float], times_s: Sequence[float]) -> Fit | Refusal:
    """Fit the model to one time for each size, or say why not.

    Relative errors count, so that the small sizes weigh as much as the large, and by their absolute
    value from a tenth on (loss soft-l1), so that a single odd size does not lead.
    """
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(times_s, float)
    order = np.argsort(sizes)
    sizes, times = sizes[order], times[order]
    if len(sizes) < SIZES_MIN:
        return Refusal(f"{len(sizes)} sizes are too few, {SIZES_MIN} are needed")
    if times[-1] < RANGE_MIN * times[0]:
        return Refusal(
            f"{sizes[-1]:.0f} bytes take only {times[-1] / times[0]:.1f} times as long as "
            f"{sizes[0]:.0f}: larger sizes are needed to see the bandwidth"
        )
    latency_s, bandwidth = _parameters(sizes, times)
    if sizes[0] / bandwidth > latency_s:
        return Refusal(
            f"already {sizes[0]:.0f} bytes take longer than the latency: smaller sizes are needed"
        )
    ratios = times / time_s(latency_s, bandwidth, sizes)
    worst = int(np.argmax(np.abs(np.log(ratios))))
    if not 1 / MISFIT_MAX < ratios[worst] < MISFIT_MAX:
        return Refusal(
            f"{sizes[worst]:.0f} bytes take {ratios[worst]:.2f} times as long as a latency and a "
            "bandwidth explain: the times do not follow the model"
        )
    whole = (latency_s, bandwidth)
    left = [_parameters(np.delete(sizes, n), np.delete(times, n)) for n in range(len(sizes))]
    ranges = [(min(values), max(values)) for values in zip(*left, strict=True)]
    for name, (low, high), value in zip(("latency", "bandwidth"), ranges, whole, strict=True):
        if high > CHANGE_MAX * value or low < value / CHANGE_MAX:
            return Refusal(
                f"without one of the sizes the {name} would be {low / value:.2f} to "
                f"{high / value:.2f} times as large: more sizes are needed"
            )
    misfit = float(max(ratios[worst], 1 / ratios[worst]))
    return Fit(latency_s, bandwidth, ranges[0], ranges[1], misfit)


def _parameters(sizes: np.ndarray, times: np.ndarray) -> tuple[float, float]:
    """(latency in s, bandwidth in bytes per s); logarithms keep both above nothing."""
    from scipy.optimize import least_squares

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(times) - np.logaddexp(logs[0], logs[1] + np.log(sizes)))

    slope = (times[-1] - times[0]) / (sizes[-1] - sizes[0])
    start = np.log([times[0], max(slope, times[-1] / sizes[-1] / 10)])
    found = least_squares(errors, start, loss="soft_l1", f_scale=0.1)
    return float(np.exp(found.x[0])), float(np.exp(-found.x[1]))
