"""Targets of `make` that check the repository: each is a test, and its output the message."""

from __future__ import annotations

import subprocess

import pytest
from project import REPOSITORY


@pytest.mark.parametrize("target", ["lint", pytest.param("docs", marks=pytest.mark.full)])
def test_make_succeeds(target: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", target], cwd=REPOSITORY,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
