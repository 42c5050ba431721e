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

import msgspec

from tfscaling.plan.rank_pythons import RankPython
from tfscaling.study import user_code
from tfscaling.study.config_types import Config, Platform
from tfscaling.study.run_spec import CheckedModel, ModelToCheck, RunSpec
from tfscaling.tables import table_files

#: Environment variables of a platform that can bring other packages or libraries.
_SEARCH_PATHS = frozenset({"LD_LIBRARY_PATH", "PATH", "PYTHONPATH"})


def package_problem(specs: Iterable[RunSpec], config: Config) -> str:
    """Return which optional packages these runs and their tables lack; "" if they lack none.

    The built-in trainer needs TensorFlow. Runs of programs, and ranks with a separate Python, are
    not checked: they have their own packages. If a platform has a `setup`, or search paths in
    `env`, these may provide TensorFlow, and only a warning is printed.
    """
    platforms = Counter(
        spec.point.platform
        for spec in specs
        if not spec.recipe.program and spec.rank_python is None
    )
    if util.find_spec("tensorflow") is not None:
        platforms.clear()
    for name in [name for name in platforms if _may_have_other_packages(config.platforms[name])]:
        del platforms[name]
        print(
            f"warning: TensorFlow is not installed here: `setup` or `env` of platform {name} must "
            "bring it; or make setup TRAINER=1",
            file=sys.stderr,
        )
    problems = []
    if platforms:
        runs = ", ".join(f"{number} of platform {name}" for name, number in platforms.items())
        problems.append(
            f"Runs train with the built-in trainer ({runs}), and TensorFlow is not installed here: "
            "make setup TRAINER=1"
        )
    if "parquet" in config.export and util.find_spec("pyarrow") is None:
        problems.append(table_files.PARQUET_ADVICE)
    return "\n".join(problems)


def _may_have_other_packages(platform: Platform) -> bool:
    """Return whether a platform's `setup` or `env` may provide packages that are missing here."""
    return bool(platform.setup or _SEARCH_PATHS & set(platform.env))


#: TensorFlow uses no GPU if this library cannot be loaded.
_CUDA_LIBRARY = "cudnn"


def runs_without_cuda(specs: Iterable[RunSpec], config: Config) -> list[RunSpec]:
    """Return the runs whose GPUs would not be used because CUDA's libraries are missing.

    Platforms with a `setup`, which may load a module, with a container, or with LD_LIBRARY_PATH or
    PATH are excluded, and so are programs and models with a separate Python.
    """
    found = []
    for spec in specs:
        platform = config.platforms[spec.point.platform]
        changed = platform.setup or {"LD_LIBRARY_PATH", "PATH"} & set(platform.env)
        is_elsewhere = changed or platform.container or spec.rank_python is not None
        on_gpus = spec.point.gpus_per_node > 0 and platform.devices == "physical"
        if on_gpus and not is_elsewhere and not spec.recipe.program:
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

    Platforms with a `setup`, which may load a module, an `env`, which may name the library, or a
    container, whose image may have it, are not checked.
    """
    wanting: dict[str, list[str]] = {}
    for spec in specs:
        platform = config.platforms[spec.point.platform]
        in_image = platform.container is not None
        if spec.uses_mpi and not (platform.setup or platform.env or in_image):
            wanting.setdefault(spec.rank_python or sys.executable, []).append(spec.point.platform)
    return "\n".join(filter(None, (_mpi_problem_of(*each) for each in wanting.items())))


def _mpi_problem_of(python: str, platforms: list[str]) -> str:
    """Return why a Python cannot load an MPI library; "" if it can.

    Args:
        python: The Python of ranks.
        platforms: The platform of each run that needs the library.
    """
    load = [python, "-c", _LOAD_MPI]
    done = subprocess.run(load, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if not done.returncode:
        return ""
    error = [f"exit status {done.returncode}", *done.stderr.strip().splitlines()][-1]
    names = ", ".join(dict.fromkeys(platforms))
    install = "`make setup TRAINER=1` installs mpi4py and MPICH"
    if python != sys.executable:
        install = f"`{python} -m pip install mpi4py mpich` installs one"
    return (
        f"Runs need an MPI library ({len(platforms)} of platform {names}), and none can be loaded: "
        f"{error}\n"
        f"  1. {install}.\n"
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

    Models of runs with the same Python are built in one process of this Python. Runs on platforms
    with a `setup`, but no `python`, are left out. A check without a result is reported as a
    warning.

    Args:
        specs: The runs.
        results: The folder of results, for the log.
        limit_s: Longest time for all models, in seconds.
    """
    by_python: dict[RankPython | None, list[ModelToCheck]] = {}
    for model in select_models_to_check(specs):
        by_python.setdefault(RankPython.from_spec(model.spec), []).append(model)
    if util.find_spec("tensorflow") is None:
        by_python.pop(None, None)
    if not by_python:
        return ""
    log = results / MODEL_CHECK_LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    problems = []
    for python, due in by_python.items():
        problems += _model_problems(python, due, results, limit_s)
    if not problems:
        return ""
    lines = "".join(f"  {line}\n" for line in problems)
    return f"No run was started: runs of these would fail.\n{lines}The traceback: {log}. {_SWITCH}."


