"""The floor of a training step: one matrix product with as many operations as the step has.

floor.py PRECISION EXAMPLES EXAMPLES_PER_RANK EPOCHS. The step is that of the published network,
`mnist_cnn`; the ranks share this machine's cores and exchange nothing. A step of any training
that computes as fast as a matrix product, and does nothing else, takes as long.
"""

import os
import sys

import tensorflow as tf

import observe

precision, examples, batch_size, epochs = sys.argv[1], *map(int, sys.argv[2:])
ranks = int(os.environ["WORLD_SIZE"])
tf.config.threading.set_intra_op_parallelism_threads(max(1, len(os.sched_getaffinity(0)) // ranks))

# multiplications of one example in a forward pass, each with an addition
convolution = 26 * 26 * 32 * (3 * 3)
dense = 26 * 26 * 32 * 128 + 128 * 10
# each layer once forward, once for its weights, and once for what is below it: not for the image
operations = 2 * batch_size * (2 * convolution + 3 * dense)

rows = inner = 1024
columns = round(operations / (2 * rows * inner))
left = tf.random.stateless_normal([rows, inner], [0, 0], dtype=tf.dtypes.as_dtype(precision))
right = tf.random.stateless_normal([inner, columns], [0, 1], dtype=left.dtype)
for _ in range(epochs):
    for _ in observe.steps(range(examples // (batch_size * ranks)), examples=batch_size):
        tf.linalg.matmul(left, right).numpy()
    observe.epoch()
