"""What a rank does: devices, strategies, models, training loops, timing of all-reduces.

TensorFlow is imported inside functions only: names of models and strategies are known without it.

`rank.train_as_rank` makes a strategy, data, and one of three trainings. All are a
`loop.TrainingLoop`, which has the epochs, evaluations and checkpoints; each has its own way to feed
and make a step:

- `all_reduce.ArrayTrainer`: arrays on the devices; `steps_per_execution` steps in one call
- `pipeline.PipelineTrainer`: a `tf.data` pipeline; one step in a call, while the next batch is
  fetched
- `parameter_server.ParameterServerTrainer`: a coordinator deals out batches of arrays to workers

The first two are an `all_reduce_loop.AllReduceLoop`. In each replica it calls `train_on` with a
batch: the loop itself computes a classifier's loss and gradients (`_gradients`), and
`custom_train_step.CustomTrainStep` the loss and gradients of a model with its own loss.
`optimizers.sum_over_replicas` sums the gradients, and the optimizer applies them once.
"""

#: Modules that other packages may import.
__all__ = [
    "models",
    "rank",
    "strategies",
]
