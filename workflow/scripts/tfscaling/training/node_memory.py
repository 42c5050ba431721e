"""What the ranks of a node share: memory, results of sums in it, and sockets by which they meet.

Neither memory nor sockets have a name in a file system: nothing is left of ranks that are killed.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import tempfile
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

#: So many results of a size class may be in use at once.
RESULTS_MAX = 1 << 14
#: More than any node has: what is not written takes no memory.
_FILE_BYTES = 1 << 40
#: A process maps so much of the file, then as much as before: it can map a file only so often.
_MAPPED_BYTES = 1 << 26
_RANK_BYTES = 4


class Memory(NamedTuple):
    """The same bytes twice."""

    to_write: np.ndarray
    #: Who writes to these ends this process, and not other ranks' numbers.
    to_read: memoryview

    def part(self, start: int, stop: int) -> Memory:
        return Memory(self.to_write[start:stop], self.to_read[start:stop])


class NodeMemory:
    """A file in memory of this rank and the others of its node, mpi4py's communicator `ranks`."""

    def __init__(self, ranks: Any) -> None:
        self.rank, self.size = int(ranks.rank), int(ranks.size)
        if self.rank > 0:
            first = socket.socket(socket.AF_UNIX)
            first.connect(ranks.bcast(None))
            first.send(self.rank.to_bytes(_RANK_BYTES, "big"))
            _, (descriptor, *_), _, _ = socket.recv_fds(first, 1, 1)
            self._others = [first]
        else:
            descriptor = _unnamed_file()
            self._others = _connected(ranks, descriptor)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._mapped_bytes = 0
        self._rest = Memory(np.empty(0, np.uint8), memoryview(b""))

    def meet(self) -> None:
        """Wait for the other ranks, asleep. Raises ConnectionError if one has ended."""
        # the first rank answers the others; of two, each tells the other: the last does not wait
        if self.rank > 0 or self.size == 2:
            self._others[0].send(b"\0")
        for other in self._others:
            _received(other, 1)
        if self.rank == 0 and self.size > 2:
            for other in self._others:
                other.send(b"\0")

    def more(self, size: int) -> Memory:
        """So many further bytes, which all ranks get: they ask for the same in the same order."""
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if size > len(self._rest.to_read):
            self._rest = self._mapped(max(size, _MAPPED_BYTES, self._mapped_bytes))
        found, end = self._rest.part(0, size), len(self._rest.to_read)
        self._rest = self._rest.part(size, end)
        return found

    def array(self, *shape: int) -> np.ndarray:
        """Further bytes as an array."""
        size = math.prod(shape)
        return self.more(size).to_write[:size].reshape(shape)

    def _mapped(self, size: int) -> Memory:
        file, start = self._file.fileno(), self._mapped_bytes
        self._mapped_bytes += size
        return Memory(
            np.frombuffer(mmap.mmap(file, size, offset=start), np.uint8),
            memoryview(mmap.mmap(file, size, prot=mmap.PROT_READ, offset=start)),
        )


class Results:
    """Sums in the memory of a node, where all its ranks read them; none copies its own.

    A result's memory is written again when no rank has an array or a tensor in it any more.
    """

    def __init__(self, memory: NodeMemory) -> None:
        self._memory = memory
        self._in_use = memory.array(memory.size, RESULTS_MAX)
        self._places: dict[int, list[Place]] = {}

    def tell(self, size: int) -> None:
        """Tell the other ranks which places for so many bytes this one still uses."""
        places = self._of_size(size)
        self._in_use[self._memory.rank, : len(places)] = [place.in_use for place in places]

    def place(self, size: int) -> Place:
        """One that no rank uses; all ranks get the same. They have told and met."""
        places = self._of_size(size)
        free = np.flatnonzero(~self._in_use[:, : len(places)].any(axis=0))
        if free.size:
            return places[free[0]]
        if len(places) == RESULTS_MAX:
            raise MemoryError(f"{RESULTS_MAX} sums of {size} bytes are in use at once")
        places.append(Place(self._memory.more(_class(size))))
        return places[-1]

    def _of_size(self, size: int) -> list[Place]:
        return self._places.setdefault(_class(size), [])


class Place:
    """Memory for one result at a time."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._last: Callable[[], np.ndarray | None] = lambda: None

    @property
    def in_use(self) -> bool:
        """Whether this rank has the last result still, or a view of it."""
        return self._last() is not None

    def to_write(self, like: np.ndarray) -> np.ndarray:
        return self._memory.to_write[: like.nbytes].view(like.dtype)

    def result(self, like: np.ndarray) -> np.ndarray:
        """What was written, as an array that nobody can write to."""
        found = np.frombuffer(self._memory.to_read, like.dtype, like.size)
        self._last = weakref.ref(found)  # is the base of its views
        return found


def _class(size: int) -> int:
    """The least power of 2 that has room: few sizes, and what is not written takes no memory."""
    return max(mmap.PAGESIZE, 1 << (size - 1).bit_length())


def _unnamed_file() -> int:
    """The descriptor of a file in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tfscaling")
    else:  # a Python that was built for an old C library
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _FILE_BYTES)
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
