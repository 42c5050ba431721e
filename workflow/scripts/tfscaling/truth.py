"""Did the run happen as asked? Layer 2 (job).

A run counts only if every check holds; else it is shown as failed with the reasons and takes part
in no comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tfscaling.geometry import Geometry

Report = Mapping[str, Any]
Check = Callable[[Mapping[str, Any], Sequence[Report]], str | None]


def _trained(reports: Sequence[Report]) -> list[Report]:
    """The ranks that ran the training loop: all, or with parameter servers the coordinator."""
    return [report for report in reports if "epochs" in report]


def _tasks(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    ranks, expected = sorted(r["rank"] for r in reports), list(range(asked["tasks"]))
    return None if ranks == expected else f"asked ranks {expected}, got {ranks}"


def _nodes(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    if asked["launcher"] == "local":
        return None  # all "nodes" are this machine, and the record says so
    on_host = Counter(report["host"] for report in reports)
    if len(on_host) != asked["nodes"]:
        return f"asked {asked['nodes']} nodes, ranks ran on {len(on_host)}: {sorted(on_host)}"
    if sorted(on_host.values()) != sorted(Geometry.of(asked).tasks_on_nodes):
        return f"asked {asked['tasks_per_node']} tasks per node, got {dict(on_host)}"
    return None


def _jobs(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    found = Counter(r["job"] for r in reports)
    return None if found == asked["jobs"] else f"asked jobs {asked['jobs']}, got {dict(found)}"


def _devices(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    kind = "GPU" if asked["gpus_per_task"] and asked["devices"] == "physical" else "CPU"
    expected = [f"{kind}:{index}" for index in range(max(1, asked["gpus_per_task"]))]
    workers = [r for r in reports if r["job"] == "worker"]
    wrong = {r["rank"]: r["devices"] for r in workers if list(r["devices"]) != expected}
    return f"asked devices {expected} on each worker, got {wrong}" if wrong else None


def _gpus(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    """Also with logical devices: a rank without its GPUs would go unnoticed there."""
    if asked["launcher"] == "local":
        return None  # inside a Slurm job its processes share all the job's GPUs
    given = {r["rank"]: r.get("gpus_given") for r in reports if r["job"] == "worker"}
    if not asked["gpus_per_task"] or set(given.values()) == {None}:
        return None  # Slurm was asked for no GPUs, or names them in another maker's variable
    # each task sees all GPUs of its node, or only its own where Slurm binds them
    per_node, per_task = asked["gpus_per_node"], asked["gpus_per_task"]
    if set(given.values()) in ({per_node}, {per_task}):
        return None
    return f"asked {per_node} GPUs per node and {per_task} per task, Slurm gave the ranks {given}"


def _cpus(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    if asked["launcher"] == "local":
        return None  # processes on one machine share its CPUs
    few = {r["rank"]: r["cpus"] for r in reports if r["cpus"] < asked["cpus_per_task"]}
    return f"asked {asked['cpus_per_task']} CPUs per task, got {few}" if few else None


def _replicas(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    counts = {r["rank"]: r["replicas"] for r in reports if "replicas" in r}
    wrong = {rank: count for rank, count in counts.items() if count != asked["replicas"]}
    return f"asked {asked['replicas']} replicas, the strategy had {wrong}" if wrong else None


def _same(name: str, key: str) -> Check:
    def check(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
        values = {r["rank"]: r[key] for r in reports if key in r}
        if len(set(map(str, values.values()))) <= 1:
            return None
        return f"ranks disagree on {name}: {values}"

    return check


def _epochs(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    trained = _trained(reports)
    if not trained:
        return "no rank trained"
    if _finite(asked, trained):
        return None  # the training ends with the epoch that diverged, on all ranks: see "learning"
    few = {r["rank"]: len(r["epochs"]) for r in trained if len(r["epochs"]) != asked["epochs"]}
    return f"asked {asked['epochs']} epochs, finished {few}" if few else None


def _learning(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    curves = {
        r["rank"]: [(e["loss"], e["accuracy"]) for e in r["epochs"]] for r in _trained(reports)
    }
    if len(set(map(str, curves.values()))) <= 1:
        return None
    return f"ranks disagree on loss and accuracy: {curves}"


def _held_out(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    found = {
        r["rank"]: [e["test_accuracy"] for e in [*r["epochs"], r] if "test_accuracy" in e]
        for r in _trained(reports)
    }
    if len(set(map(str, found.values()))) <= 1:
        return None
    return f"ranks disagree on the accuracy on held-out examples: {found}"


def _finite(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    """A loss that is NaN or infinite stands as None in a report: no JSON has it."""
    for report in _trained(reports):
        if report.get("diverged"):
            return f"diverged: {report['diverged']}"
        for epoch in report["epochs"]:
            if None in (epoch["loss"], epoch.get("test_loss", 0.0)):
                return f"diverged: loss is not finite from epoch {epoch['epoch']}"
    return None


#: The check that makes a run a diverged one; who fails another check has failed.
FINITE = "finite"
#: Every rule, by name; each returns what is wrong, or None.
CHECKS: dict[str, Check] = {
    "tasks": _tasks,
    "nodes": _nodes,
    "jobs": _jobs,
    "devices": _devices,
    "gpus": _gpus,
    "cpus": _cpus,
    "replicas": _replicas,
    "cluster": _same("the cluster", "cluster_hash"),
    "tensorflow_version": _same("the TensorFlow version", "tensorflow_version"),
    "epochs": _epochs,
    "learning": _learning,
    "test_accuracy": _held_out,
    FINITE: _finite,
}
#: Those that any job of ranks must pass, whatever its ranks do.
PLACE_CHECKS = (
    *("tasks", "nodes", "jobs", "devices", "gpus", "cpus", "replicas"),
    *("cluster", "tensorflow_version"),
)


def violations(
    asked: Mapping[str, Any], reports: Sequence[Report], checks: Iterable[str] = CHECKS
) -> list[str]:
    """What is wrong with the run by these checks, empty if it counts.

    `asked` has the geometry (nodes, tasks_per_node, tasks, gpus_per_task, replicas), the jobs, the
    launcher, devices, cpus_per_task and epochs; `reports` are those of the ranks.
    """
    return [wrong for name in checks if (wrong := CHECKS[name](asked, reports))]
