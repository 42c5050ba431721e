"""Sums over the ranks of an MPI job: in shared memory inside a node, by MPI between nodes.

MPI libraries poll while they wait, and so take the cores of ranks that still compute. Here the
ranks of a node wait asleep: they meet by a byte through a socket. Neither memory nor sockets have
a name in a file system, so nothing is left of ranks that are killed.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import uuid
from typing import Any

import numpy as np

#: A rank's place in the shared memory; between nodes, tensors beyond it are summed in parts.
PART_BYTES = 1 << 24
#: Inside a node tensors are summed in such parts, one after the other in the same memory, which
#: stays in the cores' caches: two of them have room in a rank's place.
CHUNK_BYTES = 1 << 19
#: Up to this size each rank adds all of a tensor, and the ranks of a node meet once, not twice.
SMALL_BYTES = 1 << 14
_RANK_BYTES = 4


class RankSums:
    """The sums of this rank's arrays and those of all others.

    `world` and `of_node` are mpi4py's communicators of all ranks and of those that share memory
    with this one. All ranks make theirs at the same time, and call in the same order.
    """

    def __init__(self, world: Any, of_node: Any) -> None:
        from mpi4py import MPI

        self._world = world
        self._has_nodes = world.size > of_node.size
        self._firsts = world.Split(0 if of_node.rank == 0 else MPI.UNDEFINED)
        # where a node has one rank only, it takes part as the others do
        self._node = Node(of_node) if world.allreduce(of_node.size, MPI.MAX) > 1 else None

    def sum(self, own: np.ndarray, total: np.ndarray) -> None:
        """Write the sum of all ranks' `own` to `total`; both flat, of one size and type.

        Raises ConnectionError if another rank of this node has ended.
        """
        if self._node is None:
            self._world.Allreduce(own, total)
        elif not self._has_nodes:
            self._node.sum(own, total)
        else:
            count = PART_BYTES // own.itemsize
            for start in range(0, own.size, count):
                part = slice(start, start + count)
                self._sum_over_nodes(self._node, own[part], total[part])

    def _sum_over_nodes(self, node: Node, own: np.ndarray, total: np.ndarray) -> None:
        from mpi4py import MPI

        of_node = node.sum_together(own)
        if node.rank == 0:
            self._firsts.Allreduce(MPI.IN_PLACE, of_node)
        node.meet()
        total[:] = of_node


class Node:
    """This rank and the others of its node, which are mpi4py's communicator `ranks`."""

    def __init__(self, ranks: Any) -> None:
        self.rank, self.size = int(ranks.rank), int(ranks.size)
        self._others: list[socket.socket] = []
        memory = np.frombuffer(self._shared(ranks), np.uint8)
        given, result = self.size * PART_BYTES, (self.size + 1) * PART_BYTES
        self._given = memory[:given].reshape(self.size, PART_BYTES)
        self._sum = memory[given:result]
        self._small = memory[result:].reshape(2, self.size, SMALL_BYTES)
        self._place = 0

    def meet(self) -> None:
        """Wait for the other ranks, asleep. Raises ConnectionError if one has ended."""
        if self.rank > 0:
            self._others[0].send(b"\0")
        for other in self._others:
            _received(other, 1)
        if self.rank == 0:
            for other in self._others:
                other.send(b"\0")

    def sum(self, own: np.ndarray, total: np.ndarray) -> None:
        """Write the sum of the ranks' `own` to `total`."""
        if own.nbytes <= SMALL_BYTES:
            self._sum_small(own, total)
            return
        count = CHUNK_BYTES // own.itemsize
        chunks = [slice(start, start + count) for start in range(0, own.size, count)]
        # In each round a chunk is given, the one before is added, and that before is taken. What is
        # read in a round was written in the one before, and is written again in the one after: two
        # places for each, and one meeting a round. The last round needs none: what it reads is
        # written again in the second round of the next sum.
        for turn in range(len(chunks) + 2):
            if turn > 0:
                self.meet()
            if turn < len(chunks):
                self._give(turn % 2, own[chunks[turn]])
            if 0 < turn <= len(chunks):
                self._add(1 - turn % 2, own[chunks[turn - 1]])
            if turn > 1:
                self._take(turn % 2, total[chunks[turn - 2]])

    def sum_together(self, own: np.ndarray) -> np.ndarray:
        """The sum, of at most PART_BYTES, in the shared memory: the same array for all ranks.

        It is theirs until the next sum.
        """
        self._give(0, own)
        self.meet()
        self._add(0, own)
        self.meet()
        return self._result(0, own)

    def _give(self, place: int, own: np.ndarray) -> None:
        """Write what others add of this rank's `own` to the shared memory."""
        given, mine = self._of_ranks(place, own)[self.rank], self._share(own.size)
        given[: mine.start] = own[: mine.start]
        given[mine.stop :] = own[mine.stop :]

    def _add(self, place: int, own: np.ndarray) -> None:
        """Write the sum of this rank's share to the shared memory."""
        given, mine = self._of_ranks(place, own), self._share(own.size)
        result = self._result(place, own)[mine]
        others = [given[rank, mine] for rank in range(self.size) if rank != self.rank]
        if not others:  # the only rank of its node, of which others have several
            result[:] = own[mine]
        so_far = own[mine]
        for other in others:
            so_far = np.add(so_far, other, out=result)

    def _take(self, place: int, total: np.ndarray) -> None:
        total[:] = self._result(place, total)

    def _of_ranks(self, place: int, like: np.ndarray) -> np.ndarray:
        """What each rank has given."""
        start = place * CHUNK_BYTES
        return self._given[:, start : start + like.nbytes].view(like.dtype)

    def _result(self, place: int, like: np.ndarray) -> np.ndarray:
        start = place * CHUNK_BYTES
        return self._sum[start : start + like.nbytes].view(like.dtype)

    def _sum_small(self, own: np.ndarray, total: np.ndarray) -> None:
        # every second sum has the same place: others may still read what was added last
        self._place = 1 - self._place
        given = self._small[self._place, :, : own.nbytes].view(own.dtype)
        given[self.rank] = own
        self.meet()
        np.add.reduce(given, axis=0, out=total)

    def _share(self, count: int) -> slice:
        """What this rank adds of so many elements."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def _shared(self, ranks: Any) -> mmap.mmap:
        """Memory that all ranks of the node see; connects them."""
        size = (self.size + 1) * PART_BYTES + 2 * self.size * SMALL_BYTES
        if self.rank > 0:
            first = socket.socket(socket.AF_UNIX)
            first.connect(ranks.bcast(None))
            first.send(self.rank.to_bytes(_RANK_BYTES, "big"))
            _, (descriptor, *_), _, _ = socket.recv_fds(first, 1, 1)
            self._others = [first]
        else:
            descriptor = _unnamed_file(size)
            self._others = _connected(ranks, descriptor)
        memory = mmap.mmap(descriptor, size)
        os.close(descriptor)
        return memory


def _unnamed_file(size: int) -> int:
    """The descriptor of a file in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tfscaling")
    else:  # a Python that was built for an old C library
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _connected(ranks: Any, descriptor: int) -> list[socket.socket]:
    """Connections to the other ranks of the node, which get this file."""
    found: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        address = f"\0tfscaling-{uuid.uuid4()}"  # begins with NUL: Linux gives it no file
        listener.bind(address)
        listener.listen(ranks.size)
        ranks.bcast(address)
        while len(found) < ranks.size - 1:
            connection, _ = listener.accept()
            found[int.from_bytes(_received(connection, _RANK_BYTES), "big")] = connection
            socket.send_fds(connection, [b"\0"], [descriptor])
    return [found[rank] for rank in sorted(found)]


def _received(connection: socket.socket, count: int) -> bytes:
    found = connection.recv(count, socket.MSG_WAITALL)
    if len(found) < count:
        raise ConnectionError("another rank of this node has ended")
    return found
