"""Sums over the ranks of an MPI job: in shared memory within a node, by MPI between nodes.

MPI libraries poll while they wait, and take the cores of ranks that still compute. Here ranks of a
node wait asleep: they meet by a byte through a socket. Neither memory nor sockets have a name in a
file system, so that ranks that are killed leave nothing.

Every sum is returned in memory of this rank alone, because TensorFlow may overwrite what it gets:
its operations write their results into inputs that nobody else reads.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
import tempfile
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

#: Size of a rank's number in a message to another rank.
_RANK_BYTES = 4


class NodeMemory:
    """Memory that all ranks of a node share, and a barrier for these ranks."""

    def __init__(self, ranks: Any, size_bytes: int) -> None:
        """Create the memory on the node's first rank, and map it on all ranks of the node.

        All ranks must call this together.

        Args:
            ranks: mpi4py's communicator of the node's ranks.
            size_bytes: Size of the memory in bytes, equal on all ranks.

        Raises:
            ConnectionError: The first rank belongs to another user, or another rank has ended.
        """
        self.rank, self.size = int(ranks.rank), int(ranks.size)
        if self.rank > 0:
            first = socket.socket(socket.AF_UNIX)
            first.connect(ranks.bcast(None))
            if (user := _user_of_peer(first)) != os.geteuid():
                raise ConnectionError(f"the shared memory of this node is of user {user}")
            first.send(self.rank.to_bytes(_RANK_BYTES, "big"))
            _, (descriptor, *_), _, _ = socket.recv_fds(first, 1, 1)
            self._others = [first]
        else:
            descriptor = _unnamed_file(size_bytes)
            self._others = _connect_ranks(ranks, descriptor)
        self._free = np.frombuffer(mmap.mmap(descriptor, size_bytes), np.uint8)
        os.close(descriptor)

    def wait_for_all(self) -> None:
        """Wait until all ranks of the node have called this, without using CPU time: a barrier.

        Raises:
            ConnectionError: Another rank has ended.
        """
        # the first rank answers the others; two ranks notify each other: the last one does not wait
        if self.rank > 0 or self.size == 2:
            self._others[0].send(b"\0")
        for other in self._others:
            _receive(other, 1)
        if self.rank == 0 and self.size > 2:
            for other in self._others:
                other.send(b"\0")

    def allocate(self, *shape: int) -> np.ndarray:
        """Return the next unused bytes as an array of a shape, of type uint8.

        All ranks must call in the same order to get the same memory.
        """
        size = math.prod(shape)
        array, self._free = self._free[:size].reshape(shape), self._free[size:]
        return array


def _unnamed_file(size: int) -> int:
    """Create a file in memory, without a name, of `size` bytes; return its descriptor."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tfscaling")
    else:  # a Python that was built for an old C library
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _connect_ranks(ranks: Any, descriptor: int) -> list[socket.socket]:
    """Connect to the other ranks of the node, and send them a file descriptor.

    Connections of other users are closed.

    Args:
        ranks: The communicator of the node's ranks.
        descriptor: The file's descriptor.

    Returns:
        A socket to each other rank, by rank.
    """
    found: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        address = f"\0tfscaling-{uuid.uuid4()}"  # begins with NUL: Linux gives it no file
        listener.bind(address)
        listener.listen(ranks.size)
        ranks.bcast(address)
        while len(found) < ranks.size - 1:
            connection, _ = listener.accept()
            if _user_of_peer(connection) != os.geteuid():
                connection.close()
                continue
            found[int.from_bytes(_receive(connection, _RANK_BYTES), "big")] = connection
            socket.send_fds(connection, [b"\0"], [descriptor])
    return [found[rank] for rank in sorted(found)]


