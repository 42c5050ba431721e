"""A convolutional network on MNIST with PyTorch on one GPU, in a chosen precision.

train.py MNIST_FILE PRECISION EXAMPLES BATCH_SIZE EPOCHS SEED. PRECISION is float32, tf32 or
bfloat16 (autocast). All examples are on the GPU, so that no step waits for the processor. With more
EXAMPLES than MNIST has, examples repeat: this is for large batches. Without a GPU it trains on the
processor. The metric `flops_per_example` has the operations of a training step, which PyTorch
counts.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import observe

path, precision = sys.argv[1:3]
examples, batch_size, epochs, seed = map(int, sys.argv[3:])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(seed)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def mnist(part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    chosen = np.arange(number) % len(labels)
    images = torch.from_numpy(images[chosen])[:, None].to(device)
    images = images.float() / 255 if images.dtype == torch.uint8 else images
    return images, torch.from_numpy(labels[chosen].astype(np.int64)).to(device)


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


def arithmetic():
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def accuracy():
    """Of the held-out examples, 2,000 at a time."""
    network.eval()
    right = torch.zeros((), device=device)
    with torch.no_grad(), arithmetic():
        for images, labels in zip(test_images.split(2000), test_labels.split(2000), strict=True):
            right += (network(images).argmax(1) == labels).sum()
    network.train()
    return right.item() / len(test_labels)


train_images, train_labels = mnist("train", examples)
test_images, test_labels = mnist("test", 10_000)
layers = [*block(1, 64), *block(64, 64), *block(64, 64), nn.MaxPool2d(2)]
layers += [*block(64, 128), *block(128, 128), nn.MaxPool2d(2), *block(128, 256)]
network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
network.to(device, memory_format=torch.channels_last)
steps = examples // batch_size
optimizer = torch.optim.AdamW(network.parameters(), fused=device.type == "cuda")
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.006, total_steps=steps * epochs)
compute_loss = nn.CrossEntropyLoss()


def step(chosen):
    with arithmetic():
        loss = compute_loss(network(train_images[chosen]), train_labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    return loss.detach()


with FlopCounterMode(display=False) as counted:
    step(torch.arange(min(batch_size, 64), device=device))
flops = counted.get_total_flops() / min(batch_size, 64)
for _ in range(epochs):
    total = torch.zeros((), device=device)
    order = torch.randperm(examples, device=device)[: steps * batch_size].split(batch_size)
    for chosen in observe.steps(order, examples=batch_size):
        total += step(chosen)
        optimizer.step()
        schedule.step()
    loss = total.item() / steps  # waits for the GPU
    observe.epoch(loss=loss, flops_per_example=flops)
    observe.eval(accuracy=accuracy())
