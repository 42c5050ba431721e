"""Checks on this machine before runs start: packages, libraries of CUDA and MPI, custom models.

A model that cannot be built would fail in every run.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import msgspec

from tfscaling.study import user_code
from tfscaling.study.config_types import Config
from tfscaling.study.run_spec import CheckedModel, ModelToCheck, RunSpec
from tfscaling.tables import table_files

#: Environment variables of a platform that can bring other packages or libraries.
_SEARCH_PATHS = frozenset({"LD_LIBRARY_PATH", "PATH", "PYTHONPATH"})


def package_problem(specs: Iterable[RunSpec], config: Config) -> str:
    """Return which optional packages these runs and their tables lack; "" if they lack none.

    The built-in trainer needs TensorFlow. Programs bring their own environment, and so may
    platforms with a `setup`, a Python inside a container, or search paths in `env`: their runs are
    excluded.
    """
    platforms = Counter(
        spec.point.platform
        for spec in specs
        if not spec.recipe.program and not _has_other_packages(config, spec)
    )
    problems = []
    if platforms and util.find_spec("tensorflow") is None:
        runs = ", ".join(f"{number} of platform {name}" for name, number in platforms.items())
        problems.append(
            f"Runs train with the built-in trainer ({runs}), and TensorFlow is not installed here: "
            "make setup TRAINER=1"
        )
    if "parquet" in config.export and util.find_spec("pyarrow") is None:
        problems.append(table_files.PARQUET_ADVICE)
    return "\n".join(problems)


def _has_other_packages(config: Config, spec: RunSpec) -> bool:
    """Return whether a run's ranks may have other packages than this environment."""
    platform = config.platforms[spec.point.platform]
    container = platform.container is not None and platform.container.python
    return bool(platform.setup or container or _SEARCH_PATHS & set(platform.env))


#: TensorFlow uses no GPU if this library cannot be loaded.
_CUDA_LIBRARY = "cudnn"


def runs_without_cuda(specs: Iterable[RunSpec], config: Config) -> list[RunSpec]:
    """Return the runs whose GPUs would not be used because CUDA's libraries are missing.

    Platforms with a `setup`, which may load a module, or with LD_LIBRARY_PATH or PATH are excluded,
    and so are programs, which bring their own environment.
    """
    found = []
    for spec in specs:
        platform = config.platforms[spec.point.platform]
        changed = platform.setup or {"LD_LIBRARY_PATH", "PATH"} & set(platform.env)
        on_gpus = spec.point.gpus_per_node > 0 and platform.devices == "physical"
        if on_gpus and not changed and not spec.recipe.program:
            found.append(spec)
    return [] if not found or has_cuda_libraries() else found


def cuda_problem(specs: Iterable[RunSpec], config: Config) -> str:
    """Return why the GPUs of these runs would not be used; "" if they would."""
    platforms = Counter(spec.point.platform for spec in runs_without_cuda(specs, config))
    if not platforms:
        return ""
    runs = ", ".join(f"{number} of platform {name}" for name, number in platforms.items())
    return (
        f"Runs need GPUs ({runs}), and this environment has no CUDA libraries: TensorFlow would "
        "see no GPU.\n"
        "  1. `make setup CUDA=1` installs them.\n"
        "  2. Or the nodes have them: load them in the platform's `setup`, as `module load cuda`. "
        "The NVIDIA driver must be there in any case.\n"
        "  3. Without GPUs, leave these configurations out; only to try them, `devices: logical` "
        "in the platform splits the CPU."
    )


def has_cuda_libraries() -> bool:
    """Return whether CUDA's library is installed as a package or found by the system's loader."""
    names = (each.metadata["Name"] or "" for each in metadata.distributions())
    if any(name.startswith(f"nvidia-{_CUDA_LIBRARY}") for name in names):
        return True
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    found = any(any(Path(folder).glob(f"lib{_CUDA_LIBRARY}.so*")) for folder in folders)
    return found or ctypes.util.find_library(_CUDA_LIBRARY) is not None


#: Code that loads the libraries of a rank without connecting to other ranks. It runs in a separate
#: process: an incompatible library may end it.
_LOAD_MPI = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"
_TIMEOUT_S = 60.0


