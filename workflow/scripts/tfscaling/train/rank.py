"""One rank from its cluster to its report, and the check whether a training can begin.

The program `run_rank.py` calls `train_as_rank`; `check_models.py` calls `check_model`.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import asdict as fields_of
from msgspec.structs import replace

from tfscaling.datasets import catalogue
from tfscaling.datasets.catalogue import Arrays, PipelineContext
from tfscaling.launch.rank_process import RankContext, defer_failure
from tfscaling.record import attempts, clock, crashes, prepared_data
from tfscaling.record.events import EventName
from tfscaling.record.rank_report import (
    Rank,
    RankReport,
    ServerReport,
    StopPoint,
    TrainingReport,
)
from tfscaling.study import user_code, variants
from tfscaling.study.run_spec import CheckedModel, ModelToCheck, RunSpec
from tfscaling.train import (
    custom_train_step,
    loss_means,
    models,
    parameter_server,
    strategies,
    user_model,
)
from tfscaling.train.all_reduce import ArrayTrainer
from tfscaling.train.all_reduce_loop import AllReduceLoop
from tfscaling.train.checkpoints import Checkpoints
from tfscaling.train.loop import TrainingResult
from tfscaling.train.mpi import library as mpi
from tfscaling.train.parameter_server import ParameterServerTrainer
from tfscaling.train.pipeline import Datasets, PipelineTrainer, check_batches, check_datasets
from tfscaling.train.strategies import STRATEGIES

#: Size of the largest file of arrays that is read to check a model; with larger files only the
#: model is built.
_FILE_BYTES_MAX = 1 << 28
#: First port in an example of TF_CONFIG.
_FIRST_PORT = 20000


def prepare_devices(context: RankContext, spec: RunSpec) -> list[str]:
    """Import TensorFlow and make the run's devices visible to it; return their names.

    Example: ["GPU:0", "GPU:1"].

    Raises:
        DeviceError: TensorFlow sees a different number of GPUs than requested.
    """
    # parameter servers and coordinators compute nothing that a GPU would help with
    gpus = spec.geometry.gpus_per_task if context.cluster.job == "worker" else 0
    if gpus == 0 or not spec.uses_gpus:
        strategies.hide_gpus(os.environ)
    load_tensorflow()
    imported_s = clock.now()
    threads = spec.threads_per_operation(len(os.sched_getaffinity(0)))
    try:
        names = strategies.configure_devices(gpus, spec.measured.devices, threads)
    except strategies.DeviceError:
        defer_failure(spec)
        raise
    # not before: the event shows that this host has the requested devices
    context.events.add(EventName.IMPORTED, imported_s)
    return names


def load_tensorflow() -> None:
    """Import TensorFlow faster than `import tensorflow` does, and switch on oneDNN.

    The garbage collector is off during the import, and matplotlib and pandas are not imported. The
    process then takes 2.6 s of CPU time in place of 4.4 s. Code that is loaded later may import
    both modules.

    oneDNN's operations are switched on for every x86 processor. TensorFlow's default is to use them
    only with instructions for neural networks (AVX512_VNNI and later), so not on AMD's Zen 3.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if platform.machine() == "x86_64":
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    gc.disable()
    with _hide_modules("matplotlib", "pandas"):
        import tensorflow  # noqa: F401

    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def _hide_modules(*names: str) -> Iterator[None]:
    """Make modules seem not installed within the `with` block, unless they are already loaded."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def describe_resources(context: RankContext, spec: RunSpec, used: Sequence[str]) -> Rank:
    """Return the resources that the rank got: host, devices, threads and versions.

    Call it after the training: it queries the GPU driver, which would lengthen a measured phase.

    Args:
        context: The rank.
        spec: The run.
        used: The devices of the rank's replicas.
    """
    import tensorflow as tf

    takes_gpus = context.cluster.job == "worker" and spec.uses_gpus
    return replace(
        context.describe_rank(),
        devices=tuple(used),
        gpu_names=tuple(strategies.gpu_names()) if takes_gpus else (),
        intra_op_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        mpi_library=mpi.library_version(),
        tensorflow_version=tf.__version__,
    )


class _Training(NamedTuple):
    """A training that is ready to begin.

    Attributes:
        trainer: The training loop.
        data: The arrays, or the worker's part of an input pipeline.
        data_sha256: Checksum of the data; None if the prepared file has none.
        devices: Devices of this rank's replicas.
        worker_devices: Devices of each worker that this rank drives as a coordinator; None for
            other ranks.
    """

    trainer: AllReduceLoop | ParameterServerTrainer
    data: Arrays | Datasets
    data_sha256: str | None
    devices: list[str]
    worker_devices: tuple[tuple[str, ...], ...] | None


class _Measurements(NamedTuple):
    """The measurements of a finished training.

    Attributes:
        result: Measurements of the training loop.
        stopped: The point at which a short run ended; None for a complete run.
        compute_steps: Durations of the steps without communication, in seconds; empty if none was
            measured.
        weights_sha256: Checksum of the final weights; "" if the training diverged.
    """

    result: TrainingResult
    stopped: StopPoint | None = None
    compute_steps: tuple[float, ...] = ()
    weights_sha256: str = ""


def train_as_rank(context: RankContext, spec: RunSpec, dataset_file: Path) -> RankReport:
    """Train as one rank of a run and return the rank's report.

    Args:
        context: The rank.
        spec: The run.
        dataset_file: The prepared data.
    """
    names, kind = prepare_devices(context, spec), STRATEGIES[spec.point.strategy]
    if kind.coordinated and not context.cluster.is_chief:
        if not parameter_server.run_server(context):
            raise RuntimeError("the coordinator failed")
        return ServerReport(**fields_of(describe_resources(context, spec, names)))
    training = _make_training(context, spec, names, dataset_file)
    measured = _train(context, spec, training.trainer)
    kind.end()
    return _make_report(context, spec, training, measured)


def _make_training(
    context: RankContext, spec: RunSpec, names: list[str], dataset_file: Path
) -> _Training:
    """Make the strategy, load the data and build the model; log an event after each of the three.

    Args:
        context: The rank.
        spec: The run.
        names: This rank's devices.
        dataset_file: The prepared data.
    """
    import keras

    kind, events = STRATEGIES[spec.point.strategy], context.events
    # the variables stay float32
    keras.mixed_precision.set_dtype_policy(spec.recipe.precision)
    strategy = kind.build(names, spec.recipe.communication)
    # the number that TensorFlow has, which may differ from the setting
    worker_devices = strategies.worker_devices() if kind.coordinated else None
    devices = names if kind.coordinated else strategies.devices_in_use(strategy)
    events.add(EventName.RENDEZVOUS, replicas=spec.replicas)
    data, data_sha256 = load_data(context.cluster.index, spec, dataset_file)
    build = models.find_model(spec.point.model, spec.recipe.single_parameters).build
    if isinstance(data, Datasets):
        events.add(EventName.DATA, pipeline=True)
    else:
        events.add(
            EventName.DATA, train_examples=data.train_examples, test_examples=data.test_examples
        )
    trainer: AllReduceLoop | ParameterServerTrainer
    if kind.coordinated and isinstance(data, Arrays):
        trainer = ParameterServerTrainer(strategy, build, data, spec, kind.synchronous)
    else:
        trainer = all_reduce_trainer(strategy, build, data, spec)
    events.add(EventName.BUILT, model_parameters=int(trainer.model.count_params()))
    return _Training(trainer, data, data_sha256, devices, worker_devices)


def _train(
    context: RankContext, spec: RunSpec, trainer: AllReduceLoop | ParameterServerTrainer
) -> _Measurements:
    """Train the model, evaluate it unless it diverged, and measure steps without communication.

    Args:
        context: The rank.
        spec: The run.
        trainer: The training loop.
    """
    events, is_first = context.events, context.cluster.rank == 0  # its log has the progress
    report_line: Callable[[str], None] = partial(print, flush=True) if is_first else lambda _: None
    result = trainer.train(events, report_line, make_checkpoints(context, spec))
    if result.diverged:
        # the phase exists but is empty: nothing is left to evaluate
        events.add(EventName.EVALUATED)
        measured = _Measurements(result)
    else:
        report_line(trainer.evaluate(result, events, EventName.EVALUATED))
        weights = _weights_sha256(trainer.model)
        stopped = None
        if result.is_short:
            stopped = StopPoint(
                steps_per_epoch=trainer.updates_per_epoch or 1,
                evaluations=result.evaluations,
                epoch_turn_s=trainer.measure_time_between_epochs_s(),
            )
        measured = _Measurements(result, stopped, tuple(trainer.compute_steps(result)), weights)
    events.add(EventName.PROBED, steps=len(measured.compute_steps))
    return measured


def _make_report(
    context: RankContext, spec: RunSpec, training: _Training, measured: _Measurements
) -> TrainingReport:
    """Return the report of a rank that trained.

    Args:
        context: The rank.
        spec: The run.
        training: The training, with its data and devices.
        measured: Its measurements.
    """
    trainer, result, workers = training.trainer, measured.result, training.worker_devices
    is_first = context.cluster.rank == 0
    return TrainingReport(
        **fields_of(describe_resources(context, spec, training.devices)),
        replicas=trainer.replicas if workers is None else len(workers),
        worker_devices=workers,
        global_batch_size=trainer.global_batch,
        per_replica_batch_size=trainer.batch,
        examples_per_step=trainer.examples_per_step,
        model_parameters=int(trainer.model.count_params()),
        flops_per_example=models.training_flops(trainer.model) if is_first else None,
        data_sha256=training.data_sha256,
        input_wait_s=result.input_wait_s,
        trained_by=user_model.describe_training(trainer.model, spec.recipe),
        warnings=tuple(_training_warnings(trainer, spec, training.data, result)),
        train_examples=trainer.train_examples,
        test_examples=trainer.test_examples,
        examples_trained=result.examples_trained,
        diverged=result.diverged,
        resumed_from=result.resumed_from,
        stopped=measured.stopped,
        epochs=tuple(result.epochs),
        steps=tuple(result.steps),
        compute_steps=measured.compute_steps,
        weights_sha256=measured.weights_sha256,
        test_loss=result.test_loss,
        test_accuracy=result.test_accuracy,
    )


def all_reduce_trainer(
    strategy: Any, build: Callable[[], Any], data: Arrays | Datasets, spec: RunSpec
) -> AllReduceLoop:
    """Return a training loop with all-reduce, for arrays or for an input pipeline.

    Args:
        strategy: The `tf.distribute.Strategy`.
        build: Returns the Keras model.
        data: The data.
        spec: The run.
    """
    if isinstance(data, Datasets):
        return PipelineTrainer(strategy, build, data, spec)
    return ArrayTrainer(strategy, build, data, spec)


def _training_warnings(
    trainer: AllReduceLoop | ParameterServerTrainer,
    spec: RunSpec,
    data: Arrays | Datasets,
    result: TrainingResult,
) -> Iterator[str]:
    """Yield warnings for the user about a finished training.

    They report ignored settings, a model that may expect unscaled images although the training has
    scaled their bytes to [0, 1], and a loss that depends on the number of replicas.

    Args:
        trainer: The training loop.
        spec: The run.
        data: The training's data.
        result: Its measurements.
    """
    model = trainer.model
    yield from user_model.warnings_before_training(model, spec.recipe)
    if isinstance(data, Arrays):
        yield from user_model.warn_of_scaled_bytes(model, spec.recipe, data.x_train)
    if result.resumed_from is None and not result.is_short and not result.diverged:
        steps = sum(execution.steps for execution in result.steps)
        yield from user_model.warnings_after_training(model, spec.recipe, steps)
    if trainer.replicas > 1 and isinstance(trainer, AllReduceLoop):
        losses = _compare_losses(trainer)
        if losses is not None and (found := losses.problem or losses.warning):
            yield found


def _compare_losses(trainer: AllReduceLoop) -> loss_means.LossOfParts | None:
    """Return the losses of a training batch and of its parts, for a model with its own loss.

    They show whether the loss is a mean over the examples.

    Returns:
        None for a classifier, whose loss is such a mean, and if no batch can be read or compared.
    """
    if trainer.custom_step is None or (batch := trainer.some_examples()) is None:
        return None
    return loss_means.compare_losses_of_parts(trainer.model, batch)


def make_checkpoints(context: RankContext, spec: RunSpec) -> Checkpoints | None:
    """Return the reader and writer of the run's checkpoints; None if the run writes none."""
    beginning = attempts.read_beginning(context.folder)
    if beginning is None or not spec.recipe.writes_checkpoints:
        return None
    cluster = context.cluster
    return Checkpoints(context.folder, beginning, cluster.rank, cluster.num_tasks, spec.recipe)


