"""The GPUs of a node are those that nvidia-smi lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_programs import fake_nvidia_smi
from tfscaling.cluster.nvidia_smi import Gpu, NvidiaSmiError, gpus

QUERIED = 'case "$1" in --query-gpu=*) ;; *) exit 1; esac\n'


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "echo 'Tesla V100-SXM2-16GB, GPU-8932f937, 535.1'; echo 'NVIDIA L4, GPU-2, 535.1'",
            (Gpu("Tesla V100-SXM2-16GB", "GPU-8932f937", "535.1"),
             Gpu("NVIDIA L4", "GPU-2", "535.1")),
        ),
        ("true", ()),
        ("echo 'No devices were found'; exit 6", ()),
    ],
    ids=["two", "none", "no devices found"],
)  # fmt: skip
def test_gpus_are_listed(tmp_path: Path, script: str, expected: tuple[Gpu, ...]) -> None:
    assert gpus(fake_nvidia_smi(tmp_path, QUERIED + script)) == expected


def test_without_the_program_nothing_is_known(tmp_path: Path) -> None:
    assert gpus({"PATH": str(tmp_path)}) is None


def test_a_failure_shows_the_output(tmp_path: Path) -> None:
    environ = fake_nvidia_smi(tmp_path, "echo cannot talk to the driver >&2; exit 9")
    with pytest.raises(NvidiaSmiError, match="exit status 9: cannot talk to the driver"):
        gpus(environ)


def test_a_program_that_cannot_be_run_is_a_failure(tmp_path: Path) -> None:
    environ = fake_nvidia_smi(tmp_path, "")
    (tmp_path / "nvidia-smi").write_text("#!/no/such/interpreter\n")
    with pytest.raises(NvidiaSmiError):
        gpus(environ)
