"""The gradient noise scale: the global batch beyond which larger ones hardly help.

Source: S. McCandlish et al., "An Empirical Model of Large-Batch Training" (2018,
arXiv:1812.06162), appendix A.1. The squared norm of the mean gradient of B examples is |G|^2 +
tr(S) / B on average, where G is the gradient of all examples and S the covariance of that of one.
So the norms of two batch sizes give estimates without bias of |G|^2 and tr(S); the simple noise
scale is tr(S) / |G|^2, a ratio of means over steps. Both change while a model learns, so that each
evaluation has a scale of its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfscaling.record.rank_report import GradientNorms


class Estimates(NamedTuple):
    """Estimates of a step: |G|^2, and tr(S), the variance of the gradient of one example."""

    signal: float
    noise: float


def estimates(norms: Sequence[GradientNorms]) -> Iterator[Estimates]:
    """Those of each step."""
    for each in norms:
        small, large = each.part_examples, each.whole_examples
        for part, whole in zip(each.parts, each.whole, strict=True):
            signal = (large * whole - small * part) / (large - small)
            yield Estimates(signal, (part - whole) / (1 / small - 1 / large))


def by_evaluation(norms: Sequence[GradientNorms]) -> dict[int, list[GradientNorms]]:
    """Epoch → the norms after it, of one run or of several, in the order of epochs."""
    found: dict[int, list[GradientNorms]] = {}
    for each in sorted(norms, key=lambda each: each.epoch):
        found.setdefault(each.epoch, []).append(each)
    return found


def scale(norms: Sequence[GradientNorms]) -> float | None:
    """The noise scale in examples at the last evaluation.

    None if there was none, or noise hides |G|^2.
    """
    last = max((each.epoch for each in norms), default=None)
    found = list(estimates([each for each in norms if each.epoch == last]))
    if not found:
        return None
    signal = statistics.fmean(each.signal for each in found)
    noise = statistics.fmean(each.noise for each in found)
    return max(noise, 0.0) / signal if signal > 0 else None
