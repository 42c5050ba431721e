"""Checks that each rank got what the run requested.

A run counts only if every check holds; else it is shown as failed with the reasons and takes part
in no comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import UNSET

from tfscaling.record import gpu_models, program_checks, program_results
from tfscaling.record.agreement import differing, disagreement
from tfscaling.record.rank_report import (
    BenchmarkedRank,
    Rank,
    RankReport,
    TrainedRank,
    TrainingReport,
)
from tfscaling.record.run_record import PreparedData
from tfscaling.spec.run_spec import JobSpec, RunSpec


class PlaceCheck(NamedTuple):
    """`description` says what holds where `problem` finds nothing wrong with the ranks of a job.

    `of_programs`: also for ranks of a user's program, of which the rank knows no devices.
    """

    description: str
    problem: Callable[[JobSpec, Sequence[Rank]], str | None]
    of_programs: bool = True


class TrainingCheck(NamedTuple):
    """The same of the ranks that trained on these data."""

    description: str
    problem: Callable[[RunSpec, PreparedData, Sequence[TrainingReport]], str | None]


def _tasks(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    ranks, expected = sorted(r.rank for r in reports), list(range(spec.geometry.tasks))
    return None if ranks == expected else f"requested ranks {expected}, got {ranks}"


def _nodes(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    if spec.measured.launcher == "local":
        return None  # all "nodes" are this machine, and the record says so
    geometry, on_host = spec.geometry, Counter(report.host for report in reports)
    if len(on_host) != geometry.nodes:
        return f"requested {geometry.nodes} nodes, ranks ran on {len(on_host)}: {sorted(on_host)}"
    if sorted(on_host.values()) != sorted(geometry.tasks_on_nodes):
        return f"requested {geometry.tasks_per_node} tasks per node, got {dict(on_host)}"
    return None


def _jobs(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    jobs = Counter(r.job for r in reports)
    return None if jobs == spec.jobs else f"requested jobs {spec.jobs}, got {dict(jobs)}"


def _devices(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    """What TensorFlow computes on; of workers of a coordinator as the coordinator sees them."""
    kind = "GPU" if _on_gpus(spec) else "CPU"
    expected = tuple(f"{kind}:{index}" for index in range(max(1, spec.geometry.gpus_per_task)))
    devices = {r.rank: r.devices for r in reports if r.job == "worker"}
    for coordinator in reports:
        if isinstance(coordinator, TrainedRank) and coordinator.worker_devices is not None:
            seen = coordinator.worker_devices
            # ranks go to the tasks of a job in their order; a worker that is not seen has none
            devices = {
                rank: seen[n] if n < len(seen) else () for n, rank in enumerate(sorted(devices))
            }
    wrong = {rank: list(names) for rank, names in devices.items() if names != expected}
    return f"requested devices {list(expected)} on each worker, got {wrong}" if wrong else None


def _on_gpus(spec: JobSpec) -> bool:
    return spec.geometry.gpus_per_task > 0 and spec.measured.devices == "physical"


def _gpu_type(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    gpu_type = spec.measured.gpu_type
    if not _on_gpus(spec) or not gpu_type:
        return None
    others = {
        rank: [name for name in names if gpu_models.is_model(gpu_type, name) is False]
        for rank, names in _gpu_models(reports).items()
    }
    wrong = {rank: names for rank, names in others.items() if names}
    if not wrong:
        return None
    way_out = "if that is the same model: `gpu_type: null` compares nothing"
    return f"requested GPUs of gpu_type {gpu_type}, got {wrong}; {way_out}"


def _gpu_models(reports: Sequence[Rank]) -> dict[int, list[str]]:
    """Rank → the driver's names of its GPUs; those of its whole host if these are all alike."""
    models = {}
    for report in reports:
        if report.job == "worker":
            names = [name for name in report.gpu_names if name]
            on_host = list(dict.fromkeys(report.host_facts.gpus))
            models[report.rank] = names or (on_host if len(on_host) == 1 else [])
    return models


