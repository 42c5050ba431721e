"""A training that computes nothing: each step waits as long as a formula says.

The nodes share the computation of a step; communication takes longer with each further node. The
times show what a page looks like. They predict no training.
"""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
args = parser.parse_args()
world_size = int(os.environ["WORLD_SIZE"])
COMPUTE_S, COMMUNICATE_S = 0.24, 0.011
step_s = COMPUTE_S / world_size + COMMUNICATE_S * (world_size - 1)
ends_s = time.monotonic() + args.steps * step_s
for step in range(args.steps):
    time.sleep(max(0.0, ends_s - time.monotonic() - (args.steps - step - 1) * step_s))
