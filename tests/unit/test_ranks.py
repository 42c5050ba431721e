"""Processes of a test: the one that fails is named, and the others do not wait for it."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from types import ModuleType

import pytest
from ranks import RankFailedError, ranks_of

#: Ends as told, or finds its own word.
PROGRAM = """
import json, os, pathlib, sys, time
_, word, output = sys.argv
print("this is", word, flush=True)
if word == "wait":
    time.sleep(300)
elif word != "end":
    os.kill(os.getpid(), int(word))
pathlib.Path(output).write_text(json.dumps({"word": word}))
"""


@pytest.fixture
def program(tmp_path: Path) -> ModuleType:
    module = ModuleType("program")
    path = tmp_path / "ending.py"
    path.write_text(PROGRAM)
    module.__file__ = str(path)
    return module


def test_a_process_that_a_signal_ends_is_named_while_others_wait(
    program: ModuleType, tmp_path: Path
) -> None:
    number = random.choice([signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
    words = ["wait", str(int(number)), "wait"]
    random.shuffle(words)
    with ranks_of(program) as ranks:
        for place, word in enumerate(words):
            ranks.start(tmp_path / f"{place}.json", word)
        with pytest.raises(RankFailedError, match=f"ended with -{int(number)}") as failure:
            ranks.found()
    assert failure.value.log == f"this is {int(number)}\n"


def test_all_that_processes_found_is_in_their_order(program: ModuleType, tmp_path: Path) -> None:
    with ranks_of(program) as ranks:
        for place in range(3):
            ranks.start(tmp_path / f"{place}.json", "end")
        assert ranks.found() == [{"word": "end"}] * 3
