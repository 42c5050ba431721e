"""A training of stated memory and pace: 1 MiB for each example of the batch, 0.75 s for a step.

memory.py EXAMPLES BATCH. The first four seconds are for filling the memory.
"""

import sys
import time

BEGIN_S = time.monotonic()

import observe  # noqa: E402

LOAD_S, STEP_S = 4.0, 0.75

examples, batch = map(int, sys.argv[1:])
held = bytearray(batch << 20)  # filled with zeros, so that all of it is resident
held[::4096] = b"\1" * len(held[::4096])
for step in observe.steps(range(examples // batch), examples=lambda _: batch):
    time.sleep(max(0.0, BEGIN_S + LOAD_S + (step + 1) * STEP_S - time.monotonic()))
observe.epoch()
observe.eval(accuracy=0.9)
