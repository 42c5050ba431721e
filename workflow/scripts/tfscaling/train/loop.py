"""The training loop of all strategies: epochs, evaluations, checkpoints, a classifier's loss.

Keras 3's `fit` fails under MultiWorkerMirroredStrategy (keras-team/keras#20585).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tfscaling.launch.checkpoint_folder import CheckpointState
from tfscaling.record import step_estimates
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Epoch, Execution, ResumePoint, copy_fields
from tfscaling.study.config_types import AUTO, AUTO_STEPS
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import user_model
from tfscaling.train.checkpoints import Checkpoints, SavedVariables, list_variables

#: Seconds between two events of progress.
_PROGRESS_INTERVAL_S = 5.0


def make_graph_function(function: Callable[..., Any], reduce_retracing: bool = False) -> Any:
    """Return a function as a `tf.function` without AutoGraph, as Keras traces a step of `fit`.

    Conversion by AutoGraph would take longer than tracing a small model.

    Args:
        function: The function of tensors.
        reduce_retracing: Whether arguments of different shapes share a graph where possible.
    """
    import tensorflow as tf

    return tf.function(function, autograph=False, reduce_retracing=reduce_retracing)


def compile_by_xla(function: Callable[..., Any]) -> Any:
    """Return a function of tensors that XLA compiles, for each combination of shapes separately.

    Args:
        function: The function, without sums over replicas: XLA compiles no calls of MPI, and no
            collective operations of TensorFlow on CPUs.
    """
    import tensorflow as tf

    return tf.function(function, autograph=False, reduce_retracing=True, jit_compile=True)


class SharedGraph:
    """A function of tensors with a separate graph, which several other graphs call.

    So the function is not traced again for each of them. Some functions cannot have a separate
    graph, because their layers join the replicas, such as synchronized batch normalization. Their
    operations become part of each graph that calls them.

    Args:
        function: The function of tensors. Its arguments must have equal types in all calls.

    Attributes:
        is_shared: True until a call shows that the function cannot have a separate graph.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._graph = make_graph_function(function, reduce_retracing=True)
        self.is_shared = True

    @property
    def traces(self) -> int:
        """Number of traces of the separate graph: one per device and set of argument types."""
        return int(self._graph.experimental_get_tracing_count())

    def __call__(self, *args: Any) -> Any:
        """Return the function's values for these tensors."""
        if self.is_shared:
            try:
                return self._graph(*args)
            except RuntimeError:  # TensorFlow's answer to a call that joins the replicas
                self.is_shared = False
        return self._function(*args)


#: Difference of the seeds of two replicas: Keras's own seeds are below 1e9, users' are small, so
#: two layers of two replicas practically never have the same.
SEED_STRIDE = 1_000_003


def is_seed(variable: Any) -> bool:
    """Return whether a variable is a Keras random state: [seed, count of draws]."""
    return bool(variable.name == "seed_generator_state")


def replica_random_state(state: Any, number: Any) -> Any:
    """Return the random state of a replica: [seed, count of draws], different for each replica.

    Args:
        state: Keras's state, which replica 0 keeps.
        number: Number of the replica.
    """
    import tensorflow as tf

    own = tf.cast(number, state.dtype) * SEED_STRIDE
    return state + tf.stack([own, tf.zeros_like(own)])


class Means(NamedTuple):
    """Means over the examples of an epoch or of an evaluation, over all replicas.

    Attributes:
        loss: Loss, including the model's own losses such as regularisers.
        accuracy: Accuracy; None if a custom model has none.
        examples: Number of examples.
        metrics: Other metrics of a custom model, by name.
    """

    loss: float
    accuracy: float | None
    examples: float
    metrics: dict[str, float] = {}


def means_from_sums(loss: float, correct: float, examples: float) -> Means:
    """Return a classifier's means from sums over its examples.

    Args:
        loss: Sum of the losses.
        correct: Number of correct answers.
        examples: Number of examples.
    """
    return Means(loss / examples, correct / examples, examples)


def means_from_metrics(examples: float, results: Mapping[str, float]) -> Means:
    """Return the means that a compiled model's metrics report.

    The accuracy is the metric `accuracy`, else the only metric whose name ends in "accuracy". It is
    None if no metric qualifies or if the value is outside [0, 1].

    Args:
        examples: Number of examples.
        results: Metric → value, with `loss`.
    """
    metrics = {name: value for name, value in results.items() if name != "loss"}
    named = [name for name in metrics if name.endswith("accuracy")]
    name = "accuracy" if "accuracy" in metrics else (named[0] if len(named) == 1 else None)
    accuracy = None if name is None or not 0 <= metrics[name] <= 1 else metrics[name]
    return Means(results["loss"], accuracy, examples, metrics)


