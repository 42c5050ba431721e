"""How large a global batch pays: the gradient noise scale of points whose recipe asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfscaling.analysis.evidence import Study
from tfscaling.records import gradient_noise, run_record
from tfscaling.records.rank_report import GradientNorms
from tfscaling.study.run_spec import Point
from tfscaling.tables.intervals import CONFIDENCE, RESAMPLES
from tfscaling.tables.significance import INCONCLUSIVE, SUPPORTED
from tfscaling.tables.table_rows import points_of


class NoiseScale(NamedTuple):
    """A noise scale in examples with its interval; infinite where noise hides the gradient."""

    examples: float
    low: float
    high: float


def noise_scale(norms: Sequence[GradientNorms]) -> NoiseScale:
    """From the steps of all epochs and runs: the ratio of means, with a bootstrap interval.

    Steps are drawn anew within their epoch and run, because gradients change from one to the next.
    """
    random = np.random.default_rng(0)
    signal, noise, steps = np.zeros(RESAMPLES + 1), np.zeros(RESAMPLES + 1), 0
    for each in norms:
        values = np.array(list(gradient_noise.estimates([each])))
        if not len(values):
            continue
        draws = random.integers(0, len(values), (RESAMPLES, len(values)))
        # the first is what was measured
        rows = np.concatenate([np.arange(len(values))[None], draws])
        sums = values[rows].sum(axis=1)
        signal, noise, steps = signal + sums[:, 0], noise + sums[:, 1], steps + len(values)
    if not steps:
        return NoiseScale(math.inf, 0.0, math.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(signal > 0, np.maximum(noise, 0.0) / signal, np.inf)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios[1:], [tail, 1 - tail], method="inverted_cdf")
    return NoiseScale(float(ratios[0]), float(low), float(high))


def find(study: Study) -> Iterator[tuple[Point, str, str]]:
    """(point, sentence, support) of each point that was measured so."""
    asked = {r.spec.point for r in study.manifest.runs if r.spec.recipe.gradient_noise_scale}
    if not asked:
        return
    found: dict[Point, list[GradientNorms]] = {}
    valid = study.runs[study.runs["status"] == "ok"]
    for point, path in zip(points_of(valid), valid["record"], strict=True):
        if point in asked:
            found.setdefault(point, []).extend(_measured(Path(path)))
    for point, norms in found.items():
        if norms:
            yield point, *_said(noise_scale(norms), norms)


def _measured(path: Path) -> tuple[GradientNorms, ...]:
    """What a run measured; nothing if its record is not there any more."""
    try:
        record = run_record.read(path)
    except run_record.RecordError:
        return ()
    return record.metrics.gradient_norms if record else ()


def _said(scale: NoiseScale, norms: Sequence[GradientNorms]) -> tuple[str, str]:
    epochs = sorted({each.epoch for each in norms})
    when = f"gradients after epoch {', '.join(map(str, epochs))}"
    batch = norms[0].whole_examples
    if not math.isfinite(scale.high):
        least = f"{scale.low:,.0f} examples" if math.isfinite(scale.low) else "what was measured"
        text = f"more nodes help up to a global batch of at least {least}"
        return f"{text}; noise hides where that ends ({when}, global batch {batch})", INCONCLUSIVE
    text = (
        f"beyond a global batch of about {scale.examples:,.0f} examples ({scale.low:,.0f} to "
        f"{scale.high:,.0f}) more nodes no longer help: the gradient noise scale ({when}, global "
        f"batch {batch})"
    )
    return text, SUPPORTED