def load_data(
    worker: int, spec: RunSpec, dataset_file: Path
) -> tuple[Arrays | Datasets, str | None]:
    """Load the data of a worker.

    Args:
        worker: Index of the worker.
        spec: The run.
        dataset_file: The prepared data.

    Returns:
        The prepared arrays, or the worker's part of an input pipeline; and the SHA-256 of the data.
    """
    recipe, dataset = spec.recipe, spec.dataset
    if dataset is None or not user_code.is_pipeline(dataset):
        arrays = catalogue.load(
            dataset_file,
            recipe.train_examples_max,
            recipe.test_examples_max,
            recipe.validation_examples,
        )
        return arrays, arrays.sha256
    import keras

    folder = prepared_data.files_folder(dataset_file).absolute()
    checksum = prepared_data.pipeline_sha256(dataset, folder)  # of the code that is loaded below

    place = PipelineContext(
        workers=spec.jobs["worker"],
        worker=worker,
        replicas=spec.replicas,
        per_replica_batch_size=spec.per_replica_batch_size,
        per_worker_batch_size=spec.global_batch_size // spec.jobs["worker"],
        global_batch_size=spec.global_batch_size,
        seed=spec.seed,
        folder=folder,
    )
    # shuffles without a seed are in the same order on all workers, and in each attempt
    keras.utils.set_random_seed(spec.seed)
    given = variants.data_parameters(dataset, recipe)
    returned = user_code.call_function(dataset, {**given, user_code.CONTEXT: place})
    return check_datasets(dataset, returned), checksum


