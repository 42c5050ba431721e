"""What programs say before they abort: outputs of PyTorch, NCCL, Gloo, UCX and JAX."""

from __future__ import annotations

import pytest
from tfscaling.record import crashes

_GROUP = "[PG ID 0 PG GUID 0(default_pg) Rank 1] "
_WATCHED = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
    "NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600026 milliseconds before timing out."
)
_ENDED = f"{_GROUP}Process group watchdog thread terminated with exception: "
_DUMP = """
Fatal Python error: Aborted

Thread 0x00007f1c40b3f740 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/cuda/__init__.py", line 792 in synchronize
  File "/project/train.py", line 8 in step

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""
_FRAMES = """
Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:618:
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f1c in libc10.so)
frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x14d (0x7f1c in libtorch_cuda.so)
frame #2: clone + 0x43 (0x7f1c in /lib/x86_64-linux-gnu/libc.so.6)
"""


def thrown(kind: str, what: str) -> str:
    return f"terminate called after throwing an instance of '{kind}'\n  what():  {what}{_FRAMES}"


#: Output before the dump → words of the reason, whether a connection was lost.
OUTPUTS = {
    "a timeout of NCCL": (
        f"[rank1]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:616] {_WATCHED}\n"
        + thrown("c10::DistBackendError", _ENDED + _WATCHED),
        f"terminate called after throwing an instance of 'c10::DistBackendError' what():  {_GROUP}",
        True),
    "a timeout of an earlier PyTorch": (
        thrown("std::runtime_error", _WATCHED),
        "terminate called after throwing an instance of 'std::runtime_error' what():  [Rank 1] "
        "Watchdog caught collective operation timeout", True),
    "a timeout without an exception": (
        f"[E ProcessGroupNCCL.cpp:828] {_WATCHED}\n[E ProcessGroupNCCL.cpp:455] To avoid data "
        "inconsistency, we are taking the entire process down.",
        f"[E ProcessGroupNCCL.cpp:828] {_WATCHED}", True),
    "an error of InfiniBand": (
        thrown("c10::DistBackendError", _ENDED + "NCCL error: remote process exited or there was a "
               "network error, NCCL version 2.20.5\nncclRemoteError: A call failed possibly due to "
               "a network error or a remote process exiting prematurely.\nLast error:\nNET/IB : "
               "Got completion from peer 10.0.0.2<47582> with status=12 opcode=0 len=0"),
        "terminate called after throwing an instance of 'c10::DistBackendError' what():  ", True),
    "an error of a socket of NCCL": (
        thrown("c10::DistBackendError", _ENDED + "NCCL error: unhandled system error (run with "
               "NCCL_DEBUG=INFO for details), NCCL version 2.20.5"),
        "terminate called after ", True),
    "a watchdog that hangs": (
        f"[F1122 ProcessGroupNCCL.cpp:1250] {_GROUP}[PG ID 0] ProcessGroupNCCL's watchdog got "
        "stuck for 480 seconds without making progress in monitoring enqueued collectives.",
        "[F1122 ProcessGroupNCCL.cpp:1250]", True),
    "PyTorch's store": (
        thrown("c10::DistNetworkError", "Connection reset by peer"),
        "terminate called after throwing an instance of 'c10::DistNetworkError' what():  "
        "Connection reset by peer", True),
    "Gloo": (
        thrown("gloo::IoException", "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] "
               "Connection closed by peer [10.0.0.2]:31231"),
        "terminate called after throwing an instance of 'gloo::IoException' what():  [", True),
    "UCX": (
        "[n2:421:0:421] ib_mlx5_log.c:177  Transport retry count exceeded on mlx5_0:1/IB (synd "
        "0x15 vend 0x81 hw_synd 0/0)\n[n2:421:0:421] ib_mlx5_log.c:177  RC QP 0x2a0 wqe[5]: SEND",
        "[n2:421:0:421] ib_mlx5_log.c:177  Transport retry count exceeded", True),
    "JAX": (
        "F0102 03:04:05.6 421 client.h:77] Terminating process because the JAX distributed service "
        "detected fatal errors. UNAVAILABLE: The following tasks are unhealthy (stopped sending "
        "heartbeats):", "F0102 03:04:05.6", True),
    "an access to other memory, found by the watchdog": (
        thrown("c10::DistBackendError",
               f"{_ENDED}CUDA error: an illegal memory access was encountered"),
        f"terminate called after throwing an instance of 'c10::DistBackendError' what():  {_ENDED}",
        False),
    "collectives of other sizes": (
        thrown("gloo::EnforceNotMet", "[enforce fail at ../third_party/gloo/gloo/transport/tcp/"
               "pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4"),
        "terminate called after throwing an instance of 'gloo::EnforceNotMet' what():  ", False),
    "a thread that nobody joined": (
        "terminate called without an active exception",
        "terminate called without an active exception", False),
    "an assertion": ("train: step.cc:12: void step(): Assertion `n > 0' failed.", "", False),
}  # fmt: skip


@pytest.mark.parametrize(("output", "words", "is_lost"), OUTPUTS.values(), ids=list(OUTPUTS))
def test_the_words_before_the_dump_are_the_reason(output: str, words: str, is_lost: bool) -> None:
    lines = [*output.splitlines(), *_DUMP.splitlines()]
    said = crashes.abort_reason("killed by SIGABRT", lines)
    assert said.startswith(words) and bool(said) == bool(words)
    assert crashes.has_lost_connection([said]) == is_lost
    assert crashes.has_lost_connection(lines) == is_lost


@pytest.mark.parametrize(
    ("ended", "last", "is_told"),
    [
        ("exit code 134", "train.sh: line 3:   421 Aborted", True),
        ("exit code 1", "  traceback : Signal 6 (SIGABRT) received by PID 421", True),
        ("exit code 1", "Fatal Python error: Aborted", True),
        ("exit code 1", "ValueError: no data", False),
        ("killed by SIGSEGV", "Fatal Python error: Segmentation fault", False),
    ],
)
def test_the_reason_is_that_of_an_abort_of_the_program_or_of_what_it_started(
    ended: str, last: str, is_told: bool
) -> None:
    lines = [*thrown("c10::DistNetworkError", "Broken pipe").splitlines(), last]
    assert ("Broken pipe" in crashes.abort_reason(ended, lines)) == is_told


def test_an_abort_is_known_by_the_names_of_signal_faulthandler_and_shell() -> None:
    names = ("killed by SIGABRT", "Aborted", "exit code 134", "killed by SIGSEGV", "AbortedError")
    assert [crashes.is_abort(name) for name in names] == [True] * 3 + [False] * 2
    assert not crashes.is_abort(None)
