"""The GPUs that each task of a node uses, as entries for its CUDA_VISIBLE_DEVICES.

For AMD's and Intel's GPUs other variables are used. `resolver` and the launchers call `allocate`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: The variable by which CUDA selects the GPUs that a process may use.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
#: Variables that select GPUs for AMD's runtimes HIP and ROCr, and for Intel's Level Zero. HIP
#: numbers the GPUs within the GPUs that ROCr shows; it reads CUDA_VISIBLE_DEVICES only where its
#: own variable is not set.
_HIP, _ROCR, _LEVEL_ZERO = "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"
#: Slurm's number of GPUs of the step on this node; binding GPUs to tasks does not change it.
_GPUS_ON_NODE = "SLURM_GPUS_ON_NODE"
#: Valid entry of such a variable: a number, also of a part of one of Intel's GPUs, or a UUID.
_DEVICE = re.compile(r"[0-9]+(\.[0-9]+)?|(GPU|MIG)-.+")
#: Time limit of nvidia-smi.
_TIMEOUT_S = 60
#: Options of nvidia-smi that print the fields of `Gpu` for each GPU.
_QUERY = ("--query-gpu=name,uuid,driver_version", "--format=csv,noheader")
#: Lines of `nvidia-smi -L`: a GPU, and below it its slices (MIG).
_GPU_LINE = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_SLICE_LINE = re.compile(r"\s+(MIG \S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


class ClusterError(ValueError):
    """The environment does not describe a cluster.

    The message names the variable or argument, its value, and what was expected.
    """


class NvidiaSmiError(ClusterError):
    """nvidia-smi is installed, but fails; the message has the reason."""


class Gpu(NamedTuple):
    """A GPU, or a slice of a GPU (MIG), as nvidia-smi lists it.

    Attributes:
        name: The model, such as `NVIDIA H100 80GB HBM3`; of a slice `NVIDIA H100 NVL MIG 3g.47gb`.
        uuid: The UUID, such as `GPU-…` or `MIG-…`.
        driver_version: Version of the driver.
    """

    name: str
    uuid: str
    driver_version: str

    @property
    def is_slice(self) -> bool:
        """Whether it is a slice of a GPU."""
        return self.uuid.startswith("MIG-")


def listed_gpus(environ: Mapping[str, str]) -> tuple[Gpu, ...] | None:
    """Return the GPUs that nvidia-smi lists; None if `environ` has no nvidia-smi on its PATH.

    A GPU with slices that this process may use is replaced by these.

    Raises NvidiaSmiError if nvidia-smi fails.
    """
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return None
    fields = (line.split(", ") for line in _run_nvidia_smi(program, *_QUERY).splitlines())
    gpus = [Gpu(*words) for words in fields if len(words) == len(Gpu._fields)]
    slices: dict[str, list[tuple[str, str]]] = {}
    whole = ""
    for line in _run_nvidia_smi(program, "-L").splitlines() if gpus else ():
        if found := _GPU_LINE.match(line):
            whole = found[1]
        elif found := _SLICE_LINE.match(line):
            slices.setdefault(whole, []).append((found[1], found[2]))
    return tuple(
        part
        for gpu in gpus
        for part in [
            Gpu(f"{gpu.name} {profile}", uuid, gpu.driver_version)
            for profile, uuid in slices.get(gpu.uuid, ())
        ]
        or [gpu]
    )


def _run_nvidia_smi(program: str, *options: str) -> str:
    """Return what nvidia-smi prints.

    Raises NvidiaSmiError if it fails.
    """
    hint = "expected a list of its GPUs, or CUDA_VISIBLE_DEVICES"
    try:
        done = subprocess.run(
            [program, *options], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NvidiaSmiError(f"nvidia-smi failed ({error}); {hint}") from error
    output = (done.stdout + done.stderr).strip()
    if done.returncode and "No devices were found" not in output:
        raise NvidiaSmiError(f"nvidia-smi failed (exit status {done.returncode}: {output}); {hint}")
    return done.stdout


def gpu_variable(environ: Mapping[str, str]) -> str:
    """Return the name of the environment variable that selects the GPUs of this process.

    If nvidia-smi is installed, it is CUDA_VISIBLE_DEVICES. Otherwise it is the first of these
    variables that is set: HIP's, CUDA's, ROCr's, Level Zero's. If none is set, it is
    CUDA_VISIBLE_DEVICES.
    """
    others = [name for name in (_HIP, VISIBLE_GPUS, _ROCR, _LEVEL_ZERO) if name in environ]
    is_nvidia = shutil.which("nvidia-smi", path=environ.get("PATH")) is not None
    return VISIBLE_GPUS if is_nvidia or not others else others[0]


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the entries of `gpu_variable`, as CUDA reads them; None if the variable is not set.

    CUDA stops at the first entry that is no device: an empty value, ``-1`` and Slurm's
    ``NoDevFiles`` mean no GPU and give ().
    """
    return _entries(environ, gpu_variable(environ))


