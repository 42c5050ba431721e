"""Softmax regression on MNIST at a stated pace, so that the right answers are known beforehand.

train.py MNIST_FILE EXAMPLES BATCH PRECISION EPOCHS SEED. The accuracy is
real. `run_s` has the duration: a device that is twice as fast in float16, a node whose memory does
not hold all examples in float32, and a network that costs time with every further pair of nodes.
"""

import os
import sys
import time

BEGIN_S = time.monotonic()

import numpy as np  # noqa: E402  # its import is a part of LOAD_S

import observe  # noqa: E402

LOAD_S, STEP_S, EXAMPLE_S, PAIR_S = 4.0, 0.2, 0.0007, 0.275
RATE = {"float32": 1, "float16": 2}
#: By how much an example is slower that does not fit in the node's memory.
STORAGE = 22


def step_s(examples, precision, nodes):
    """Seconds of a step of this many examples, which the nodes share."""
    slower = STORAGE if precision == "float32" and nodes == 1 else 1
    example_s = EXAMPLE_S * slower / RATE[precision] / nodes
    return STEP_S + example_s * examples + PAIR_S * nodes * (nodes - 1)


def run_s(examples, batch, precision, epochs, nodes):
    """Seconds of a run."""
    sizes = [min(batch, examples - n) for n in range(0, examples, batch)]
    return LOAD_S + epochs * sum(step_s(size, precision, nodes) for size in sizes)


def mnist(path, part, number):
    with np.load(path) as arrays:
        images, labels = arrays[f"x_{part}"][:number], arrays[f"y_{part}"][:number]
    images = images.reshape(len(images), -1).astype(np.float32)
    return images / 255 if images.max() > 1 else images, labels.astype(int)


def main():
    path, *sizes, precision, epochs, seed = sys.argv[1:]
    examples, batch = map(int, sizes)
    nodes = int(os.environ["WORLD_SIZE"])
    images, labels = mnist(path, "train", examples)
    test_images, test_labels = mnist(path, "test", 2000)
    generator = np.random.default_rng(int(seed))
    weights = np.zeros((images.shape[1], 10), precision)
    end_s = BEGIN_S + LOAD_S
    for _ in range(int(epochs)):
        order = generator.permutation(examples)
        batches = [order[n : n + batch] for n in range(0, examples, batch)]
        for chosen in observe.steps(batches, examples=lambda chosen: len(chosen) // nodes):
            end_s += step_s(len(chosen), precision, nodes)
            logits = images[chosen] @ weights.astype(np.float32)
            errors = np.exp(logits - logits.max(axis=1, keepdims=True))
            errors /= errors.sum(axis=1, keepdims=True)
            errors[np.arange(len(chosen)), labels[chosen]] -= 1
            weights -= (0.3 / len(chosen) * images[chosen].T @ errors).astype(precision)
            time.sleep(max(0.0, end_s - time.monotonic()))
        observe.epoch()
        right = (test_images @ weights.astype(np.float32)).argmax(axis=1) == test_labels
        observe.eval(accuracy=float(right.mean()))


if __name__ == "__main__":
    main()
