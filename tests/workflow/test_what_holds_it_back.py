"""A slow pipeline on one of two nodes: both wait, and the tables name input, not communication."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import Project

pytestmark = pytest.mark.full

PIPELINE = """
import time

import numpy as np
import tensorflow as tf


def data(context, delay_s):
    x, y = np.zeros((2560, 28, 28), np.float32), np.zeros(2560, np.int32)
    whole = tf.data.Dataset.from_tensor_slices((x, y)).shard(context.workers, context.worker)
    batches = whole.batch(context.per_worker_batch_size)

    def slow(images):
        time.sleep(delay_s)
        return images

    def slowed(images, labels):
        return tf.ensure_shape(tf.py_function(slow, [images], tf.float32), images.shape), labels

    train = batches.map(slowed) if context.worker == 1 else batches
    return train.prefetch(2), batches.take(1)
"""


def test_the_input_of_one_rank_is_not_taken_for_communication(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "slow.py").write_text(PIPELINE)
    model = {"platform": "laptop", "model": "small:model"}
    project.overlay(
        {
            "grid": [{**model, "recipe": "slow", "nodes": 2}],
            "recipes": {
                "slow": {
                    "dataset": "slow:data",
                    "parameters": {"delay_s": 0.5},
                    "per_replica_batch_size": 32,
                    "learning_rate": 0.1,
                    "epochs": 1,
                    "steps_per_epoch": 10,
                }
            },
        }
    )
    project.draw_few_plots()
    project.snakemake()
    (record,) = project.records()
    (row,) = project.table("results/main/details/conclusions/attribution.csv")
    assert row["held_back_by"] == "input", row
    assert float(row["input_share"]) > 0.5
    waits_s = [rank["input_wait_s"] for rank in record["ranks"]]
    assert record["metrics"]["input_wait_s"] >= waits_s[1] > waits_s[0]
