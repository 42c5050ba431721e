"""Platforms: checks of their keys, options of sbatch, Slurm resources of jobs, titles and costs.

`acceptance` checks platforms, the rules take the resources of each job from `job_resources`.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import shlex
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from tfscaling.study.config_types import Config, Platform
from tfscaling.study.config_validation import NotAllowed, list_allowed_names
from tfscaling.study.geometry import Geometry
from tfscaling.study.run_spec import Point


def run_cost_usd(usd_per_node_hour: float | None, nodes: int, duration_s: float) -> float | None:
    """Return the cost of a run in US dollars; None without a price.

    Each second is charged, without a minimum: the result is the cost of the training, which may
    differ from the bill.

    Args:
        usd_per_node_hour: Price of a node and hour; None if unknown.
        nodes: Number of nodes.
        duration_s: Time in seconds.
    """
    if usd_per_node_hour is None:
        return None
    return usd_per_node_hour * nodes * duration_s / 3600.0


def check_keys(platforms: Mapping[str, Platform]) -> None:
    """Check that the value of each platform key is allowed, also together with the other keys.

    Raises:
        NotAllowed: For the first value that is not.
    """
    for name, platform in platforms.items():
        container = platform.container
        if container and container.engine == "pyxis" and platform.launcher == "local":
            rule = "a plugin of srun; allowed with `launcher: local`: apptainer, charliecloud"
            raise NotAllowed(["platforms", name, "container", "engine"], "pyxis", rule)
        for key, rule in _key_problems(platform):
            raise NotAllowed(["platforms", name, key], getattr(platform, key), rule)


def _key_problems(platform: Platform) -> Iterator[tuple[str, str]]:
    """Yield (key, what is allowed in words) for each wrong key of a platform."""
    for key in platform.__struct_fields__:
        value = getattr(platform, key)
        if isinstance(value, str) and value.lower() in ("none", "null"):
            yield key, "allowed: null without quotes, or another text"
    for key in ("cpu_bind", "gpu_bind") if platform.launcher == "local" else ():
        if getattr(platform, key) is not None:
            yield key, "an option of srun; allowed with `launcher: local`: null"
    is_command = platform.python is not None and "/" not in platform.python
    if is_command and not (platform.setup or platform.container):
        yield "python", "no `setup` puts it on PATH; allowed: a path, or a platform with `setup`"
    if platform.usd_per_node_hour is not None:
        for key in ("price_date", "price_source"):
            if getattr(platform, key) is None:
                yield key, "usd_per_node_hour needs price_date and price_source"
    elif platform.usd_per_gpu_hour is not None:
        yield "usd_per_gpu_hour", "usd_per_gpu_hour is added to usd_per_node_hour, which is missing"
    if platform.price_date is not None and not _is_date(platform.price_date):
        yield "price_date", "allowed: a date of the calendar, as YYYY, YYYY-MM or YYYY-MM-DD"
    if platform.extra is not None and (rule := extra_options_problem(platform.extra)):
        yield "extra", rule
    if "TF_CONFIG" in platform.env:
        yield "env", "the launcher or the rank sets TF_CONFIG; allowed: other variables"


def _is_date(text: str) -> bool:
    """Return whether a text is a date from 1970 on, as YYYY, YYYY-MM or YYYY-MM-DD."""
    try:
        return datetime.date.fromisoformat(f"{text}-01-01"[:10]).year >= 1970
    except ValueError:
        return False


def check_cluster(config: Config) -> None:
    """Check that a platform of the grid is on the cluster that --config cluster=NAME selects.

    With an unknown name no run would be selected, and the empty sweep would look like a success.

    Raises:
        NotAllowed: If no platform of the grid is on it.
    """
    chosen, platforms = config.cluster, config.platforms
    if chosen is None:
        return
    clusters = {platform.cluster for platform in platforms.values() if platform.cluster}
    if chosen not in clusters:
        raise NotAllowed(["cluster"], chosen, list_allowed_names(clusters, chosen))
    names = {name for block in config.grid for name in block.axis_values("platform")}
    in_grid = {p.cluster for name, p in platforms.items() if p.cluster and name in names}
    if chosen not in in_grid:
        rule = f"no platform of the grid is on this cluster; {list_allowed_names(in_grid, chosen)}"
        raise NotAllowed(["cluster"], chosen, rule)


def _sbatch_options() -> dict[str, str]:
    """Return key of a platform → option of sbatch, without hyphens, that gets its value."""
    hints = sorted(typing.get_type_hints(Platform, include_extras=True).items())
    marks = [(key, mark) for key, hint in hints for mark in getattr(hint, "__metadata__", ())]
    extras = [(key, mark.extra or {}) for key, mark in marks]
    return {key: extra["sbatch_option"] for key, extra in extras if "sbatch_option" in extra}


#: Keys of a platform that are options of sbatch with the same value.
SBATCH_OPTIONS = _sbatch_options()
_OPTIONS = (
    "nodes N ntasks n ntasks-per-node ntasks-per-gpu gres gpus G gpus-per-node gpus-per-socket",
    "gpus-per-task tres-per-task cpus-per-task c cpus-per-gpu mem mem-per-cpu mem-per-gpu time t",
    "partition p account A qos q constraint C clusters M export export-file wrap",
    "job-name J output o error e input i comment parsable chdir D array a wait W test-only help h",
    "usage version V",
)
#: Options of sbatch, long and short, that the grid, keys of the platform or the executor set. A
#: beginning of such an option counts as the option: sbatch takes shortened options.
MANAGED_OPTIONS = frozenset(option for line in _OPTIONS for option in line.split()).union(
    SBATCH_OPTIONS.values()
)
#: Short options of sbatch without a value: others may follow in the same word.
_SHORT_FLAGS = frozenset("HIkKOQsuvXhVW")
#: Characters that end a command of the shell.
_SHELL = frozenset(";&|<>()")


def extra_options_problem(extra: str) -> str | None:
    """Return why the platform's key `extra` cannot be given to sbatch; None if it can.

    The Slurm executor plugin appends the text to a shell line after its own options. A duplicate
    option would therefore override a request that the run's record lists.
    """
    lexer = shlex.shlex(extra, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        return f"allowed: options as in a shell line; {str(error).lower()}"
    for word in words:
        if set(word) <= _SHELL or word.startswith("#") or "`" in word or "$(" in extra:
            return f"allowed: options of sbatch; the shell would interpret {word}"
        if _is_managed_option(word):
            name = word.removeprefix("--").partition("=")[0]
            keys = [key for key, option in SBATCH_OPTIONS.items() if option == name]
            instead = f": use the key `{keys[0]}` of the platform" if keys else ""
            return (
                f"allowed: options that the workflow does not set by the grid or keys; {word}"
                f"{instead}"
            )
    if not words[0].startswith("-"):
        return f"allowed: options of sbatch, such as --nice=5; {words[0]} is no option"
    return None


def _is_managed_option(word: str) -> bool:
    """Return whether a word of a command line sets an option that the workflow sets itself."""
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return bool(name) and any(option.startswith(name) for option in MANAGED_OPTIONS)
    for letter in word[1:] if word.startswith("-") else "":
        if letter in MANAGED_OPTIONS:
            return True
        if letter not in _SHORT_FLAGS:
            return False  # what follows is its value
    return False


#: Keys of a platform that the tables and the page show.
SHOWN_KEYS = (
    *("cloud", "published_as", "cluster", "partition", "instance_type", "gpu_type", "devices"),
    *("launcher", "cpus_per_node", "usd_per_node_hour", "usd_per_gpu_hour", "price_date"),
    "price_source",
)


#: The devices of replicas: a node's CPU, its GPUs, or logical devices, which are parts of its CPU.
DeviceKind = Literal["CPU", "GPU", "logical"]
CPU: DeviceKind = "CPU"
GPU: DeviceKind = "GPU"
LOGICAL: DeviceKind = "logical"


def unique_titles(named: Mapping[str, Platform]) -> dict[str, str]:
    """Return platform → its title, followed by the name if several have the same title."""
    found = {name: platform.title or name for name, platform in named.items()}
    while len({*found.values()}) < len(found):  # a title with a name may equal another title
        counts = Counter(found.values())
        found = {n: each if counts[each] == 1 else f"{each} ({n})" for n, each in found.items()}
    return found


def device_kind(gpus_per_node: int, devices: str) -> DeviceKind:
    """Return what a configuration's replicas train on: CPU, GPU or LOGICAL.

    Args:
        gpus_per_node: GPUs or logical devices of a node.
        devices: The platform's key `devices`, "physical" or "logical".
    """
    if not gpus_per_node:
        return CPU
    return LOGICAL if devices == "logical" else GPU


#: Value of a Snakemake resource, with which the executor plugin requests something from Slurm.
Resource = str | int
#: Returns the value of a resource for a job's wildcards; None if the job requests none.
ResourceFunction = Callable[[Any], Resource | None]
_F = TypeVar("_F", bound=Callable[..., Any])


def slurm_resources(platform: Platform, geometry: Geometry) -> dict[str, Resource]:
    """Return the Snakemake resources with which the Slurm executor plugin requests a geometry.

    With the local launcher, the request is one task on one node: its ranks are processes there.
    `tasks` is the job's total, `gres` is per node.

    The plugin omits requests that are 0 or "". If the platform requests no memory or GPUs, their
    values are 0 or "", so that no default of Snakemake limits a measurement. `tasks_per_gpu` is 0,
    so that the plugin does not derive tasks from GPUs. With an empty `mpi`, the shell runs in the
    batch step, and srun in train.py can use the complete allocation.

    Further keys of the platform have an entry only if they are set.
    """
    on_slurm = platform.launcher != "local"
    requested = geometry if on_slurm else Geometry(1, 1, geometry.gpus_per_node)
    extra = [f"--ntasks-per-node={requested.tasks_per_node_max}"]
    values = ((option, getattr(platform, key)) for key, option in SBATCH_OPTIONS.items())
    extra += [f"--{option}={value}" for option, value in values if value is not None]
    extra += ["--exclusive"] if platform.exclusive else []
    extra += [platform.extra] if platform.extra else []
    gres = _gres_value(platform.gpu_gres, geometry.gpus_per_node)
    is_per_gpu = gres is not None and platform.mem_mb_per_gpu is not None
    extra += [f"--mem-per-gpu={platform.mem_mb_per_gpu}"] if is_per_gpu else []
    resources: dict[str, Resource | None] = {
        "nodes": requested.nodes,
        "tasks": requested.tasks,
        "cpus_per_task": platform.cpus_per_node // requested.tasks_per_node_max,
        "mpi": "",
        "gres": gres or "",
        "gpu": 0,
        "tasks_per_gpu": 0,
        "mem_mb": 0 if is_per_gpu or platform.mem_mb_per_cpu else platform.mem_mb or 0,
        "mem_mb_per_cpu": 0 if is_per_gpu else platform.mem_mb_per_cpu or 0,
        "disk_mb": 0,
        "runtime": platform.runtime_min,
        "slurm_partition": platform.partition,
        "slurm_account": platform.account,
        "qos": platform.qos,
        "constraint": platform.constraint,
        "slurm_extra": " ".join(extra),
        "stall_timeout_s": platform.stall_timeout_s,
        "latency_wait_s": platform.latency_wait_s,
    }
    return {key: value for key, value in resources.items() if value is not None}


def _gres_value(gpu_gres: str | None, gpus: int) -> str | None:
    """Return the value of --gres, such as `gpu:a100:4`; None if no GPUs are requested.

    Args:
        gpu_gres: The platform's key: the name of GPUs, perhaps with other resources after a comma.
        gpus: Number of GPUs of a node.
    """
    if not gpu_gres or not gpus:
        return None
    name, *others = gpu_gres.split(",")
    return ",".join([f"{name}:{gpus}", *others])


def store_signature(function: _F) -> _F:
    """Return the function, with its signature as attribute: Snakemake reads it for every job.

    Without the attribute, `inspect` would compute the signature each time.
    """
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


def job_resources(
    platforms: Mapping[str, Platform], points: Iterable[Point], point_of: Callable[[Any], Point]
) -> dict[str, Resource | ResourceFunction]:
    """Return the Slurm resources of the training jobs, for the rule's `resources`.

    Args:
        platforms: Platforms of the study, by name.
        points: All configurations that have jobs.
        point_of: Maps the wildcards of a job to its configuration.

    Returns:
        Each requested resource: a constant if all jobs share it, else a function of the wildcards.
        Constants keep dry-runs of thousands of jobs fast.
    """

    @functools.cache
    def resources_of(point: Point) -> dict[str, Resource]:
        return slurm_resources(platforms[point.platform], point.geometry)

    def function(name: str) -> ResourceFunction:
        return store_signature(lambda wildcards: resources_of(point_of(wildcards)).get(name))

    jobs = list(map(resources_of, points))
    functions: dict[str, Resource | ResourceFunction] = {}
    for name in dict.fromkeys(name for resources in jobs for name in resources):
        values = {resources.get(name) for resources in jobs}
        (value, *others) = values
        functions[name] = function(name) if others or value is None else value
    return functions
