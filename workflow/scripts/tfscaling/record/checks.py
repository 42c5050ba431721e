"""Checks that each rank got what the run requested.

A run counts only if every check holds; otherwise it is shown as failed, with the reasons, and is in
no comparison. The launcher calls `find_problems` when all ranks have ended. Each function
`_check_…` returns what is wrong as a clause for the user, or None if nothing is.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from tfscaling.record import observers, run_results
from tfscaling.record.rank_report import (
    ProgramReport,
    Rank,
    RankReport,
    TrainedRank,
    TrainingReport,
    first_observed,
    program_reports,
    training_reports,
)
from tfscaling.record.run_record import PreparedData
from tfscaling.study.run_spec import RunSpec


class Check(NamedTuple):
    """A check that each rank got what the run requested.

    Attributes:
        description: What is guaranteed if `problem` returns None.
        problem: Returns what is wrong, or None if nothing is. Its arguments are the specification
            and the ranks' reports; for a check of the training also the data.
        of_programs: Whether the check applies to runs of programs, too. It is False for checks of
            values that only the built-in trainer reports, such as TensorFlow's devices.
    """

    description: str
    problem: Callable[..., str | None]
    of_programs: bool = True


def _differing_ranks(name: str, requested: object, got: dict[int, Any]) -> str | None:
    """Return a message about ranks whose value is not the requested one; None without such ranks.

    Args:
        name: Name of the value, for the message.
        requested: The requested value.
        got: Rank → its value.
    """
    wrong = {rank: value for rank, value in got.items() if value != requested}
    return f"requested {name} {requested}, got {wrong}" if wrong else None


def _differing_values(name: str, values: dict[int, Any]) -> str | None:
    """Return a message if ranks report different values or lack one; None if all report the same.

    Args:
        name: Name of the value, for the message.
        values: Rank → its value, or None.
    """
    if len(set(map(str, values.values()))) <= 1 and None not in values.values():
        return None
    return f"ranks disagree on {name}: {values}"


def _make_agreement_check(
    name: str, value: str | Callable[[Any], object]
) -> Callable[..., str | None]:
    """Return a function for `Check.problem`: all ranks must report the same value.

    Args:
        name: Name of the value, for the message.
        value: A field of the report, or a function of the report.
    """
    of = operator.attrgetter(value) if isinstance(value, str) else value
    return lambda _, reports, *__: _differing_values(name, {r.rank: of(r) for r in reports})


def _make_planned_check(
    field: str, planned: Callable[[RunSpec, PreparedData], object], name: str = ""
) -> Callable[..., str | None]:
    """Return a function for `Check.problem`: all ranks must report the planned value.

    If no value was planned, they must report the same value.

    Args:
        field: Field of the ranks' reports.
        planned: Returns the planned value for a run and its data; None if there is none.
        name: Name of the value for the message; "" for the field's name.
    """

    def problem(spec: RunSpec, reports: Sequence[Rank], data: PreparedData) -> str | None:
        """Return which ranks report another value than planned; None if nothing is wrong."""
        got = {report.rank: getattr(report, field) for report in reports}
        asked, called = planned(spec, data), name or field
        return (
            _differing_values(called, got)
            if asked is None
            else _differing_ranks(called, asked, got)
        )

    return problem


def _check_tasks(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return what is wrong unless every planned rank reported exactly once; else None."""
    ranks, expected = sorted(r.rank for r in reports), list(range(spec.geometry.tasks))
    return None if ranks == expected else f"requested ranks {expected}, got {ranks}"


