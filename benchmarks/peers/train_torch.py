"""Train a network file on PyTorch, by DistributedDataParallel on gloo.

train_torch.py NETWORK_FILE DATA_FILE PRECISION EPOCHS SEED. PyTorch reads RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT, as from torchrun; the lines of `observe` are the workflow's.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

sys.path.append(str(Path(__file__).resolve().parents[1]))

from peers import network_file

import observe

path, data_path, precision = sys.argv[1:4]
epochs, seed = map(int, sys.argv[4:])
network = network_file.load(path)
dist.init_process_group("gloo")
torch.manual_seed(seed)
with np.load(data_path) as arrays:
    train = TensorDataset(*(torch.from_numpy(arrays[name]) for name in ("x_train", "y_train")))
sampler = DistributedSampler(train, seed=seed, drop_last=True)
loader = DataLoader(train, network.BATCH_SIZE, sampler=sampler, drop_last=True)
module = network.torch_module()
trainable = sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
network_file.check_parameters(network, "torch_module", trainable)
model = DistributedDataParallel(module)
optimizer = network.torch_optimizer(model.parameters())
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    total = torch.zeros(())
    for x, y in observe.steps(loader):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = network.torch_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    observe.epoch(loss=total / len(loader) / dist.get_world_size())
dist.destroy_process_group()
