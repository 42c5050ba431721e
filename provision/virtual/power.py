"""Boots nodes and cuts their power when the controller asks: the cloud's side of power saving.

usage: python -m virtual.power ROOT. Reads lines from ROOT/run/power: `resume cpu1`, `suspend cpu1`.
"""

import os
import sys
import threading
from pathlib import Path

from . import machines
from .plan import RESUME, Plan


def serve(plan: Plan, boot_s: int) -> None:
    """Boot nodes and cut their power on requests from the controller, without end.

    A request to suspend a node also cancels a boot that has not begun.

    Args:
        plan: The plan of the cluster.
        boot_s: Seconds from the request to boot a node until the boot.
    """
    boots: dict[str, threading.Timer] = {}
    # for writing, too: otherwise it would be at its end whenever nobody writes
    with open(os.open(plan.root / "run/power", os.O_RDWR)) as requests:
        for line in requests:
            verb, node = line.split()
            if node in boots:
                boots.pop(node).cancel()
            if verb == RESUME:
                boots[node] = threading.Timer(boot_s, machines.power_on, (plan, node))
                boots[node].start()
            else:
                machines.power_off(plan, node)


if __name__ == "__main__":
    started = Plan.load(Path(sys.argv[1]))
    assert started.shape.power_saving
    serve(started, started.shape.power_saving.boot_s)