def mpi_problem(specs: Iterable[RunSpec], config: Config) -> str:
    """Return why the ranks of these runs could not use MPI; "" if they could.

    Platforms with a `setup`, which may load a module, or an `env`, which may name the library, are
    not checked.
    """
    of_mpi = (spec.point.platform for spec in specs if spec.uses_mpi)
    platforms = config.platforms
    wanting = [name for name in of_mpi if not platforms[name].setup and not platforms[name].env]
    if not wanting:
        return ""
    load = [sys.executable, "-c", _LOAD_MPI]
    done = subprocess.run(load, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if not done.returncode:
        return ""
    error = [f"exit status {done.returncode}", *done.stderr.strip().splitlines()][-1]
    names = ", ".join(dict.fromkeys(wanting))
    return (
        f"Runs need an MPI library ({len(wanting)} of platform {names}), and none can be loaded: "
        f"{error}\n"
        "  1. `make setup TRAINER=1` installs mpi4py and MPICH.\n"
        "  2. Or the nodes have one: load it in the platform's `setup`, as `module load mpich`, or "
        "name its file by MPI4PY_LIBMPI in `env`."
    )


#: Longest time for building all models, in seconds.
MODEL_CHECK_LIMIT_S = 120.0
#: File below the folder of results with the output of building models.
MODEL_CHECK_LOG = "logs/check_models.log"
_SCRIPT = Path(__file__).resolve().parents[2] / "check_models.py"
_SWITCH = "`check_models: false` starts runs without this check"


def model_problem(
    specs: Iterable[RunSpec], results: Path, limit_s: float = MODEL_CHECK_LIMIT_S
) -> str:
    """Return why custom models of these runs cannot be built; "" if they can.

    They are built in one process of this environment. Runs on platforms with a `setup` have another
    environment and are left out. A check without a result is reported as a warning.

    Args:
        specs: The runs.
        results: The folder of results, for the log.
        limit_s: Longest time for all models, in seconds.
    """
    due = select_models_to_check(specs)
    if not due or util.find_spec("tensorflow") is None:
        return ""
    begins = f"building {_model_names(due)} once, before runs start"
    print(f"{begins} (imports TensorFlow: 10 s or more)", file=sys.stderr, flush=True)
    found, ended = _build_models(due, results, limit_s)
    names = [f"{m.spec.point.model} with recipe {m.spec.point.recipe}" for m in due]
    problems = []
    for name, checked in zip(names, found, strict=False):
        for warning in checked.warnings:
            print(f"warning: {name}: {warning}", file=sys.stderr)
        if checked.problem is not None:
            problems.append(f"{name}: {checked.problem}")
    if problems:
        lines = "".join(f"  {line}\n" for line in problems)
        traceback = f"The traceback: {results / MODEL_CHECK_LOG}. {_SWITCH}."
        return f"No run was started: runs of these would fail.\n{lines}{traceback}"
    if ended:
        left = _model_names(due[len(found) :])
        print(
            f"{left}: not checked, {ended}; log: {results / MODEL_CHECK_LOG}. {_SWITCH}.",
            file=sys.stderr,
        )
    return ""


def _model_names(models: list[ModelToCheck]) -> str:
    """Return the names of models, each once, separated by commas."""
    return ", ".join(dict.fromkeys(model.spec.point.model for model in models))


def select_models_to_check(specs: Iterable[RunSpec]) -> list[ModelToCheck]:
    """Return one entry for each combination of model, dataset and recipe with custom code.

    The custom code is the model, the dataset or both. An entry has the run with the fewest tasks
    and the run with the most workers. Programs and runs with a platform's `setup` are left out.
    """
    found: dict[tuple[str, str | None, bytes], ModelToCheck] = {}
    for spec in specs:
        named = (spec.point.model, spec.dataset or "")
        custom = [n for n in named if user_code.is_reference(n) and not n.startswith("tfscaling.")]
        if not custom or spec.recipe.program or spec.measured.setup:
            continue
        alike = (spec.point.model, spec.dataset, msgspec.json.encode(spec.recipe))
        both = found.get(alike, ModelToCheck(spec, spec))
        found[alike] = ModelToCheck(
            min(both.spec, spec, key=lambda each: (each.geometry.tasks, each.replicas)),
            max(both.largest, spec, key=lambda each: (each.jobs["worker"], each.replicas)),
        )
    return [*found.values()]


def _build_models(
    models: list[ModelToCheck], results: Path, limit_s: float
) -> tuple[list[CheckedModel], str]:
    """Build each model in one process.

    Args:
        models: The models.
        results: The folder of results, for the log.
        limit_s: Longest time for all models, in seconds.

    Returns:
        The results in order, and why the last ones are missing, or "".
    """
    log = results / MODEL_CHECK_LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as output:
        asked, problems = Path(folder, "models.json"), Path(folder, "problems.jsonl")
        asked.write_bytes(msgspec.json.encode(models))
        data = f"--datasets-dir={results / 'datasets'}"
        words = [sys.executable, str(_SCRIPT), f"--models={asked}", data, f"--problems={problems}"]
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        try:
            code = subprocess.call(words, timeout=limit_s, **given)
            ended = f"the check ended with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"the check took longer than {limit_s:g} s"
        lines = problems.read_bytes().splitlines() if problems.exists() else []
    return [msgspec.json.decode(line, type=CheckedModel) for line in lines], ended
