"""Latency and bandwidth: recovered where the times determine them, refused where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from tfscaling.conclusions.communication import fit

SIZES = [4, 64, 1024, 16384, 65536, 262144, 1048576, 4194304, 16777216]


def times(latency_s: float, bandwidth: float, scatter: float = 0.0, seed: int = 0) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, scatter, len(SIZES))
    exact = [latency_s + size / bandwidth for size in SIZES]
    return (np.asarray(exact) * np.exp(noise)).tolist()


@pytest.mark.parametrize("latency_s", [2e-5, 1e-3])
@pytest.mark.parametrize("bandwidth", [1e8, 1e10])
def test_exact_times_give_the_exact_parameters(latency_s: float, bandwidth: float) -> None:
    found = fit(SIZES, times(latency_s, bandwidth))
    if latency_s * bandwidth > 8e6:  # 16 MiB take less than three times as long as nothing
        assert found.fit_reason
        return
    assert found.latency_s == pytest.approx(latency_s, rel=1e-4)
    assert found.bandwidth_mb_per_s == pytest.approx(bandwidth / 1e6, rel=1e-4)
    assert found.fit_misfit_max == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_scattered_times_give_them_within_the_scatter(seed: int) -> None:
    found = fit(SIZES, times(1e-3, 5e8, 0.1, seed))
    assert found.latency_s == pytest.approx(1e-3, rel=0.2)
    assert found.bandwidth_mb_per_s == pytest.approx(500, rel=0.2)
    for name in ("latency_s", "bandwidth_mb_per_s"):
        value, low, high = (getattr(found, f"{name}{end}") for end in ("", "_min", "_max"))
        assert low <= value * 1.001 <= high * 1.002


@pytest.mark.parametrize("place", [0, 4, 8])
def test_one_odd_size_does_not_lead(place: int) -> None:
    odd = times(1e-3, 5e8)
    odd[place] *= 1.8
    found = fit(SIZES, odd)
    assert found.latency_s == pytest.approx(1e-3, rel=0.15)
    assert found.bandwidth_mb_per_s == pytest.approx(500, rel=0.35)
    assert found.fit_misfit_max > 1.3


def test_the_order_of_the_sizes_does_not_matter() -> None:
    values = times(1e-3, 5e8, 0.1)
    assert fit(SIZES[::-1], values[::-1]) == fit(SIZES, values)


@pytest.mark.parametrize(
    ("sizes", "values", "reason"),
    [
        (SIZES[:4], [1.0] * 4, "4 sizes are too few, 5 are needed"),
        (SIZES, [1e-3] * 9, "16777216 bytes take only 1.0 times as long as 4: larger sizes"),
        (SIZES, [s / 1e8 for s in SIZES], "4 bytes take longer than the latency"),
        (SIZES, [*times(1e-3, 5e8)[:4], 5e-3, *times(1e-3, 5e8)[5:]], "65536 bytes take 4"),
        ([4, 8, 16, 32, 1 << 24], [1e-3, 1e-3, 1e-3, 1e-3, 1e-1], "without one of the sizes"),
    ],
    ids=["few", "flat", "steep", "misfit", "undetermined"],
)
def test_what_is_not_determined_is_refused(
    sizes: list[float], values: list[float], reason: str
) -> None:
    found = fit(sizes, values)
    assert reason in found.fit_reason and found.latency_s is None
