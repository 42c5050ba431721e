"""Did the run happen as asked?

A run counts only if every check holds; else it is shown as failed with the reasons and takes part
in no comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tfscaling.records import gpu_models
from tfscaling.study.geometry import Geometry

Report = Mapping[str, Any]
Check = Callable[[Mapping[str, Any], Sequence[Report]], str | None]


def _trained(reports: Sequence[Report]) -> list[Report]:
    """The ranks that ran the training loop: all, or with parameter servers the coordinator."""
    return [report for report in reports if "epochs" in report]


def _with_replicas(reports: Sequence[Report]) -> list[Report]:
    """The ranks that make a strategy, who train or time all-reduces; all if none says so."""
    return [report for report in reports if "replicas" in report] or list(reports)


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
    """What TensorFlow computes on; of workers of a coordinator as the coordinator sees them."""
    kind = "GPU" if _on_gpus(asked) else "CPU"
    expected = [f"{kind}:{index}" for index in range(max(1, asked["gpus_per_task"]))]
    found = {r["rank"]: list(r["devices"]) for r in reports if r["job"] == "worker"}
    for coordinator in reports:
        if (seen := coordinator.get("worker_devices")) is not None:
            # ranks go to the tasks of a job in their order; a worker that is not seen has none
            found = {rank: seen[n] if n < len(seen) else [] for n, rank in enumerate(sorted(found))}
    wrong = {rank: devices for rank, devices in found.items() if devices != expected}
    return f"asked devices {expected} on each worker, got {wrong}" if wrong else None


def _on_gpus(asked: Mapping[str, Any]) -> bool:
    return bool(asked["gpus_per_task"]) and asked["devices"] == "physical"


def _gpu_type(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    if not _on_gpus(asked) or not asked["gpu_type"]:
        return None
    others = {
        rank: [name for name in names if gpu_models.is_model(asked["gpu_type"], name) is False]
        for rank, names in _gpu_models(reports).items()
    }
    wrong = {rank: names for rank, names in others.items() if names}
    if not wrong:
        return None
    way_out = "if that is the same model: `gpu_type: null` compares nothing"
    return f"asked GPUs of gpu_type {asked['gpu_type']}, got {wrong}; {way_out}"


def _gpu_models(reports: Sequence[Report]) -> dict[int, list[str]]:
    """Rank → the driver's names of its GPUs; those of its whole host if these are all alike."""
    found = {}
    for report in reports:
        if report["job"] == "worker":
            names = [name for name in report.get("gpu_names") or () if name]
            on_host = list(dict.fromkeys(report["host_facts"].get("gpus") or ()))
            found[report["rank"]] = names or (on_host if len(on_host) == 1 else [])
    return found