def _gpu_sharing(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    """Each physical GPU is used by one rank only, wherever its ranks run."""
    if not _on_gpus(spec):
        return None
    users: dict[str, list[int]] = {}
    for report in reports:
        for gpu in _gpus_of(report) if report.job == "worker" else ():
            users.setdefault(gpu, []).append(report.rank)
    shared = {gpu: ranks for gpu, ranks in users.items() if len(ranks) > 1}
    return f"ranks share GPUs: {shared}" if shared else None


def _gpus_of(report: Rank) -> list[str]:
    """The UUIDs of a rank's GPUs, where nvidia-smi tells them."""
    uuids = report.host_facts.gpu_uuids
    if report.gpus_visible is None:
        return list(uuids)
    gpus: list[str] = []
    for entry in report.gpus_visible.split(","):
        if entry.isdecimal():
            gpus += uuids[int(entry) : int(entry) + 1]
        elif entry:  # a UUID may be cut short; one of a part of a GPU is not in the list
            gpus += [uuid for uuid in uuids if uuid.startswith(entry)] or [entry]
    return gpus


def _gpus(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    """Also with logical devices: a rank without its GPUs would go unnoticed there."""
    if spec.measured.launcher == "local":
        return None  # inside a Slurm job its processes share all the job's GPUs
    given = {r.rank: r.gpus_given for r in reports if r.job == "worker"}
    per_node, per_task = spec.geometry.gpus_per_node, spec.geometry.gpus_per_task
    if not per_task or set(given.values()) == {None}:
        return None  # no GPUs requested of Slurm, or it names them in another maker's variable
    # each task sees all GPUs of its node, or only its own where Slurm binds them
    if set(given.values()) in ({per_node}, {per_task}):
        return None
    return (
        f"requested {per_node} GPUs per node and {per_task} per task, Slurm gave the ranks {given}"
    )


def _cpus(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    if spec.measured.launcher == "local":
        return None  # processes on one machine share its CPUs
    least = spec.cpus_per_task
    few = {r.rank: r.cpus for r in reports if r.cpus < least}
    if few:
        return f"requested {least} CPUs per task, got {few}"
    quotas = {r.rank: r.cpu_quota for r in reports if (r.cpu_quota or least) < least}
    text = f"requested {least} CPUs per task, a limit of CPU time leaves {quotas}"
    return text if quotas else None


def _threads(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    wrong = [r for r in reports if r.intra_op_threads != spec.threads(r.cpus)]
    if not wrong:
        return None
    planned = {r.rank: spec.threads(r.cpus) for r in wrong}
    return f"planned threads {planned}, got { ({r.rank: r.intra_op_threads for r in wrong}) }"


def _replicas(spec: JobSpec, reports: Sequence[Rank]) -> str | None:
    """As the ranks that made a strategy have it: those that trained or timed all-reduces."""
    replicas = {r.rank: r.replicas for r in reports if isinstance(r, TrainedRank | BenchmarkedRank)}
    if not replicas:
        return f"requested replicas {spec.replicas}, no rank made a strategy"
    return differing("replicas", spec.replicas, replicas)


def _cluster(_: JobSpec, reports: Sequence[Rank]) -> str | None:
    return disagreement("the cluster", {r.rank: r.cluster_hash for r in reports})


def _cluster_source(_: JobSpec, reports: Sequence[Rank]) -> str | None:
    sources = {r.rank: r.cluster_source for r in reports}
    return disagreement("where the cluster is told", sources)


def _tensorflow_version(_: JobSpec, reports: Sequence[Rank]) -> str | None:
    versions = {r.rank: r.tensorflow_version for r in reports}
    return disagreement("the TensorFlow version", versions)


def _packages(_: JobSpec, reports: Sequence[Rank]) -> str | None:
    versions = {r.rank: r.host_facts.packages for r in reports}
    for name in dict.fromkeys(name for packages in versions.values() for name in packages):
        of_ranks = {rank: packages.get(name) for rank, packages in versions.items()}
        if len(set(of_ranks.values())) > 1:
            return f"ranks disagree on the version of {name}: {of_ranks}"
    return None


def _per_replica_batch_size(
    spec: RunSpec, _: PreparedData, reports: Sequence[TrainingReport]
) -> str | None:
    sizes = {r.rank: r.per_replica_batch_size for r in reports}
    return differing("per_replica_batch_size", spec.per_replica_batch_size, sizes)


def _global_batch_size(
    spec: RunSpec, _: PreparedData, reports: Sequence[TrainingReport]
) -> str | None:
    sizes = {r.rank: r.global_batch_size for r in reports}
    return differing("global_batch_size", spec.global_batch_size, sizes)


def _examples_per_step(
    _: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]
) -> str | None:
    examples = {r.rank: r.examples_per_step for r in reports}
    return disagreement("the examples of a step", examples)


def _data(_: RunSpec, data: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    sums = {r.rank: r.data_sha256 for r in reports}
    return differing("data with the checksum", data.sha256, sums)


def _train_examples(
    _: RunSpec, data: PreparedData, reports: Sequence[TrainingReport]
) -> str | None:
    examples = {r.rank: r.train_examples for r in reports}
    if data.train_examples is None:
        return disagreement("train_examples", examples)
    return differing("train_examples", data.train_examples, examples)


def _test_examples(_: RunSpec, data: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    examples = {r.rank: r.test_examples for r in reports}
    if data.test_examples is None:
        return disagreement("test_examples", examples)
    return differing("test_examples", data.test_examples, examples)


def _examples_trained(
    spec: RunSpec, data: PreparedData, reports: Sequence[TrainingReport]
) -> str | None:
    """Counted while they were trained: every example once in each epoch, however it ended.

    How many a pipeline has in an epoch only the pipeline knows: there the ranks have to agree.
    """
    if data.train_examples is None:
        return disagreement("examples_trained", {r.rank: r.examples_trained for r in reports})
    of_epoch = data.train_examples
    wrong = {}
    for report in reports:
        asked = of_epoch * len(report.epochs)
        if (stop := spec.recipe.stop_after_steps) is not None:
            whole, steps = divmod(stop, -(-of_epoch // report.examples_per_step))
            last = min(steps * report.examples_per_step, of_epoch)
            asked = min(asked, of_epoch * whole + last)
        if report.examples_trained != asked:
            wrong[report.rank] = report.examples_trained
    text = f"requested {of_epoch} examples in each epoch"
    return f"{text}, trained in all {wrong}" if wrong else None


def _model(_: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    return disagreement("the model's size", {r.rank: r.model_parameters for r in reports})


def _weights(_: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    """Loss and accuracy are sums over all ranks: they would not show that models drift apart."""
    return disagreement("the trained weights", {r.rank: r.weights_sha256 for r in reports})


def _epochs(spec: RunSpec, data: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    if not reports:
        return "no rank trained"
    if _finite(spec, data, reports):
        return None  # the training ends with the epoch that diverged, on all ranks: see "learning"
    epochs = spec.recipe.epochs
    if spec.recipe.stop_after_steps is not None:
        epochs = min(epochs, _epochs_begun(spec.recipe.stop_after_steps, reports[0], spec))
    few = {r.rank: len(r.epochs) for r in reports if len(r.epochs) != epochs}
    return f"requested {epochs} epochs, finished {few}" if few else None


def _epochs_begun(steps: int, report: TrainingReport, spec: RunSpec) -> int:
    """In how many epochs so many steps are."""
    by_data = -(-report.train_examples // report.examples_per_step)
    return -(-steps // (spec.recipe.steps_per_epoch or by_data))


def _learning(_: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    curves = {r.rank: [(e.loss, e.accuracy) for e in r.epochs] for r in reports}
    return disagreement("loss and accuracy", curves)


def _test_accuracy(_: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    values = {
        r.rank: [
            *(e.test_accuracy for e in r.epochs if e.test_accuracy is not None),
            r.test_accuracy,
        ]
        for r in reports
    }
    return disagreement("the accuracy on held-out examples", values)


def _test_loss(_: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    values = {
        r.rank: [*(e.test_loss for e in r.epochs if e.test_loss is not UNSET), r.test_loss]
        for r in reports
    }
    return disagreement("the loss on held-out examples", values)


def _finite(_: RunSpec, __: PreparedData, reports: Sequence[TrainingReport]) -> str | None:
    """A loss that is NaN or infinite stands as None in a report: no JSON has it."""
    for report in reports:
        if report.diverged:
            return f"diverged: {report.diverged}"
        for epoch in report.epochs:
            if not epoch.is_finite:
                return f"diverged: loss is not finite from epoch {epoch.epoch}"
    return None


#: The check that makes a run a diverged one; who fails another check has failed.
FINITE = "finite"
#: Those that any job of ranks must pass, whatever its ranks do, by name.
PLACE_CHECKS: dict[str, PlaceCheck] = {
    "tasks": PlaceCheck("Every planned task reported, exactly once.", _tasks),
    "nodes": PlaceCheck(
        "The tasks ran on as many different hosts as planned, with the planned number on each.",
        _nodes,
    ),
    "jobs": PlaceCheck(
        "There were as many workers, parameter servers and coordinators as planned.", _jobs
    ),
    "devices": PlaceCheck(
        "TensorFlow had exactly the planned devices on every worker.", _devices, of_programs=False
    ),
    "gpus": PlaceCheck(
        "Slurm let every worker see the planned GPUs, with logical devices too.", _gpus
    ),
    "gpu_type": PlaceCheck(
        "The driver names every GPU as the platform does, if the platform names one.", _gpu_type
    ),
    "gpu_sharing": PlaceCheck("No two ranks shared a GPU.", _gpu_sharing),
    "cpus": PlaceCheck(
        "Every task had at least the planned CPUs, and no limit of CPU time below them.", _cpus
    ),
    "threads": PlaceCheck(
        "TensorFlow used as many threads for an operation as the rank has CPUs of its own.",
        _threads,
        of_programs=False,
    ),
    "replicas": PlaceCheck(
        "The strategy had the planned number of replicas.", _replicas, of_programs=False
    ),
    "cluster": PlaceCheck("All ranks agree on the cluster.", _cluster),
    "cluster_source": PlaceCheck(
        "All ranks found the cluster in the same source.", _cluster_source
    ),
    "tensorflow_version": PlaceCheck(
        "All ranks ran the same version of TensorFlow.", _tensorflow_version, of_programs=False
    ),
    "packages": PlaceCheck(
        "All ranks ran the same versions of TensorFlow, Keras and NumPy.", _packages
    ),
}
#: Those that a training must pass besides, by name.
TRAINING_CHECKS: dict[str, TrainingCheck] = {
    "per_replica_batch_size": TrainingCheck(
        "Every replica trained batches of the planned size.", _per_replica_batch_size
    ),
    "global_batch_size": TrainingCheck(
        "All replicas together trained batches of the planned size.", _global_batch_size
    ),
    "examples_per_step": TrainingCheck(
        "All ranks that train agree on the number of examples of a step.", _examples_per_step
    ),
    "data": TrainingCheck("Every rank that trains had the prepared data, by its checksum.", _data),
    "train_examples": TrainingCheck(
        "Every rank that trains had the planned number of training examples.", _train_examples
    ),
    "test_examples": TrainingCheck(
        "Every rank that trains had the planned number of held-out examples.", _test_examples
    ),
    "examples_trained": TrainingCheck(
        "Every example was trained once in each epoch; of a pipeline the ranks agree how many.",
        _examples_trained,
    ),
    "model": TrainingCheck(
        "All ranks that train agree on the number of the model's parameters.", _model
    ),
    "weights": TrainingCheck(
        "All ranks that train have the same weights after the last epoch, bit by bit.", _weights
    ),
    "epochs": TrainingCheck(
        "All epochs finished on every rank that trains; of a short run all that were asked.",
        _epochs,
    ),
    "learning": TrainingCheck(
        "All ranks that train have the same loss and accuracy in every epoch.", _learning
    ),
    "test_accuracy": TrainingCheck(
        "All ranks agree on the accuracy on held-out examples.", _test_accuracy
    ),
    "test_loss": TrainingCheck("All ranks agree on the loss on held-out examples.", _test_loss),
    FINITE: TrainingCheck(
        "The loss is a number in every epoch and on held-out examples; otherwise the run diverged.",
        _finite,
    ),
}
#: Name of every check of a training run → its description.
CHECKS: dict[str, str] = {
    **{name: check.description for name, check in PLACE_CHECKS.items()},
    **{name: check.description for name, check in TRAINING_CHECKS.items()},
    **{name: check.description for name, check in program_checks.CHECKS.items()},
}


def names_of(spec: RunSpec) -> tuple[str, ...]:
    """The checks that a run of this specification must pass."""
    if spec.recipe.program:
        return (*_place_checks(spec), *program_checks.CHECKS, FINITE)
    return (*PLACE_CHECKS, *TRAINING_CHECKS)


def _place_checks(spec: JobSpec) -> dict[str, PlaceCheck]:
    of_program = isinstance(spec, RunSpec) and bool(spec.recipe.program)
    return {n: check for n, check in PLACE_CHECKS.items() if check.of_programs or not of_program}


def place_violations(spec: JobSpec, reports: Sequence[Rank]) -> list[str]:
    """What is wrong with the places and devices of the ranks; empty if nothing is."""
    checks = _place_checks(spec).values()
    return [wrong for check in checks if (wrong := check.problem(spec, reports))]


def violations(
    spec: RunSpec, data: PreparedData | None, reports: Sequence[RankReport]
) -> list[str]:
    """What is wrong with a training run, its divergence aside; empty if nothing is.

    `data` is what the ranks were to read; None for a user's program that has its own.
    """
    wrong = place_violations(spec, reports)
    if spec.recipe.program or data is None:
        return [*wrong, *program_checks.violations(spec, program_results.of_programs(reports))]
    trained = [report for report in reports if isinstance(report, TrainingReport)]
    for name, check in TRAINING_CHECKS.items():
        if name != FINITE and (text := check.problem(spec, data, trained)):
            wrong.append(text)
    return wrong


def divergence(spec: RunSpec, data: PreparedData | None, reports: Sequence[RankReport]) -> str:
    """How the training diverged, or an empty text."""
    if spec.recipe.program or data is None:
        return program_results.divergence(reports)
    trained = [report for report in reports if isinstance(report, TrainingReport)]
    return _finite(spec, data, trained) or ""


def unchecked(spec: JobSpec, reports: Sequence[Rank]) -> tuple[str, ...]:
    """What a check could not compare, so that a pass says nothing of it."""
    texts, gpu_type = [], spec.measured.gpu_type
    if _on_gpus(spec) and gpu_type:
        models = _gpu_models(reports)
        nameless = [rank for rank, names in models.items() if not names]
        if nameless:
            texts.append(f"gpu_type: the driver names no GPU of ranks {nameless}")
        names = dict.fromkeys(name for of_rank in models.values() for name in of_rank)
        if any(gpu_models.is_model(gpu_type, name) is None for name in names):
            text = f"{gpu_type!r} cannot be compared with the GPUs' names {[*names]}"
            texts.append(f"gpu_type: {text}")
    workers = [report for report in reports if report.job == "worker"]
    if _on_gpus(spec) and len(workers) > 1 and not all(map(_gpus_of, workers)):
        texts.append("gpu_sharing: nvidia-smi tells no UUIDs of GPUs")
    return tuple(texts)
