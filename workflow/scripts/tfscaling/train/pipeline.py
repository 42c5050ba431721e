"""Data-parallel training by all-reduce on a custom pipeline of tf.data.Datasets.

Each worker reads its own part and waits for its own input only: the number of its examples in a
step, and whether it has more, are summed over the replicas in the step. A worker's batches are
split over its devices, where they are fetched ahead. `tf.distribute` asks all workers before each
step whether they have a batch, so that one worker's wait would count for all, and compiles an
iterator at the start of each epoch.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, NamedTuple

from tfscaling.launch.checkpoint_folder import CheckpointState
from tfscaling.record.events import EventLog
from tfscaling.record.rank_report import Execution
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import user_model
from tfscaling.train.all_reduce_loop import AllReduceLoop
from tfscaling.train.loop import TrainingResult

#: Number of a worker's batches that are put on its devices in advance.
PREFETCHED = 2
_POLL_S = 0.1


class PipelineError(ValueError):
    """A custom pipeline cannot be trained on; the message names the problem and what to change."""


class ReplicaBatch(NamedTuple):
    """A replica's part of a worker's batch for one step.

    Attributes:
        batch: The tensors, padded to the replica's batch size.
        examples: Number of examples at the beginning of `batch`; float32.
        more: 1 if the worker has examples after this step, else 0; float32.
    """

    batch: Any
    examples: Any
    more: Any


class StepIterator:
    """Endless iterator over a worker's steps; an item has a `ReplicaBatch` for each device.

    A thread prefetches batches. After the end of the dataset, the iterator yields copies of the
    last batch with 0 examples, because the worker must join the steps of workers with more data. If
    the dataset has no examples, the iterator yields zeros.

    Args:
        dataset: The worker's `tf.data.Dataset` of batches.
        batch: Examples per replica and step.
        devices: The worker's devices.
        like: A batch whose sizes are used for zeros in dimensions of unknown size.

    Raises:
        PipelineError: By `__next__`: a batch has more examples than the replicas take in a step,
            or the first of several batches has fewer.
    """

    def __init__(self, dataset: Any, batch: int, devices: Sequence[str], like: Any = None) -> None:
        self._dataset, self._batch, self._devices = dataset, batch, devices
        self._size = batch * len(devices)
        self._like = like
        self._ready: queue.Queue[list[ReplicaBatch] | Exception] = queue.Queue(PREFETCHED)
        self._closed, self._ended = threading.Event(), threading.Event()
        self._last: list[ReplicaBatch] | None = None
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[list[ReplicaBatch]]:
        """Return this iterator."""
        return self

    def __next__(self) -> list[ReplicaBatch]:
        """Return the next step: a `ReplicaBatch` for each device.

        After the end of the data, steps have no examples.
        """
        if self._last is None:
            item = self._ready.get()
            if isinstance(item, Exception):
                raise item
            if not float(item[0].more):
                self._last = [self._to_tensors(each.batch, 0, 0) for each in item]
            return item
        return self._last

    def close(self) -> None:
        """Stop fetching batches and wait until the thread has ended."""
        self._closed.set()
        self._ended.wait()

    def _fill(self) -> None:
        """Fetch batches until the end of the dataset: the thread's function."""
        # TensorFlow 2.21 waits for up to a minute when an iterator is freed: a wake-up of its
        # autotuner gets lost. So this thread frees it, when all batches are fetched.
        iterator = None
        try:
            iterator = iter(self._dataset)
            for item in self._split_batches(iterator):
                self._put(item)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they would keep the iterator
            self._put(error)
        self._ended.set()
        del iterator

    def _put(self, item: list[ReplicaBatch] | Exception) -> None:
        """Put an item into the queue, waiting for space, unless the iterator is closed.

        Args:
            item: The parts of a batch, or an exception to raise in `__next__`.
        """
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=_POLL_S)
                return

    def _split_batches(self, batches: Iterator[Any]) -> Iterator[list[ReplicaBatch]]:
        """Yield each batch of the dataset as a list with a `ReplicaBatch` for each device.

        Without any examples, it yields a batch of zeros.
        """
        waiting: tuple[Any, int] | None = None
        is_first = True
        for batch in batches:
            if self._closed.is_set():
                return
            examples = count_examples(batch, self._size)
            if not examples:  # as after a filter of batches
                continue
            if waiting is not None:
                if is_first:
                    _check_first_batch(waiting[1], self._size)
                is_first = False
                yield self._split(*waiting, more=1)
            waiting = batch, examples
        if waiting is None:
            waiting = self._make_zeros(), 0
        yield self._split(*waiting, more=0)

    def _make_zeros(self) -> Any:
        """Return a batch of zeros with the shapes of the dataset, for a worker without data."""
        import tensorflow as tf

        parts = tf.nest.flatten(self._dataset.element_spec)
        shapes = [part.shape for part in parts]
        others = [] if self._like is None else [part.shape for part in tf.nest.flatten(self._like)]
        if [shape.rank for shape in others] != [shape.rank for shape in shapes]:
            others = shapes

        def zeros(part: Any, other: Any) -> Any:
            """Return a tensor of zeros; sizes that `part` does not give are from `other`."""
            sizes = (n or m or 1 for n, m in zip(part.shape[1:], other[1:], strict=True))
            return tf.zeros([self._size, *sizes], part.dtype)

        return tf.nest.pack_sequence_as(self._dataset.element_spec, list(map(zeros, parts, others)))

    def _split(self, batch: Any, examples: int, more: int) -> list[ReplicaBatch]:
        """Return a `ReplicaBatch` for each device, padded to the replica's batch size.

        Args:
            batch: The tensors.
            examples: Number of examples of the batch.
            more: 1 if the worker has further batches, else 0.
        """
        import tensorflow as tf

        size = self._batch
        if 0 < examples < self._size:
            # padding is computed as well: it is of real examples
            places = tf.minimum(tf.range(self._size), examples - 1)
            batch = tf.nest.map_structure(lambda part: tf.gather(part, places), batch)
        parts = []
        for number, device in enumerate(self._devices):
            with tf.device(device):
                own = tf.nest.map_structure(
                    lambda part, first=number * size: tf.identity(part[first : first + size]), batch
                )
                count = min(max(examples - number * size, 0), size)
                parts.append(self._to_tensors(own, count, more))
        return parts

    def _to_tensors(self, batch: Any, examples: int, more: int) -> ReplicaBatch:
        """Return a `ReplicaBatch`, with its numbers as tensors.

        Args:
            batch: The tensors of the replica's part.
            examples: Number of examples in it.
            more: 1 if the worker has examples after this step, else 0.
        """
        import tensorflow as tf

        return ReplicaBatch(batch, tf.constant(float(examples)), tf.constant(float(more)))