def _gpu_sharing(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    """Each physical GPU is one rank's, wherever its ranks run."""
    if not _on_gpus(asked):
        return None
    users: dict[str, list[int]] = {}
    for report in reports:
        for gpu in _own_gpus(report) if report["job"] == "worker" else ():
            users.setdefault(gpu, []).append(report["rank"])
    shared = {gpu: ranks for gpu, ranks in users.items() if len(ranks) > 1}
    return f"ranks share GPUs: {shared}" if shared else None


def _own_gpus(report: Report) -> list[str]:
    """The UUIDs of a rank's GPUs, where nvidia-smi tells them."""
    uuids: Sequence[str] = report["host_facts"].get("gpu_uuids") or ()
    visible = report.get("gpus_visible")
    if visible is None:
        return list(uuids)
    own: list[str] = []
    for entry in visible.split(","):
        if entry.isdecimal():
            own += uuids[int(entry) : int(entry) + 1]
        elif entry:  # a UUID may be cut short; one of a part of a GPU is not in the list
            own += [uuid for uuid in uuids if uuid.startswith(entry)] or [entry]
    return own


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
    least = asked["cpus_per_task"]
    few = {r["rank"]: r["cpus"] for r in reports if r["cpus"] < least}
    if few:
        return f"asked {least} CPUs per task, got {few}"
    quotas = {r["rank"]: r["cpu_quota"] for r in reports if (r.get("cpu_quota") or least) < least}
    return f"asked {least} CPUs per task, a limit of CPU time leaves {quotas}" if quotas else None


def _as_asked(name: str, key: str, ranks: Callable[[Sequence[Report]], list[Report]]) -> Check:
    """All these ranks report what was asked for under the same key."""

    def check(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
        wrong = {r["rank"]: r.get(key) for r in ranks(reports) if r.get(key) != asked[key]}
        return f"asked {name} {asked[key]}, got {wrong}" if wrong else None

    return check


def _same(
    name: str,
    value: Callable[[Report], Any],
    ranks: Callable[[Sequence[Report]], list[Report]] = list,
) -> Check:
    """All these ranks report the same, and none reports nothing."""

    def check(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
        values = {r["rank"]: value(r) for r in ranks(reports)}
        if len(set(map(str, values.values()))) <= 1 and None not in values.values():
            return None
        return f"ranks disagree on {name}: {values}"

    return check


def _threads(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    found = {r["rank"]: r.get("intra_op_threads") for r in reports}
    wrong = {rank: threads for rank, threads in found.items() if threads != asked["cpus_per_task"]}
    return f"asked {asked['cpus_per_task']} threads per task, got {wrong}" if wrong else None


def _packages(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    versions = {r["rank"]: r["host_facts"]["packages"] for r in reports}
    names = dict.fromkeys(name for packages in versions.values() for name in packages)
    for name in names:
        found = {rank: packages.get(name) for rank, packages in versions.items()}
        if len(set(found.values())) > 1:
            return f"ranks disagree on the version of {name}: {found}"
    return None


def _examples_trained(asked: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
    """Counted while they were trained: every example once in each epoch, however it ended."""
    wrong = {
        r["rank"]: r.get("examples_trained")
        for r in _trained(reports)
        if r.get("examples_trained") != asked["train_examples"] * len(r["epochs"])
    }
    text = f"asked {asked['train_examples']} examples in each epoch"
    return f"{text}, trained in all {wrong}" if wrong else None


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


def _held_out(name: str, key: str) -> Check:
    def check(_: Mapping[str, Any], reports: Sequence[Report]) -> str | None:
        found = {
            r["rank"]: [each[key] for each in [*r["epochs"], r] if key in each]
            for r in _trained(reports)
        }
        if len(set(map(str, found.values()))) <= 1:
            return None
        return f"ranks disagree on the {name} on held-out examples: {found}"

    return check


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
    "gpu_type": _gpu_type,
    "gpu_sharing": _gpu_sharing,
    "cpus": _cpus,
    "threads": _threads,
    "replicas": _as_asked("replicas", "replicas", _with_replicas),
    "cluster": _same("the cluster", lambda r: r.get("cluster_hash")),
    "cluster_source": _same("where the cluster is told", lambda r: r.get("cluster_source")),
    "tensorflow_version": _same("the TensorFlow version", lambda r: r.get("tensorflow_version")),
    "packages": _packages,
    "per_replica_batch_size": _as_asked(
        "per_replica_batch_size", "per_replica_batch_size", _trained
    ),
    "global_batch_size": _as_asked("global_batch_size", "global_batch_size", _trained),
    "examples_per_step": _same(
        "the examples of a step", lambda r: r.get("examples_per_step"), _trained
    ),
    "data": _as_asked("data with the checksum", "data_sha256", _trained),
    "train_examples": _as_asked("train_examples", "train_examples", _trained),
    "test_examples": _as_asked("test_examples", "test_examples", _trained),
    "examples_trained": _examples_trained,
    "model": _same("the model's size", lambda r: r.get("model_parameters"), _trained),
    "epochs": _epochs,
    "learning": _learning,
    "test_accuracy": _held_out("accuracy", "test_accuracy"),
    "test_loss": _held_out("loss", "test_loss"),
    FINITE: _finite,
}
#: Those that any job of ranks must pass, whatever its ranks do.
PLACE_CHECKS = (
    *("tasks", "nodes", "jobs", "devices", "gpus", "gpu_type", "gpu_sharing", "cpus", "threads"),
    *("replicas", "cluster", "cluster_source", "tensorflow_version", "packages"),
)


def violations(
    asked: Mapping[str, Any], reports: Sequence[Report], checks: Iterable[str] = CHECKS
) -> list[str]:
    """What is wrong with the run by these checks, empty if it counts.

    `asked` has the geometry (nodes, tasks_per_node, tasks, gpus_per_task, replicas), the jobs, the
    launcher, devices, gpu_type and cpus_per_task; of a training also the epochs, batch sizes,
    numbers of examples and the checksum of the data. `reports` are those of the ranks.
    """
    return [wrong for name in checks if (wrong := CHECKS[name](asked, reports))]


def unchecked(asked: Mapping[str, Any], reports: Sequence[Report]) -> list[str]:
    """What a check could not compare, so that a pass says nothing of it."""
    found = []
    if _on_gpus(asked) and asked["gpu_type"]:
        models = _gpu_models(reports)
        nameless = [rank for rank, names in models.items() if not names]
        if nameless:
            found.append(f"gpu_type: the driver names no GPU of ranks {nameless}")
        names = dict.fromkeys(name for own in models.values() for name in own)
        if any(gpu_models.is_model(asked["gpu_type"], name) is None for name in names):
            text = f"{asked['gpu_type']!r} cannot be compared with the GPUs' names {[*names]}"
            found.append(f"gpu_type: {text}")
    workers = [report for report in reports if report["job"] == "worker"]
    if _on_gpus(asked) and len(workers) > 1 and not all(map(_own_gpus, workers)):
        found.append("gpu_sharing: nvidia-smi tells no UUIDs of GPUs")
    return found
