"""Data-parallel training by all-reduce, wherever the batches come from."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfscaling.record.events import EventLog
from tfscaling.study.run_spec import RunSpec
from tfscaling.train import loop, optimizers, user_model
from tfscaling.train.custom_train_step import CustomTrainStep
from tfscaling.train.loop import (
    Measured,
    Result,
    TrainingLoop,
    compiled,
    measured_by_itself,
    measured_by_sums,
)

#: Steps of computation alone that each rank measures after the training.
COMPUTE_STEPS = 20


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
        self._average_call = self._in_replicas(self._average_statistics)
        self._sum_call = compiled(
            lambda: strategy.reduce("SUM", strategy.run(self.totals.read_value), axis=None)
        )
        self._mean_call = compiled(
            lambda each: strategy.reduce("MEAN", strategy.run(self.tf.identity, (each,)), axis=None)
        )
        self._states_call = compiled(
            lambda: strategy.run(self.custom_step.states) if self.custom_step else []
        )
        self._reset_call = self._in_replicas(self._zero_totals)

    def make_model(
        self,
        build_model: Callable[[], Any],
        sample: Callable[[], tuple[Any, ...]],
        problem_of_labels: Callable[[], str | None],
    ) -> None:
        """Make the model with its optimizer on all replicas.

        Args:
            build_model: Returns the Keras model.
            sample: Returns a batch as `fit` gets it, or its TensorSpecs.
            problem_of_labels: Returns why a classifier cannot be trained on the labels, or None.

        Raises:
            ModelError: The model cannot be trained in this way.
        """
        import keras

        tf = self.tf
        keras.utils.set_random_seed(self.seed)
        with self.strategy.scope():
            self.model = build_model()
            self.custom_step: CustomTrainStep | None = None
            if user_model.trains_itself(self.model, self.recipe):
                user_model.compile_as_asked(
                    self.model, self.recipe, self.replicas, self.updates_per_epoch
                )
                self.custom_step = CustomTrainStep(self.model, sample(), self.replicas)
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
        self._in_replicas(self._seed_replica)()

    def _end(self, result: Result, events: EventLog) -> None:
        if self.custom_step is not None and not result.diverged and not result.is_short:
            with self.strategy.scope():
                # what `fit` does after its last epoch: moving averages become the weights
                self.model.optimizer.finalize_variable_values(self.model.trainable_weights)
        super()._end(result, events)

    def agreed(self, values: Sequence[float]) -> list[float]:
        if self._is_alone:
            return super().agreed(values)
        found: list[float] = self._mean_call(self.tf.constant(values)).numpy().tolist()
        return found

    def _seed_replica(self) -> None:
        """Give each replica different random states, so that dropout masks differ."""
        number = self.tf.distribute.get_replica_context().replica_id_in_sync_group
        for variable in filter(loop.is_seed, self.model.non_trainable_variables):
            variable.assign(loop.stream(variable.value, number))

    def _gradients(self, batch: Any, weights: Any, examples: Any) -> tuple[Any, list[Any]]:
        """Return a replica's part of a global batch's loss, and its gradients.

        Args:
            batch: Inputs and labels of this replica's part.
            weights: 1 for each example, 0 for padding; float32, (batch,).
            examples: Number of examples of the global batch.
        """
        x, answers = batch
        if self.replicas > 1:
            x = optimizers.forget_batch_size(x)
        with self.tf.GradientTape() as tape:
            sums = self._forward(x, answers, weights, training=True)
            # gradients are summed over the replicas by the optimizer: divide by all examples
            loss = sums[0] / self.tf.cast(examples, self.tf.float32)
            scaled = self.optimizer.scale_loss(loss)
        self._count(sums)
        return loss, tape.gradient(scaled, self.model.trainable_variables)

    def train_on(self, batch: Any, weights: Any, examples: Any) -> Any:
        """Train one step in a replica on its part of a global batch.

        Args:
            batch: Inputs and labels of this replica's part.
            weights: 1 for each example, 0 for padding at the end; float32, (batch,).
            examples: Number of examples of the global batch.

        Returns:
            A value that is available once the model's weights are updated.
        """
        if self.custom_step is not None:
            self.custom_step.train(batch, self._counted(weights), examples)
            return self._progress()
        loss, gradients = self._gradients(batch, weights, examples)
        # a loss scale sees the sums: replicas skip the same updates
        if self.replicas > 1:
            gradients = optimizers.sum_over_replicas(gradients)
        self.optimizer.apply(optimizers.wait_for_all(gradients), self.model.trainable_variables)
        return loss

    def test_on(self, batch: Any, weights: Any) -> None:
        """Evaluate, in a replica, its part of a batch of held-out examples."""
        if self.custom_step is not None:
            self.custom_step.update_test_metrics(batch, self._counted(weights))
            return
        x, answers = batch
        self._count(self._forward(x, answers, weights, training=False))

    def compute_on(self, batch: Any, weights: Any) -> Any:
        """Run forward and backward pass in a replica without communication and update.

        Args:
            batch: Inputs and labels.
            weights: 1 for each example, 0 for padding at the end; float32, (batch,).

        Returns:
            A number that depends on all gradients, so that all of them are computed.
        """
        tf = self.tf
        if self.custom_step is not None:
            gradients = self.custom_step.gradients(batch)
        else:
            _, gradients = self._gradients(batch, weights, self.global_batch)
        # a number of each gradient, so that none is left out as unused
        dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
        return tf.add_n([tf.cast(tf.reshape(g, [-1])[0], tf.float32) for g in dense])

    def _counted(self, weights: Any) -> Any:
        """Count a replica's examples and return their number, int32."""
        examples = self.tf.reduce_sum(weights)
        self._count([0.0, 0.0, examples])
        return self.tf.cast(examples, self.tf.int32)

    def _progress(self) -> Any:
        """Return a value that is available once the optimizer has updated the weights."""
        tf = self.tf
        first = tf.convert_to_tensor(self.model.trainable_variables[0].value)
        return tf.cast(tf.reshape(first, [-1])[0], tf.float32)

    def _average_statistics(self) -> None:
        """Assign the mean over all replicas to a replica's moving statistics.

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

    def _zero_totals(self) -> None:
        if self.custom_step is not None:
            self.model.reset_metrics()
        self.totals.assign(self.tf.zeros_like(self.totals))

    def _reset(self) -> None:
        self._reset_call()

    def _measured(self) -> Measured:
        sums = self._sum_call().numpy().tolist()
        if self.custom_step is not None:
            states = [self.strategy.experimental_local_results(s)[0] for s in self._states_call()]
            return measured_by_itself(sums[-1], self.custom_step.results(states))
        return measured_by_sums(*sums)

    @abstractmethod
    def some_examples(self) -> tuple[Any, ...] | None:
        """Return one batch of training examples as the model gets them; None if none was read."""

    @abstractmethod
    def _computations(self) -> Iterator[Callable[[], Any]]:
        """Yield functions that run forward and backward pass alone.

        Each returns the values of the replicas, to wait for.
        """

    def compute_steps(self) -> list[float]:
        """Return the durations in seconds of steps that only compute: no all-reduce, no update.

        The time of a training step minus this is communication, waiting for slower ranks, and the
        update. All ranks compute at the same time, as in the training. The first step, which
        compiles, is not in the result.
        """
        durations, computations = [], self._computations()
        for number in range(COMPUTE_STEPS + 1):
            if number == 1:
                self._sum_call()  # all ranks have compiled: they continue together
            compute = next(computations)
            start_s = time.perf_counter()
            self._fetch(compute())
            durations.append(time.perf_counter() - start_s)
        return durations[1:]

    def _fetch(self, values: Any) -> list[Any]:
        """Return the values of this rank's replicas as NumPy arrays, after waiting for them.

        Without this, a step that a GPU has not finished would count as done.
        """
        return [value.numpy() for value in self.strategy.experimental_local_results(values)]
