"""Why a program crashed: outputs of Python, faulthandler, PyTorch, NCCL, Gloo, UCX and JAX."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from builders import SCRIPTS, run_python
from tfscaling.files import strict_json
from tfscaling.record import crashes
from tfscaling.record.attempts import Cause

FOLDER = Path("/project")
SECRETS = {
    "WANDB_API_KEY": "0123456789", "HF_TOKEN": "hf_abc012", "MYSQL_PWD": "hf_abc012 and more",
    "AWS_SECRET_ACCESS_KEY": "", "USE_AUTH": "1", "GIT_AUTHOR_NAME": "Somebody", "HOME": "/home",
    "PWD": "/home/somebody/project", "OLDPWD": "/home/somebody",
}  # fmt: skip
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
    "plain": (PLAIN, "UnavailableError", "steps/loop.py:12 in fit"),
    "chained": (CHAINED, "ValueError", "train.py:3 in main"),
    "ranked": (RANKED, "RuntimeError", "ddp.py:5"),
    "fatal": (FATAL, "Segmentation fault", "train.py:8 in step"),
    "syntax": (SYNTAX, "SyntaxError", "model.py:3"),
    "elsewhere": (PLAIN.replace("/project", "/other"), "UnavailableError",
                  "/other/steps/loop.py:12 in fit"),
}  # fmt: skip


@pytest.mark.parametrize(("output", "name", "where"), CASES.values(), ids=CASES)
def test_the_innermost_line_of_the_users_is_named(output: str, name: str, where: str) -> None:
    blamed = crashes.find_last_traceback(output.splitlines(), FOLDER)
    assert blamed is not None
    assert (blamed.name, str(blamed.place)) == (name, where)


@pytest.mark.parametrize("name", ["observe.py", "copied/observe.py"])
def test_a_copy_of_the_observer_is_not_blamed_for_the_dataset(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text((SCRIPTS.parent / "observe/observe.py").read_text())
    train = tmp_path / "train.py"
    train.write_text("import observe\nfor _ in observe.steps(map(int, 'ab')):\n    pass\n")
    environ = {"PYTHONPATH": str(copy.parent), "TFSCALING_EVENTS": str(tmp_path / "events")}
    done = run_python(f"import runpy; runpy.run_path({str(train)!r})", **environ)
    blamed = crashes.find_last_traceback(done.stderr.splitlines(), tmp_path)
    assert blamed is not None
    assert (blamed.name, str(blamed.place)) == ("ValueError", "train.py:2")


#: What TensorFlow and Keras put into messages → the words that are the exception's own.
TRACED = """in user code:

    File "{folder}/own/training.py", line 7, in loss  *
        return distance(y, p)
    File "/venv/lib/python3.11/site-packages/keras/ops.py", line 387, in subtract  **
        return x - y

    ValueError: Dimensions must be equal, but are 5 and 2 for '{{{{node sub}}}} = Sub[T=1](x, y)'.
"""
INFERRED = """Exception encountered when calling Broken.call().

