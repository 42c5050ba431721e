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
from tfscaling.train.mpi import library as mpi
from tfscaling.train.mpi import sums as mpi_sums

#: None, small, in shares, and in several parts of which the last is small.
COUNTS = (0, 1, 1000, 5001, 33_000)
DTYPES = ("float32", "float64", "int64")
#: Name of a layout → the node of each rank.
LAYOUTS: dict[str, tuple[int, ...]] = {
    "one node": (0, 0, 0, 0, 0),
    "four and one": (0, 0, 0, 1, 0),
    "two and three": (0, 1, 0, 1, 1),
    "a rank each": (0, 1, 2, 3, 4),
}
TIMES = 3
mpi_sums.PART_BYTES, mpi_sums.CHUNK_BYTES = 1 << 16, 1 << 15


def given(rank: int, count: int, dtype: str, time: int) -> np.ndarray:
    """What a rank adds: of floating-point numbers each order of summation gives another sum."""
    dice = np.random.default_rng([rank, count, time])
    return (1000 * dice.standard_normal(count)).astype(dtype)


def summed(sums: mpi_sums.RankSums, rank: int) -> list[str]:
    """The bytes of each sum; this rank overwrites it, and has what it wrote in the end."""
    found = []
    for count in COUNTS:
        for dtype in DTYPES:
            last, expected = np.empty(0), b""
            for time in range(TIMES):
                own = given(rank, count, dtype, time)
                total = sums.sum(own)
                assert (own == given(rank, count, dtype, time)).all()
                assert count == 0 or total.ctypes.data % 64 == 0  # TensorFlow takes it as it is
                assert last.tobytes() == expected
                found.append(total.tobytes().hex())
                total[:] = rank
                last, expected = total, total.tobytes()
    return found


def named_memory() -> list[str]:
    """Files below /dev/shm that this process uses and that have a name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line}
    return sorted(file for file in files if not file.endswith("(deleted)"))


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    world = mpi.world_communicator(rank, ranks)
    assert mpi.world_communicator(rank, ranks) == world
    of_node = mpi.node_communicator(world)
    found: dict[str, Any] = {"library": mpi.library_version(), "ranks_of_node": of_node.size}
    for name, nodes in LAYOUTS.items():
        sums = mpi_sums.RankSums(world, world.Split(nodes[rank]))
        found[name] = summed(sums, rank)
    found["named_memory"] = named_memory()
    last = mpi_sums.RankSums(world, of_node)
    world.Barrier()
    if rank == ranks - 1:
        (folder / f"{rank}.json").write_text(json.dumps(found))
        os.kill(os.getpid(), 9)
    try:
        last.sum(given(rank, COUNTS[-1], DTYPES[0], 0))
    except ConnectionError as error:
        found["error"] = str(error)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)


if __name__ == "__main__":
    main()
