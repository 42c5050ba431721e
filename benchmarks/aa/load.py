#!/usr/bin/env python3
"""Other work on this machine, which changes all the time: for `make aa`.

usage: load.py SEED: between 0 and as many busy processes as there are cores, drawn again after 15
to 600 seconds (log-uniform), until SIGTERM. A pair of runs takes less time, a sweep about as much
as the longest. Each change is printed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time

import numpy as np

SHORTEST_S, LONGEST_S = 15.0, 600.0


def work() -> None:
    """Multiply matrices that do not fit into a core's caches, until SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    matrix = np.random.default_rng(1).standard_normal((1000, 1000)) / 40
    while True:
        matrix = np.tanh(matrix @ matrix)


def main() -> None:
    """Start and end busy processes."""
    dice = random.Random(int(sys.argv[1]))
    cores = len(os.sched_getaffinity(0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    spawning = multiprocessing.get_context("spawn")
    while True:
        count, seconds = (
            dice.randint(0, cores),
            SHORTEST_S * (LONGEST_S / SHORTEST_S) ** dice.random(),
        )
        print(f"{time.strftime('%H:%M:%S')} {count} busy for {seconds:.0f} s", flush=True)
        busy = [spawning.Process(target=work, daemon=True) for _ in range(count)]
        for each in busy:
            each.start()
        try:
            time.sleep(seconds)
        finally:
            for each in busy:
                each.terminate()
                each.join()


if __name__ == "__main__":
    main()
