"""The gradient noise scale against a problem of which it is known: linear regression."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tfscaling.record import step_estimates
from tfscaling.record.rank_report import GradientNorms

#: Standard deviations of the inputs and of the noise of the answers, error of the weights.
INPUTS, ANSWERS = np.array([1.0, 0.5, 2.0, 0.1]), 3.0
ERROR = np.array([1.0, -2.0, 0.5, 3.0])


def true_scale() -> float:
    """Tr(S) / |G|^2 of the squared error: inputs are normal and independent of the noise.

    A gradient is x (x d - e), so G = H d and S = G G' + H (d' H d + Var e), by the fourth moments
    of a normal distribution.
    """
    covariance = np.diag(INPUTS**2)
    gradient = covariance @ ERROR
    spread = float(ERROR @ covariance @ ERROR) + ANSWERS**2
    squared = float(gradient @ gradient)
    return (squared + float(np.trace(covariance)) * spread) / squared


def measured(seed: int, steps: int = 40, part: int = 8, parts: int = 4) -> GradientNorms:
    random = np.random.default_rng(seed)
    x = random.normal(size=(steps, parts, part, len(INPUTS))) * INPUTS
    errors = x @ ERROR - random.normal(scale=ANSWERS, size=x.shape[:-1])
    gradients = (x * errors[..., None]).mean(axis=2)
    return GradientNorms(
        epoch=1,
        part_examples=part,
        whole_examples=part * parts,
        parts=tuple((gradients**2).sum(axis=2).mean(axis=1).tolist()),
        whole=tuple((gradients.mean(axis=1) ** 2).sum(axis=1).tolist()),
    )


def test_the_noise_scale_is_that_of_the_problem() -> None:
    scale = step_estimates.noise_scale([measured(seed) for seed in range(100)])
    assert scale == pytest.approx(true_scale(), rel=0.03)


def test_parts_of_other_sizes_give_the_same() -> None:
    norms = [measured(seed, part=4, parts=2) for seed in range(300)]
    assert step_estimates.noise_scale(norms) == pytest.approx(true_scale(), rel=0.06)


def test_a_run_has_the_scale_of_its_last_evaluation() -> None:
    early = replace(measured(0), epoch=1, whole=(1e6,) * 40, parts=(2e6,) * 40)
    last = replace(measured(1), epoch=8)
    assert step_estimates.noise_scale([last, early]) == step_estimates.noise_scale([last])


def test_where_noise_hides_the_gradient_there_is_no_scale() -> None:
    alike = GradientNorms(epoch=1, part_examples=1, whole_examples=2, parts=(2.0,), whole=(0.5,))
    assert step_estimates.noise_scale([alike]) is None
    assert step_estimates.noise_scale([]) is None
