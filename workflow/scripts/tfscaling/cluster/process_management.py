"""A server by which the ranks of an MPI job on this machine find each other: PMI, version 1.

`mpiexec` serves the same requests, but it also starts and ends the ranks, so that they cannot be
forks of one process and have no exit codes. Here the launcher starts MPI's ranks like all others.
MPICH speaks this protocol, and its descendants Intel MPI and MVAPICH. Slurm's `srun --mpi=pmi2`
does the same on a cluster. Source: P. Balaji et al., "PMI: A Scalable Parallel Process-Management
Interface for Extreme-Scale Systems" (EuroMPI 2010), and MPICH's own client, src/pmi.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

_HOST = "127.0.0.1"
#: The kernel's table of connections, and the state of an open one in it: linux/net/tcp_states.h.
_CONNECTIONS, _ESTABLISHED = Path("/proc/net/tcp"), "01"
#: Pause in seconds after a connection could not be accepted.
_RETRY_S = 0.05
#: Longest names and values that ranks may publish, as in the protocol's response `maxes`.
_LENGTHS = "kvsname_max=256 keylen_max=64 vallen_max=1024"


def pmi_variables(address: str, rank: int) -> dict[str, str]:
    """Return the environment variables by which a process becomes rank `rank` of an MPI job.

    Args:
        address: HOST:PORT from `pmi_server`.
        rank: The rank.
    """
    return {"PMI_PORT": address, "PMI_ID": str(rank)}


@contextlib.contextmanager
def pmi_server(ranks: int) -> Iterator[str]:
    """Run a PMI server for `ranks` ranks within the `with` block; yield its HOST:PORT."""
    job = _Job(ranks)
    with socket.create_server((_HOST, 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, job), daemon=True)
        thread.start()
        try:
            yield f"{_HOST}:{listener.getsockname()[1]}"
        finally:
            job.barrier.abort()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class _Job:
    """The state of an MPI job that the server keeps: published values and the ranks' barrier.

    Args:
        ranks: Number of ranks.
    """

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        # all ranks on one node: they share memory
        self.values = {"PMI_process_mapping": f"(vector,(0,1,{ranks}))"}
        self._answers = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "initack": f"cmd=initack rc=0\ncmd=set size={ranks}",
            "get_maxes": f"cmd=maxes rc=0 {_LENGTHS}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_universe_size": f"cmd=universe_size rc=0 size={ranks}",
            # of this job alone: MPICH names the ranks' shared memory after it
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname=tfscaling-{uuid.uuid4()}",
            "put": "cmd=put_result rc=0 msg=success",
            "barrier_in": "cmd=barrier_out rc=0",
            "finalize": "cmd=finalize_ack rc=0",
        }

    def answer(self, request: Mapping[str, str]) -> str:
        """Return the response lines to a request of a rank; at a barrier, wait for all ranks first.

        Args:
            request: Key → value of the request, from `_parse_request`.

        Raises:
            KeyError: The command does not exist, or the request lacks a key.
        """
        command = request["cmd"]
        if command == "get":
            if (value := self.values.get(request["key"])) is None:
                return "cmd=get_result rc=-1 msg=unknown_key value=unknown"
            return f"cmd=get_result rc=0 msg=success value={value}"
        answer = self._answers[command]
        if command == "initack":
            answer += f"\ncmd=set rank={request['pmiid']}\ncmd=set debug=0"
        elif command == "put":
            self.values[request["key"]] = request["value"]
        elif command == "barrier_in":
            self.barrier.wait()
        return answer


def _accept(listener: socket.socket, job: _Job) -> None:
    """Accept connections of ranks until the listener is closed; serve each in its own thread.

    Connections of other users are closed.
    """
    while True:
        try:
            connection, _ = listener.accept()
            is_own = _user_of_peer(connection) == os.geteuid()
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EBADF):  # closed: the job is over
                return
            time.sleep(_RETRY_S)  # as too few descriptors
            continue
        if not is_own:
            connection.close()
            continue
        threading.Thread(target=_serve, args=(connection, job), daemon=True).start()


def _user_of_peer(connection: socket.socket) -> int | None:
    """Return the user id of the process at the other end of a connection on this machine.

    The kernel's table of connections has it. None if the process has closed the connection.
    """
    ends = [_table_address(*connection.getpeername()), _table_address(*connection.getsockname())]
    for line in _CONNECTIONS.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:4] == [*ends, _ESTABLISHED]:
            return int(fields[7])
    return None


def _table_address(host: str, port: int) -> str:
    """Return HOST:PORT in the format of the kernel's table of connections: `0100007F:1F90`."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _serve(connection: socket.socket, job: _Job) -> None:
    """Answer the requests of one rank until its connection closes: a thread's function."""
    suppressed = contextlib.suppress(OSError, KeyError, threading.BrokenBarrierError)
    with connection, connection.makefile("rw") as lines, suppressed:
        for line in lines:
            lines.write(job.answer(_parse_request(line)) + "\n")
            lines.flush()


def _parse_request(line: str) -> dict[str, str]:
    """Return key → value of a request line such as `cmd=put key=a value=b`.

    The value of `put` extends to the end of the line.
    """
    words, _, value = line.strip().partition(" value=")
    pairs = (word.partition("=") for word in words.split())
    return {**{key: text for key, _, text in pairs}, "value": value}
