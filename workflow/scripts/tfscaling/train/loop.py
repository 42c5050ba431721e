"""What all ways of training share: epochs, evaluations, checkpoints, the loss of a classifier.

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

from tfscaling.launch.checkpoint_folder import State
from tfscaling.record import step_estimates
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.rank_report import Epoch, Execution, ResumePoint, summary
from tfscaling.study.config_types import AUTO, AUTO_STEPS
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import user_model
from tfscaling.train.checkpoints import Checkpoints, Saved, variables_of

_PROGRESS_INTERVAL_S = 5.0


def compiled(function: Callable[..., Any], reduce_retracing: bool = False) -> Any:
    """Return `function` as a graph of TensorFlow, traced as Keras traces a step of `fit`.

    Without AutoGraph, which turns `if` and `for` of the source into operations: to rewrite the
    source of a step takes longer than to trace a small model.
    """
    import tensorflow as tf

    return tf.function(function, autograph=False, reduce_retracing=reduce_retracing)


#: Distance between the seeds of two replicas: Keras's own seeds are below 1e9,
#: users' are small, so two layers of two replicas practically never meet.
SEED_STRIDE = 1_000_003


def is_seed(variable: Any) -> bool:
    """Return whether the variable is a state of random numbers: [seed, count of draws]."""
    return bool(variable.name == "seed_generator_state")


def stream(state: Any, number: Any) -> Any:
    """Return this replica's state of the random numbers: replica 0 draws what Keras alone would."""
    import tensorflow as tf

    own = tf.cast(number, state.dtype) * SEED_STRIDE
    return state + tf.stack([own, tf.zeros_like(own)])


class Measured(NamedTuple):
    """Means over the examples of an epoch, or the held-out ones, and over all replicas.

    A custom model may measure no accuracy, and has `metrics` by name.
    """

    loss: float
    accuracy: float | None
    examples: float
    metrics: dict[str, float] = {}


def measured_by_sums(loss: float, correct: float, examples: float) -> Measured:
    """Make the means from a classifier's sums of losses and correct answers."""
    return Measured(loss / examples, correct / examples, examples)


def measured_by_itself(examples: float, results: Mapping[str, float]) -> Measured:
    """Make the measured means of a model that trains itself, from its metrics.

    Accuracy is the metric `accuracy`, else the only one whose name ends in "accuracy". It is None
    if no metric qualifies or if the value is outside [0, 1].
    """
    metrics = {name: value for name, value in results.items() if name != "loss"}
    named = [name for name in metrics if name.endswith("accuracy")]
    name = "accuracy" if "accuracy" in metrics else (named[0] if len(named) == 1 else None)
    accuracy = None if name is None or not 0 <= metrics[name] <= 1 else metrics[name]
    return Measured(results["loss"], accuracy, examples, metrics)


@dataclass
class Result:
    """What one rank measured.

    `epochs`: loss and accuracy are means over the epoch's examples while they are trained.
    A loss is the total one, as Keras reports it: with the model's own losses, such as regularisers.
    `examples_trained`: over all epochs and replicas, counted by the steps; padding is not counted.
    `evaluations`: how many were made. `is_short`: `stop_after_steps` ended the training.
    `went_on`: the place in the training from which this attempt resumed; the steps are this
    attempt's. `diverged`: what is not finite, from which epoch on; "" if all is. A loss that is NaN
    or infinite is None everywhere else: no JSON has it.
    """

    epochs: list[Epoch] = field(default_factory=list)
    steps: list[Execution] = field(default_factory=list)
    test_loss: float | None = None
    test_accuracy: float | None = None
    went_on: ResumePoint | None = None
    examples_trained: int = 0
    diverged: str = ""
    evaluations: int = 0
    is_short: bool = False

    @property
    def input_wait_s(self) -> float | None:
        """Mean wait for input in a step after the first execution; None if there was none."""
        later = self.steps[1:]
        waited_s = sum(execution.input_wait_s for execution in later)
        return waited_s / sum(execution.steps for execution in later) if waited_s else None

    def finite(self, name: str, value: float, epoch: int) -> float | None:
        """Return the value if it is finite; else None, and mark the training as diverged."""
        if math.isfinite(value):
            return value
        found = "NaN" if math.isnan(value) else "infinite"
        self.diverged = self.diverged or f"{name} is {found} from epoch {epoch}"
        return None