def _weights_sha256(model: Any) -> str:
    """Return the SHA-256 of the trainable weights, in hexadecimal digits."""
    checksum = hashlib.sha256()
    for variable in model.trainable_variables:
        checksum.update(variable.numpy().tobytes())
    return checksum.hexdigest()


def check_model(model: ModelToCheck, dataset_file: Path) -> CheckedModel:
    """Check whether runs with a model can start, by building it on this machine's CPU.

    The model is built for one of the runs as in a rank, with one replica and one batch. An input
    pipeline's first batches for the run's first worker are checked, too. If other runs have more
    workers, the first batches of the run with the most workers are checked as well, because its
    batches per worker can be smaller. The caller must have hidden the GPUs.

    Args:
        model: The model and the runs that train it.
        dataset_file: The prepared data. If it does not exist yet, or is large, only the model is
            built.

    Returns:
        The problem in one line, with the line of user code, or warnings. The traceback is printed.
    """
    import keras

    spec, largest = model.spec, model.largest
    keras.backend.clear_session()
    os.environ.update({**spec.measured.env, "TF_CONFIG": example_tf_config(spec)})
    try:
        keras.mixed_precision.set_dtype_policy(spec.recipe.precision)
        warnings = _check_model_builds(spec, dataset_file, largest.replicas > 1)
        if largest.jobs["worker"] > spec.jobs["worker"] and _is_readable(largest, dataset_file):
            data, _ = load_data(0, largest, dataset_file)
            if isinstance(data, Datasets):
                check_batches(data.train, largest.global_batch_size // largest.jobs["worker"])
        return CheckedModel(None, warnings)
    except Exception as error:
        traceback.print_exc()
        secrets = crashes.find_secrets(os.environ, setup=spec.measured.setup)
        return CheckedModel(
            crashes.mask_secrets(crashes.describe_exception(error, Path.cwd()), secrets)
        )


def example_tf_config(spec: RunSpec) -> str:
    """Return an example of TF_CONFIG for the first worker of a run.

    User code that reads TF_CONFIG can then run while its model is checked.
    """
    ports = iter(range(_FIRST_PORT, _FIRST_PORT + spec.geometry.tasks))
    cluster = {
        job: [f"127.0.0.1:{next(ports)}" for _ in range(number)]
        for job, number in spec.jobs.items()
    }
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})


