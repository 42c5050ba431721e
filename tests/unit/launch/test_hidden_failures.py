"""A run counts only if the program did its work, also where a shell hides that it did not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from program_runs import cause_of, record_of, start
from tfscaling.launch import failures
from tfscaling.record import crashes, run_record
from tfscaling.record.attempts import Cause

RAISES = "import os\nprint('begins')\nif os.environ['RANK'] == '1':\n    raise {error}\n"


def script(folder: Path, command: str) -> list[str]:
    """Write a script that runs the program in a shell, and return its command line."""
    (folder / "train.sh").write_text(f"{command}\n")
    return ["bash", "train.sh"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("python3 user.py 2>&1 | tee log-$RANK.txt", "ValueError('no data')"),
        ("python3 user.py || true", "KeyError('label')"),
        ("python3 user.py 2>&1 | cat\nsleep 0", "RuntimeError()"),
    ],
)
def test_a_shell_that_ends_with_0_after_an_exception_is_no_valid_run(
    tmp_path: Path, command: str, error: str
) -> None:
    program = script(tmp_path, command)
    cause = cause_of(tmp_path, RAISES.format(error=error), program=program, nodes=2)
    assert (cause["rank"], cause["kind"]) == (1, "program_failed")
    assert error.partition("(")[0] in cause["message"] and "user.py:4" in cause["message"]
    assert "pipefail" in cause["message"]


def test_too_little_memory_behind_a_shell_does_not_fit(tmp_path: Path) -> None:
    program = script(tmp_path, "python3 user.py 2>&1 | tee log")
    process = start(tmp_path, "raise MemoryError", program=program)
    process.communicate(timeout=300)
    found = run_record.read_outcome(tmp_path / "run/run.json")
    assert isinstance(found, run_record.DoesNotFit)
    assert "user.py:1: MemoryError" in found.reason


CAUGHT = """
import traceback
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
print("goes on without", flush=True)
"""
DESTRUCTOR = """
class Handle:
    def __del__(self):
        raise ValueError("already closed")
print("done", flush=True)
handle = Handle()
"""
THREAD = """
import threading
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("code", [CAUGHT, DESTRUCTOR, THREAD])
def test_exceptions_after_which_python_ends_well_are_no_failure(tmp_path: Path, code: str) -> None:
    assert record_of(tmp_path, code, program=script(tmp_path, "python3 user.py | cat")).is_valid


TRACEBACK = ["Traceback (most recent call last):", '  File "/x/a.py", line 3, in f', "    g()"]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([*TRACEBACK, "ValueError: x"], "ValueError"),
        ([*TRACEBACK, "torch.cuda.OutOfMemoryError: CUDA out of memory", ""], "OutOfMemoryError"),
        ([f"[rank3]: {line}" for line in [*TRACEBACK, "a.B: x"]], "B"),
        ([*TRACEBACK, "KeyError: 1", "", *TRACEBACK, "ValueError: 2"], "ValueError"),
        ([*TRACEBACK, "ValueError: x", "epoch 2"], None),
        (["Exception ignored in: <x>", *TRACEBACK, "ValueError: x"], None),
        (["Exception in thread Thread-1:", *TRACEBACK, "ValueError: x"], None),
        (
            ["Fatal Python error: Segmentation fault", "", "Current thread 0x1 (most recent call)",
             '  File "/x/a.py", line 3 in g', "", "Extension modules: numpy (total: 1)"],
            "Segmentation fault",
        ),
        (["epoch 1"], None),
        ([], None),
    ],
)  # fmt: skip
def test_only_output_that_ends_with_a_traceback_blames(lines: list[str], name: str | None) -> None:
    before = [f"step {n}" for n in range(random.randrange(5))]
    found = crashes.find_ending_traceback([*before, *lines], Path("/x"))
    assert (found and found.name) == name


@pytest.mark.parametrize(
    "words",
    [
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a total",
        # without the class of the exception, each maker's name decides
        *(
            f"RuntimeError: {maker} out of memory. Tried to allocate 2.00 GiB"
            for maker in ("CUDA", "HIP", "XPU", "NPU", "HPU", "MUSA", "MPS backend", "device")
        ),
        "RuntimeError: HIP error: out of memory",
        "OutOfMemoryError: XPU out of memory. Tried to allocate 512.00 MiB.",
        "RuntimeError: Native API failed: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        "failed to allocate 890.06M (933298432 bytes) from device: HIP_ERROR_OutOfMemory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 32.0 GiB for an array with",
        "MemoryError: ",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)",
        "what():  std::bad_alloc",
        "OSError: [Errno 12] Cannot allocate memory",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4294967296 bytes.",
    ],
)
def test_every_makers_words_about_memory_are_understood(words: str) -> None:
    cause = Cause(kind="program_failed", message=f"user.py:4: {words}; log: rank-0.log")
    assert failures.mark_out_of_memory(cause).kind == "out_of_memory"


@pytest.mark.parametrize(
    "words",
    ["ValueError: memory of 3 GiB requested", "KeyError: 'MemoryErrors'", "FileNotFoundError: oom"],
)
def test_other_words_are_no_lack_of_memory(words: str) -> None:
    cause = Cause(kind="program_failed", message=f"user.py:4: {words}; log: rank-0.log")
    assert failures.mark_out_of_memory(cause) == cause
