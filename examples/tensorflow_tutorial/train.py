"""TensorFlow's tutorial "Custom training loop with Keras and MultiWorkerMirroredStrategy".

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_WORKER EPOCHS; TF_CONFIG names the workers.
Without the tutorial's checkpoints, with an evaluation on held-out examples; the lines of `observe`
are what was added for the workflow.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

import observe

path, examples, per_worker_batch_size, epochs = sys.argv[1], *map(int, sys.argv[2:])
num_workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
global_batch_size = per_worker_batch_size * num_workers
num_steps_per_epoch = examples // global_batch_size


def mnist_dataset(part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"][:number], arrays[f"y_{part}"][:number]
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    return tf.data.Dataset.from_tensor_slices((images, labels.astype(np.int64)))


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = mnist_dataset("train", examples)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    # TensorFlow 2.21 may wait for a minute when an iterator with an autotuner is freed
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.shuffle(examples).repeat().batch(batch_size).with_options(options)


def build_cnn_model():
    return tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = build_cnn_model()
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
dataset = strategy.distribute_datasets_from_function(dataset_fn)


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            per_example_loss = tf.keras.losses.sparse_categorical_crossentropy(
                y, predictions, from_logits=True
            )
            loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=global_batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        train_accuracy.update_state(y, predictions)
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def is_right(x, y):
    """Every worker evaluates all held-out examples, as all have the same weights."""
    return tf.argmax(model(x, training=False), axis=-1) == y


for _ in range(epochs):
    iterator = iter(dataset)
    total_loss = 0.0
    for _ in range(num_steps_per_epoch):
        total_loss += train_step(iterator)
        observe.step(examples=per_worker_batch_size)
    observe.epoch(loss=total_loss / num_steps_per_epoch, accuracy=train_accuracy.result())
    train_accuracy.reset_state()
    held_out = mnist_dataset("test", 2000).batch(500)
    observe.eval(accuracy=np.mean([is_right(x, y) for x, y in held_out]))