def describe_result(loss: float | None, found: Measured) -> str:
    """Return loss, accuracy and the model's own metrics in words."""
    values = {"accuracy": found.accuracy, **found.metrics}
    texts = [f"{name} {value:.4f}" for name, value in values.items() if value is not None]
    return ", ".join([f"loss {'not finite' if loss is None else f'{loss:.4f}'}", *texts])


def finite_only(metrics: dict[str, float]) -> dict[str, float | None]:
    """Values that are NaN or infinite are None: no JSON has them."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


@dataclass
class EpochProgress:
    """Where the current epoch began in this attempt, after a resume within the epoch.

    Attributes:
        step_in_epoch: Steps of this epoch that earlier attempts trained.
        steps_before_epoch: Steps in all epochs before it.
        examples_in_epoch: Examples of this epoch that earlier attempts trained.
        before_s: Seconds that these steps took.
        steps_per_epoch: Steps in the first epoch; 0 while unknown.
        written_s: Seconds that checkpoints took until this attempt began the epoch.
    """

    step_in_epoch: int = 0
    steps_before_epoch: int = 0
    examples_in_epoch: int = 0
    before_s: float = 0.0
    steps_per_epoch: int = 0
    written_s: float = 0.0


class TrainingLoop(ABC):
    """One rank's epochs of training a model.

    `batch` is the number of examples per replica and step, `examples_per_step` the number per
    update of the variables; `replicas` is what TensorFlow has, which need not be what was
    requested. `train_examples` are per epoch, `test_examples` per evaluation.
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

    def _in_replicas(self, function: Callable[..., Any], reduce_retracing: bool = False) -> Any:
        """Return a graph that calls `function` in each replica with its part of the arguments."""
        return compiled(
            lambda *args: self.strategy.run(function, args=args), reduce_retracing=reduce_retracing
        )

    @property
    def updates_per_epoch(self) -> int | None:
        """Updates of the variables in an epoch; None of a pipeline, whose end shows when it comes.

        A pipeline has them where the recipe gives `steps_per_epoch`.
        """
        by_data = -(-self.train_examples // self.examples_per_step)
        return self.recipe.steps_per_epoch or by_data or None

    @abstractmethod
    def _reset(self) -> None:
        """Set the sums of loss and correct answers to zero."""

    @abstractmethod
    def _measured(self) -> Measured:
        """Return what was measured since `_reset`, over all replicas."""

    @abstractmethod
    def _train_epoch(self, epoch: int, result: Result, events: EventLog) -> None:
        """Train on each example of the epoch once; append to result.steps."""

    @abstractmethod
    def _evaluate(self) -> None:
        """Add loss and correct answers of the held-out examples, each once."""

    def compute_steps(self) -> list[float]:
        """Durations in seconds of steps of this rank's computation alone; [] if it has none."""
        return []

    def saved(self) -> Saved:
        """Return the variables of a checkpoint, in one order for all attempts and ranks."""
        shared = [*self.model.trainable_variables, *getattr(self.optimizer, "variables", ())]
        equal = {id(variable.value) for variable in shared}
        found = variables_of(self.strategy, self.model, self.optimizer, self.totals)
        return Saved(
            shared=[copies for variable, copies in found if id(variable) in equal],
            own=[copies for variable, copies in found if id(variable) not in equal],
        )

    def agreed(self, values: Sequence[float]) -> list[float]:
        """Return the means of three values over the replicas; all ranks wait for one another."""
        return list(values)

    def _skip(self, state: State, events: EventLog) -> None:
        """Read the data again up to a checkpoint."""
        del state, events  # the order of arrays follows from the epoch

    def train(
        self,
        events: EventLog,
        report: Callable[[str], None],
        checkpoints: Checkpoints | None = None,
    ) -> Result:
        """Train all epochs, or the epochs that remain after the last of the `checkpoints`.

        `report` gets one line per epoch. Between epochs the model is evaluated where the recipe
        says so; after the last one it is the caller's part. A loss that is NaN or infinite ends the
        training after its epoch: it is the sum over all replicas, so all ranks end alike. Raises
        InterruptedTrainingError if `checkpoints` got a signal to end.
        """
        self._checkpoints = checkpoints
        with nullcontext() if checkpoints is None else checkpoints.listening():
            return self._train(events, report)

    def _train(self, events: EventLog, report: Callable[[str], None]) -> Result:
        result, start_s = Result(), time.perf_counter()
        epochs = self.recipe.epochs
        interval = self.recipe.evaluation_interval_epochs or epochs
        stop = self.recipe.stop_after_steps or math.inf
        self._steps_left = AUTO_STEPS if isinstance(stop, str) else stop
        for epoch in range(self._first_epoch(result, events), epochs + 1):
            self._begin_epoch(epoch, result)
            self._train_epoch(epoch, result, events)
            found = self._measured()
            result.examples_trained += round(found.examples)
            end_s = time.perf_counter()
            row = Epoch(
                epoch=epoch,
                loss=result.finite("loss", found.loss, epoch),
                accuracy=found.accuracy,
                duration_s=self._epoch_s(end_s),
                metrics=finite_only(found.metrics),
            )
            result.epochs.append(row)
            if self.recipe.stop_after_steps is not None:
                last = result.steps[-1]
                steps = last.first_step + last.steps
                self._steps_left -= steps
                is_last = epoch == epochs and steps == self.updates_per_epoch
                may_end = self._steps_left <= 0 and not is_last
                result.is_short = may_end and self._is_enough(result)
            events.add(EventName.EPOCH, **msgspec.to_builtins(row))
            report(
                f"epoch {epoch}/{epochs}: {describe_result(row.loss, found)}, "
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

    def _end(self, result: Result, events: EventLog) -> None:
        """Write the events that the last epoch is done."""
        if (made := self._checkpoints) is not None:
            events.add(EventName.CHECKPOINTED, read_s=made.read_s, written_s=made.written_s)
        events.add(EventName.TRAINED)

    def _steps_of_epoch(self, whole: int) -> int:
        """Return the steps of an epoch of `whole` steps: fewer if `stop_after_steps` ends it."""
        is_auto = self.recipe.stop_after_steps == AUTO
        return whole if is_auto else int(min(whole, self._steps_left))

    def _is_enough(self, result: Result) -> bool:
        """Whether a short run may end here, on which the ranks agree; else it doubles its steps.

        A tenth of the training is enough in any case, but AUTO_STEPS are made first.
        """
        if self.recipe.stop_after_steps != AUTO:
            return True
        steps = sum(each.steps for each in result.steps)
        is_enough = step_estimates.is_enough(result.steps[1:])
        lacks, *_ = self.agreed([float(not is_enough), 0.0, 0.0])
        tenth = self.recipe.epochs * (self.updates_per_epoch or 0) / 10
        if not lacks or steps >= tenth:
            return True
        self._steps_left += min(steps, tenth - steps)
        return False

    def epoch_turn_s(self) -> float:
        """Duration from the last step of an epoch to the first of the next, without evaluation.

        To be called after training, when all is compiled; the last epoch's sums are lost.
        """
        start_s = time.perf_counter()
        self._measured()
        self._before_first_step()
        return time.perf_counter() - start_s

    def _before_first_step(self) -> None:
        """Do what comes before the first step of an epoch."""
        self._reset()

    def _first_epoch(self, result: Result, events: EventLog) -> int:
        """Return the epoch to begin with: the checkpoint's epoch, if a checkpoint exists."""
        checkpoints = self._checkpoints
        self._begun = EpochProgress()
        if checkpoints is None or (state := checkpoints.restore(self)) is None:
            return 1
        with checkpoints.reading():
            self._skip(state, events)
        result.epochs += state.epochs
        result.examples_trained = state.examples_trained
        result.went_on = summary(state, ResumePoint)
        self._begun = EpochProgress(
            step_in_epoch=state.step,
            steps_before_epoch=state.steps - state.step,
            examples_in_epoch=state.examples - state.examples_trained,
            before_s=state.epoch_time_s,
            steps_per_epoch=state.steps_per_epoch,
        )
        self.train_examples = self.train_examples or state.train_examples
        return state.epoch

    def _begin_epoch(self, epoch: int, result: Result) -> None:
        """Start its clock and its sums."""
        begun, since = self._begun, result.went_on
        if self._checkpoints is not None:
            begun.written_s = self._checkpoints.written_s
        if since is None or epoch > since.epoch:
            begun.step_in_epoch, begun.examples_in_epoch, begun.before_s = 0, 0, 0.0
        self._reported_s = self._begun_s = time.perf_counter()
        if not begun.step_in_epoch:  # else the sums are of the epoch's first steps
            self._reset()

    def _epoch_s(self, now_s: float) -> float:
        """Return duration of the epoch so far, in all attempts, without checkpoints."""
        written_s = self._checkpoints.written_s - self._begun.written_s if self._checkpoints else 0
        return self._begun.before_s + (now_s - self._begun_s) - written_s

    def _after_step(self, result: Result, epoch: int, step: int, examples: int) -> bool:
        """Write a checkpoint if it is due; return whether the training ends within this epoch.

        Call it after `step` steps of an epoch that has more; they had `examples` examples.
        """
        if self._checkpoints is not None:
            self._checkpoints.after_step(
                self,
                self._begun.steps_before_epoch + step,
                lambda: self._state(result, epoch, step, examples),
            )
        return step >= self._steps_left and self._is_enough(result)

    def _after_epoch(self, checkpoints: Checkpoints, result: Result, epoch: int) -> None:
        last, begun = result.steps[-1], self._begun
        steps = last.first_step + last.steps
        begun.steps_before_epoch += steps
        begun.steps_per_epoch = begun.steps_per_epoch or steps
        checkpoints.after_epoch(self, self._state(result, epoch + 1, 0, 0))

    def _state(self, result: Result, epoch: int, step: int, examples: int) -> State:
        """Return what a checkpoint after `step` steps of an epoch has besides variables."""
        assert self._checkpoints is not None
        epoch_s = self._epoch_s(time.perf_counter()) if step else 0.0
        return State(
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

    def evaluate(self, result: Result, events: EventLog, event: EventName) -> str:
        """Evaluate the model on the held-out examples, each counted once, summed over replicas.

        Loss and accuracy are set in the result and in its last epoch, and logged as `event`.
        Return them as a line.
        """
        start_s = time.perf_counter()
        result.evaluations += 1
        self._reset()
        self._evaluate()
        found = self._measured()
        epoch = result.epochs[-1].epoch
        result.test_loss = result.finite("held-out loss", found.loss, epoch)
        result.test_accuracy = found.accuracy
        evaluated = {
            "test_loss": result.test_loss,
            "test_accuracy": result.test_accuracy,
            "evaluation_time_s": time.perf_counter() - start_s,
        }
        result.epochs[-1] = msgspec.structs.replace(
            result.epochs[-1], **evaluated, test_metrics=finite_only(found.metrics)
        )
        events.add(event, epoch=epoch, **evaluated)
        return f"held-out: {describe_result(result.test_loss, found)}"

    def _note(self, events: EventLog, result: Result, epoch: int, step: int) -> None:
        """Write the event of the very first step, or else a sign of life."""
        if len(result.steps) == 1:
            events.add(EventName.FIRST_STEP)
        else:
            self._sign_of_life(events, epoch, step)

    def _sign_of_life(self, events: EventLog, epoch: int, step: int) -> None:
        """Write an event every few seconds: the launcher ends runs in which nothing moves."""
        now_s = time.perf_counter()
        if now_s - self._reported_s > _PROGRESS_INTERVAL_S:
            events.add(EventName.PROGRESS, epoch=epoch, step=step)
            self._reported_s = now_s

    def _gather(self, indices: Any, data: tuple[Any, ...], types: Any = None) -> tuple[Any, ...]:
        """Return the examples at `indices` of inputs, answers and weights, as `fit` gets them.

        `types` are the arrays' types if `data` is held in others. Floating point is float32, all
        else unchanged; only a classifier's inputs of bytes are scaled to [0, 1], unless the model's
        input is of whole numbers.
        """
        tf = self.tf

        def taken(part: Any, dtype: Any) -> Any:
            found = tf.cast(tf.gather(part, indices), dtype)
            return tf.cast(found, tf.float32) if found.dtype.is_floating else found

        types = types or tf.nest.map_structure(lambda part: part.dtype, data)
        x, *rest = tf.nest.map_structure(taken, data, types)
        if not user_model.trains_itself(self.model, self.recipe):
            x = user_model.scale_bytes(self.model, x)
        return (x, *rest)

    def _forward(self, batch: Any, answers: Any, weights: Any, training: bool) -> Any:
        """Loss, correct answers and number of examples of this batch, summed by `weights`, float32.

        A weight is 1, or 0 for padding. The model's own losses are of the batch: they count as
        often as the batch has examples, so that they count once in a mean over examples. Labels
        may be rows of one.
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

    def _count(self, sums: Any) -> None:
        self.totals.assign_add(self.tf.cast(sums, self.totals.dtype))