\x1b[1mCould not automatically infer the output shape of 'broken'. Error encountered:

no attribute 'nothing'\x1b[0m

Arguments received by Broken.call():
  • args=('<KerasTensor>',)"""
AT_RUNTIME = """Graph execution error:

Detected at node Reshape defined at (most recent call last):
  File "{folder}/own/training.py", line 7, in loss

cannot reshape
the tensor
\t [[{{{{node Reshape}}}}]] [Op:__inference_step_9]"""
WORDS = {
    "plain": ("no data", "no data", "train.py:3 in main"),
    "empty": ("", "", "train.py:3 in main"),
    "traced": (TRACED, "Dimensions must be equal, but are 5 and 2 for '{{node sub}} = "
               "Sub[T=1](x, y)'.", "own/training.py:7 in loss"),
    "inferred": (INFERRED, "no attribute 'nothing'", "train.py:3 in main"),
    "at run time": (AT_RUNTIME, "cannot reshape the tensor", "own/training.py:7 in loss"),
}  # fmt: skip


def raised(source: str, folder: Path, **names: object) -> Exception:
    """What a function `main` in the project's train.py raises."""
    file = folder / "train.py"
    file.write_text(source)
    scope: dict[str, Any] = dict(names)
    exec(compile(source, str(file), "exec"), scope)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        scope["main"]()
    return caught.value


@pytest.mark.parametrize(("message", "words", "place"), WORDS.values(), ids=WORDS)
def test_an_exception_is_one_line_with_its_place_in_the_users_files(
    message: str, words: str, place: str, tmp_path: Path
) -> None:
    text = message.format(folder=tmp_path) if "{folder}" in message else message
    error = raised(
        "def main():\n    import json\n    raise ValueError(text)\n", tmp_path, text=text
    )
    blamed = crashes.locate_exception(error, tmp_path)
    assert blamed is not None
    assert (blamed.name, blamed.error) == ("ValueError", f"ValueError: {words}".rstrip(": "))
    assert str(blamed.place) == place


def test_the_line_that_called_a_library_is_blamed_and_a_library_alone_is_not(
    tmp_path: Path,
) -> None:
    error = raised("import json\n\n\ndef main():\n    json.loads('{')\n", tmp_path)
    blamed = crashes.locate_exception(error, tmp_path)
    assert blamed is not None
    assert str(blamed.place) == "train.py:5 in main"
    with pytest.raises(strict_json.NotFiniteError) as caught:
        strict_json.loads("NaN")
    of_ours = caught.value.with_traceback(caught.tb.tb_next)  # without this test's own line
    assert crashes.locate_exception(of_ours, tmp_path) is None


@pytest.mark.parametrize("characters", [700, 5000])
def test_long_words_of_an_exception_are_cut(characters: int, tmp_path: Path) -> None:
    words = "x" * characters
    printed = PLAIN.replace("UnavailableError: gone", f"UnavailableError: {words}")
    last = crashes.find_last_traceback(printed.splitlines(), FOLDER)
    error = raised("def main():\n    raise ValueError(text)\n", tmp_path, text=words)
    blamed = crashes.locate_exception(error, tmp_path)
    assert last is not None and blamed is not None
    reason = crashes.find_abort_reason("killed by SIGABRT", thrown("Error", words).splitlines())
    found = [last.error, blamed.error.removeprefix("ValueError: "), reason]
    assert [len(text) for text in found] == [500, 500, 500]


@pytest.mark.parametrize("output", ["", "all well", "Traceback (most recent call last):\n  cut"])
def test_without_a_traceback_no_line_is_blamed(output: str) -> None:
    assert crashes.find_last_traceback(output.splitlines(), FOLDER) is None


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
    "a timeout without an exception": (
        f"[E ProcessGroupNCCL.cpp:828] {_WATCHED}\n[E ProcessGroupNCCL.cpp:455] To avoid data "
        "inconsistency, we are taking the entire process down.",
        f"[E ProcessGroupNCCL.cpp:828] {_WATCHED}", True),
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
    "a thread that nobody joined": (
        "terminate called without an active exception",
        "terminate called without an active exception", False),
    "an assertion": ("train: step.cc:12: void step(): Assertion `n > 0' failed.", "", False),
}  # fmt: skip


@pytest.mark.parametrize(("output", "words", "is_lost"), OUTPUTS.values(), ids=OUTPUTS)
def test_the_words_before_the_dump_are_the_reason(output: str, words: str, is_lost: bool) -> None:
    lines = [*output.splitlines(), *_DUMP.splitlines()]
    said = crashes.find_abort_reason("killed by SIGABRT", lines)
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
    assert ("Broken pipe" in crashes.find_abort_reason(ended, lines)) == is_told


def test_a_cause_has_no_secret_of_the_environment() -> None:
    text = "1: Somebody in /home/somebody/project has key=0123456789, hf_abc012 and more, hf_abc012"
    masked = "1: Somebody in /home/somebody/project has key=***, ***, ***"
    cause = Cause(kind="program_failed", message=text, last_lines=("a", text))
    found = crashes.mask_secrets_of_cause(cause, crashes.find_secrets(SECRETS))
    assert found == Cause(kind="program_failed", message=masked, last_lines=("a", masked))
    others = crashes.find_secrets({"HOME": "/home"}, ["train.py", "--epochs=100000"], ["ml python"])
    assert crashes.mask_secrets_of_cause(cause, others) == cause


def test_a_secret_of_several_lines_and_a_cut_one_are_masked(dice: random.Random) -> None:
    lines = ["".join(dice.choices("abcdefgh0123456789", k=dice.randint(6, 30))) for _ in range(3)]
    secrets = crashes.find_secrets({"SIGNING_KEY": "\n".join(lines)})
    text = f"refused: {' '.join(lines)}, again {lines[1]}"
    cut = text[: -dice.randint(1, len(lines[1]) - 6)] if len(lines[1]) > 7 else text
    for shown in (text, cut):
        masked = crashes.mask_secrets(shown, secrets)
        assert masked == "refused: *** *** ***, again ***", masked


def test_a_secret_that_appears_when_it_is_masked_is_masked_again() -> None:
    assert crashes.mask_secrets("***abcdabcd", {"***abcd"}) == "***"


#: Words of a program or lines of `setup` with VALUE as a secret, or not.
GIVEN = [
    (["--password=VALUE"], [], True), (["-x", "--api-key", "VALUE"], [], True),
    (["bash", "-c", "export HF_TOKEN='VALUE x'; run"], [], True),
    (["bash", "-c", "run --auth VALUE"], [], True), (["MY_SECRET=VALUE"], [], True),
    ([], ["module load x", 'export SIGNING_KEY="VALUE"'], True),
    ([], ["DB_PWD=VALUE run"], True), ([], ["login --token VALUE;x"], True),
    (["--tokenizer=VALUE"], [], False), (["--max-tokens", "VALUE"], [], False),
    (["--keyframes", "VALUE"], ["author=VALUE"], False), (["VALUE"], ["echo VALUE"], False),
]  # fmt: skip


@pytest.mark.parametrize(("program", "setup", "is_secret"), GIVEN)
def test_a_secret_that_a_program_or_setup_gives_by_name_is_masked(
    program: list[str], setup: list[str], is_secret: bool, dice: random.Random
) -> None:
    value = "".join(dice.choices("abcdefgh0123456789", k=dice.randint(6, 30)))
    program, setup = ([text.replace("VALUE", value) for text in each] for each in (program, setup))
    text = f"error: unrecognized argument {value} x"
    masked = crashes.mask_secrets(text, crashes.find_secrets({}, program, setup))
    assert (value not in masked) is is_secret, (program, setup, masked)


#: Words of a program or lines of `setup`, and the secret that they give: it has characters that end
#: a word of a shell, in words that no shell reads, or in quotes.
QUOTED = [
    (["--password=ab;VALUE&|"], [], "ab;VALUE&|"), (["--password=ab VALUE"], [], "ab VALUE"),
    (['--password=a"VALUE'], [], 'a"VALUE'), (["--pwd", "a;VALUE"], [], "a;VALUE"),
    (["MY_KEY=a\nVALUE"], [], "a VALUE"), (["bash", "-c", r"x --token a\;VALUE"], [], "a;VALUE"),
    ([], [r'export TOKEN="ab\"VALUE"'], 'ab"VALUE'), ([], [r"TOKEN=ab\ VALUE"], "ab VALUE"),
    ([], ["export TOKEN='ab'\"VALUE\""], "abVALUE"), ([], ["A_KEY=$'VALUE'  # it's"], "VALUE"),
    ([], ["echo 'it", "A_KEY=VALUE"], "VALUE"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "setup", "secret"), QUOTED)
def test_a_secret_with_characters_of_a_shell_is_masked(
    program: list[str], setup: list[str], secret: str, dice: random.Random
) -> None:
    value = "".join(dice.choices("abcdefgh0123456789", k=dice.randint(6, 30)))
    program, setup = ([text.replace("VALUE", value) for text in each] for each in (program, setup))
    text = f"error: {secret.replace('VALUE', value)} x"
    masked = crashes.mask_secrets(text, crashes.find_secrets({}, program, setup))
    assert value not in masked and masked.endswith(" x"), (program, setup, masked)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", ["x" * 300_000, "-" * 300_000, "# " + "y" * 300_000])
def test_a_long_word_of_setup_holds_nothing_up(text: str) -> None:
    """As an image or a key within a line."""
    assert crashes.find_secrets({}, [text], [text, "KEY=a secret"]) == {"a"}


_NO_FRAME = "Traceback (most recent call last):\nValueError: no frame\n"
_NO_WORDS = 'Traceback (most recent call last):\n  File "/project/a.py", line 1, in f\n    f()\n'


@pytest.mark.parametrize("output", [_NO_FRAME, _NO_WORDS, "Fatal Python error: Aborted\n"])
def test_a_traceback_without_frames_or_words_blames_no_line(output: str) -> None:
    assert crashes.find_last_traceback(output.splitlines(), FOLDER) is None


@pytest.mark.parametrize("name", ["observe.py", "/project/observe.py", "/other/observe.py"])
def test_a_users_file_with_the_name_of_the_observer_is_blamed(name: str) -> None:
    """It does not exist here, and so is no copy."""
    output = PLAIN.replace("/project/steps/loop.py", name)
    blamed = crashes.find_last_traceback(output.splitlines(), FOLDER)
    assert blamed is not None
    expected = "train.py:40" if name.startswith("/other") else "observe.py:12 in fit"
    assert str(blamed.place) == expected


_HANDLED = PLAIN.removesuffix("bye\n")
_ALONE = _HANDLED[_HANDLED.index("Traceback") :]


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (_HANDLED, "UnavailableError"), (PLAIN, None), ("", None), ("all well", None),
        (f"{_HANDLED}\n\n", "UnavailableError"), (f"{_HANDLED}  of a line\n", "UnavailableError"),
        # the last one counts, whatever came before
        (f"{PLAIN}{RANKED}", "RuntimeError"), (f"{RANKED}{PLAIN}", None),
        (f"{_HANDLED}{RANKED}", "RuntimeError"), (f"{RANKED}{_HANDLED}", "UnavailableError"),
        (CHAINED, "ValueError"), (SYNTAX, "SyntaxError"),
        (FATAL, "Segmentation fault"), (f"{FATAL}\ndone", None), (f"{PLAIN}{FATAL}",
                                                                 "Segmentation fault"),
        (f"Exception ignored in: <function f>\n{_ALONE}", None),
        (f"Exception ignored in\n<function f>\n{_ALONE}", None),
        (f"Exception in thread Thread-1 (f):\n{_ALONE}", None),
        (f"Exception ignored in: x\na\nb\n{_ALONE}", "UnavailableError"),
        (_NO_FRAME, None),
    ],
)  # fmt: skip
def test_an_exception_ended_the_program_if_nothing_follows_it(
    output: str, name: str | None
) -> None:
    blamed = crashes.find_ending_traceback(output.splitlines(), FOLDER)
    assert (None if blamed is None else blamed.name) == name
