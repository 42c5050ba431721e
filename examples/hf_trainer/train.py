"""A small language model with random weights, trained by the Trainer of Hugging Face.

train.py WINDOWS WINDOWS_PER_RANK EPOCHS SEED. The model predicts the next character of Python's own
source code, so that nothing is downloaded. The Trainer finds the ranks by the variables of
torchrun; the callback reports steps, epochs and losses to the workflow.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import observe

LENGTH, CHARACTERS = 64, 128
windows, batch_size, epochs, seed = map(int, sys.argv[1:])


def text():
    """Return windows of text: training examples, and every tenth as a test example."""
    folder = Path(os.__file__).parent
    source = "".join((folder / name).read_text() for name in ("argparse.py", "ast.py", "typing.py"))
    characters = torch.tensor([*source.encode("ascii", "replace")])
    examples = [
        {"input_ids": window, "labels": window}
        for window in characters[: len(characters) // LENGTH * LENGTH].view(-1, LENGTH)
    ]
    held_out = examples[::10]
    return [each for place, each in enumerate(examples) if place % 10][:windows], held_out[:64]


class Report(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        observe.step(args.per_device_train_batch_size)

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:  # once in an epoch, as mean over all ranks
            observe.epoch(loss=logs["loss"])


set_seed(seed)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=CHARACTERS, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4)
)
train, test = text()
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            per_device_train_batch_size=batch_size,
            num_train_epochs=epochs,
            learning_rate=3e-3,
            seed=seed,
            dataloader_drop_last=True,
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            use_cpu=not torch.cuda.is_available(),  # or each rank would train alone
            disable_tqdm=True,
        ),
        train_dataset=train,
        eval_dataset=test,
        callbacks=[Report()],
    )
    trainer.train()
    observe.eval(loss=trainer.evaluate()["eval_loss"])
