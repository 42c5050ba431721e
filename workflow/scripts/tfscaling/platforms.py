"""What a platform asks of Slurm and what a node costs: look-ups and cross-checks.

Layer 1 (plan).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfscaling.configuration import ConfigError, Sources, problem
from tfscaling.geometry import Geometry

#: Prices may be left out, but not half given: a price means nothing without its date and source.
PRICE_KEYS = ("price_date", "price_source")


#: Tables are named after platforms; these names are taken.
RESERVED_NAMES = ("runs", "comparison", "decision")


def check(platforms: Mapping[str, Mapping[str, Any]], sources: Sources = ()) -> None:
    """Cross-checks that a schema cannot express; raises ConfigError."""
    for name, platform in platforms.items():
        if name in RESERVED_NAMES:
            raise ConfigError(
                problem(["platforms", name], name, "the name is taken by a table", sources)
            )
        if platform["usd_per_node_hour"] is not None:
            for key in PRICE_KEYS:
                if platform[key] is None:
                    raise ConfigError(
                        problem(
                            ["platforms", name, key],
                            None,
                            "usd_per_node_hour needs price_date and price_source",
                            sources,
                        )
                    )
        if platform["multi_cluster"] and platform["cluster"] is None:
            raise ConfigError(
                problem(
                    ["platforms", name, "multi_cluster"],
                    True,
                    "multi_cluster needs cluster, the name for --clusters",
                    sources,
                )
            )


def title(platforms: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """How tables and plots call the platform."""
    return platforms[name]["title"] or name


def slurm_resources(platform: Mapping[str, Any], geometry: Geometry) -> dict[str, Any]:
    """Snakemake resources with which the Slurm executor plugin asks for exactly this geometry.

    A run by the local launcher is one task on one node: its ranks are processes there. `tasks` is
    the job's total, `gres` is per node; `tasks_per_gpu: 0` keeps the plugin from deriving tasks
    from GPUs; `mpi: ""` lets the shell run in the batch step, so that launch.py's own srun can use
    the whole allocation. A setting that the platform leaves open is an empty string, which the
    plugin passes over.
    """
    on_slurm = platform["launcher"] == "srun"
    nodes, tasks_per_node = (geometry.nodes, geometry.tasks_per_node) if on_slurm else (1, 1)
    cpus = platform["cpus_per_node"] // tasks_per_node
    extra = [f"--ntasks-per-node={tasks_per_node}"]
    if platform["exclusive"]:
        extra.append("--exclusive")
    for key in ("qos", "constraint", "reservation"):
        if platform[key]:
            extra.append(f"--{key}={platform[key]}")
    if platform["extra"]:
        extra.append(platform["extra"])
    resources: dict[str, Any] = {
        "nodes": nodes,
        "tasks": nodes * tasks_per_node,
        "tasks_per_gpu": 0,
        "cpus_per_task": cpus,
        "mpi": "",
        "mem_mb": platform["mem_mb"] or 0,
        "runtime": platform["runtime_min"],
        "slurm_extra": " ".join(extra),
        "gres": _gres(platform, geometry),
        "slurm_partition": platform["partition"],
        "slurm_account": platform["account"],
        "clusters": platform["cluster"] if platform["multi_cluster"] else None,
        # ranks of two local runs would share this machine's cores and spoil both measurements
        "local_runs": 0 if on_slurm else 1,
        "stall_timeout_s": platform["stall_timeout_s"],
    }
    return {key: "" if value is None else value for key, value in resources.items()}


def _gres(platform: Mapping[str, Any], geometry: Geometry) -> str:
    if geometry.gpus_per_node == 0 or platform["gpu_gres"] is None:
        return ""
    return f"{platform['gpu_gres']}:{geometry.gpus_per_node}"
