"""The floor of a training step: the matrix products of the published network, and nothing else.

floor.py layers|one PRECISION EXAMPLES BATCH_SIZE EPOCHS, on one worker. `layers`: every product of
a step of `mnist_cnn` in its own shape, the convolution as the product that it is of its patches;
each operand lies as its product reads it. No patch is gathered, no bias, activation, gradient of
either or update is computed. `one`: a single product of large matrices with as many operations,
whose operands stay in the caches: what the cores can do at most, and what products as narrow as a
small network's do not reach.
"""

import sys

import tensorflow as tf

import observe

products, precision = sys.argv[1:3]
examples, batch_size, epochs = map(int, sys.argv[3:])

pixels = 26 * 26
#: Rows, inner size and columns of each layer's product in a forward pass.
convolution = (batch_size * pixels, 3 * 3, 32)
dense = [(batch_size, pixels * 32, 128), (batch_size, 128, 10)]


def of_layer(rows, inner, columns):
    """Forward, and for its weights; for what is below it, of a dense layer."""
    return [(rows, inner, columns), (inner, rows, columns), (rows, columns, inner)]


shapes = [*of_layer(*convolution)[:2], *(shape for layer in dense for shape in of_layer(*layer))]
if products == "one":
    multiplications = sum(rows * inner * columns for rows, inner, columns in shapes)
    shapes = [(1024, 1024, round(multiplications / 1024**2))]


def matrix(rows, columns, seed):
    values = tf.random.stateless_normal([rows, columns], [0, seed])
    return tf.cast(values, precision)


operands = [(matrix(rows, inner, 0), matrix(inner, columns, 1)) for rows, inner, columns in shapes]


@tf.function(autograph=False)
def step(operands):
    return [tf.linalg.matmul(left, right) for left, right in operands]


for _ in range(epochs):
    for _ in observe.steps(range(examples // batch_size), examples=batch_size):
        step(operands)[-1].numpy()
    observe.epoch()
