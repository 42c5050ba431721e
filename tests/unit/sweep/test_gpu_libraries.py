"""Runs that need GPUs where TensorFlow has no CUDA libraries."""

from __future__ import annotations

import ctypes.util
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config
from tfscaling.study import configuration
from tfscaling.sweep import gpu_libraries


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither packages nor the system had them."""
    monkeypatch.setattr(gpu_libraries.metadata, "distributions", lambda: iter(()))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def problem_of(gpus: int = 2, **platform: Any) -> str | None:
    raw = raw_config((("grid", 0, "gpus_per_node"), gpus))
    raw["platforms"]["cluster"].update(platform)
    config = configuration.validate(raw)
    return gpu_libraries.problem((run.spec for run in manifest_of(config).runs), config)


def test_runs_on_gpus_need_the_libraries() -> None:
    found = problem_of() or ""
    assert "2 of platform cluster" in found
    places = [found.index(way) for way in ("make setup CUDA=1", "`setup`", "logical")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "platform",
    [
        {"devices": "logical"},
        {"setup": ["module load cuda"]},
        {"env": {"PATH": "/cuda"}},
    ],
    ids=str,
)
def test_nothing_is_said_where_they_are_not_needed_or_may_be_elsewhere(
    platform: dict[str, Any],
) -> None:
    assert not problem_of(**platform)
    assert not problem_of(gpus=0)


def test_the_systems_libraries_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcudnn.so.9").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}")
    assert not problem_of()