@dataclass
class TrainingResult:
    """What one rank measured in a training; losses and metrics that are not finite are None.

    Attributes:
        epochs: One entry per epoch; loss and accuracy are means during the epoch's training.
        steps: Calls of the graph in this attempt, each with its steps and their duration.
        test_loss: Loss of the last evaluation on held-out examples.
        test_accuracy: Accuracy of the last evaluation on held-out examples.
        resumed_from: Position from which this attempt resumed; None without a checkpoint.
        examples_trained: Examples of all epochs and replicas, without padding.
        diverged: Which value is not finite, and from which epoch on; "" if all are finite.
        evaluations: Number of evaluations.
        is_short: Whether `stop_after_steps` ended the training.
    """

    epochs: list[Epoch] = field(default_factory=list)
    steps: list[Execution] = field(default_factory=list)
    test_loss: float | None = None
    test_accuracy: float | None = None
    resumed_from: ResumePoint | None = None
    examples_trained: int = 0
    diverged: str = ""
    evaluations: int = 0
    is_short: bool = False

    @property
    def input_wait_s(self) -> float | None:
        """Mean time in seconds that the rank waited for input in a step; None if it never waited.

        The steps of the first call of the graph are not included.
        """
        later = self.steps[1:]
        waited_s = sum(execution.input_wait_s for execution in later)
        return waited_s / sum(execution.steps for execution in later) if waited_s else None

    def finite_or_none(self, name: str, value: float, epoch: int) -> float | None:
        """Return the value if it is finite; else return None and mark the training as diverged.

        Args:
            name: Name of the value, for the message.
            value: The value.
            epoch: Number of the epoch.
        """
        if math.isfinite(value):
            return value
        found = "NaN" if math.isnan(value) else "infinite"
        self.diverged = self.diverged or f"{name} is {found} from epoch {epoch}"
        return None


def describe_means(loss: float | None, means: Means) -> str:
    """Return loss, accuracy and the model's own metrics in words, for the log.

    Args:
        loss: The loss; None if it is not finite.
        means: The other values.
    """
    values = {"accuracy": means.accuracy, **means.metrics}
    texts = [f"{name} {value:.4f}" for name, value in values.items() if value is not None]
    return ", ".join([f"loss {'not finite' if loss is None else f'{loss:.4f}'}", *texts])


