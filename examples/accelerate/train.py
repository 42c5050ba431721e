"""MNIST and a small convolutional network on PyTorch by Hugging Face Accelerate.

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_RANK EPOCHS SEED. Accelerate finds the ranks by the
variables of torchrun; the lines of `observe` are the workflow's.
"""

import sys

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import observe

path, examples, batch_size, epochs, seed = sys.argv[1], *map(int, sys.argv[2:])


def mnist(part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"][:number], arrays[f"y_{part}"][:number]
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    return TensorDataset(
        torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64))
    )


set_seed(seed)
# without a GPU, `cpu` makes it find the other ranks; it would train alone
accelerator = Accelerator(cpu=not torch.cuda.is_available())
network = nn.Sequential(
    nn.Conv2d(1, 32, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 26 * 26, 128),
    nn.ReLU(),
    nn.Linear(128, 10),
)
optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
train = DataLoader(mnist("train", examples), batch_size, shuffle=True, drop_last=True)
test = DataLoader(mnist("test", 2000), 500)
model, optimizer, train, test = accelerator.prepare(network, optimizer, train, test)
compute_loss = nn.CrossEntropyLoss()
for _ in range(epochs):
    total = torch.zeros((), device=accelerator.device)
    for images, labels in observe.steps(train):
        loss = compute_loss(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        total += loss.detach()
    observe.epoch(loss=accelerator.reduce(total / len(train), "mean"))
    right = []
    with torch.no_grad():
        for images, labels in test:
            right.append(accelerator.gather_for_metrics(model(images).argmax(1) == labels))
    observe.eval(accuracy=torch.cat(right).float().mean())
accelerator.end_training()
