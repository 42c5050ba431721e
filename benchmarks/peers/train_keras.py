"""Train a network file by `fit` of Keras 3, on TensorFlow or JAX.

train_keras.py NETWORK_FILE DATA_FILE PRECISION EPOCHS SEED, with KERAS_BACKEND. On JAX several
processes train: each gives `fit` its own part of the examples, and `keras.distribution` makes
global batches of them.
"""

import os
import sys
from pathlib import Path

import keras
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from peers import network_file

path, data_path, precision = sys.argv[1:4]
epochs, seed = map(int, sys.argv[4:])
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
network = network_file.load(path)
if ranks > 1:
    coordinator = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    keras.distribution.initialize(coordinator, ranks, rank)
    data_parallel = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(data_parallel)
keras.utils.set_random_seed(seed)
if precision == "bfloat16":
    keras.config.set_dtype_policy("mixed_bfloat16")
model = network.keras_model()
trainable = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
network_file.check_parameters(network, "keras_model", trainable)
with np.load(data_path) as arrays:
    x, y = arrays["x_train"][rank::ranks], arrays["y_train"][rank::ranks]
model.fit(x, y, batch_size=network.BATCH_SIZE, epochs=epochs, verbose=2 if rank == 0 else 0)
