"""State of a model that each replica has of its own: random numbers, moments.

The forward pass of a training changes variables of the model: the state of its random numbers
(`keras.random.SeedGenerator`, as in dropout) and moments such as those of batch normalization.
Strategies with a copy of the model on every replica keep these apart. With parameter servers all
workers share the model: there `ReplicaStates` and `BatchStates` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: From the random numbers of one replica to those of the next: Keras's own seeds are below 1e9,
#: users' are small, so two layers of two replicas practically never meet.
SEED_STRIDE = 1_000_003


def seeds(model: Any) -> list[Any]:
    """The states of the model's random numbers: variables [seed, count of draws]."""
    return [v for v in model.non_trainable_variables if _is_seed(v)]


def _is_seed(variable: Any) -> bool:
    return bool(variable.name == "seed_generator_state")


def stream(state: Any, number: Any) -> Any:
    """The state of the random numbers of this replica: replica 0 draws what Keras alone would."""
    import tensorflow as tf

    own = tf.cast(number, state.dtype) * SEED_STRIDE
    return state + tf.stack([own, tf.zeros_like(own)])


def changed_by_training(model: Any, shape: Sequence[int]) -> list[Any]:
    """Variables that a forward pass changes; frozen weights are not among them.

    `shape` is that of one example. The pass is traced, not computed.
    """
    import keras
    import tensorflow as tf

    changed: list[Any] = []

    def trace(images: Any) -> None:
        with keras.StatelessScope(initialize_variables=False) as scope:
            model(images, training=True)
        values = ((v, scope.get_current_value(v)) for v in model.non_trainable_variables)
        changed.extend(variable for variable, value in values if value is not None)

    if model.non_trainable_variables:
        spec = tf.TensorSpec((None, *shape), tf.float32)
        tf.function(trace, autograph=False).get_concrete_function(spec)
    return changed


class _SharedModel:
    """A model whose variables all workers share."""

    def __init__(self, model: Any, shape: Sequence[int]) -> None:
        self.changed = changed_by_training(model, shape)
        # in a scope Keras finds only those weights that were put into it
        self._regularized = [v for v in model.trainable_variables if v.regularizer is not None]

    def forward(self, own: Sequence[Any], call: Callable[[], Any]) -> tuple[Any, list[Any]]:
        """What `call` returns where the changed variables have the values `own`; their new values.

        None stands for the variable's own value.
        """
        import keras

        given = [pair for pair in zip(self.changed, own, strict=True) if pair[1] is not None]
        given += [(variable, variable.value) for variable in self._regularized]
        with keras.StatelessScope(given, collect_losses=True, initialize_variables=False) as scope:
            found = call()
        return found, [scope.get_current_value(variable) for variable in self.changed]


class BatchStates:
    """Asynchronous workers: each batch draws random numbers of its own, by its number.

    All else that a forward pass changes is the model's, which the workers change as they come.
    """

    def __init__(self, model: Any, shape: Sequence[int], replicas: int) -> None:
        self._model = _SharedModel(model, shape)
        self._seeds = [v.numpy() if _is_seed(v) else None for v in self._model.changed]

    def forward(self, number: Any, call: Callable[[], Any]) -> Any:
        """What `call` returns for the batch of this number."""
        if all(seed is None for seed in self._seeds):
            return call()
        own = [None if seed is None else stream(seed, number) for seed in self._seeds]
        found, values = self._model.forward(own, call)
        for variable, value in zip(self._model.changed, values, strict=True):
            if not _is_seed(variable):
                variable.assign(value)
        return found

    def average(self) -> None:
        """The model is one already."""


class ReplicaStates:
    """Synchronous workers: each replica has its own values, as with a copy of the model.

    The values lie on the parameter servers, one row per replica, because any worker may compute
    any replica's part of a batch.
    """

    def __init__(self, model: Any, shape: Sequence[int], replicas: int) -> None:
        import numpy as np
        import tensorflow as tf

        self._model, self._rows = _SharedModel(model, shape), []
        for variable in self._model.changed:
            value = variable.numpy()
            values = [stream(value, n) if _is_seed(variable) else value for n in range(replicas)]
            self._rows.append(tf.Variable(np.stack(values), trainable=False))

    def forward(self, number: Any, call: Callable[[], Any]) -> Any:
        """What `call` returns for the replica of this number, whose values it changes."""
        import tensorflow as tf

        if not self._rows:
            return call()
        found, values = self._model.forward([tf.gather(rows, number) for rows in self._rows], call)
        for rows, value in zip(self._rows, values, strict=True):
            rows.scatter_nd_update([[number]], [value])
        return found

    def average(self) -> None:
        """Give the model and all replicas the mean of what each gathered, such as moments."""
        import tensorflow as tf

        for variable, rows in zip(self._model.changed, self._rows, strict=True):
            if rows.dtype.is_floating:
                mean = tf.reduce_mean(rows, axis=0)
                variable.assign(mean)
                rows.assign(tf.broadcast_to(mean, rows.shape))
