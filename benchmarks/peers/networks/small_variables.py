"""60 narrow residual blocks, so 364 small variables, on 64 numbers of an example, by Adam."""

import numpy as np

BATCH_SIZE = 64
FEATURES, WIDTH, BLOCKS, CLASSES = 64, 32, 60, 10
#: The first layer, two dense layers and a normalization for each block, and the logits.
TRAINABLE_PARAMETERS = (
    (FEATURES + 1) * WIDTH + BLOCKS * (2 * WIDTH + 2 * (WIDTH + 1) * WIDTH) + (WIDTH + 1) * CLASSES
)


def data(examples):
    """Noisy copies of one vector for each class."""
    random = np.random.default_rng(0)
    prototypes = random.standard_normal((CLASSES, FEATURES), np.float32)

    def draw(number):
        labels = random.integers(0, CLASSES, number)
        return prototypes[labels] + random.standard_normal((number, FEATURES), np.float32), labels

    return draw(examples), draw(BATCH_SIZE)


def keras_model():
    import keras

    layers = keras.layers
    numbers = keras.Input((FEATURES,))
    vectors = layers.Dense(WIDTH)(numbers)
    for _ in range(BLOCKS):
        normal = layers.LayerNormalization(epsilon=1e-5)(vectors)
        hidden = layers.Dense(WIDTH, activation="relu")(normal)
        vectors = layers.Add()([vectors, layers.Dense(WIDTH)(hidden)])
    model = keras.Model(numbers, layers.Dense(CLASSES, dtype="float32")(vectors))
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=0.001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def torch_module():
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
            )

        def forward(self, vectors):
            return vectors + self.layers(vectors)

    blocks = [Block() for _ in range(BLOCKS)]
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), *blocks, nn.Linear(WIDTH, CLASSES))


def torch_optimizer(parameters):
    import torch

    return torch.optim.Adam(parameters, lr=0.001)


def torch_loss(outputs, labels):
    from torch.nn import functional

    return functional.cross_entropy(outputs, labels)
