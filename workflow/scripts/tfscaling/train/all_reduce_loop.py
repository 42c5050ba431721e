"""Data-parallel training by all-reduce, for any source of batches.

`all_reduce` (arrays) and `pipeline` (tf.data) provide the batches.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfscaling.record.events import EventLog
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import loop, optimizers, user_model
from tfscaling.train.custom_train_step import CustomTrainStep
from tfscaling.train.loop import (
    Means,
    SharedGraph,
    TrainingLoop,
    TrainingResult,
    make_graph_function,
    means_from_metrics,
    means_from_sums,
)

#: Most and fewest steps of computation alone that each rank measures after the training.
COMPUTE_STEPS = 20
COMPUTE_STEPS_MIN = 3
#: Time limit for these steps, as a share of the training's time, or of a minute if that is longer.
_COMPUTE_SHARE, _COMPUTE_BASE_S = 0.05, 60.0


def limit_of_computation_s(result: TrainingResult) -> float:
    """Return the time limit in seconds for all steps without communication after a training.

    `AllReduceLoop.compute_steps` measures these steps.
    """
    training_s = sum(execution.duration_s for execution in result.steps)
    return _COMPUTE_SHARE * max(training_s, _COMPUTE_BASE_S)


def typical_step_s(result: TrainingResult) -> float:
    """Return the median duration of a training's step in seconds, without waits for input.

    The first call of the graph, which traces the step, counts only if there was no other call. The
    result is at least 1e-9, so that it can be a divisor.
    """
    later = result.steps[1:] or result.steps
    return max(
        1e-9,
        statistics.median((each.duration_s - each.input_wait_s) / each.steps for each in later),
    )


class AllReduceLoop(TrainingLoop):
    """One rank's part of a data-parallel training with all-reduce.

    The model is a classifier, or a compiled model with its own loss. A subclass provides the
    batches: it calls `make_model`, and in each replica `train_on` and `test_on` with a batch and
    the weights of its examples, 0 for padding.

    Args:
        strategy: The `tf.distribute.Strategy`.
        spec: The run.
    """

    def __init__(self, strategy: Any, spec: RunSpec) -> None:
        super().__init__(strategy, strategy.num_replicas_in_sync, spec)
        self._is_alone = len(strategy.extended.worker_devices) == self.replicas
        self._average_call = self._make_replica_function(self._average_statistics)
        self._sum_call = make_graph_function(
            lambda: strategy.reduce("SUM", strategy.run(self.totals.read_value), axis=None)
        )
        self._mean_call = make_graph_function(
            lambda each: strategy.reduce("MEAN", strategy.run(self.tf.identity, (each,)), axis=None)
        )
        self._states_call = make_graph_function(
            lambda: strategy.run(self.custom_step.combine_metric_states) if self.custom_step else []
        )
        self._reset_call = self._make_replica_function(self._reset_totals)
        #: Whether steps of computation alone are measured after the training.
        self._is_computation_measured = self.replicas > 1 and self.recipe.measure_computation
        #: The graphs of forward and backward pass that training and measurement share.
        self._shared_graphs: list[SharedGraph] = []
        self._differentiate = self._wrap_differentiation(self._loss_and_gradients)

    def _wrap_differentiation(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of forward and backward pass, wrapped if it gets a separate graph.

        - With `jit_compile`, the result is a `tf.function` that XLA compiles.
        - Without it, if steps without communication are measured after the training, the result is
          a `SharedGraph`. Training and measurement then share one graph, because a second trace
          takes as long as the first.
        - Otherwise, the result is the function itself. Its operations become part of the graph of
          the training step.

        Args:
            function: Runs forward and backward pass on tensors.
        """
        if self.recipe.jit_compile:
            return loop.compile_by_xla(function)
        if not self._is_computation_measured:
            return function
        self._shared_graphs.append(SharedGraph(function))
        return self._shared_graphs[-1]

    @property
    def traced_differentiations(self) -> int:
        """Number of times that a separate graph of forward and backward pass was traced here."""
        return sum(graph.traces for graph in self._shared_graphs)

    def make_model(
        self,
        build_model: Callable[[], Any],
        sample: Callable[[], tuple[Any, ...]],
        problem_of_labels: Callable[[], str | None],
    ) -> None:
        """Build the model with its optimizer on all replicas.

        Args:
            build_model: Returns the Keras model.
            sample: Returns a batch as `fit` gets it, or its TensorSpecs; called only for a model
                with its own loss.
            problem_of_labels: Returns why a classifier cannot be trained on the labels, or None;
                called only for a classifier.

        Raises:
            ModelError: The model cannot be trained in this way.
        """
        import keras

        tf = self.tf
        keras.utils.set_random_seed(self.seed)
        with self.strategy.scope():
            self.model = build_model()
            self.custom_step: CustomTrainStep | None = None
            if user_model.uses_own_loss(self.model, self.recipe):
                user_model.apply_recipe_settings(
                    self.model, self.recipe, self.replicas, self.updates_per_epoch
                )
                self.custom_step = CustomTrainStep(
                    self.model, sample(), self.replicas, self._wrap_differentiation
                )
                self.optimizer = self.model.optimizer
            else:
                user_model.check_classifier(self.model, problem_of_labels())
                device = tf.DeviceSpec.from_string(self.strategy.extended.worker_devices[0])
                is_bfloat16 = self.recipe.precision == "mixed_bfloat16"
                casts = self.replicas == 1 and device.device_type == "CPU" and is_bfloat16
                self.optimizer = optimizers.make_optimizer(
                    self.recipe, self.replicas, self.updates_per_epoch, casts
                )
                self.optimizer.build(self.model.trainable_variables)
            # loss, correct answers and examples of this replica since the start of the epoch
            self.totals = tf.Variable(
                [0.0, 0.0, 0.0],
                trainable=False,
                dtype=tf.float64,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
        self._make_replica_function(self._seed_replica)()

    def _end(self, result: TrainingResult, events: EventLog) -> None:
        """Finish the weights, and log that the training has ended and the time for checkpoints.

        The weights of a model with its own loss are replaced by their moving averages if its
        optimizer has some, as after the last epoch of `fit`.
        """
        if self.custom_step is not None and not result.diverged and not result.is_short:
            with self.strategy.scope():
                # what `fit` does after its last epoch: moving averages become the weights
                self.model.optimizer.finalize_variable_values(self.model.trainable_weights)
        super()._end(result, events)

    def average_over_replicas(self, values: Sequence[float]) -> list[float]:
        """Return the mean of each value over all replicas; waits for all ranks."""
        if self._is_alone:
            return super().average_over_replicas(values)
        found: list[float] = self._mean_call(self.tf.constant(values)).numpy().tolist()
        return found

    def _seed_replica(self) -> None:
        """Give each replica different random states, so that dropout masks differ."""
        number = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        for variable in filter(loop.is_seed, self.model.non_trainable_variables):
            variable.assign(loop.replica_random_state(variable.value, number))

    def _gradients(self, batch: Any, weights: Any, examples: Any) -> tuple[Any, list[Any]]:
        """Return a replica's part of a global batch's loss, and the gradients of this part.

        Args:
            batch: Inputs and labels of this replica's part.
            weights: 1 for each example, 0 for padding; float32, (batch,). None: as in `train_on`.
            examples: Number of examples of the global batch.

        Returns:
            The loss, and a gradient for each trainable variable, scaled by the optimizer's loss
            scale. Summed over the replicas, they are the gradients of the global batch's mean loss.
        """
        x, answers = batch
        if weights is None:
            weights = self.tf.ones([self.batch])
        if self.replicas > 1:
            x = optimizers.forget_batch_size(x)
        # of one type in training and measurement, which share the graph
        count = self.tf.cast(examples, self.tf.float32)
        sums, loss, gradients = self._differentiate(x, answers, weights, count)
        self._add_to_sums(sums)
        return loss, gradients

    def _loss_and_gradients(
        self, x: Any, answers: Any, weights: Any, examples: Any
    ) -> tuple[Any, Any, list[Any]]:
        """Return ([loss, correct answers, examples], loss, gradients) of a replica's examples.

        The list has sums over the examples. Loss and gradients are the results of `_gradients`.

        Args:
            x: Inputs of this replica's part of a batch.
            answers: Their labels.
            weights: 1 for each example, 0 for padding.
            examples: Number of examples of the global batch, float32.
        """
        with self.tf.GradientTape() as tape:
            sums = self._sum_losses(x, answers, weights, training=True)
            # gradients are summed over the replicas by the optimizer: divide by all examples
            loss = sums[0] / examples
            scaled = self.optimizer.scale_loss(loss)
        return sums, loss, tape.gradient(scaled, self.model.trainable_variables)

    def train_on(self, batch: Any, weights: Any, examples: Any) -> Any:
        """Train one step in a replica on its part of a global batch.

        Args:
            batch: Inputs and labels of this replica's part.
            weights: 1 for each example, 0 for padding at the end; float32, (batch,). None: no batch
                of the training has padding, so that the graph knows its size.
            examples: Number of examples of the global batch.

        Returns:
            A value that is available once the model's weights are updated.
        """
        if self.custom_step is not None:
            self.custom_step.train(batch, self._count_examples(weights), examples)
            return self._updated_value()
        loss, gradients = self._gradients(batch, weights, examples)
        # a loss scale sees the sums: replicas skip the same updates
        if self.replicas > 1:
            gradients = optimizers.sum_over_replicas(gradients)
        self.optimizer.apply(optimizers.wait_for_all(gradients), self.model.trainable_variables)
        return loss

    def test_on(self, batch: Any, weights: Any) -> None:
        """Evaluate the model, in a replica, on the replica's part of a held-out batch.

        The results are added to the replica's sums of loss, correct answers and examples. For a
        model with its own loss, the examples are counted and the model's metrics are updated.

        Args:
            batch: Inputs and labels of this replica's part.
            weights: 1 for each example, 0 for padding at the end; float32, (batch,).
        """
        if self.custom_step is not None:
            self.custom_step.update_test_metrics(batch, self._count_examples(weights))
            return
        x, answers = batch
        self._add_to_sums(self._sum_losses(x, answers, weights, training=False))

    def compute_on(self, batch: Any, weights: Any) -> Any:
        """Run forward and backward pass in a replica without communication and update.

        Args:
            batch: Inputs and labels.
            weights: 1 for each example, 0 for padding at the end; float32, (batch,). None: as in
                `train_on`.

        Returns:
            A number that depends on all gradients, so that all of them are computed.
        """
        tf = self.tf
        if self.custom_step is not None:
            examples = None if weights is None else tf.cast(tf.reduce_sum(weights), tf.int32)
            gradients = self.custom_step.gradients(batch, examples)
        else:
            _, gradients = self._gradients(batch, weights, self.global_batch)
        # a number of each gradient, so that none is left out as unused
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        return tf.add_n([tf.cast(tf.reshape(g, [-1])[0], tf.float32) for g in dense])

    def compile_by_xla(self) -> None:
        """Run forward and backward pass on one batch, so that XLA compiles them.

        Raises:
            ModelError: XLA cannot compile an operation of the model.
        """
        tf, batch = self.tf, self.some_examples()
        if batch is None:
            return
        weights = tf.ones([len(tf.nest.flatten(batch)[0])])
        try:
            self._wait_for_values(self._make_replica_function(self.compute_on)(batch, weights))
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
            operations = re.findall(r"^\t* ?([A-Z]\w+) \(", str(error), re.MULTILINE)
            named = ", ".join(dict.fromkeys(operations)) or str(error).splitlines()[0]
            raise user_model.ModelError(
                f"jit_compile: true is not allowed, because XLA cannot compile {named} of the "
                "model; allowed: false"
            ) from error

    def _count_examples(self, weights: Any) -> Any:
        """Return the number of a replica's examples, int32, and add it to the sum of examples.

        Args:
            weights: 1 for each example, 0 for padding; float32, (batch,). None: as in `train_on`.

        Returns:
            None without weights.
        """
        if weights is None:
            self._add_to_sums([0.0, 0.0, self.batch])
            return None
        examples = self.tf.reduce_sum(weights)
        self._add_to_sums([0.0, 0.0, examples])
        return self.tf.cast(examples, self.tf.int32)

    def _updated_value(self) -> Any:
        """Return a number that is available only after the optimizer has updated the weights."""
        tf = self.tf
        first = tf.convert_to_tensor(self.model.trainable_variables[0].value)
        return tf.cast(tf.reshape(first, [-1])[0], tf.float32)

    def _average_statistics(self) -> None:
        """Replace a replica's moving statistics by their means over all replicas.

        Keras keeps separate statistics of batch normalization in each replica during training. The
        model that is evaluated must have one set.
        """
        tf = self.tf
        own = [v for v in self.model.non_trainable_variables if v.dtype.startswith("float")]
        if own:
            context = tf.distribute.get_replica_context()
            values = [tf.identity(variable.value) for variable in own]
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
            for variable, mean in zip(own, means, strict=True):
                variable.assign(mean)

    def _reset_totals(self) -> None:
        """Reset, in a replica, the model's metrics and the sums; `_reset_sums` calls it in each."""
        if self.custom_step is not None:
            self.model.reset_metrics()
        self.totals.assign(self.tf.zeros_like(self.totals))

    def _reset_sums(self) -> None:
        """Reset the model's metrics, and the sums of loss, correct answers and examples, to zero.

        This happens on all replicas.
        """
        self._reset_call()

    def _compute_means(self) -> Means:
        """Return the means since the last `_reset_sums`, over all replicas; waits for all ranks."""
        sums = self._sum_call().numpy().tolist()
        if self.custom_step is not None:
            states = [self.strategy.experimental_local_results(s)[0] for s in self._states_call()]
            return means_from_metrics(sums[-1], self.custom_step.compute_metric_results(states))
        return means_from_sums(*sums)

    @abstractmethod
    def some_examples(self) -> tuple[Any, ...] | None:
        """Return one batch of training examples as the model gets them; None if none was read."""

    @abstractmethod
    def _computations(self) -> Iterator[Callable[[], Any]]:
        """Yield functions that run only forward and backward pass, each on one batch.

        Such a function returns a value of each replica. Whoever waits for the values waits for the
        end of the computation.
        """

    def compute_steps(self, result: TrainingResult) -> list[float]:
        """Measure steps that only compute, without all-reduce and update; return their seconds.

        The time of a training step minus this is communication, waiting for slower ranks, and the
        update. All ranks compute at the same time, as in the training. The first step, which
        prepares the graph, is not in the result. All steps together take at most 5 % of the
        training, or 3 s if this is longer, by the times of the training's steps.

        Args:
            result: The measurements of the training.

        Returns:
            The seconds of 3 to 20 steps, on all ranks equally many. The list is empty if the recipe
            switches the measurement off, on one replica, if the time does not suffice for 3 steps,
            and if the model would have to be traced again.
        """
        is_shared = all(graph.is_shared for graph in self._shared_graphs)
        if not self._is_computation_measured or not is_shared or not result.steps:
            return []
        start_s, limit_s = time.perf_counter(), limit_of_computation_s(result)
        step_s = typical_step_s(result)
        # one more, which prepares the graph
        if self._agree_on_steps(limit_s / step_s - 1) < COMPUTE_STEPS_MIN:
            return []
        computations = self._computations()
        self._wait_for_values(next(computations)())
        left_s = limit_s - (time.perf_counter() - start_s)
        durations = []
        # all ranks have prepared their graphs: they continue together
        for _ in range(max(COMPUTE_STEPS_MIN, self._agree_on_steps(left_s / step_s))):
            compute = next(computations)
            start_s = time.perf_counter()
            self._wait_for_values(compute())
            durations.append(time.perf_counter() - start_s)
        return durations

    def _agree_on_steps(self, steps: float) -> int:
        """Return the mean of the ranks' numbers of steps, each from 0 to COMPUTE_STEPS.

        It waits for all ranks.

        Args:
            steps: Number of steps for which this rank has time; it may be negative.
        """
        own = float(math.floor(min(max(steps, 0.0), COMPUTE_STEPS)))
        return round(self.average_over_replicas([own, 0.0, 0.0])[0])

    def _wait_for_values(self, values: Any) -> list[Any]:
        """Wait for the values of this rank's replicas and return them as NumPy arrays.

        Without this, a step that a GPU has not finished would count as done.
        """
        return [value.numpy() for value in self.strategy.experimental_local_results(values)]
