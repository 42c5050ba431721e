"""The floor of a training step: the matrix products of a network, and nothing else.

floor.py layers|update|one NETWORK_FILE PRECISION STEPS EPOCHS, on one worker, for a network file
with `products`. `layers`: every product of a step in its own shape, a convolution as the product
that it is of its patches; each operand lies as its product reads it. No patch is gathered, no
bias, activation or gradient of either is computed. `update`: also one pass of SGD over the weights,
which reads each gradient once, and reads and writes each float32 weight once. `one`: a single
product of large matrices with as many operations, whose operands stay in the caches: what the cores
can do at most, and what products as narrow as a small network's do not reach.
"""

import sys
from pathlib import Path

import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[1]))

from peers import network_file

import observe

products, path, precision = sys.argv[1:4]
steps_per_epoch, epochs = map(int, sys.argv[4:])
network = network_file.load(path)


def matrix_shapes(rows, inner, columns, has_gradient_below):
    """Return (rows, inner, columns) of a layer's matrix products: forward, gradients.

    The gradient of its input is left out if no layer below has weights.
    """
    shapes = [(rows, inner, columns), (inner, rows, columns), (rows, columns, inner)]
    return shapes if has_gradient_below else shapes[:2]


layers = [matrix_shapes(*layer) for layer in network.products()]
shapes = [shape for layer in layers for shape in layer]
gradients = [place == 1 for layer in layers for place, _ in enumerate(layer)]
if products == "one":
    multiplications = sum(rows * inner * columns for rows, inner, columns in shapes)
    shapes, gradients = [(1024, 1024, round(multiplications / 1024**2))], [False]


def matrix(rows, columns, seed):
    return tf.random.stateless_normal([rows, columns], [0, seed])


operands = [
    [tf.cast(values, precision) for values in (matrix(rows, inner, 0), matrix(inner, columns, 1))]
    for rows, inner, columns in shapes
]
weights = [
    tf.Variable(matrix(rows, columns, 2)) if is_gradient and products == "update" else None
    for (rows, _, columns), is_gradient in zip(shapes, gradients, strict=True)
]


@tf.function(autograph=False, jit_compile=True)
def apply(weight, gradient):
    """Cast and update in one pass."""
    weight.assign_sub(0.2 * tf.cast(gradient, tf.float32))


@tf.function(autograph=False)
def step(operands):
    found = [tf.linalg.matmul(left, right) for left, right in operands]
    for weight, gradient in zip(weights, found, strict=True):
        if weight is not None:
            apply(weight, gradient)
    return found


for _ in range(epochs):
    for _ in observe.steps(range(steps_per_epoch), examples=network.BATCH_SIZE):
        step(operands)[-1].numpy()
    observe.epoch()