def replace_non_finite(metrics: dict[str, float]) -> dict[str, float | None]:
    """Return the metrics with None in place of NaN and infinity, which JSON does not allow."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


@dataclass
class EpochProgress:
    """The position at which this attempt began the current epoch.

    It is not the epoch's beginning if the attempt resumed within the epoch.

    Attributes:
        step_in_epoch: Number of this epoch's steps that earlier attempts trained.
        steps_before_epoch: Number of steps in all earlier epochs.
        examples_in_epoch: Number of this epoch's examples that earlier attempts trained.
        before_s: Seconds that earlier attempts spent in this epoch.
        steps_per_epoch: Number of steps in the first epoch; 0 while unknown.
        written_s: Seconds that this attempt had spent writing checkpoints when it began the epoch.
    """

    step_in_epoch: int = 0
    steps_before_epoch: int = 0
    examples_in_epoch: int = 0
    before_s: float = 0.0
    steps_per_epoch: int = 0
    written_s: float = 0.0


class TrainingLoop(ABC):
    """One rank's loop over the epochs of a training; a base class for all strategies.

    A subclass has the model and the data: it trains and evaluates an epoch and returns the means.

    Args:
        strategy: The `tf.distribute.Strategy`.
        replicas: Number of replicas in the training.
        spec: The run.

    Attributes:
        batch: Examples of each replica in a step.
        examples_per_step: Examples that contribute to one update of the model's variables.
        train_examples: Training examples per epoch.
        test_examples: Held-out examples per evaluation.
    """

    train_examples: int
    test_examples: int

    def __init__(self, strategy: Any, replicas: int, spec: RunSpec) -> None:
        import keras
        import tensorflow as tf

        self.tf, self.strategy, self.recipe, self.seed = tf, strategy, spec.recipe, spec.seed
        self.batch, self.replicas = spec.per_replica_batch_size, replicas
        self.global_batch = self.examples_per_step = self.batch * replicas
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        self.model: Any = None
        self.optimizer: Any = None
        self.totals: Any = None
        self._reported_s = self._begun_s = 0.0
        #: Steps, from the start of an epoch on, until `stop_after_steps` may end the training.
        self._steps_left: float = math.inf
        self._checkpoints: Checkpoints | None = None
        self._begun = EpochProgress()

    def _make_replica_function(
        self, function: Callable[..., Any], reduce_retracing: bool = False
    ) -> Any:
        """Return a graph function that calls `function` in each replica.

        The graph function takes and returns per-replica values. Each call of `function` gets the
        values of its replica.

        Args:
            function: The function of tensors.
            reduce_retracing: Whether arguments of different shapes share a graph where possible.
        """
        return make_graph_function(
            lambda *args: self.strategy.run(function, args=args), reduce_retracing=reduce_retracing
        )

    @property
    def updates_per_epoch(self) -> int | None:
        """Number of updates of the variables in an epoch; None if unknown.

        It is unknown for a pipeline if the recipe has no `steps_per_epoch`.
        """
        by_data = -(-self.train_examples // self.examples_per_step)
        return self.recipe.steps_per_epoch or by_data or None

    @abstractmethod
    def _reset_sums(self) -> None:
        """Reset the sums of loss, correct answers and examples to zero."""

    @abstractmethod
    def _compute_means(self) -> Means:
        """Return the means over all replicas since the last `_reset_sums`."""

    @abstractmethod
    def _train_epoch(self, epoch: int, result: TrainingResult, events: EventLog) -> None:
        """Train one epoch and append the durations of its steps to `result.steps`.

        Args:
            epoch: Number of the epoch.
            result: The measurements so far.
            events: The rank's event log.
        """

    @abstractmethod
    def _evaluate(self) -> None:
        """Add loss and correct answers of all held-out examples to the sums."""

    def compute_steps(self, result: TrainingResult) -> list[float]:
        """Return durations in seconds of steps without communication; [] if not measured.

        Args:
            result: The measurements of the training, which limit the time for these steps.
        """
        del result
        return []

    def saved_variables(self) -> SavedVariables:
        """Return the variables that a checkpoint stores, in the same order on all ranks."""
        shared = [*self.model.trainable_variables, *getattr(self.optimizer, "variables", ())]
        equal = {id(variable.value) for variable in shared}
        found = list_variables(self.strategy, self.model, self.optimizer, self.totals)
        return SavedVariables(
            shared=[copies for variable, copies in found if id(variable) in equal],
            own=[copies for variable, copies in found if id(variable) not in equal],
        )

    def average_over_replicas(self, values: Sequence[float]) -> list[float]:
        """Return the mean of each value over all replicas; waits for all ranks."""
        return list(values)

    def _skip_to(self, state: CheckpointState, events: EventLog) -> None:
        """Read the input pipeline up to the position of a checkpoint; do nothing for arrays.

        Args:
            state: The state of the checkpoint.
            events: The rank's event log, for signs of progress.
        """
        del state, events  # the order of arrays follows from the epoch

    def train(
        self,
        events: EventLog,
        report: Callable[[str], None],
        checkpoints: Checkpoints | None = None,
    ) -> TrainingResult:
        """Train all epochs, or those after a checkpoint, and return the measurements.

        Evaluations between epochs are included; the caller evaluates after the last one. A loss
        that is not finite ends the training after its epoch, on all ranks.

        Args:
            events: The rank's event log.
            report: Called with a line of text for each epoch.
            checkpoints: The run's checkpoints, if any.

        Raises:
            InterruptedTrainingError: A signal ended the training.
        """
        self._checkpoints = checkpoints
        with nullcontext() if checkpoints is None else checkpoints.handle_signals():
            return self._train_epochs(events, report)

    def _train_epochs(self, events: EventLog, report: Callable[[str], None]) -> TrainingResult:
        """Train all epochs, or those after a checkpoint, as in `train`; return the measurements.

        Args:
            events: The rank's event log.
            report: Called with a line of text for each epoch.
        """
        result, start_s = TrainingResult(), time.perf_counter()
        epochs = self.recipe.epochs
        interval = self.recipe.evaluation_interval_epochs or epochs
        stop = self.recipe.stop_after_steps or math.inf
        self._steps_left = AUTO_STEPS if isinstance(stop, str) else stop
        for epoch in range(self._first_epoch(result, events), epochs + 1):
            self._begin_epoch(epoch, result)
            self._train_epoch(epoch, result, events)
            found = self._compute_means()
            result.examples_trained += round(found.examples)
            end_s = time.perf_counter()
            row = Epoch(
                epoch=epoch,
                loss=result.finite_or_none("loss", found.loss, epoch),
                accuracy=found.accuracy,
                duration_s=self._epoch_s(end_s),
                metrics=replace_non_finite(found.metrics),
            )
            result.epochs.append(row)
            if self.recipe.stop_after_steps is not None:
                last = result.steps[-1]
                steps = last.first_step + last.steps
                self._steps_left -= steps
                is_last = epoch == epochs and steps == self.updates_per_epoch
                may_end = self._steps_left <= 0 and not is_last
                result.is_short = may_end and self._may_stop(result)
            events.add(EventName.EPOCH, **msgspec.to_builtins(row))
            report(
                f"epoch {epoch}/{epochs}: {describe_means(row.loss, found)}, "
                f"{row.duration_s:.1f} s, {end_s - start_s:.1f} s since the first step"
            )
            # a short run has an evaluation as those between epochs: it compiles, the last does not
            is_due = epoch % interval == 0 or (result.is_short and not result.evaluations)
            if is_due and interval < epochs and epoch < epochs and not result.diverged:
                report(self.evaluate(result, events, EventName.EPOCH_EVALUATED))
            if result.diverged:
                result.test_loss = result.test_accuracy = None  # of an epoch before, if of any
                report(f"diverged: {result.diverged}: the training ends here")
                break
            if result.is_short:
                done = sum(each.steps for each in result.steps)
                report(f"stopped after {done} steps: the time of the whole is projected from them")
                break
            if self._checkpoints is not None and epoch < epochs:
                self._after_epoch(self._checkpoints, result, epoch)
        self._end(result, events)
        return result

    def _end(self, result: TrainingResult, events: EventLog) -> None:
        """Log that the training has ended, and the time that checkpoints took."""
        if (made := self._checkpoints) is not None:
            events.add(EventName.CHECKPOINTED, read_s=made.read_s, written_s=made.written_s)
        events.add(EventName.TRAINED)

    def _steps_of_epoch(self, complete: int) -> int:
        """Return the number of steps to train in the present epoch.

        Args:
            complete: Number of steps of a complete epoch; a short run may train fewer.
        """
        is_auto = self.recipe.stop_after_steps == AUTO
        return complete if is_auto else int(min(complete, self._steps_left))

    def _may_stop(self, result: TrainingResult) -> bool:
        """Return whether a short run ends after its steps so far; all ranks return the same.

        With a fixed `stop_after_steps` the run ends. With `auto` it ends if all ranks can project
        the complete training from their steps, or if a tenth of the training is done. Otherwise
        the next call is set to follow when the number of steps has doubled, or at this tenth if
        that is earlier.
        """
        if self.recipe.stop_after_steps != AUTO:
            return True
        steps = sum(each.steps for each in result.steps)
        is_enough = step_estimates.are_steps_enough(result.steps[1:])
        lacks, *_ = self.average_over_replicas([float(not is_enough), 0.0, 0.0])
        tenth = self.recipe.epochs * (self.updates_per_epoch or 0) / 10
        if not lacks or steps >= tenth:
            return True
        self._steps_left += min(steps, tenth - steps)
        return False

    def measure_time_between_epochs_s(self) -> float:
        """Measure the time between the last step of an epoch and the first of the next, in seconds.

        No evaluation is included. Call it after the training, when everything is compiled; it
        resets the sums of the last epoch.
        """
        start_s = time.perf_counter()
        self._compute_means()
        self._before_first_step()
        return time.perf_counter() - start_s

    def _before_first_step(self) -> None:
        """Do what precedes an epoch's first step: reset the sums. Subclasses add their own work.

        Only `measure_time_between_epochs_s` calls it, to measure how long this takes.
        """
        self._reset_sums()

    def _first_epoch(self, result: TrainingResult, events: EventLog) -> int:
        """Restore the checkpoint, if any; return the number of the first epoch to train.

        Args:
            result: Gets the measurements of earlier attempts.
            events: The rank's event log.
        """
        checkpoints = self._checkpoints
        self._begun = EpochProgress()
        if checkpoints is None or (state := checkpoints.restore(self)) is None:
            return 1
        with checkpoints.time_reading():
            self._skip_to(state, events)
        result.epochs += state.epochs
        result.examples_trained = state.examples_trained
        result.resumed_from = copy_fields(state, ResumePoint)
        self._begun = EpochProgress(
            step_in_epoch=state.step,
            steps_before_epoch=state.steps - state.step,
            examples_in_epoch=state.examples - state.examples_trained,
            before_s=state.epoch_time_s,
            steps_per_epoch=state.steps_per_epoch,
        )
        self.train_examples = self.train_examples or state.train_examples
        return state.epoch

    def _begin_epoch(self, epoch: int, result: TrainingResult) -> None:
        """Start the clock and reset the sums of an epoch.

        Args:
            epoch: Number of the epoch.
            result: The measurements so far.
        """
        begun, since = self._begun, result.resumed_from
        if self._checkpoints is not None:
            begun.written_s = self._checkpoints.written_s
        if since is None or epoch > since.epoch:
            begun.step_in_epoch, begun.examples_in_epoch, begun.before_s = 0, 0, 0.0
        self._reported_s = self._begun_s = time.perf_counter()
        if not begun.step_in_epoch:  # else the sums are of the epoch's first steps
            self._reset_sums()

    def _epoch_s(self, now_s: float) -> float:
        """Return the seconds of the present epoch, over all attempts, without checkpoints.

        Args:
            now_s: Present time by `time.perf_counter()`.
        """
        written_s = self._checkpoints.written_s - self._begun.written_s if self._checkpoints else 0
        return self._begun.before_s + (now_s - self._begun_s) - written_s

    def _after_step(self, result: TrainingResult, epoch: int, step: int, examples: int) -> bool:
        """Write a checkpoint if one is due; return whether the training ends with this step.

        A training ends within an epoch only if the recipe has `stop_after_steps`.

        Args:
            result: The measurements so far.
            epoch: Number of the epoch.
            step: Number of trained steps of the epoch, fewer than the epoch has.
            examples: Number of trained examples of the epoch.
        """
        if self._checkpoints is not None:
            self._checkpoints.after_step(
                self,
                self._begun.steps_before_epoch + step,
                lambda: self._make_state(result, epoch, step, examples),
            )
        return step >= self._steps_left and self._may_stop(result)

    def _after_epoch(self, checkpoints: Checkpoints, result: TrainingResult, epoch: int) -> None:
        """Write a checkpoint if one is due after an epoch.

        Args:
            checkpoints: The run's checkpoints.
            result: The measurements so far.
            epoch: Number of the epoch that has ended.
        """
        last, begun = result.steps[-1], self._begun
        steps = last.first_step + last.steps
        begun.steps_before_epoch += steps
        begun.steps_per_epoch = begun.steps_per_epoch or steps
        checkpoints.after_epoch(self, self._make_state(result, epoch + 1, 0, 0))

    def _make_state(
        self, result: TrainingResult, epoch: int, step: int, examples: int
    ) -> CheckpointState:
        """Return the state that a checkpoint stores in addition to variables.

        Args:
            result: The measurements so far.
            epoch: The epoch to resume with.
            step: Number of trained steps of this epoch.
            examples: Number of trained examples of this epoch.
        """
        assert self._checkpoints is not None
        epoch_s = self._epoch_s(time.perf_counter()) if step else 0.0
        return CheckpointState(
            ranks=self._checkpoints.ranks,
            epoch=epoch,
            step=step,
            steps=self._begun.steps_before_epoch + step,
            examples=result.examples_trained + examples,
            epoch_time_s=epoch_s,
            trained_s=epoch_s + sum(row.duration_s or 0.0 for row in result.epochs),
            train_examples=self.train_examples,
            steps_per_epoch=self._begun.steps_per_epoch,
            examples_trained=result.examples_trained,
            epochs=tuple(result.epochs),
        )

    def evaluate(self, result: TrainingResult, events: EventLog, event: EventName) -> str:
        """Evaluate the model on all held-out examples; return the values as a line of text.

        The values are also stored in `result` and its last epoch, and logged.

        Args:
            result: The measurements, which are changed.
            events: The rank's event log.
            event: Name of the event to log.
        """
        start_s = time.perf_counter()
        result.evaluations += 1
        self._reset_sums()
        self._evaluate()
        found = self._compute_means()
        epoch = result.epochs[-1].epoch
        result.test_loss = result.finite_or_none("held-out loss", found.loss, epoch)
        result.test_accuracy = found.accuracy
        evaluated = {
            "test_loss": result.test_loss,
            "test_accuracy": result.test_accuracy,
            "evaluation_time_s": time.perf_counter() - start_s,
        }
        result.epochs[-1] = msgspec.structs.replace(
            result.epochs[-1], **evaluated, test_metrics=replace_non_finite(found.metrics)
        )
        events.add(event, epoch=epoch, **evaluated)
        return f"held-out: {describe_means(result.test_loss, found)}"

    def _log_step(self, events: EventLog, result: TrainingResult, epoch: int, step: int) -> None:
        """Log the event of the first step; after later steps log the progress every few seconds.

        Args:
            events: The rank's event log.
            result: The measurements so far.
            epoch: Number of the epoch.
            step: Number of the step in the epoch.
        """
        if len(result.steps) == 1:
            events.add(EventName.FIRST_STEP)
        else:
            self._log_progress(events, epoch, step)

    def _log_progress(self, events: EventLog, epoch: int, step: int) -> None:
        """Log an event of progress, at most every few seconds.

        The launcher ends runs without events as hanging.

        Args:
            events: The rank's event log.
            epoch: Number of the epoch.
            step: Number of the step in the epoch.
        """
        now_s = time.perf_counter()
        if now_s - self._reported_s > _PROGRESS_INTERVAL_S:
            events.add(EventName.PROGRESS, epoch=epoch, step=step)
            self._reported_s = now_s

    def _gather_examples(
        self, indices: Any, data: tuple[Any, ...], types: Any = None
    ) -> tuple[Any, ...]:
        """Return the examples at some indices, as the model gets them.

        Floating-point arrays become float32. A classifier's images in bytes are scaled to [0, 1].

        Args:
            indices: The indices, integers (batch,).
            data: Inputs, labels and weights of all examples.
            types: Original types of the arrays, if `data` is stored in other types.
        """
        tf = self.tf

        def taken(part: Any, dtype: Any) -> Any:
            """Return the examples of one array."""
            found = tf.cast(tf.gather(part, indices), dtype)
            return tf.cast(found, tf.float32) if found.dtype.is_floating else found

        types = types or tf.nest.map_structure(lambda part: part.dtype, data)
        x, *rest = tf.nest.map_structure(taken, data, types)
        if not user_model.uses_own_loss(self.model, self.recipe):
            x = user_model.scale_bytes(self.model, x)
        return (x, *rest)

    def _sum_losses(self, batch: Any, answers: Any, weights: Any, training: bool) -> Any:
        """Return [loss, correct answers, examples] of a classifier, summed over a batch; float32.

        The model's own losses, such as regularisers, are multiplied by the number of examples, so
        that they count once in the mean.

        Args:
            batch: The inputs.
            answers: The labels, whole numbers.
            weights: 1 for each example, 0 for padding.
            training: Whether layers behave as in training, and labels are smoothed.
        """
        import keras

        tf = self.tf
        answers = tf.cast(tf.reshape(answers, [-1]), tf.int32)
        logits = tf.cast(self.model(batch, training=training), tf.float32)
        correct = tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), answers), tf.float32)
        examples = tf.reduce_sum(weights)
        if not training or not (smoothing := self.recipe.label_smoothing):
            losses = self.loss(answers, logits)
        else:
            labels = tf.one_hot(answers, logits.shape[-1])
            losses = keras.losses.categorical_crossentropy(
                labels, logits, from_logits=True, label_smoothing=smoothing
            )
        own = [tf.reduce_sum(tf.cast(each, tf.float32)) for each in self.model.losses]
        loss = tf.reduce_sum(losses * weights) + (tf.add_n(own) if own else 0.0) * examples
        return tf.stack([loss, tf.reduce_sum(correct * weights), examples])

    def _add_to_sums(self, sums: Any) -> None:
        """Add [loss, correct answers, examples] of a batch to the sums since `_reset_sums`."""
        self.totals.assign_add(self.tf.cast(sums, self.totals.dtype))
