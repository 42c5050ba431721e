"""MNIST and a small convolutional network of Keras 3 on PyTorch, by DistributedDataParallel.

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_RANK EPOCHS SEED. The loop is the one of Keras's guide for
PyTorch on several GPUs; the lines of `observe` are the workflow's.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import observe

path, examples, batch_size, epochs, seed = sys.argv[1], *map(int, sys.argv[2:])


def mnist(part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"][:number], arrays[f"y_{part}"][:number]
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    return torch.from_numpy(images)[..., None], torch.from_numpy(labels.astype(np.int64))


def average(value):
    """Return the mean of a value over all ranks."""
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


on_gpu = torch.cuda.is_available()
device = torch.device("cuda" if on_gpu else "cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
keras.utils.set_random_seed(seed)
train = TensorDataset(*mnist("train", examples))
sampler = DistributedSampler(train, seed=seed, drop_last=True)
loader = DataLoader(train, batch_size, sampler=sampler, drop_last=True)
network = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model = DistributedDataParallel(network.to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
compute_loss = torch.nn.CrossEntropyLoss()
test_images, test_labels = (part.to(device) for part in mnist("test", 2000))
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=device)
    for images, labels in observe.steps(loader):
        loss = compute_loss(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    observe.epoch(loss=average(total / len(loader)))
    with torch.no_grad():
        right = (network(test_images).argmax(1) == test_labels).float().mean()
    observe.eval(accuracy=right)
dist.destroy_process_group()
