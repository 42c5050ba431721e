"""ResNet-20 for 32 x 32 images, with projections: batch normalisation, SGD with momentum."""

import numpy as np

BATCH_SIZE = 32
TRAINABLE_PARAMETERS = 272_474
#: Channels of the three stages; each has three blocks of two convolutions.
STAGES = (16, 32, 64)
BLOCKS = 3
CLASSES = 10


def data(examples):
    """Noisy copies of one image for each class."""
    random = np.random.default_rng(0)
    prototypes = random.standard_normal((CLASSES, 32, 32, 3), np.float32)

    def draw(number):
        labels = random.integers(0, CLASSES, number)
        noise = random.standard_normal((number, 32, 32, 3), np.float32)
        return prototypes[labels] + 2 * noise, labels

    return draw(examples), draw(BATCH_SIZE)


def keras_model():
    import keras

    layers = keras.layers

    def convolution(tensor, channels, kernel, strides):
        tensor = layers.Conv2D(channels, kernel, strides, padding="same", use_bias=False)(tensor)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(tensor)

    def block(tensor, channels, strides):
        residual = layers.ReLU()(convolution(tensor, channels, 3, strides))
        residual = convolution(residual, channels, 3, 1)
        if strides > 1:
            tensor = convolution(tensor, channels, 1, strides)
        return layers.ReLU()(layers.Add()([tensor, residual]))

    images = keras.Input((32, 32, 3))
    tensor = layers.ReLU()(convolution(images, STAGES[0], 3, 1))
    for stage, channels in enumerate(STAGES):
        for number in range(BLOCKS):
            tensor = block(tensor, channels, 2 if stage and not number else 1)
    tensor = layers.GlobalAveragePooling2D()(tensor)
    model = keras.Model(images, layers.Dense(CLASSES, dtype="float32")(tensor))
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=0.05, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def torch_module():
    from torch import nn

    def convolution(channels, new, kernel, stride):
        return nn.Sequential(
            nn.Conv2d(channels, new, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(new),
        )

    class Block(nn.Module):
        def __init__(self, channels, new, stride):
            super().__init__()
            self.first = convolution(channels, new, 3, stride)
            self.second = convolution(new, new, 3, 1)
            self.shortcut = convolution(channels, new, 1, stride) if stride > 1 else nn.Identity()
            self.relu = nn.ReLU()

        def forward(self, tensor):
            residual = self.second(self.relu(self.first(tensor)))
            return self.relu(self.shortcut(tensor) + residual)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            blocks, channels = [], STAGES[0]
            for stage, new in enumerate(STAGES):
                for number in range(BLOCKS):
                    blocks.append(Block(channels, new, 2 if stage and not number else 1))
                    channels = new
            self.first = nn.Sequential(convolution(3, STAGES[0], 3, 1), nn.ReLU())
            self.blocks = nn.Sequential(*blocks)
            self.logits = nn.Linear(channels, CLASSES)

        def forward(self, images):
            # PyTorch's usual order; gradients of channels_last do not fit the buckets of DDP
            images = images.permute(0, 3, 1, 2).contiguous()
            return self.logits(self.blocks(self.first(images)).mean((2, 3)))

    return Network()


def torch_optimizer(parameters):
    import torch

    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def torch_loss(outputs, labels):
    from torch.nn import functional

    return functional.cross_entropy(outputs, labels)
