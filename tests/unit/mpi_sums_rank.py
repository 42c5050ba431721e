"""A rank of `test_mpi_sums.py`: sums arrays with the others, then loses one of them.

Usage: mpi_sums_rank.py RANK RANKS FOLDER, with the variables of `process_management`. Writes
RANK.json into the folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tfscaling.training import mpi, mpi_sums

#: Small, in shares, and in several parts of which the last is small.
COUNTS = (1, 1000, 5001, 33_000)
DTYPES = ("float32", "float64", "int64")
#: Name of a layout → the node of each rank.
LAYOUTS: dict[str, tuple[int, ...]] = {
    "one node": (0, 0, 0),
    "two and one": (0, 0, 1),
    "a rank each": (0, 1, 2),
}
TIMES = 3
mpi_sums.PART_BYTES, mpi_sums.CHUNK_BYTES = 1 << 16, 1 << 15


def given(rank: int, count: int, dtype: str, time: int) -> np.ndarray:
    """What a rank adds: whole numbers, so that every order of summation gives the same."""
    return (np.arange(count) % 97 + 1000 * rank + time).astype(dtype)


def summed(sums: mpi_sums.RankSums, rank: int) -> list[Any]:
    """First, last and total of each sum."""
    found = []
    for count in COUNTS:
        for dtype in DTYPES:
            for time in range(TIMES):
                own = given(rank, count, dtype, time)
                total = np.empty_like(own)
                sums.sum(own, total)
                assert (own == given(rank, count, dtype, time)).all()
                found.append([float(total[0]), float(total[-1]), float(total.sum())])
    return found


def named_memory() -> list[str]:
    """Files below /dev/shm that this process uses and that have a name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return sorted(file for file in files if not file.endswith("(deleted)"))


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    world = mpi.communicator(rank, ranks)
    of_node = mpi.of_node(world)
    found: dict[str, Any] = {"library": mpi.library(), "ranks_of_node": of_node.size}
    for name, nodes in LAYOUTS.items():
        found[name] = summed(mpi_sums.RankSums(world, world.Split(nodes[rank])), rank)
    found["named_memory"] = named_memory()
    last = mpi_sums.RankSums(world, of_node)
    world.Barrier()
    if rank == ranks - 1:
        (folder / f"{rank}.json").write_text(json.dumps(found))
        os.kill(os.getpid(), 9)
    try:
        own = given(rank, COUNTS[-1], DTYPES[0], 0)
        last.sum(own, np.empty_like(own))
    except ConnectionError as error:
        found["error"] = str(error)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)


if __name__ == "__main__":
    main()
