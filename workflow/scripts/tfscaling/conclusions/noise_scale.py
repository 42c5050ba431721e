"""How large a global batch pays: the gradient noise scale of points whose recipe asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfscaling.conclusions.evidence import Study
from tfscaling.record import run_record, step_estimates
from tfscaling.record.rank_report import GradientNorms
from tfscaling.spec.run_spec import Point
from tfscaling.tables.estimates import CONFIDENCE, RESAMPLES
from tfscaling.tables.significance import INCONCLUSIVE, SUPPORTED
from tfscaling.tables.table_rows import points_of

#: The bootstrap makes so many draws that this many of them lie beyond each end of an interval.
BEYOND_END = 5


class NoiseScale(NamedTuple):
    """A noise scale in examples with its interval; infinite where noise hides the gradient."""

    examples: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """It in words."""
        if math.isfinite(self.high):
            return f"{self.examples:,.0f} examples ({self.low:,.0f} to {self.high:,.0f})"
        least = f"{self.low:,.0f} examples" if math.isfinite(self.low) else "what was measured"
        return f"at least {least}"


class Evaluations(NamedTuple):
    """The norms of all runs of a point after the first and the last evaluated epoch.

    `first` is empty if there is no other epoch than the last.
    """

    first: Sequence[GradientNorms]
    last: Sequence[GradientNorms]

    @classmethod
    def of(cls, norms: Sequence[GradientNorms]) -> Evaluations:
        first, *others = step_estimates.norms_by_evaluation(norms).values()
        return cls(first, others[-1]) if others else cls((), first)

    @property
    def intervals(self) -> int:
        """How many scales they give."""
        return 1 + bool(self.first)


def noise_scale(norms: Sequence[GradientNorms], comparisons: int = 1) -> NoiseScale:
    """From the steps of all runs after one epoch: the ratio of means, with a bootstrap interval.

    Steps are drawn anew within their run. The intervals of so many `comparisons` hold together.
    """
    tail = (1 - CONFIDENCE) / 2 / comparisons
    resamples = max(RESAMPLES, math.ceil(BEYOND_END / tail))
    random = np.random.default_rng(0)
    signal, noise, steps = np.zeros(resamples + 1), np.zeros(resamples + 1), 0
    for each in norms:
        values = np.array(list(step_estimates.noise_estimates([each])))
        if not len(values):
            continue
        draws = random.integers(0, len(values), (resamples, len(values)))
        # the first is what was measured
        rows = np.concatenate([np.arange(len(values))[None], draws])
        sums = values[rows].sum(axis=1)
        signal, noise, steps = signal + sums[:, 0], noise + sums[:, 1], steps + len(values)
    if not steps:
        return NoiseScale(math.inf, 0.0, math.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(signal > 0, np.maximum(noise, 0.0) / signal, np.inf)
    low, high = np.quantile(ratios[1:], [tail, 1 - tail], method="inverted_cdf")
    return NoiseScale(float(ratios[0]), float(low), float(high))


def find(study: Study) -> Iterator[tuple[Point, str, str, int]]:
    """(point, sentence, support, comparisons) of each point that was measured so."""
    asked = {r.spec.point for r in study.manifest.runs if r.spec.recipe.gradient_noise_scale}
    if not asked:
        return
    norms: dict[Point, list[GradientNorms]] = {}
    valid = study.runs[study.runs["status"] == "ok"]
    for point, path in zip(points_of(valid), valid["record"], strict=True):
        if point in asked:
            norms.setdefault(point, []).extend(_measured(Path(path)))
    found = {point: Evaluations.of(own) for point, own in norms.items() if own}
    comparisons = sum(each.intervals for each in found.values())
    for point, evaluations in found.items():
        yield point, *_said(evaluations, comparisons), comparisons


def _measured(path: Path) -> tuple[GradientNorms, ...]:
    """What a run measured; nothing if its record is not there any more."""
    try:
        record = run_record.read(path)
    except run_record.RecordError:
        return ()
    return record.metrics.gradient_norms if record else ()


def _said(evaluations: Evaluations, comparisons: int) -> tuple[str, str]:
    """(sentence, support) by the last evaluation; the first one where the scale was another."""
    last = evaluations.last
    scale = noise_scale(last, comparisons)
    when = f"gradients after epoch {last[0].epoch}, global batch {last[0].whole_examples}"
    change = _change(evaluations.first, scale, comparisons)
    if not math.isfinite(scale.high):
        text = f"more nodes help up to a global batch of {scale.text}"
        return f"{text}; noise hides where that ends ({when}){change}", INCONCLUSIVE
    # steps are proportional to 1 + scale/batch: at this batch doubling it saves a quarter of them
    text = (
        f"beyond a global batch of about {scale.text} doubling the batch saves less than a quarter "
        f"of the steps: the gradient noise scale of these runs' weights ({when}){change}"
    )
    return text, SUPPORTED


def _change(first: Sequence[GradientNorms], last: NoiseScale, comparisons: int) -> str:
    """How the scale at the last evaluation came from the first one; nothing if none is shown."""
    if not first:
        return ""
    before = noise_scale(first, comparisons)
    if before.high < last.low or last.high < before.low:
        verb = "grew" if before.high < last.low else "fell"
        return f"; it {verb} to that from {before.text} after epoch {first[0].epoch}"
    return ""
