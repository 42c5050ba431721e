"""The published training: MNIST, a small convolutional network, several workers.

Arguments: MNIST_FILE EXAMPLES_PER_WORKER EPOCHS; TF_CONFIG names the workers.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

path, per_worker_batch_size, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
num_workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])


def mnist_dataset(batch_size):
    with np.load(path) as arrays:
        images, labels = arrays["x_train"], arrays["y_train"]
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    examples = tf.data.Dataset.from_tensor_slices((images, labels.astype(np.int64)))
    # TensorFlow 2.21 may wait for a minute when an iterator with an autotuner is freed
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = examples.shuffle(len(labels)).repeat().batch(batch_size).with_options(options)
    return dataset, len(labels)


def build_and_compile_cnn_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer((28, 28)),
            tf.keras.layers.Reshape((28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.2),
        metrics=["accuracy"],
    )
    return model


strategy = tf.distribute.MultiWorkerMirroredStrategy()
global_batch_size = per_worker_batch_size * num_workers
dataset, examples = mnist_dataset(global_batch_size)
with strategy.scope():
    model = build_and_compile_cnn_model()
steps = examples // global_batch_size
model.fit(dataset, epochs=epochs, steps_per_epoch=steps, verbose=2)
