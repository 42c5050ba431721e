"""Calls of snakemake that do not end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import snakemake_server


def test_a_call_that_hangs_is_killed_and_prints_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("import time; time.sleep(600)")
    with pytest.raises(snakemake_server.HangError) as hang:
        snakemake_server.call(["--cores", "1"], tmp_path, os.environ, limit_s=5.0)
    assert "within 5 s" in str(hang.value)
    assert "most recent call first" in str(hang.value)