def _check_model_builds(
    spec: RunSpec, dataset_file: Path, on_several_replicas: bool
) -> tuple[str, ...]:
    """Check that a run's model can be built and gives an output; return warnings to print.

    For a compiled model on several replicas, the loss is checked as well.

    Args:
        spec: The run.
        dataset_file: The prepared data.
        on_several_replicas: Whether runs with this model have several replicas.

    Raises:
        ModelError: The model cannot be trained. Exceptions in user code are passed on.
    """
    import keras

    build = models.find_model(spec.point.model, spec.recipe.single_parameters).build
    if not _is_readable(spec, dataset_file):
        build()
        return ()
    strategy = STRATEGIES["single"].build(["CPU:0"], "auto")
    data, _ = load_data(0, spec, dataset_file)
    trainer = all_reduce_trainer(strategy, build, data, spec)
    if spec.recipe.jit_compile:
        trainer.compile_by_xla()
    if trainer.custom_step is None:
        inputs = data.train.element_spec[0] if isinstance(data, Datasets) else data.x_train
        trainer.model.compute_output_spec(
            keras.tree.map_structure(
                lambda each: keras.KerasTensor((1, *each.shape[1:]), "float32"), inputs
            )
        )
    elif on_several_replicas:
        custom_train_step.check_reductions(trainer.model)
        loss_means.spread_weights(trainer.model)
        losses = _compare_losses(trainer)
        if losses is not None and losses.problem:
            raise user_model.ModelError(losses.problem)
        return (losses.warning,) if losses is not None and losses.warning else ()
    return ()


def _is_readable(spec: RunSpec, dataset_file: Path) -> bool:
    """Return whether a run's data exists and can be read quickly: a small file or a pipeline."""
    if spec.dataset is None:
        return False
    if user_code.is_pipeline(spec.dataset):
        return dataset_file.exists() or user_code.find_prepare_function(spec.dataset) is None
    return dataset_file.exists() and dataset_file.stat().st_size <= _FILE_BYTES_MAX