def _user_of_peer(connection: socket.socket) -> int:
    """Return the user id of the process at the other end of a Unix socket, from the kernel."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return int(user)


def _receive(connection: socket.socket, count: int) -> bytes:
    """Wait for `count` bytes from another rank and return them.

    Raises:
        ConnectionError: The other rank has ended.
    """
    found = connection.recv(count, socket.MSG_WAITALL)
    if len(found) < count:
        raise ConnectionError("another rank of this node has ended")
    return found


#: Size of the parts in which tensors are summed between nodes.
PART_BYTES = 1 << 24
#: Size of the parts in which tensors are summed within a node, one after the other in the same
#: memory, which stays in the cores' caches.
CHUNK_BYTES = 1 << 20
#: Size of the largest tensor that each rank adds completely; the ranks of a node then meet once,
#: not twice.
SMALL_BYTES = 1 << 14
#: An array whose address is a multiple of this becomes a tensor without a copy.
_ALIGNMENT = 64

#: Function that sums an array over the nodes, in place.
Between = Callable[[np.ndarray], None]


class RankSums:
    """Sums of arrays over all ranks of an MPI job.

    All ranks must make the object at the same time and call its methods in the same order.

    Args:
        world: mpi4py's communicator of all ranks.
        of_node: mpi4py's communicator of this node's ranks.
    """

    def __init__(self, world: Any, of_node: Any) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._has_nodes = world.size > of_node.size
        self._firsts = world.Split(0 if of_node.rank == 0 else MPI.UNDEFINED)
        # a node with a single rank behaves as the others do
        self._node = NodeSums(of_node) if world.allreduce(of_node.size, MPI.MAX) > 1 else None

    def sum(self, own: np.ndarray) -> np.ndarray:
        """Return the sum of an array over all ranks, as a new array that the caller may overwrite.

        Args:
            own: This rank's one-dimensional array; size and type are equal on all ranks.

        Raises:
            ConnectionError: Another rank of this node has ended.
        """
        if self._node is not None:
            return self._node.sum(own, self._sum_between_nodes if self._has_nodes else None)
        total = empty_aligned(own)
        total[:] = own
        self._sum_between_nodes(total)
        return total

    def _sum_between_nodes(self, of_node: np.ndarray) -> None:
        """Replace this node's sum by the sum of all nodes, in place.

        The first rank of each node calls it.
        """
        self._firsts.Allreduce(self._mpi.IN_PLACE, of_node)


class NodeSums:
    """Sums of arrays over the ranks of a node, in shared memory.

    Args:
        ranks: mpi4py's communicator of the node's ranks.
    """

    def __init__(self, ranks: Any) -> None:
        own_bytes = 2 * CHUNK_BYTES + 2 * SMALL_BYTES
        self._memory = NodeMemory(ranks, ranks.size * own_bytes + PART_BYTES)
        self.rank, self.size, self.wait_for_all = ranks.rank, ranks.size, self._memory.wait_for_all
        self._given = self._memory.allocate(2, self.size, CHUNK_BYTES)
        self._small = self._memory.allocate(2, self.size, SMALL_BYTES)
        #: The sum of a part for other nodes; else of two chunks, the one that ranks copy and the
        #: one that they add.
        self._sums = self._memory.allocate(PART_BYTES)
        self._turn = 0

    def sum(self, own: np.ndarray, between: Between | None = None) -> np.ndarray:
        """Return the sum of an array over the ranks of this node, or of all nodes, as a new array.

        Args:
            own: This rank's one-dimensional array.
            between: Sums an array over the nodes, in place; None: the sum is for this node only.
        """
        if own.nbytes <= SMALL_BYTES and between is None:
            return self._sum_small(own)
        total = empty_aligned(own)
        if between is None:
            self._sum_chunks(own, total)
            return total
        for part in _slices(own, PART_BYTES):
            self._sum_chunks(own[part], None)
            summed = self._sums[: own[part].nbytes].view(own.dtype)
            if self.rank == 0:
                between(summed)
            self.wait_for_all()
            total[part] = summed  # nobody writes to `_sums` before the next meeting
        return total

    def _sum_chunks(self, own: np.ndarray, total: np.ndarray | None) -> None:
        """Sum an array over the node's ranks, chunk by chunk.

        Args:
            own: This rank's array.
            total: Gets the sum; None: the sum is left in the shared memory `_sums`.
        """
        chunks = _slices(own, CHUNK_BYTES)
        # While a chunk is added the next one is given. What is read in a round was written in the
        # one before, and is written again in the one after: two places, and one meeting a round.
        self._write_others_parts(0, own[chunks[0]])
        self.wait_for_all()
        for turn, chunk in enumerate(chunks):
            if turn + 1 < len(chunks):
                self._write_others_parts(1 - turn % 2, own[chunks[turn + 1]])
            place = (turn if total is None else turn % 2) * CHUNK_BYTES
            summed = self._sums[place : place + own[chunk].nbytes].view(own.dtype)
            self._sum_own_part(turn % 2, own[chunk], summed)
            self.wait_for_all()
            if total is not None:
                total[chunk] = summed  # while it is in the caches

    def _write_others_parts(self, place: int, own: np.ndarray) -> None:
        """Copy to shared memory the parts of this rank's chunk that other ranks add.

        A chunk has one part per rank. Each rank sums its part over all ranks, so it needs its part
        of the other ranks' chunks.

        Args:
            place: Index of one of the rank's two buffers in shared memory: 0 or 1.
            own: This rank's chunk of the array.
        """
        given, mine = self._shared_arrays(place, own)[self.rank], self._own_slice(own.size)
        given[: mine.start] = own[: mine.start]
        given[mine.stop :] = own[mine.stop :]

    def _sum_own_part(self, place: int, own: np.ndarray, total: np.ndarray) -> None:
        """Sum this rank's part of the chunk over all ranks, and write the sum into `total`.

        Args:
            place: Index of the buffer of each rank in shared memory: 0 or 1.
            own: This rank's chunk of the array.
            total: The chunk of the result.
        """
        given, mine = self._shared_arrays(place, own), self._own_slice(own.size)
        parts = [own[mine] if r == self.rank else given[r, mine] for r in range(self.size)]
        result, so_far = total[mine], parts[0]
        if len(parts) == 1:  # the only rank of its node; other nodes have several
            result[:] = so_far
        for part in parts[1:]:  # in the order of the ranks, whoever adds
            so_far = np.add(so_far, part, out=result)

    def _shared_arrays(self, place: int, like: np.ndarray) -> np.ndarray:
        """Return a view of the chunks that the node's ranks have written to shared memory.

        Args:
            place: Index of the buffer of each rank in shared memory: 0 or 1.
            like: An array with the size and the type of a chunk.

        Returns:
            Array of the shape (ranks, size of `like`).
        """
        return self._given[place, :, : like.nbytes].view(like.dtype)

    def _sum_small(self, own: np.ndarray) -> np.ndarray:
        """Return the sum of a small array over the node's ranks; each rank computes all of it."""
        # every second sum has the same place: others may still read what was added last
        self._turn = 1 - self._turn
        given = self._small[self._turn, :, : own.nbytes].view(own.dtype)
        given[self.rank] = own
        self.wait_for_all()
        return np.add.reduce(given, axis=0, out=empty_aligned(own))

    def _own_slice(self, count: int) -> slice:
        """Return which elements of a chunk with `count` elements this rank sums over all ranks."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)


def _slices(array: np.ndarray, size: int) -> list[slice]:
    """Return slices that divide an array into parts of `size` bytes; the last may be smaller."""
    count = size // array.itemsize
    return [slice(start, start + count) for start in range(0, max(1, array.size), count)]


def empty_aligned(like: np.ndarray) -> np.ndarray:
    """Return an empty array with the shape and type of `like`, at an aligned address.

    TensorFlow then uses it without a copy.
    """
    space = np.empty(like.nbytes + _ALIGNMENT, np.uint8)
    start = -space.ctypes.data % _ALIGNMENT
    return space[start : start + like.nbytes].view(like.dtype).reshape(like.shape)
