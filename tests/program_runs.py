"""Runs of programs on ranks that are processes, and what they leave."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from builders import REGISTRIES, SCRIPTS, raw_config
from tfscaling.record import run_record
from tfscaling.record.run_record import RunRecord
from tfscaling.study import acceptance, config_validation, run_spec


def start(
    folder: Path, code: str, *words: str, nodes: int = 1, **how: Any
) -> subprocess.Popen[str]:
    """Start a run of a program with this code, on processes, in the folder."""
    (folder / "user.py").write_text(code)
    stall_timeout_s = how.pop("stall_timeout_s", 300)
    program = how.pop("program", [sys.executable, "user.py", *words])
    recipe = {"per_replica_batch_size": 8, "epochs": 2, "program": program}
    recipe |= how.pop("recipe", {})
    tracer = how.pop("tracer", [])
    block = {"platform": "laptop", "recipe": "script", "strategy": "own", "nodes": nodes}
    raw = raw_config((("recipes", "script"), recipe), (("grid",), [block]))
    raw["platforms"]["laptop"] |= how
    with contextlib.chdir(folder):
        (run,) = acceptance.plan_grid(config_validation.convert_to_types(raw), REGISTRIES).runs
    spec = folder / "spec.json"
    spec.write_text(run_spec.encode_spec(run.spec))
    limits = ["--stall-timeout-s", str(stall_timeout_s), "--latency-wait-s", "5"]
    files = ["--spec", str(spec), "--record", "run/run.json", "--dataset-file"]
    return subprocess.Popen(
        [*tracer, sys.executable, str(SCRIPTS / "train.py"), *limits, *files],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def record_of(folder: Path, code: str, *words: str, **how: Any) -> RunRecord:
    """The record of such a run, which must succeed."""
    process = start(folder, code, *words, **how)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    record = run_record.read_record(folder / "run/run.json")
    assert record is not None
    return record


def cause_of(folder: Path, code: str, *words: str, **how: Any) -> dict[str, Any]:
    """The cause of the failure of such a run."""
    process = start(folder, code, *words, **how)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    cause: dict[str, Any] = json.loads((folder / "run/failure.json").read_text())["cause"]
    return cause