def amd_gpus_of_task(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the AMD GPUs that this process may use, by their numbers on the node or UUIDs.

    HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES without it, counts within the GPUs of
    ROCR_VISIBLE_DEVICES.

    Returns:
        Numbers or UUIDs of GPUs. A number counts all GPUs of the node, as ROCr does without these
        variables. None if no variable is set.
    """
    shown = _entries(environ, _ROCR)
    chosen = _entries(environ, _HIP if _HIP in environ else VISIBLE_GPUS)
    if chosen is None or shown is None:
        return shown if chosen is None else chosen
    places = {str(place): entry for place, entry in enumerate(shown)}
    return tuple(places.get(entry, entry) for entry in chosen)


def _entries(environ: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return the entries of a variable until the first that is no device; None if it is not set."""
    if name not in environ:
        return None
    entries: list[str] = []
    for entry in environ[name].split(","):
        if not _DEVICE.fullmatch(entry.strip()):
            break
        entries.append(entry.strip())
    return tuple(entries)


def gpus_here(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the GPUs that this process may use: those in its `gpu_variable`, or all of the node.

    Args:
        environ: the environment of the process.

    Returns:
        Numbers or UUIDs, as entries of CUDA_VISIBLE_DEVICES. Slices of GPUs have UUIDs, because
        CUDA does not number them. None if the variable is not set and nvidia-smi is not installed.

    Raises:
        ClusterError: the variable lists a GPU twice, or nvidia-smi fails.
    """
    visible = visible_gpus(environ)
    if visible is None:
        listed = listed_gpus(environ)
        if listed is not None and any(gpu.is_slice for gpu in listed):
            return tuple(gpu.uuid for gpu in listed)
        return None if listed is None else tuple(str(number) for number in range(len(listed)))
    if len(set(visible)) < len(visible):
        name = gpu_variable(environ)
        raise ClusterError(f"{name} is {environ[name]!r}; expected each GPU once")
    return visible


def allocate(
    environ: Mapping[str, str], local_index: int, tasks_on_node: int, tasks_on_fullest_node: int
) -> tuple[str, ...] | None:
    """Return the GPUs of one task, as values for its `gpu_variable`; None if no GPU is known.

    If Slurm shows the task only its own GPUs, these are returned. Otherwise the GPUs of the node
    are divided in order: each task gets (GPUs of the node) // (tasks on the fullest node). A node
    with fewer GPUs than the fullest node has tasks divides them by its own number of tasks.

    Args:
        environ: the environment of the task.
        local_index: number of the task on its node, from 0.
        tasks_on_node: number of tasks on its node.
        tasks_on_fullest_node: highest number of tasks on any node of the step.

    Raises:
        ClusterError: the node has fewer GPUs than tasks, or this task sees only a part of the
            node's GPUs, and other tasks see the same part.
    """
    on_node = gpus_here(environ)
    is_chosen = visible_gpus(environ) is not None
    if not on_node or (is_chosen and _are_exclusive(environ, on_node, tasks_on_node)):
        return on_node
    # control groups alone, without a variable, may show each of several tasks its equal part
    is_part = environ.get(_GPUS_ON_NODE) == str(len(on_node) * tasks_on_node)
    if not is_chosen and tasks_on_node > 1 and is_part:
        return on_node
    # Nodes may have been given fewer GPUs where they run fewer tasks.
    tasks = tasks_on_fullest_node if len(on_node) >= tasks_on_fullest_node else tasks_on_node
    each = len(on_node) // tasks
    if not each:
        raise ClusterError(
            f"{tasks} tasks run on a node with {len(on_node)} GPUs (as {gpu_variable(environ)} or"
            f" nvidia-smi list); expected at least {tasks} GPUs"
        )
    return on_node[local_index * each : (local_index + 1) * each]


def _are_exclusive(environ: Mapping[str, str], visible: Sequence[str], tasks_on_node: int) -> bool:
    """Return whether this task shares none of its visible GPUs with other tasks.

    SLURM_GPUS_ON_NODE is the number of GPUs of the step on this node. A task that sees fewer GPUs
    shares none. If the variable is not set, a task shares none if it sees fewer GPUs than tasks run
    on the node.

    Args:
        environ: the environment of the task.
        visible: the GPUs that the task sees.
        tasks_on_node: number of tasks on its node.

    Raises:
        ClusterError: SLURM_GPU_BIND is ``closest``, with which neighbouring tasks see the same
            part of the GPUs.
    """
    on_node, binding = environ.get(_GPUS_ON_NODE, ""), environ.get("SLURM_GPU_BIND", "")
    is_part = not on_node.isdecimal() or len(visible) < int(on_node)
    if "closest" in binding and is_part and tasks_on_node > 1:
        raise ClusterError(
            f"SLURM_GPU_BIND is {binding!r}, and this task sees {len(visible)} GPUs of"
            f" {on_node or 'an unknown number'} on its node, which the other tasks near them see as"
            " well; expected --gpu-bind=none or single:<n>, which show a task's own GPUs"
        )
    return is_part if on_node.isdecimal() else len(visible) < tasks_on_node


def gpus_given(environ: Mapping[str, str]) -> int | None:
    """Return the number of GPUs that Slurm makes visible to this task.

    Several tasks may see the same GPUs; `allocate` divides them.

    Returns:
        The number; None if the step has no GPUs, or the task's `gpu_variable` is not set.
    """
    visible = visible_gpus(environ)
    return None if visible is None or not environ.get(_GPUS_ON_NODE) else len(visible)


def gpu_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables about this task's GPUs: name → value, or None if it is not set."""
    names = (gpu_variable(environ), "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", _GPUS_ON_NODE)
    return {name: environ.get(name) for name in names}
