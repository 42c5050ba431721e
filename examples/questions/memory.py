"""A training of stated memory and pace: 1 MiB for each example of the batch, 0.5 s for a step.

memory.py EXAMPLES BATCH
"""

import sys
import time

import observe

examples, batch = map(int, sys.argv[1:])
held = bytearray(batch << 20)  # filled with zeros, so that all of it is resident
held[::4096] = b"\1" * len(held[::4096])
for _ in observe.steps(range(examples // batch), examples=lambda _: batch):
    time.sleep(0.5)
observe.epoch()
observe.eval(accuracy=0.9)
