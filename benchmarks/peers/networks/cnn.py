"""The published convolutional network on MNIST, trained by SGD."""

import numpy as np

BATCH_SIZE = 64
TRAINABLE_PARAMETERS = 2_770_634
#: Made by `snakemake --profile profiles/local results/datasets/mnist.npz`.
MNIST = "results/datasets/mnist.npz"


def data(examples):
    with np.load(MNIST) as arrays:
        x_train, y_train = arrays["x_train"][:examples], arrays["y_train"][:examples]
        x_test, y_test = arrays["x_test"][:BATCH_SIZE], arrays["y_test"][:BATCH_SIZE]
    train = (x_train / np.float32(255), y_train.astype(np.int64))
    return train, (x_test / np.float32(255), y_test.astype(np.int64))


def products():
    """Rows, inner size and columns of each layer's product, the convolution's of its patches."""
    pixels = 26 * 26
    return [
        (BATCH_SIZE * pixels, 3 * 3, 32, False),
        (BATCH_SIZE, pixels * 32, 128, True),
        (BATCH_SIZE, 128, 10, True),
    ]


def keras_model():
    import keras

    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Reshape((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, dtype="float32"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=0.2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def torch_module():
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 26 * 26, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def torch_optimizer(parameters):
    import torch

    return torch.optim.SGD(parameters, lr=0.2)


def torch_loss(outputs, labels):
    from torch.nn import functional

    return functional.cross_entropy(outputs, labels)
