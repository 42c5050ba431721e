"""MNIST and a small convolutional network on PyTorch, by DistributedDataParallel on gloo.

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_RANK EPOCHS SEED. PyTorch reads RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT, as from torchrun; the lines of `observe` are the workflow's.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import observe

path, examples, batch_size, epochs, seed = sys.argv[1], *map(int, sys.argv[2:])


def mnist(part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"][:number], arrays[f"y_{part}"][:number]
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    return torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64))


def average(*values):
    """Return the mean over all ranks of each value."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


dist.init_process_group("gloo")
torch.manual_seed(seed)
train = TensorDataset(*mnist("train", examples))
sampler = DistributedSampler(train, seed=seed, drop_last=True)
loader = DataLoader(train, batch_size, sampler=sampler, drop_last=True)
test_images, test_labels = mnist("test", 2000)
network = nn.Sequential(
    nn.Conv2d(1, 32, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 26 * 26, 128),
    nn.ReLU(),
    nn.Linear(128, 10),
)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
compute_loss = nn.CrossEntropyLoss()
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    total, right = torch.zeros(()), torch.zeros(())
    for images, labels in observe.steps(loader):
        logits = model(images)
        loss = compute_loss(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        right += (logits.argmax(1) == labels).float().mean()
    mean_loss, accuracy = average(total / len(loader), right / len(loader))
    observe.epoch(loss=mean_loss, accuracy=accuracy)
    with torch.no_grad():
        right = (network(test_images).argmax(1) == test_labels).float().mean()
    observe.eval(accuracy=right)
dist.destroy_process_group()
