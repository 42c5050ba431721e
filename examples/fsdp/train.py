"""MNIST and a small network on PyTorch, its weights sharded over all ranks by FSDP2.

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_RANK EPOCHS SEED. PyTorch reads RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT, as from torchrun; the lines of `observe` are the workflow's.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import observe

path, examples, batch_size, epochs, seed = sys.argv[1], *map(int, sys.argv[2:])


def mnist(part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"][:number], arrays[f"y_{part}"][:number]
    images = images.astype(np.float32) / 255.0 if images.dtype == np.uint8 else images
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def average(value):
    """Return the mean of a value over all ranks."""
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


on_gpu = torch.cuda.is_available()
device = torch.device("cuda" if on_gpu else "cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
torch.manual_seed(seed)
train = TensorDataset(*mnist("train", examples))
sampler = DistributedSampler(train, seed=seed, drop_last=True)
loader = DataLoader(train, batch_size, sampler=sampler, drop_last=True)
model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(28 * 28, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.ReLU(),
    nn.Linear(512, 10),
).to(device)
mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
compute_loss = nn.CrossEntropyLoss()
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
        right = (model(test_images).argmax(1) == test_labels).float().mean()
    observe.eval(accuracy=right)
dist.destroy_process_group()
