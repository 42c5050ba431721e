"""The line of a user's code that failed, from outputs of Python, faulthandler and torch."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from builders import SCRIPTS, run_python
from tfscaling.jobs import tracebacks

FOLDER = Path("/project")
LIBRARY = sysconfig.get_path("stdlib")
PLAIN = f"""
starting
Traceback (most recent call last):
  File "/project/train.py", line 40, in <module>
    main()
  File "/project/steps/loop.py", line 12, in fit
    strategy.run(step)
    ~~~~~~~~~~~~^^^^^^
  File "/venv/lib/python3.11/site-packages/tensorflow/ops.py", line 7, in run
    raise errors.UnavailableError("gone")
  File "{LIBRARY}/threading.py", line 9, in wait
tensorflow.python.framework.errors_impl.UnavailableError: gone
bye
"""
CHAINED = """
Traceback (most recent call last):
  File "/project/train.py", line 1, in <module>
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/project/train.py", line 3, in main
ValueError: b
"""
RANKED = """
[rank1]: Traceback (most recent call last):
[rank1]:   File "/project/ddp.py", line 5, in <module>
[rank1]:     main()
[rank1]: RuntimeError: no peer
"""
FATAL = """
Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/venv/lib/python3.11/site-packages/numpy/core.py", line 2 in dot
  File "/project/train.py", line 8 in step
  File "/project/train.py", line 20 in <module>
"""
SYNTAX = """
Traceback (most recent call last):
  File "/project/train.py", line 2, in <module>
    import model
  File "/project/model.py", line 3
    def f(
         ^
SyntaxError: '(' was never closed
"""
CASES = {
    "plain": (PLAIN, "UnavailableError", "steps/loop.py line 12 in fit"),
    "chained": (CHAINED, "ValueError", "train.py line 3 in main"),
    "ranked": (RANKED, "RuntimeError", "ddp.py line 5"),
    "fatal": (FATAL, "Segmentation fault", "train.py line 8 in step"),
    "syntax": (SYNTAX, "SyntaxError", "model.py line 3"),
    "elsewhere": (PLAIN.replace("/project", "/other"), "UnavailableError",
                  "/other/steps/loop.py line 12 in fit"),
}  # fmt: skip


@pytest.mark.parametrize(("output", "name", "where"), CASES.values(), ids=list(CASES))
def test_the_innermost_line_of_the_users_is_named(output: str, name: str, where: str) -> None:
    blamed = tracebacks.last(output.splitlines(), FOLDER)
    assert blamed is not None
    assert (blamed.name, blamed.where) == (name, where)


@pytest.mark.parametrize("name", ["observe.py", "copied/observe.py"])
def test_a_copy_of_the_observer_is_not_blamed_for_the_dataset(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text((SCRIPTS.parent / "observe/observe.py").read_text())
    train = tmp_path / "train.py"
    train.write_text("import observe\nfor _ in observe.steps(map(int, 'ab')):\n    pass\n")
    environ = {"PYTHONPATH": str(copy.parent), "TFSCALING_EVENTS": str(tmp_path / "events")}
    done = run_python(f"import runpy; runpy.run_path({str(train)!r})", **environ)
    blamed = tracebacks.last(done.stderr.splitlines(), tmp_path)
    assert blamed is not None
    assert (blamed.name, blamed.where) == ("ValueError", "train.py line 2")


@pytest.mark.parametrize("output", ["", "all well", "Traceback (most recent call last):\n  cut"])
def test_without_a_traceback_no_line_is_blamed(output: str) -> None:
    assert tracebacks.last(output.splitlines(), FOLDER) is None