def _check_placement(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return what is wrong with the numbers of nodes and of tasks per node; None if nothing is.

    The launcher `local` is not checked: all of its "nodes" are this machine.
    """
    if spec.measured.launcher == "local":
        return None  # all "nodes" are this machine, as the record shows
    geometry, on_host = spec.geometry, Counter(report.host for report in reports)
    if len(on_host) != geometry.nodes:
        return f"requested {geometry.nodes} nodes, ranks ran on {len(on_host)}: {sorted(on_host)}"
    if sorted(on_host.values()) != sorted(geometry.tasks_on_nodes):
        return f"requested {geometry.tasks_per_node} tasks per node, got {dict(on_host)}"
    return None


def _check_jobs(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return what is wrong with the number of tasks of each job; None if nothing is.

    A job is one of TF_CONFIG: workers, parameter servers or coordinators.
    """
    jobs = Counter(r.job for r in reports)
    return None if jobs == spec.jobs else f"requested jobs {spec.jobs}, got {dict(jobs)}"


def _check_devices(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which workers' devices in TensorFlow differ from the requested ones; None if none do.

    A coordinator reports its workers' devices.
    """
    kind = "GPU" if spec.uses_gpus else "CPU"
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


def _check_gpu_type(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which ranks' GPUs are of another model than the platform's gpu_type; None if none are.

    Without a gpu_type, and for GPUs whose model cannot be compared with it, nothing is wrong.
    """
    gpu_type = spec.measured.gpu_type
    if not spec.uses_gpus or not gpu_type:
        return None
    wrong = {
        rank: others
        for rank, names in _gpu_models(reports).items()
        if (others := [name for name in names if is_gpu_model(gpu_type, name) is False])
    }
    if not wrong:
        return None
    way_out = "if that is the same model: `gpu_type: null` compares nothing"
    return f"requested GPUs of gpu_type {gpu_type}, got {wrong}; {way_out}"


def _gpu_models(reports: Sequence[Rank]) -> dict[int, list[str]]:
    """Return rank of a worker → models of its GPUs; [] if they are unknown.

    If the driver does not name the rank's GPUs, they are known if all GPUs of its host are of one
    model.
    """
    models = {}
    for report in reports:
        if report.job == "worker":
            names = [name for name in report.gpu_names if name]
            on_host = list(dict.fromkeys(report.host_facts.gpus))
            models[report.rank] = names or (on_host if len(on_host) == 1 else [])
    return models


def _check_gpu_sharing(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which physical GPUs several ranks use; None if each is used by one rank."""
    if not spec.uses_gpus:
        return None
    users: dict[str, list[int]] = {}
    for report in reports:
        for gpu in _gpu_uuids(report) if report.job == "worker" else ():
            users.setdefault(gpu, []).append(report.rank)
    shared = {gpu: ranks for gpu, ranks in users.items() if len(ranks) > 1}
    return f"ranks share GPUs: {shared}" if shared else None


def _gpu_uuids(report: Rank) -> list[str]:
    """Return the UUIDs of a rank's GPUs, as far as they are known.

    They are from nvidia-smi's list of the host's GPUs, or from the variable that selects GPUs.
    """
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


def _check_gpus(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return what is wrong with the numbers of GPUs that Slurm gave the ranks, or None.

    Platforms with `devices: logical` are checked, too, if they request GPUs: their training would
    not fail without them.
    """
    if spec.measured.launcher == "local":
        return None  # inside a Slurm job its processes share all the job's GPUs
    given = {r.rank: r.gpus_given for r in reports if r.job == "worker"}
    per_node, per_task = spec.geometry.gpus_per_node, spec.geometry.gpus_per_task
    if not per_task or set(given.values()) == {None}:
        return None  # no GPUs requested of Slurm, or no variable names them
    # each task sees all GPUs of its node, or only its own where Slurm binds them
    if set(given.values()) in ({per_node}, {per_task}):
        return None
    return (
        f"requested {per_node} GPUs per node and {per_task} per task, Slurm gave the ranks {given}"
    )


def _check_cpus(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which ranks had fewer CPUs, or less CPU time, than requested; None if none had."""
    if spec.measured.launcher == "local":
        return None  # processes on one machine share its CPUs
    least = spec.cpus_per_task
    few = {r.rank: r.cpus for r in reports if r.cpus < least}
    if few:
        return f"requested {least} CPUs per task, got {few}"
    quotas = {r.rank: r.cpu_quota for r in reports if (r.cpu_quota or least) < least}
    text = f"requested {least} CPUs per task, a limit of CPU time leaves {quotas}"
    return text if quotas else None


def _check_threads(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which ranks had a wrong number of threads for an operation; else None."""
    wrong = [r for r in reports if r.intra_op_threads != spec.threads_per_operation(r.cpus)]
    if not wrong:
        return None
    planned = {r.rank: spec.threads_per_operation(r.cpus) for r in wrong}
    return f"planned threads {planned}, got { ({r.rank: r.intra_op_threads for r in wrong}) }"


def _check_replicas(spec: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which ranks' strategies have another number of replicas than requested; else None."""
    replicas = {r.rank: r.replicas for r in reports if isinstance(r, TrainedRank)}
    if not replicas:
        return f"requested replicas {spec.replicas}, no rank made a strategy"
    return _differing_ranks("replicas", spec.replicas, replicas)


def _check_packages(_: RunSpec, reports: Sequence[Rank]) -> str | None:
    """Return which versions of packages differ between the ranks; None if none differ."""
    versions = {r.rank: r.host_facts.packages for r in reports}
    for name in dict.fromkeys(name for packages in versions.values() for name in packages):
        of_ranks = {rank: packages.get(name) for rank, packages in versions.items()}
        if len(set(of_ranks.values())) > 1:
            return f"ranks disagree on the version of {name}: {of_ranks}"
    return None


def _check_examples(
    spec: RunSpec, reports: Sequence[TrainingReport], data: PreparedData
) -> str | None:
    """Return what is wrong if an epoch did not train each example exactly once; else None.

    A run may end within an epoch as planned. For a pipeline, only its ranks know how many examples
    an epoch has: they must agree.

    Args:
        spec: The specification of the run.
        reports: Reports of the ranks that trained.
        data: The prepared data.
    """
    if data.train_examples is None:
        return _differing_values("examples_trained", {r.rank: r.examples_trained for r in reports})
    of_epoch = data.train_examples
    wrong = {}
    for report in reports:
        asked = of_epoch * len(report.epochs)
        if (stop := _planned_stop(spec, report)) is not None:
            whole, steps = divmod(stop, -(-of_epoch // report.examples_per_step))
            last = min(steps * report.examples_per_step, of_epoch)
            asked = min(asked, of_epoch * whole + last)
        if report.examples_trained != asked:
            wrong[report.rank] = report.examples_trained
    text = f"requested {of_epoch} examples in each epoch"
    return f"{text}, trained in all {wrong}" if wrong else None


def _planned_stop(spec: RunSpec, report: TrainingReport) -> int | None:
    """Return the number of steps after which the run was to end; None if it was to end by epochs.

    With `stop_after_steps: auto`, it is the number of steps that the rank trained.
    """
    stop = spec.recipe.stop_after_steps
    return sum(each.steps for each in report.steps) if isinstance(stop, str) else stop


def _check_epochs(spec: RunSpec, reports: Sequence[TrainingReport], _: PreparedData) -> str | None:
    """Return which ranks finished another number of epochs than planned; None if none did.

    A planned stop may end the training before the recipe's last epoch. A diverged training ends
    with the epoch that diverged, which is no problem here.
    """
    if not reports:
        return "no rank trained"
    if _check_finite(spec, reports):
        return None  # the training ends with the epoch that diverged, on all ranks: see "learning"
    epochs = spec.recipe.epochs
    if (stop := _planned_stop(spec, reports[0])) is not None:
        by_data = -(-reports[0].train_examples // reports[0].examples_per_step)
        epochs = min(epochs, -(-stop // (spec.recipe.steps_per_epoch or by_data)))
    few = {r.rank: len(r.epochs) for r in reports if len(r.epochs) != epochs}
    return f"requested {epochs} epochs, finished {few}" if few else None


def _check_finite(_: RunSpec, reports: Sequence[TrainingReport], *__: PreparedData) -> str | None:
    """Return from which epoch on a loss is not finite, as "diverged: …"; None if all are finite."""
    for report in reports:
        if report.diverged:
            return f"diverged: {report.diverged}"
        for epoch in report.epochs:
            if not epoch.is_finite:
                return f"diverged: loss is not finite from epoch {epoch.epoch}"
    return None


def _check_reported(spec: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    """Return what is wrong if a program reported neither steps nor epochs; else None.

    It need not report anything if the recipe has `observe: nothing`.
    """
    way = spec.recipe.observe
    if way == "nothing" or any(report.observed.has_training for report in reports):
        return None
    return f"observe: {way}, but the program ended without a report of steps or epochs"


def _check_reported_epochs(spec: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    """Return what is wrong if ranks disagree on the number of epochs; else None.

    More epochs than the recipe requests are wrong as well.
    """
    epochs = {rank: len(found) for rank, found in _reported_values(reports, "epochs").items()}
    if wrong := _differing_values("their epochs", epochs):
        return wrong
    recipe = spec.recipe
    if max(epochs.values(), default=0) <= recipe.epochs:
        return None
    names = [*next(r for r in reports if r.observed.epochs).observed.epochs[0].metrics]
    counts = dict.fromkeys(names or ["events"], max(epochs.values()))
    return observers.explain_extra_epochs(recipe.observe, recipe.patterns, recipe.epochs, counts)


def _check_reported_examples(spec: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    """Return what is wrong if a program reports more examples than its epochs can have; else None.

    A program may fill up the last batch of an epoch, so this batch counts as complete. Nothing is
    wrong if the recipe does not give the number of examples.
    """
    of_epoch, reported = spec.recipe.train_examples, run_results.count_program_examples(reports)
    if of_epoch is None or reported is None:
        return None
    most = -(-of_epoch // spec.global_batch_size) * spec.global_batch_size * spec.recipe.epochs
    if reported <= most:
        return None
    asked = f"{spec.recipe.epochs} epochs of {of_epoch} examples are at most {most}"
    return f"the program reported {reported} examples trained, {asked}"


def _check_program_finite(_: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    """Return from which reported epoch on the loss is not finite, as "diverged: …"; else None."""
    for epoch in first_observed(reports).epochs:
        if epoch.metrics.get("loss", 0.0) is None:
            return f"diverged: loss is not finite from epoch {epoch.epoch}"
    return None


def _reported_values(reports: Sequence[ProgramReport], name: str) -> dict[int, Any]:
    """Return rank → value of a field of `Observed`; ranks whose value is empty are left out."""
    found = {report.rank: getattr(report.observed, name) for report in reports}
    return {rank: value for rank, value in found.items() if value}


#: The check that a diverged run fails; a run that fails any other check has failed.
FINITE = "finite"
#: Name → check of placement, devices and versions; some do not apply to programs.
PLACE_CHECKS = {
    "tasks": Check("Every planned task reported, exactly once.", _check_tasks),
    "nodes": Check(
        "The tasks ran on as many different hosts as planned, with the planned number on each.",
        _check_placement,
    ),
    "jobs": Check(
        "There were as many workers, parameter servers and coordinators as planned.", _check_jobs
    ),
    "devices": Check(
        "TensorFlow had exactly the planned devices on every worker.",
        _check_devices,
        of_programs=False,
    ),
    "gpus": Check(
        "Slurm let every worker see the planned GPUs, with logical devices too.", _check_gpus
    ),
    "gpu_type": Check(
        "The driver names every GPU as the platform does, if the platform names one.",
        _check_gpu_type,
    ),
    "gpu_sharing": Check("No two ranks shared a GPU.", _check_gpu_sharing),
    "cpus": Check(
        "Every task had at least the planned CPUs, and no limit of CPU time below them.",
        _check_cpus,
    ),
    "threads": Check(
        "TensorFlow used as many threads for an operation as CPUs are assigned to the rank.",
        _check_threads,
        of_programs=False,
    ),
    "replicas": Check(
        "The strategy had the planned number of replicas.", _check_replicas, of_programs=False
    ),
    "cluster": Check(
        "All ranks agree on the cluster.", _make_agreement_check("the cluster", "cluster_hash")
    ),
    "cluster_source": Check(
        "All ranks found the cluster in the same source.",
        _make_agreement_check("the source of the cluster", "cluster_source"),
    ),
    "tensorflow_version": Check(
        "All ranks ran the same version of TensorFlow.",
        _make_agreement_check("the TensorFlow version", "tensorflow_version"),
        of_programs=False,
    ),
    "packages": Check(
        "All ranks ran the same versions of TensorFlow, Keras and NumPy.", _check_packages
    ),
}
#: Name → check, for what ranks of the built-in trainer must pass as well.
TRAINING_CHECKS = {
    "per_replica_batch_size": Check(
        "Every replica trained batches of the planned size.",
        _make_planned_check("per_replica_batch_size", lambda spec, _: spec.per_replica_batch_size),
    ),
    "global_batch_size": Check(
        "All replicas together trained batches of the planned size.",
        _make_planned_check("global_batch_size", lambda spec, _: spec.global_batch_size),
    ),
    "examples_per_step": Check(
        "All ranks that train agree on the number of examples of a step.",
        _make_agreement_check("the examples of a step", "examples_per_step"),
    ),
    "data": Check(
        "Every rank that trains had the prepared data, by its checksum.",
        _make_planned_check("data_sha256", lambda _, data: data.sha256, "data with the checksum"),
    ),
    "train_examples": Check(
        "Every rank that trains had the planned number of training examples.",
        _make_planned_check("train_examples", lambda _, data: data.train_examples),
    ),
    "test_examples": Check(
        "Every rank that trains had the planned number of held-out examples.",
        _make_planned_check("test_examples", lambda _, data: data.test_examples),
    ),
    "examples_trained": Check(
        "Every example was trained once in each epoch; of a pipeline the ranks agree how many.",
        _check_examples,
    ),
    "model": Check(
        "All ranks that train agree on the number of the model's parameters.",
        _make_agreement_check("the model's size", "model_parameters"),
    ),
    # loss and accuracy are sums over all ranks: they would not show that models drift apart
    "weights": Check(
        "All ranks that train have the same weights after the last epoch, bit by bit.",
        _make_agreement_check("the trained weights", "weights_sha256"),
    ),
    "epochs": Check(
        "All epochs finished on every rank that trains; of a short run all that were asked.",
        _check_epochs,
    ),
    "learning": Check(
        "All ranks that train have the same loss and accuracy in every epoch.",
        _make_agreement_check(
            "loss and accuracy", lambda r: [(e.loss, e.accuracy) for e in r.epochs]
        ),
    ),
    "test_accuracy": Check(
        "All ranks agree on the accuracy on held-out examples.",
        _make_agreement_check(
            "the accuracy on held-out examples",
            lambda r: [
                *(e.test_accuracy for e in r.epochs if e.test_accuracy is not None),
                r.test_accuracy,
            ],
        ),
    ),
    "test_loss": Check(
        "All ranks agree on the loss on held-out examples.",
        _make_agreement_check(
            "the loss on held-out examples",
            lambda r: [*(e.test_loss for e in r.epochs if e.test_loss is not UNSET), r.test_loss],
        ),
    ),
    FINITE: Check(
        "The loss is a number in every epoch and on held-out examples; otherwise the run diverged.",
        _check_finite,
    ),
}
#: Name → check, for what a user program must pass besides PLACE_CHECKS.
PROGRAM_CHECKS = {
    "report": Check("The program reported in the way that `observe` names.", _check_reported),
    "reported_steps": Check(
        "All ranks that report steps made as many.",
        lambda _, reports: _differing_values("their steps", _reported_values(reports, "steps")),
    ),
    "reported_epochs": Check(
        "All ranks that report epochs finished as many, and none more than the recipe's.",
        _check_reported_epochs,
    ),
    "reported_examples": Check(
        "No more examples were reported than the recipe's epochs have, if it says how many.",
        _check_reported_examples,
    ),
    FINITE: Check(TRAINING_CHECKS[FINITE].description, _check_program_finite),
}
#: Every check of a training run.
CHECKS = PLACE_CHECKS | TRAINING_CHECKS | PROGRAM_CHECKS


def required_check_names(spec: RunSpec) -> tuple[str, ...]:
    """Return the names of the checks that a run of this specification must pass."""
    return (
        *_select_place_checks(spec),
        *(PROGRAM_CHECKS if spec.recipe.program else TRAINING_CHECKS),
    )


def _select_place_checks(spec: RunSpec) -> dict[str, Check]:
    """Return name → check, for the checks in PLACE_CHECKS that this run must pass."""
    of_program = bool(spec.recipe.program)
    return {n: check for n, check in PLACE_CHECKS.items() if check.of_programs or not of_program}


def find_problems(
    spec: RunSpec, data: PreparedData | None, reports: Sequence[RankReport]
) -> dict[str, str]:
    """Return name of a check → what is wrong, for each check that a run fails.

    A run has diverged if it fails the check FINITE and no other one.

    Args:
        spec: The specification of the run.
        data: The data that the ranks should have read; None for a program with its own data.
        reports: The reports of all ranks.
    """
    found = _run_checks(_select_place_checks(spec), spec, reports)
    if spec.recipe.program or data is None:
        return found | _run_checks(PROGRAM_CHECKS, spec, program_reports(reports))
    return found | _run_checks(TRAINING_CHECKS, spec, training_reports(reports), data)


def _run_checks(checks: dict[str, Check], *arguments: object) -> dict[str, str]:
    """Call each check with `arguments`; return name → what is wrong, for the checks that fail."""
    found = {name: check.problem(*arguments) for name, check in checks.items()}
    return {name: wrong for name, wrong in found.items() if wrong}


def list_unchecked(spec: RunSpec, reports: Sequence[Rank]) -> tuple[str, ...]:
    """Return sentences about what the checks could not compare with the request; () if none."""
    texts, gpu_type = [], spec.measured.gpu_type
    if spec.uses_gpus and gpu_type:
        models = _gpu_models(reports)
        nameless = [rank for rank, names in models.items() if not names]
        if nameless:
            texts.append(f"gpu_type: the driver names no GPU of ranks {nameless}")
        names = dict.fromkeys(name for of_rank in models.values() for name in of_rank)
        if any(is_gpu_model(gpu_type, name) is None for name in names):
            text = f"{gpu_type!r} cannot be compared with the GPUs' names {[*names]}"
            texts.append(f"gpu_type: {text}")
    workers = [report for report in reports if report.job == "worker"]
    if spec.uses_gpus and len(workers) > 1 and not all(map(_gpu_uuids, workers)):
        texts.append("gpu_sharing: nvidia-smi lists no UUIDs of GPUs")
    return tuple(texts)


# Models of GPUs by their names. A driver names a GPU as in "Tesla V100-SXM2-16GB", "NVIDIA L4" or
# "NVIDIA GeForce RTX 2080 Ti"; a platform's `gpu_type` is "v100", "a100-80gb", "nvidia-tesla-t4",
# "rtx2080ti", or a typed gres as Slurm finds it, "nvidia_a100-sxm4-80gb". Both are compared word by
# word: "l4" is no "L40". Sites add sizes and form factors in different ways ("v100l", "a100_80"):
# words that are unknown are no contradiction.

#: Words for the maker or the product family, which drivers include in a GPU's name or leave out.
_MAKERS = {"nvidia", "tesla", "quadro", "geforce", "amd", "instinct", "radeon", "gpu"}
#: Words that make a GPU's name a different model.
_VARIANT = re.compile(r"ti|super|ada|pro|max|laptop|mobile")
#: A slice of a GPU (MIG), as "3g.20gb": its compute slices and memory, and for a part of a slice
#: ("1c.3g.20gb") the part's compute slices.
_SLICE = re.compile(r"(?<![a-z0-9])(?:(\d)c[._-])?(\d)g[._-](\d+)gb?(?![a-z0-9])")
#: Largest difference of two texts on the memory of one slice, as a share. NVIDIA's profiles have
#: shares of the GPU's nominal size ("1g.18gb"), Slurm's types the usable size ("1g.16gb").
_SLICE_MEMORY_TOLERANCE = 0.15
_SIZE = re.compile(r"(\d+)(?:g(?:i?b)?)?")
_MEMORY = re.compile(r"(\d+)g(?:i?b)?")
_FORM_FACTOR = re.compile(r"sxm\d*|pcie\d*|hbm\d*\w?")
#: One letter after the number that does not change the model: as in V100L or MI250X, it may be the
#: size or form factor. V100S, L40S and A10G are other models.
_LETTER = re.compile(r"(?<=\d)[a-fh-rt-z]$")


class _GpuName(NamedTuple):
    """The name of a GPU, split.

    Attributes:
        words: Words of the name, without the maker, the word `mig` and the slice.
        mig: The numbers of the slice, such as ("1", "3", 20) for `1c.3g.20gb`: compute instances
            (c), "" if the name has none; GPU instances (g); and memory in GB. None if the name has
            no slice.
        is_mig: Whether the name has a slice or the word `mig`.
    """

    words: list[str]
    mig: tuple[str, str, int] | None
    is_mig: bool


def is_gpu_model(requested: str, name: str) -> bool | None:
    """Return whether a GPU is of the requested model; None if the names cannot be compared.

    The result is False if the number of the model, a variant's word, the memory size or the slice
    (MIG) differs. It is True if the driver's name contains every word of `requested`, perhaps as
    several successive words ("2080ti"). In all other cases it is None. A whole GPU is a different
    model than its slices.

    Args:
        requested: The requested model, such as `a100`.
        name: The driver's name of the GPU.
    """
    wanted, found = _split_name(requested), _split_name(name)
    words = [word for word in wanted.words if not _is_size_of_slice(word, wanted, found)]
    names_slice = wanted.is_mig or len(words) < len(wanted.words)
    model = _is_model(words, found.words)
    if wanted.mig and not (found.mig and _is_same_slice(wanted.mig, found.mig)):
        return False
    if found.is_mig and not names_slice:
        return None if _model_number(words) is None else False
    if wanted.mig and not words:
        return True
    if not wanted.is_mig and names_slice and _memory_gb(found.words):
        return False if model is False else None  # "40" may be the GPU's or the slice's memory
    return model


def _split_name(text: str) -> _GpuName:
    """Return the words and the slice of a GPU's name."""
    mig = _SLICE.search(text.lower())
    words = _model_words(_SLICE.sub(" ", text.lower()))
    own = [word for word in words if word != "mig"]
    numbers = (mig[1] or "", mig[2], int(mig[3])) if mig else None
    return _GpuName(own, numbers, mig is not None or len(own) < len(words))


def _is_same_slice(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    """Return whether two slices have the same compute slices and the same memory."""
    *compute, memory_gb = one
    *other_compute, other_gb = other
    return compute == other_compute and _is_same_memory(memory_gb, other_gb)


def _is_same_memory(one_gb: int, other_gb: int) -> bool:
    """Return whether two sizes in GB can be one slice's memory, which names round differently."""
    return abs(one_gb - other_gb) <= _SLICE_MEMORY_TOLERANCE * max(one_gb, other_gb)


def _is_size_of_slice(word: str, wanted: _GpuName, found: _GpuName) -> bool:
    """Return whether a word of a requested model gives the memory size of the found slice.

    Some sites name slices in this way: `h100-47` requests the profile 3g.47gb. The result is False
    if the request has a profile, too.

    Args:
        word: A word of the request.
        wanted: The requested model.
        found: The driver's name of the GPU.
    """
    if wanted.mig or found.mig is None or word == _model_number(wanted.words):
        return False
    size = _SIZE.fullmatch(word)
    return size is not None and _is_same_memory(int(size[1]), found.mig[-1])


def _model_number(words: list[str]) -> str | None:
    """Return the first word with a digit that is neither a size nor a form factor, or None."""
    for word in words:
        is_other = _MEMORY.fullmatch(word) or _FORM_FACTOR.fullmatch(word)
        if any(map(str.isdigit, word)) and not is_other:
            return word
    return None


def _is_model(wanted: list[str], found: list[str]) -> bool | None:
    """Return whether words of a GPU's name are of the requested model; None if unknown.

    Args:
        wanted: Words of the request.
        found: Words of the driver's name.
    """
    joined = {"".join(found[i:j]) for i in range(len(found)) for j in range(i + 1, len(found) + 1)}
    core = _model_number(wanted)
    if core is None:
        is_other = any(map(_VARIANT.fullmatch, found))
        return True if wanted and set(wanted) <= joined and not is_other else None
    memory_gb, on_gpu_gb = _memory_gb(wanted), _memory_gb(found)
    if (
        _LETTER.sub("", core) not in {_LETTER.sub("", word) for word in joined}
        or _has_other_variant(wanted, found)
        or _has_other_variant(found, wanted)
        # of Grace Hopper ("GH200 480GB") the name has the memory of the processor
        or (on_gpu_gb and not memory_gb <= on_gpu_gb and "gh200" not in found)
    ):
        return False
    # a size is written in several ways: "80", "80g", "80gb"
    written = {f"{size}{unit}" for size in on_gpu_gb for unit in ("", "g", "gb", "gib")}
    return True if set(wanted) <= joined | written else None


def _has_other_variant(words: list[str], others: list[str]) -> bool:
    """Return whether one name has a variant's word, such as `ti`, that the other lacks.

    Args:
        words: Words of one name.
        others: Words of the other name.
    """
    text = "".join(others)
    return any(_VARIANT.fullmatch(word) and word not in text for word in words)


def _memory_gb(words: list[str]) -> set[int]:
    """Return the memory sizes in GB that are among the words of a GPU's name."""
    return {int(match[1]) for match in map(_MEMORY.fullmatch, words) if match}


def _model_words(text: str) -> list[str]:
    """Return the words of a GPU's name in lower case, without words in `_MAKERS`."""
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _MAKERS]
