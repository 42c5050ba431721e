"""Names of GPUs as drivers and platforms have them."""

from __future__ import annotations

import pytest
from tfscaling.record.checks import is_gpu_model

V100, T4, L4, L40 = "Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA L4", "NVIDIA L40"
A100_40, A100_80 = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"
H100 = "NVIDIA H100 80GB HBM3"
RTX_2080_TI = "NVIDIA GeForce RTX 2080 Ti"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("v100", V100),
        ("V100", "Tesla V100-PCIE-32GB"),
        ("v100-16gb", V100),
        ("nvidia-tesla-v100", "NVIDIA V100-SXM2-16GB"),
        ("Tesla V100-SXM2 16GB", V100),
        ("t4", T4),
        ("nvidia-tesla-t4", "NVIDIA T4"),
        ("l4", L4),
        ("nvidia-l4", L4),
        ("l40", L40),
        ("l40s", "NVIDIA L40S"),
        ("a10g", "NVIDIA A10G"),
        ("a100", A100_40),
        ("a100", "A100-PCIE-40GB"),
        ("a100-80gb", A100_80),
        ("nvidia_a100-sxm4-80gb", A100_80),
        ("h100", H100),
        ("nvidia-h100-80gb", H100),
        ("h200", "NVIDIA H200"),
        ("2080ti", RTX_2080_TI),
        ("rtx2080ti", RTX_2080_TI),
        ("rtx_2080_ti", RTX_2080_TI),
        ("rtx6000", "Quadro RTX 6000"),
        ("rtx_6000_ada", "NVIDIA RTX 6000 Ada Generation"),
        ("k80", "Tesla K80"),
        ("titan v", "NVIDIA TITAN V"),
        ("a100_3g.20gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("mi250x", "AMD Instinct MI250X"),
        ("a100_80", "NVIDIA A100 80GB PCIe"),
        ("v100-32g", "Tesla V100-SXM2-32GB"),
    ],
)
def test_a_model_is_known_by_the_words_of_its_name(asked: str, name: str) -> None:
    assert is_gpu_model(asked, name) is True


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("v100", T4),
        ("t4", V100),
        ("v100", "Tesla V100S-PCIE-32GB"),
        ("v100-32gb", V100),
        ("l4", L40),
        ("l4", "NVIDIA L40S"),
        ("l40", L4),
        ("a10", "NVIDIA A10G"),
        ("a10", A100_40),
        ("a100", "NVIDIA A10"),
        ("a100-80gb", A100_40),
        ("h100", "NVIDIA H200"),
        ("h200", "NVIDIA GH200 480GB"),
        ("rtx2080", RTX_2080_TI),
        ("rtx6000", "NVIDIA RTX 6000 Ada Generation"),
        ("rtx6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("a100", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("a100_1g.5gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"),
        ("a100_1g.5gb", A100_40),
        ("k80", ""),
        ("v100-32g", V100),
        ("v100l", T4),
        ("a100-sxm4", H100),
        ("rtx_2080_ti", "NVIDIA GeForce RTX 2080"),
    ],
)
def test_another_model_is_told_apart(asked: str, name: str) -> None:
    assert is_gpu_model(asked, name) is False


@pytest.mark.parametrize("asked", ["volta", "the fast ones", "nvidia", ""])
def test_a_text_that_names_no_model_cannot_be_compared(asked: str) -> None:
    assert is_gpu_model(asked, V100) is None


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("a100-sxm4", "A100-SXM-80GB"),
        ("a100-sxm4-80gb", "A100-SXM-80GB"),
        ("v100l", "Tesla V100-SXM2-32GB"),
        ("v100-32gb", "Tesla V100"),
        ("a100_80", "NVIDIA A100"),
        ("a100-nvlink", A100_40),
        ("mi250", "AMD Instinct MI250X"),
        ("gh200-96gb", "NVIDIA GH200 480GB"),
    ],
)
def test_a_size_or_form_factor_that_the_driver_names_otherwise_cannot_be_compared(
    asked: str, name: str
) -> None:
    assert is_gpu_model(asked, name) is None
