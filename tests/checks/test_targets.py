"""Targets of `make` that check the repository: each is a test, and its output the message."""

from __future__ import annotations

import os
import subprocess

import pytest
from project import REPOSITORY

#: What a make passes on to those that its recipes start.
OF_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")


@pytest.mark.parametrize("target", ["lint", pytest.param("docs", marks=pytest.mark.full)])
def test_make_succeeds(target: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    done = subprocess.run(
        ["make", "--no-print-directory", target], cwd=REPOSITORY, env=environ,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
