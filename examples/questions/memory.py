"""A training of stated memory and pace: 1 MiB for each example, fewer and shorter steps.

memory.py EXAMPLES BATCH. The first four seconds are for filling the memory; a step of half the
examples takes twice as long.
"""

import sys
import time

BEGIN_S = time.monotonic()

import observe  # noqa: E402

LOAD_S, STEP_OF_ONE_S = 4.0, 150.0

examples, batch = map(int, sys.argv[1:])
step_s = STEP_OF_ONE_S / batch
held = bytearray(batch << 20)  # filled with zeros, so that all of it is resident
held[::4096] = b"\1" * len(held[::4096])
for step in observe.steps(range(examples // batch), examples=lambda _: batch):
    time.sleep(max(0.0, BEGIN_S + LOAD_S + (step + 1) * step_s - time.monotonic()))
observe.epoch()
observe.eval(accuracy=0.9)
