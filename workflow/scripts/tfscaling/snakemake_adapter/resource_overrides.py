"""Overrides of rule train's resources by Snakemake's options: used as configuration, or refused.

`--set-resources` and `set-resources` of profiles change keys of the platforms before the
configuration is validated. Plan, budget, sbatch line, records and tables then have the same values.
Defaults of `--default-resources` fill keys that a platform leaves open. An override of a value that
the grid sets, such as nodes, is refused.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tfscaling.study.config_validation import RawConfig

#: Resource of Snakemake → the key of a platform with the same meaning.
PLATFORM_KEYS = {
    "runtime": "runtime_min",
    "slurm_partition": "partition",
    "slurm_account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "mem_mb": "mem_mb",
    "mem_mb_per_cpu": "mem_mb_per_cpu",
    "stall_timeout_s": "stall_timeout_s",
    "latency_wait_s": "latency_wait_s",
}
#: Keys for memory, which exclude each other.
_MEMORY = ("mem_mb", "mem_mb_per_cpu", "mem_mb_per_gpu")
#: Keys whose values are texts.
_TEXTS = ("partition", "account", "qos", "constraint")
#: Resources whose defaults fill open keys: rule train sets all other resources itself, and no
#: default memory may limit a measurement.
DEFAULT_RESOURCES = ("slurm_partition", "slurm_account", "qos", "constraint")
_CLUSTERS = "one sweep per cluster: --config cluster=NAME"
#: Resource that cannot be overridden → what to change instead.
REFUSED_RESOURCES = {
    "nodes": "nodes of the grid",
    "tasks": "tasks_per_node of the grid",
    "tasks_per_node": "tasks_per_node of the grid",
    "tasks_per_gpu": "tasks_per_node of the grid",
    "gpu": "gpus_per_node of the grid",
    "gpu_model": "gpu_gres of the platform",
    "gres": "gpus_per_node of the grid and gpu_gres of the platform",
    "cpus_per_task": "cpus_per_node of the platform",
    "cpus_per_gpu": "cpus_per_node of the platform",
    "threads": "cpus_per_node of the platform",
    "slurm_extra": "extra of the platform",
    "reservation": "reservation of the platform",
    "mpi": "launcher and mpi of the platform",
    "cluster": _CLUSTERS,
    "clusters": _CLUSTERS,
    "slurm_cluster": _CLUSTERS,
    "training_runs": "--resources training_runs=N",
}


def translate_overrides(overrides: Mapping[str, Any]) -> dict[str, object]:
    """Return key of a platform → value, from overrides of resources that platforms can set.

    If one of them is memory, the other keys for memory get the value None.
    Args:
        overrides: Resource → its value as Snakemake gives it: a number, a text, or an object of
            the class Resource.
    """
    values = {
        PLATFORM_KEYS[name]: _parse_plain_value(given)
        for name, given in overrides.items()
        if name in PLATFORM_KEYS
    }
    # a request for memory replaces all requests of the platform
    replaced = () if values.keys().isdisjoint(_MEMORY) else _MEMORY
    memory: dict[str, object] = dict.fromkeys(replaced)
    texts = {key: str(value) for key, value in values.items() if key in _TEXTS and _is_int(value)}
    return {**memory, **values, **texts}


def _is_int(value: object) -> bool:
    """Return whether a value is an integer; True and False count."""
    return isinstance(value, int)


def _parse_plain_value(given: Any) -> Any:
    """Return a resource's value: a number or quoted text is parsed, any other text is unchanged.

    Args:
        given: The value, or an object of Snakemake's class Resource. Its value is in the units of
            the resource, such as megabytes. For Snakemake, any text is an expression without a
            value yet.
    """
    value = given.raw if _is_expression(given) else getattr(given, "value", given)
    if isinstance(value, str):
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(value)
    return value


def _is_expression(given: Any) -> bool:
    """Return whether a resource is an expression or a text, which Snakemake has not evaluated."""
    return hasattr(given, "is_evaluable") and given.is_evaluable()


def find_platform_changes(
    config: RawConfig, overrides: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[RawConfig, RawConfig]:
    """Return the changes that overrides and defaults make to a configuration's platforms.

    Args:
        config: The configuration from all files and the command line.
        overrides: Resources of rule train by `--set-resources`.
        defaults: Resources of all rules by `--default-resources`.

    Returns:
        Two parts of a configuration: one from the overrides, and one from the defaults for keys
        that a platform does not set.
    """
    platforms = config.get("platforms")
    if not isinstance(platforms, dict):
        return {}, {}
    forced = translate_overrides(overrides)
    open_keys = translate_overrides(
        {name: defaults[name] for name in DEFAULT_RESOURCES if name in defaults}
    )
    filled = {
        name: {key: value for key, value in open_keys.items() if platform.get(key) is None}
        for name, platform in platforms.items()
        if isinstance(platform, dict)
    }
    given = {name: dict(forced) for name in filled} if forced else {}
    filled = {name: keys for name, keys in filled.items() if keys}
    return {"platforms": given} if given else {}, {"platforms": filled} if filled else {}


def merge_platforms(configuration: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with changed platforms; the arguments are not modified.

    Args:
        configuration: The configuration.
        change: A part of a configuration with the platforms to change.
    """
    if not change:
        return {**configuration}
    changed = change["platforms"]
    platforms = {
        name: {**keys, **changed[name]} if name in changed else keys
        for name, keys in configuration["platforms"].items()
    }
    return {**configuration, "platforms": platforms}


def find_refusals(rule: str, overrides: Mapping[str, Any]) -> Iterator[str]:
    """Yield why overrides of the rule's resources are not possible, with what to change instead.

    Args:
        rule: The name of rule train.
        overrides: Resource → value by `--set-resources`.
    """
    memory = [
        f"{rule}:{name}={_parse_plain_value(overrides[name])}"
        for name in _MEMORY
        if name in overrides
    ]
    if len(memory) > 1:
        yield (
            f"--set-resources {' '.join(memory)}: not allowed, because a job requests memory in "
            "one way; keep one of them"
        )
    for name, value in overrides.items():
        if name in PLATFORM_KEYS and _is_expression(value) and value.raw is None:
            yield (
                f"--set-resources of {rule}: {name} is an expression with a unit, which is not "
                f"allowed, because plan and jobs need one number; write {rule}:{name}=N"
            )
        if name in REFUSED_RESOURCES:
            yield (
                f"--set-resources {rule}:{name}={_parse_plain_value(value)}: not allowed, because "
                f"the configuration decides what is measured; change {REFUSED_RESOURCES[name]}"
            )