def count_examples(batch: Any, size: int) -> int:
    """Return the number of examples of a batch.

    Args:
        batch: Tensors.
        size: Examples that the worker's replicas take in a step.

    Raises:
        PipelineError: The batch has more examples, or its tensors do not have the same number.
    """
    import tensorflow as tf

    counts = {int(part.shape[0]) for part in tf.nest.flatten(batch)}
    if len(counts) > 1:
        raise PipelineError(f"the tensors of a batch have {sorted(counts)} examples")
    (examples,) = counts
    if examples > size:
        raise PipelineError(
            f"a batch of the pipeline has {examples} examples, more than {size}; end it "
            "with batch(context.per_worker_batch_size)"
        )
    return examples


def _check_first_batch(examples: int, size: int) -> None:
    """Check that the first of several batches has enough examples for all of the worker's replicas.

    Args:
        examples: Number of its examples.
        size: Examples that the worker's replicas take in a step.

    Raises:
        PipelineError: It has fewer.
    """
    if examples < size:
        raise PipelineError(
            f"the pipeline's first batch has {examples} examples and not {size}; "
            "end it with batch(context.per_worker_batch_size)"
        )


def check_batches(dataset: Any, size: int) -> None:
    """Check the sizes of a dataset's first two batches.

    Args:
        dataset: The training data of a worker.
        size: Examples that the worker's replicas take in a step.

    Raises:
        PipelineError: The worker cannot train on batches of these sizes.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False  # its thread may hold up the end of an iterator for a minute
    counts = [count_examples(batch, size) for batch in dataset.take(2).with_options(options)]
    if all(counts) and counts[1:]:
        _check_first_batch(counts[0], size)


class Datasets(NamedTuple):
    """A worker's part of the data, as tf.data.Datasets of batches.

    Attributes:
        train: The training data: (x, y) or (x, y, weights).
        test: The held-out data.
    """

    train: Any
    test: Any


def check_datasets(name: str, returned: Any) -> Datasets:
    """Check what a custom function returned, and return it as Datasets.

    Args:
        name: Name of the function, for messages.
        returned: Its return value.

    Raises:
        PipelineError: It is no pair of datasets with batches that can be trained on.
    """
    import tensorflow as tf

    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise PipelineError(f"{name} returns {type(returned).__name__}, not (train, test)")
    for part, dataset in zip(Datasets._fields, returned, strict=True):
        if not isinstance(dataset, tf.data.Dataset):
            raise PipelineError(
                f"the {part} data of {name} is a {type(dataset).__name__}; allowed: a "
                "tf.data.Dataset. Of a generator or a keras.utils.PyDataset, "
                "tf.data.Dataset.from_generator makes one, with an output_signature"
            )
        parts = tf.nest.flatten(dataset.element_spec)
        if any(isinstance(spec, tf.RaggedTensorSpec) for spec in parts):
            raise PipelineError(
                f"the {part} data of {name} has ragged tensors; end it with "
                "padded_batch(context.per_worker_batch_size), or use to_tensor()"
            )
        # a tensor without a rank comes from tf.py_function, one of rank 0 is not batched
        if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in parts):
            raise PipelineError(
                f"the {part} data of {name} gives {dataset.element_spec}; allowed: batches of "
                "tensors of known rank. End it with batch(context.per_worker_batch_size), and "
                "give shapes by tf.ensure_shape(x, [None, ...])"
            )
    return Datasets(*returned)


class PipelineTrainer(AllReduceLoop):
    """One rank's part of the training of a model on this worker's part of an input pipeline.

    Args:
        strategy: The `tf.distribute.Strategy`.
        build_model: Returns the Keras model.
        datasets: The worker's datasets.
        spec: The run.

    Raises:
        PipelineError: A dataset never ends.
    """

    def __init__(
        self, strategy: Any, build_model: Callable[[], Any], datasets: Datasets, spec: RunSpec
    ) -> None:
        super().__init__(strategy, spec)
        tf = self.tf
        self.train_examples = self.test_examples = 0  # known after an epoch, and an evaluation
        infinite, repeats = tf.data.INFINITE_CARDINALITY, self.recipe.steps_per_epoch is not None
        if not repeats and datasets.train.cardinality() == infinite:
            raise PipelineError("the training data never ends; give the recipe steps_per_epoch")
        if datasets.test.cardinality() == infinite:
            raise PipelineError("the held-out data never ends; let it be each example once")
        element = datasets.train.element_spec

        def batch_of(spec: Any) -> Any:
            """Return the TensorSpec of a replica's batch."""
            return tf.TensorSpec([self.batch, *spec.shape[1:]], spec.dtype)

        self.make_model(
            build_model,
            lambda: tf.nest.map_structure(batch_of, element),
            lambda: user_model.label_problem(element),
        )
        self.data = datasets
        self._execute = self._make_replica_function(self._train_step, reduce_retracing=True)
        self._computation = self._make_replica_function(self._compute, reduce_retracing=True)
        self._evaluate_call = self._make_replica_function(
            self._evaluate_batch, reduce_retracing=True
        )
        self._endless: Iterator[Any] | None = None
        #: A batch that stays on the devices.
        self._kept: Any = None

    @contextmanager
    def _open_steps(self, dataset: Any) -> Iterator[Iterator[Any]]:
        """Give the `with` block an iterator over the worker's steps.

        A step is a per-replica value: each replica gets its `ReplicaBatch`.

        Args:
            dataset: The worker's dataset of batches.
        """
        local, seen = self.strategy.experimental_local_results, None
        if self._kept is not None:
            seen = self.tf.nest.map_structure(lambda value: local(value)[0], self._kept.batch)
        feed = StepIterator(dataset, self.batch, self.strategy.extended.worker_devices, seen)

        def of_replicas(parts: list[ReplicaBatch]) -> Any:
            """Return the parts of a step as one per-replica value."""
            return self.strategy.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group % len(parts)]
            )

        with closing(feed):
            yield map(of_replicas, feed)

    def _weights(self, fed: ReplicaBatch) -> Any:
        """Return 1 for each example of a replica's batch and 0 for padding; float32, (batch,)."""
        tf = self.tf
        return tf.cast(tf.cast(tf.range(self.batch), tf.float32) < fed.examples, tf.float32)

    def _sum_counts(self, fed: ReplicaBatch) -> Any:
        """Return [examples of the step, replicas with more data], summed over all replicas.

        The type is float32.
        """
        sums = self.tf.stack([fed.examples, fed.more])
        if self.replicas == 1:
            return sums
        context = self.tf.distribute.get_replica_context()
        return context.all_reduce(self.tf.distribute.ReduceOp.SUM, sums)

    def _train_step(self, fed: ReplicaBatch) -> Any:
        """Train one step in a replica.

        Returns:
            A value that is available once the weights are updated, and the result of `_sum_counts`.
        """
        sums = self._sum_counts(fed)
        examples = self.tf.maximum(sums[0], 1.0)
        return self.train_on(fed.batch, self._weights(fed), examples), sums

    def _compute(self, fed: ReplicaBatch) -> Any:
        """Run forward and backward pass in a replica, without communication and update.

        `compute_steps` measures this. Whoever waits for the returned value waits for all gradients.
        """
        return self.compute_on(fed.batch, self._weights(fed))

    def _evaluate_batch(self, fed: ReplicaBatch) -> Any:
        """Evaluate a batch of held-out examples in a replica, and add the results to its sums.

        Returns:
            A float32 tensor [examples of the step, replicas with more data], summed over all
            replicas by `_sum_counts`.
        """
        self.test_on(fed.batch, self._weights(fed))
        return self._sum_counts(fed)

    def _train_epochs(self, events: EventLog, report: Callable[[str], None]) -> TrainingResult:
        """Train all epochs; return the measurements.

        With `steps_per_epoch`, an epoch continues in the data where the one before it ended, as in
        `fit`.

        Args:
            events: The rank's event log.
            report: Called with a line of text for each epoch.
        """
        if self.recipe.steps_per_epoch is None:
            return super()._train_epochs(events, report)
        # as with `fit`, an epoch continues where the one before it ended
        with self._open_steps(self.data.train.repeat()) as self._endless:
            return super()._train_epochs(events, report)

    def _skip_to(self, state: CheckpointState, events: EventLog) -> None:
        """Read all batches before a checkpoint's position again.

        A shuffle then continues in the order of an uninterrupted training.

        Args:
            state: The state of the checkpoint.
            events: The rank's event log, for signs of progress.
        """
        if self._endless is not None:
            for number in range(state.steps):
                next(self._endless)
                self._log_progress(events, state.epoch, number)
            return
        for epoch in range(1, state.epoch):
            for number, _ in enumerate(self.data.train):
                self._log_progress(events, epoch, number)

    def _train_epoch(self, epoch: int, result: TrainingResult, events: EventLog) -> None:
        """Train one epoch and append the durations of its steps to `result.steps`.

        Args:
            epoch: Number of the epoch.
            result: The measurements so far.
            events: The rank's event log.
        """
        if self._endless is not None:
            self._train_steps(epoch, self._endless, result, events)
            return
        with self._open_steps(self.data.train) as batches:
            if self._begun.step_in_epoch and self._checkpoints is not None:
                with self._checkpoints.time_reading():
                    for number in range(self._begun.step_in_epoch):
                        next(batches)
                        self._log_progress(events, epoch, number)
            self._train_steps(epoch, batches, result, events)

    def _train_steps(
        self, epoch: int, batches: Iterator[Any], result: TrainingResult, events: EventLog
    ) -> None:
        """Train the steps of an epoch until its data or `steps_per_epoch` ends.

        Args:
            epoch: Number of the epoch.
            batches: Iterator over per-replica values, from `_open_steps`.
            result: The measurements so far.
            events: The rank's event log.

        Raises:
            PipelineError: No worker has training examples.
        """
        whole, examples = self.recipe.steps_per_epoch, self._begun.examples_in_epoch
        steps = None if whole is None else self._steps_of_epoch(whole)
        for step in itertools.count(self._begun.step_in_epoch):
            start_s = time.perf_counter()
            batch = next(batches)
            waited_s = time.perf_counter() - start_s
            self._kept = batch if self._kept is None else self._kept
            done, sums = self._execute(batch)
            self._wait_for_values(done)
            count, more = self._wait_for_values(sums)[0].tolist()
            duration_s = time.perf_counter() - start_s
            examples += round(count)
            if not examples:
                raise PipelineError("the pipeline gives no training examples")
            result.steps.append(Execution(epoch, step, 1, duration_s, waited_s))
            self._log_step(events, result, epoch, step)
            is_last = (not more) if steps is None else step + 1 == steps
            if is_last or self._after_step(result, epoch, step + 1, examples):
                break
        if whole in (None, step + 1):  # else it is no whole epoch
            self.train_examples = self.train_examples or examples

    def _evaluate(self) -> None:
        """Evaluate all held-out examples; add losses, correct answers and examples to the sums.

        Raises:
            PipelineError: No worker has held-out examples.
        """
        self._average_call()
        examples, more = 0, True
        with self._open_steps(self.data.test) as batches:
            while more:
                count, more = self._wait_for_values(self._evaluate_call(next(batches)))[0].tolist()
                examples += round(count)
        if not examples:
            raise PipelineError("the pipeline gives no held-out examples")
        self.test_examples = examples

    def some_examples(self) -> tuple[Any, ...] | None:
        """Return one batch of training examples as the model gets them; None if there is none."""
        if self._kept is None:
            return next(iter(self.data.train), None)
        first = self.strategy.experimental_local_results
        batch: tuple[Any, ...] = self.tf.nest.map_structure(
            lambda value: first(value)[0], self._kept.batch
        )
        return batch

    def _computations(self) -> Iterator[Callable[[], Any]]:
        """Yield functions that run only forward and backward pass, always on the same batch."""
        return itertools.repeat(partial(self._computation, self._kept))
