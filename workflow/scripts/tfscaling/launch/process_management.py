"""What the ranks of an MPI job ask of who started them, on this machine: PMI, version 1.

`mpiexec` answers these questions, but it also starts and ends the ranks, and keeps their exit codes
to itself: the launcher starts them as it starts all others, and answers here. MPICH speaks this
protocol, and what descends from it: Intel MPI, MVAPICH. Slurm's `srun --mpi=pmi2` does the same on
a cluster. Source: P. Balaji et al., "PMI: A Scalable Parallel Process-Management Interface for
Extreme-Scale Systems" (EuroMPI 2010), and MPICH's own client, src/pmi.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import TextIO

_HOST = "127.0.0.1"
#: Most characters of names and values of the space in which ranks tell each other their addresses.
_LENGTHS = "kvsname_max=256 keylen_max=64 vallen_max=1024"


def variables(address: str, rank: int) -> dict[str, str]:
    """With these in its environment a process is this rank; `address` is what `served` gave."""
    return {"PMI_PORT": address, "PMI_ID": str(rank)}


@contextlib.contextmanager
def served(ranks: int) -> Iterator[str]:
    """Answer this many ranks as long as the context lasts; gives HOST:PORT."""
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
    """What the ranks have told each other, and where they wait for each other."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        # of this job alone: MPICH names the ranks' shared memory after it
        self.name = f"tfscaling-{uuid.uuid4()}"
        self.barrier = threading.Barrier(ranks)
        # all ranks on one node: they share memory
        self.values = {"PMI_process_mapping": f"(vector,(0,1,{ranks}))"}

    def answers(self, asked: Mapping[str, str]) -> list[str]:
        """The lines that answer a line."""
        command = asked["cmd"]
        if command == "initack":
            place = (f"size={self.ranks}", f"rank={asked['pmiid']}", "debug=0")
            return ["cmd=initack rc=0", *(f"cmd=set {setting}" for setting in place)]
        if command == "init":
            return ["cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"]
        if command == "put":
            self.values[asked["key"]] = asked["value"]
            return ["cmd=put_result rc=0 msg=success"]
        if command == "get":
            value = self.values.get(asked["key"])
            if value is None:
                return ["cmd=get_result rc=-1 msg=unknown_key value=unknown"]
            return [f"cmd=get_result rc=0 msg=success value={value}"]
        if command == "barrier_in":
            self.barrier.wait()
            return ["cmd=barrier_out rc=0"]
        simple = {
            "get_maxes": f"cmd=maxes rc=0 {_LENGTHS}",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_universe_size": f"cmd=universe_size rc=0 size={self.ranks}",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={self.name}",
            "finalize": "cmd=finalize_ack rc=0",
        }
        return [simple[command]]


def _accept(listener: socket.socket, job: _Job) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # closed: the job is over
            return
        threading.Thread(target=_serve, args=(connection, job), daemon=True).start()


def _serve(connection: socket.socket, job: _Job) -> None:
    """Answer one rank until it ends, or asks for what is not known: it fails then, and says why."""
    suppressed = contextlib.suppress(OSError, KeyError, threading.BrokenBarrierError)
    with connection, connection.makefile("rw") as lines, suppressed:
        for line in lines:
            for answer in job.answers(_words(line)):
                _write(lines, answer)


def _write(lines: TextIO, answer: str) -> None:
    lines.write(f"{answer}\n")
    lines.flush()


def _words(line: str) -> dict[str, str]:
    """`key=value` words by their keys; a value of `put` goes to the end of the line."""
    words: dict[str, str] = {}
    rest = line.strip()
    while rest:
        word, _, rest = rest.partition(" ")
        key, _, value = word.partition("=")
        if key == "value":
            value, rest = f"{value} {rest}".strip(), ""
        words[key] = value
    return words
