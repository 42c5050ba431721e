"""The user's models, built once before runs start: one that cannot be would fail in every run.

What was built is remembered by the checksum of its code, recipe and data: it is built once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfscaling.files import atomic
from tfscaling.record import prepared_data
from tfscaling.spec import user_code, variants
from tfscaling.spec.run_spec import ModelToCheck, RunSpec

#: So long all of them may take.
LIMIT_S = 120.0
#: Below the folder of results: keys of what was built, and what the builds printed.
BUILT, LOG = "built_models.json", "logs/check_models.log"
_SCRIPT = Path(__file__).resolve().parents[2] / "check_models.py"
_KEPT_MAX = 1000
_SWITCH = "`check_models: false` starts runs without this check"


class Outcome(NamedTuple):
    """Why no run may start, or what is to be said as they start; both may be empty."""

    refusal: str = ""
    warning: str = ""


def check(specs: Iterable[RunSpec], results: Path, limit_s: float = LIMIT_S) -> Outcome:
    """Build the models of these runs that are the user's, in one process of this environment.

    Runs on platforms with a `setup` have another environment, and are left out.
    """
    due = to_build(specs, results)
    if not due or util.find_spec("tensorflow") is None:
        return Outcome()
    names = _names(list(due.values()))
    print(f"building {names} once, before runs start", file=sys.stderr, flush=True)
    found, ended = _built(list(due.values()), results, limit_s)
    problems = [
        f"{model.spec.point.model} with recipe {model.spec.point.recipe}: {problem}"
        for model, problem in zip(due.values(), found, strict=False)
        if problem is not None
    ]
    _remember([key for key, wrong in zip(due, found, strict=False) if wrong is None], results)
    if problems:
        return Outcome(
            "No run was started: runs of these would fail.\n"
            + "".join(f"  {line}\n" for line in problems)
            + f"The traceback: {results / LOG}. {_SWITCH}."
        )
    if ended:
        left = _names(list(due.values())[len(found) :])
        return Outcome(warning=f"{left}: not checked, {ended}; log: {results / LOG}. {_SWITCH}.")
    return Outcome()


def _names(models: list[ModelToCheck]) -> str:
    return ", ".join(dict.fromkeys(model.spec.point.model for model in models))


def to_build(specs: Iterable[RunSpec], results: Path) -> dict[str, ModelToCheck]:
    """One of the runs of each model, recipe and dataset that was not built yet, by its key.

    The one of the fewest tasks: a model that cannot do with more is a result of those runs, but for
    what the model itself says.
    """
    smallest: dict[tuple[str, str | None, bytes], RunSpec] = {}
    distributed = set()
    for spec in specs:
        named = (spec.point.model, spec.dataset or "")
        custom = [n for n in named if user_code.is_reference(n) and not n.startswith("tfscaling.")]
        if not custom or spec.recipe.program:
            continue
        if spec.measured.setup:
            continue
        alike = (spec.point.model, spec.dataset, msgspec.json.encode(spec.recipe))
        if spec.replicas > 1:
            distributed.add(alike)
        other = smallest.get(alike)
        if other is None or _size(spec) < _size(other):
            smallest[alike] = spec
    built = _remembered(results)
    models = [ModelToCheck(spec, alike in distributed) for alike, spec in smallest.items()]
    keyed = {_key(model, results): model for model in models}
    return {key: model for key, model in keyed.items() if key not in built}


def _size(spec: RunSpec) -> tuple[int, int]:
    return spec.geometry.tasks, spec.replicas


def _key(model: ModelToCheck, results: Path) -> str:
    spec = model.spec
    facts = prepared_data.facts(results / "datasets" / f"{variants.data_of(spec)}.npz")
    content = [
        *(spec.point.model, spec.dataset, spec.per_replica_batch_size, model.on_several_replicas),
        msgspec.to_builtins(spec.recipe),
        *(user_code.of_run(spec).checksums(), facts and facts.sha256),
        [metadata.version(name) for name in ("tensorflow", "keras")],
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _built(
    models: list[ModelToCheck], results: Path, limit_s: float
) -> tuple[list[str | None], str]:
    """The problem of each model, or None, in order; and why the last are missing, or ""."""
    log = results / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        asked, problems = Path(folder, "models.json"), Path(folder, "problems.jsonl")
        asked.write_bytes(msgspec.json.encode(models))
        files = ["--models", asked, "--datasets-dir", results / "datasets", "--problems", problems]
        words = list(map(str, [sys.executable, _SCRIPT, *files]))
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(limit_s)
            ended = f"the check ended with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"the check took longer than {limit_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = problems.read_bytes().splitlines() if problems.exists() else []
    return [msgspec.json.decode(line, type=str | None) for line in lines], ended


def _remembered(results: Path) -> list[str]:
    try:
        return msgspec.json.decode((results / BUILT).read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return []


def _remember(keys: list[str], results: Path) -> None:
    if keys:
        kept = list(dict.fromkeys([*_remembered(results), *keys]))[-_KEPT_MAX:]
        atomic.write_text(results / BUILT, json.dumps(kept, indent=1) + "\n")
