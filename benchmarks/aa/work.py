"""A training without a framework: multiplies matrices for a number of steps, and reports them.

usage: work.py STEPS [FACTOR]: each step takes FACTOR times as long, 1 by default.
"""

import sys

import numpy as np

import observe

steps, factor = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
PRODUCTS = 200
matrix = np.random.default_rng(1).standard_normal((96, 96)) / 10
observe.imported()
for _ in observe.steps(range(steps), examples=1):
    for _ in range(round(PRODUCTS * factor)):
        matrix = np.tanh(matrix @ matrix)
observe.epoch(loss=float(abs(matrix).mean()))