def _model_problems(
    python: RankPython | None, due: list[ModelToCheck], results: Path, limit_s: float
) -> list[str]:
    """Build models in a Python; return a message for each one that cannot be built.

    Warnings of the models, and why models were not checked, are printed.

    Args:
        python: The Python; None for the workflow's own.
        due: The models.
        results: The folder of results.
        limit_s: Longest time for all models, in seconds.
    """
    begins = f"building {_model_names(due)} once, before runs start"
    print(f"{begins} (imports TensorFlow: 10 s or more)", file=sys.stderr, flush=True)
    found, ended = _build_models(python, due, results, limit_s)
    names = [f"{m.spec.point.model} with recipe {m.spec.point.recipe}" for m in due]
    problems = []
    for name, checked in zip(names, found, strict=False):
        for warning in checked.warnings:
            print(f"warning: {name}: {warning}", file=sys.stderr)
        if checked.problem is not None:
            problems.append(f"{name}: {checked.problem}")
    if ended and not problems:
        left = _model_names(due[len(found) :])
        print(
            f"{left}: not checked, {ended}; log: {results / MODEL_CHECK_LOG}. {_SWITCH}.",
            file=sys.stderr,
        )
    return problems


def _model_names(models: list[ModelToCheck]) -> str:
    """Return the names of models, each once, separated by commas."""
    return ", ".join(dict.fromkeys(model.spec.point.model for model in models))


def select_models_to_check(specs: Iterable[RunSpec]) -> list[ModelToCheck]:
    """Return one entry for each combination of model, dataset, recipe and Python of the runs.

    An entry has the run with the fewest tasks and the run with the most workers. Some runs are left
    out:

    - runs of programs;
    - runs whose model and dataset are both built into this project;
    - runs on a platform with a `setup` but no `python`: their Python is only known inside a job.
    """
    found: dict[tuple[str, str | None, bytes, RankPython | None], ModelToCheck] = {}
    for spec in specs:
        named = (spec.point.model, spec.dataset or "")
        custom = [n for n in named if user_code.is_reference(n) and not n.startswith("tfscaling.")]
        python = RankPython.from_spec(spec)
        if not custom or spec.recipe.program or (spec.measured.setup and python is None):
            continue
        alike = (spec.point.model, spec.dataset, msgspec.json.encode(spec.recipe), python)
        both = found.get(alike, ModelToCheck(spec, spec))
        found[alike] = ModelToCheck(
            min(both.spec, spec, key=lambda each: (each.geometry.tasks, each.replicas)),
            max(both.largest, spec, key=lambda each: (each.jobs["worker"], each.replicas)),
        )
    return [*found.values()]


def _build_models(
    python: RankPython | None, models: list[ModelToCheck], results: Path, limit_s: float
) -> tuple[list[CheckedModel], str]:
    """Build each model in one process.

    Args:
        python: The Python; None for the workflow's own.
        models: The models.
        results: The folder of results: its `datasets` are read, and it gets the log.
        limit_s: Longest time for all models, in seconds.

    Returns:
        The results in the order of the models, and why results of the last models are missing; ""
        if none is.
    """
    if python is not None and python.obstacle:
        return [], python.obstacle
    log = results / MODEL_CHECK_LOG
    # below the results: a container sees the project's folder
    with tempfile.TemporaryDirectory(dir=log.parent) as folder, log.open("ab") as output:
        asked, problems = Path(folder, "models.json"), Path(folder, "problems.jsonl")
        asked.write_bytes(msgspec.json.encode(models))
        data = f"--datasets-dir={results / 'datasets'}"
        words = [str(_SCRIPT), f"--models={asked}", data, f"--problems={problems}"]
        start = python or RankPython(sys.executable)
        try:
            done = start.run(words, limit_s, stdout=output, stderr=output)
            ended = f"the check ended with exit code {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            ended = f"the check took longer than {limit_s:g} s"
        lines = problems.read_bytes().splitlines() if problems.exists() else []
    return [msgspec.json.decode(line, type=CheckedModel) for line in lines], ended
