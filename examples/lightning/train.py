"""MNIST and a small convolutional network on Lightning: its Trainer on several nodes.

train.py MNIST_FILE EXAMPLES EXAMPLES_PER_RANK EPOCHS SEED. Lightning finds the ranks by the
variables of torchrun; the callback reports steps, epochs and accuracy to the workflow.
"""

import os
import sys

import lightning
import numpy as np
import torch
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


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 26 * 26, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def training_step(self, batch):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch):
        images, labels = batch
        right = (self.network(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


class Report(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        observe.step(len(batch[0]))

    def on_train_epoch_end(self, trainer, module):
        observe.epoch(loss=trainer.callback_metrics["loss"])


lightning.seed_everything(seed)
trainer = lightning.Trainer(
    accelerator="auto",
    strategy="ddp",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    max_epochs=epochs,
    callbacks=[Report()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
model = Classifier()
train = DataLoader(mnist("train", examples), batch_size, shuffle=True, drop_last=True)
trainer.fit(model, train)
(result,) = trainer.validate(model, DataLoader(mnist("test", 2000), 500), verbose=False)
observe.eval(result)
