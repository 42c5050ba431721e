"""Causes of crashes of programs and ranks, from an exception or the end of the output.

A traceback names the line of user code. Communication libraries end the process when an operation
fails in one of their threads: Python raises nothing, and faulthandler's dump, which has no reason,
comes after their message.
"""

from __future__ import annotations

import itertools
import re
import shlex
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tfscaling.record.attempts import Cause, UserLine

#: First line of a traceback.
_BEGIN = "Traceback (most recent call last)"
#: Beginning of faulthandler's dump; its frames are in the other order.
_FATAL = "Fatal Python error: "
#: A line of a traceback or dump that names a frame.
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+?))?(?:  \*)?$'
)
#: Beginnings of lines before tracebacks of errors after which Python itself ends with 0.
_IGNORED = (
    *("Exception ignored ", "Exception in thread ", "Error in atexit", "--- Logging error ---"),
    *("Error in sys.excepthook", "Exception in callback "),
)
#: Beginnings of lines that faulthandler writes after its frames.
_AFTER_FATAL = ("Thread 0x", "Current thread ", "Extension modules: ", "<")
#: Text that torch and other libraries put before each line.
_PREFIX = re.compile(r"^\[rank\d+\]: ?")
#: Names of folders with installed packages.
_INSTALLED = ("site-packages", "dist-packages")
#: The workflow's own files.
_OWN = Path(__file__).resolve().parents[3]
#: In the name of a file that TensorFlow generates from a function's code.
_GENERATED = "__autograph_generated_file"
#: A colour code of the terminal.
_COLOUR = re.compile(r"\x1b\[\d*m")
#: Text between Keras's guess about a layer and the layer's exception.
_INFERRED = "Error encountered:"
#: Text that TensorFlow and Keras add after an exception's message.
_APPENDIX = re.compile(r"\n+(?:Call arguments|Arguments) received by |\s*\[\[\{\{node |\s*\[Op:")
#: The file that users copy to observe a training, and a word by which it is recognised.
_OBSERVER, _IN_OBSERVER = "observe.py", "TFSCALING_EVENTS"
#: Names of an abort: by the signal, by faulthandler, by a shell that ran the program.
_ABORTS = ("killed by SIGABRT", "Aborted", "exit code 134")
#: Signs in the output that a child process aborted.
_ABORT_SIGNS = ("SIGABRT", "Fatal Python error: Aborted")
#: Messages about a lost connection of PyTorch's watchdog of NCCL, NCCL, PyTorch's sockets, Gloo,
#: UCX and JAX. Names of libraries alone do not count: an invalid access to a GPU's memory ends a
#: program in NCCL's watchdog, too.
_LOST_CONNECTION = re.compile(
    r"Watchdog caught collective operation timeout|collective timeout from"
    r"|watchdog got stuck for|Heartbeat monitor timed out"
    r"|nccl(?:Remote|System)Error|unhandled system error"
    r"|remote process exited or there was a network error"
    r"|c10::Dist(?:Network|Store)Error|gloo::(?:Io|Timeout)Exception"
    r"|connection (?:was )?(?:likely )?(?:closed|reset|refused|aborted|timed out)|socket closed"
    r"|broken pipe|timed out waiting \d+ ?ms for (?:recv|send)"
    r"|transport retry count exceeded|stopped sending heartbeats",
    re.IGNORECASE,
)
#: Lines with the reason of an abort: C++'s exception (two lines), a watchdog, a lost connection.
_REASONS = (
    *(re.compile(r"terminate called"), re.compile(r"what\(\):")),
    *(re.compile(r"watchdog", re.IGNORECASE), _LOST_CONNECTION),
)
#: Longest reason of an abort, in characters.
_REASON_LENGTH_MAX = 500
#: Names of variables whose values are secrets, and the shortest value that is replaced.
_SECRET = re.compile(r"key|token|secret|passw|_pwd|cred|auth(?!or)", re.IGNORECASE)
_SECRET_LENGTH_MIN = 6
#: Ends of names of options and variables in `program` and `setup` whose values are secrets: neither
#: `--tokenizer` nor `--max-tokens`.
_SECRET_OPTION = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|pwd|credentials?|auth)$", re.IGNORECASE
)
#: A complete word `NAME=VALUE` or `--name=VALUE`.
_ASSIGNMENT = re.compile(r"([\w-]+)=(.*)", re.DOTALL)
#: NAME=VALUE, or `--name VALUE`, in a word of `program` or a line of `setup`. A name is searched
#: from its first character only: otherwise a word of 100,000 characters would take minutes.
_GIVEN = re.compile(r"""(?<![\w-])(?:([\w-]+)=|(--?[\w-]+)\s+)("[^"]*"|'[^']*'|[^\s;&|"']+)""")
#: A word of a shell, with its quotes.
_SHELL_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+""")


class ProgramException(NamedTuple):
    """An exception that ended a program or rank, and the line of code that raised it.

    Attributes:
        name: Class of the exception.
        error: Class and message in one line.
        place: The line of code that raised it; of user code if possible.
    """

    name: str
    error: str
    place: UserLine


def find_last_traceback(lines: Sequence[str], folder: Path) -> ProgramException | None:
    """Return the exception of the last traceback in lines of output; None without a traceback.

    Its place is the innermost frame in a file below `folder`; else the innermost frame in another
    file that belongs to no installed package; else the innermost frame. The first two skip
    `observe.py`, because it only passes on exceptions from user data sets. Paths are relative to
    the folder if they are in it.

    Args:
        lines: The lines.
        folder: Folder with the user's project.
    """
    plain = [_PREFIX.sub("", line) for line in lines]
    begins = [n for n, line in enumerate(plain) if _BEGIN in line or line.startswith(_FATAL)]
    if not begins:
        return None
    block = plain[begins[-1] :]
    frames = [(n, frame) for n, line in enumerate(block) if (frame := _FRAME.search(line))]
    if block[0].startswith(_FATAL):
        # of the thread that got the signal
        begin = next((n for n, line in enumerate(block) if line.startswith("Current thread")), 0)
        within = itertools.takewhile(str.strip, block[begin + 1 :])
        error, inner_first = block[0], list(filter(None, map(_FRAME.search, within)))
    else:
        after = block[(frames[-1][0] if frames else 0) + 1 :]
        error = next((line for line in after if line and not line.startswith(" ")), "")
        inner_first = [frame for _, frame in reversed(frames)]
    if not inner_first or not error:
        return None
    name = error.removeprefix(_FATAL).partition(":")[0].rpartition(".")[2]
    place = _user_line(_find_user_frame(inner_first, folder) or inner_first[0], folder)
    return ProgramException(name.strip(), error[:_REASON_LENGTH_MAX], place)


def find_ending_traceback(lines: Sequence[str], folder: Path) -> ProgramException | None:
    """Return the exception that ended the output; None if the program continued after it.

    Exceptions in destructors, threads and exit functions do not count: Python prints their
    tracebacks, but the program does not fail.

    Args:
        lines: Lines of the output, to its end.
        folder: Folder with the user's project.
    """
    plain = [_PREFIX.sub("", line).rstrip() for line in lines]
    while plain and not plain[-1]:
        plain.pop()
    begins = [n for n, line in enumerate(plain) if _BEGIN in line or line.startswith(_FATAL)]
    if not begins:
        return None
    # the words may follow others without a line's end, and have the object in the next line
    before = " ".join(plain[max(0, begins[-1] - 2) : begins[-1]])
    block = plain[begins[-1] :]
    frames = [n for n, line in enumerate(block) if _FRAME.search(line)]
    after = [line for line in block[frames[-1] + 1 if frames else 1 :] if line[:1].strip()]
    if block[0].startswith(_FATAL):
        is_end = all(line.startswith(_AFTER_FATAL) for line in after)
    else:
        is_end = len(after) == 1 and not any(words in before for words in _IGNORED)
    return find_last_traceback(plain, folder) if is_end else None


def locate_exception(error: BaseException, folder: Path) -> ProgramException | None:
    """Return an exception with the line of user code that raised it; None without such a line.

    TensorFlow and Keras list the frames of a traced function in the exception's message. These
    frames are the innermost ones.

    Args:
        error: The exception.
        folder: Folder with the user's project.
    """
    text = "".join(traceback.format_exception(error))
    blocks = text.split(_BEGIN)  # of chained tracebacks, the last is the one raised
    for block in reversed(blocks[1:]):
        frames = list(filter(None, map(_FRAME.search, block.splitlines())))
        if found := _find_user_frame(list(reversed(frames)), folder):
            name = type(error).__name__
            words = _strip_message(str(error)).removeprefix(f"{name}: ")
            return ProgramException(
                name, f"{name}: {words}".removesuffix(": "), _user_line(found, folder)
            )
    return None


def describe_exception(error: BaseException, folder: Path) -> str:
    """Return class and message of an exception in one line, after the line of user code, if any.

    Args:
        error: The exception.
        folder: Folder with the user's project.
    """
    blamed = locate_exception(error, folder)
    if blamed is None:
        return f"{type(error).__name__}: {error}"
    return f"{blamed.place}: {blamed.error}"


def _strip_message(message: str) -> str:
    """Return an exception's message in one line, without frames and arguments of libraries."""
    plain = _APPENDIX.split(_COLOUR.sub("", message).strip())[0]
    plain = plain.rpartition(_INFERRED)[2]
    if any(map(_FRAME.search, plain.splitlines())):
        plain = plain.strip().split("\n\n")[-1]  # the words stand after the last frame
    return " ".join(plain.split())[:_REASON_LENGTH_MAX]


def _find_user_frame(inner_first: Sequence[re.Match[str]], folder: Path) -> re.Match[str] | None:
    """Return the innermost frame in user code, preferably in `folder`; None without one.

    Args:
        inner_first: Matches of `_FRAME`, the innermost frame first.
        folder: Folder with the user's project.
    """
    library = sysconfig.get_path("stdlib")
    own = [
        frame
        for frame in inner_first
        if not any(f"/{part}/" in frame["file"] for part in _INSTALLED)
        and not frame["file"].startswith(("<", f"{library}/"))
        and _GENERATED not in frame["file"]
        and not _is_observer(_frame_path(frame, folder))
        and not _frame_path(frame, folder).is_relative_to(_OWN)
    ]
    below = [frame for frame in own if _frame_path(frame, folder).is_relative_to(folder)]
    return next(iter(below or own), None)


def _is_observer(file: Path) -> bool:
    """Return whether a file is `observe.py` or a copy of it, which only passes exceptions on."""
    try:
        return file.name == _OBSERVER and _IN_OBSERVER in file.read_text(errors="replace")
    except OSError:
        return False


def _frame_path(frame: re.Match[str], folder: Path) -> Path:
    """Return the path of a frame's file; a relative one is in `folder`."""
    return folder / frame["file"]  # a path that is absolute replaces the folder


def _user_line(frame: re.Match[str], folder: Path) -> UserLine:
    """Return file, line and function of a frame; the file is relative to `folder` if inside."""
    path = _frame_path(frame, folder)
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    function = None if frame["function"] == "<module>" else frame["function"]
    return UserLine(file=str(shown), line=int(frame["line"]), function=function)


def is_abort(error: str | None) -> bool:
    """Return whether the name of an error, such as `killed by SIGABRT`, means an abort."""
    return error in _ABORTS


def has_lost_connection(lines: Iterable[str]) -> bool:
    """Return whether a line reports a lost connection to another rank."""
    return any(_LOST_CONNECTION.search(line) for line in lines)


def find_abort_reason(how_ended: str, lines: Sequence[str]) -> str:
    """Return from a program's output why it or its child process aborted.

    The result is "" if neither aborted, or if the output has no reason.

    Args:
        how_ended: How the program itself ended, such as `killed by SIGABRT`.
        lines: The last lines of its output.
    """
    if not is_abort(how_ended) and not any(sign in line for line in lines for sign in _ABORT_SIGNS):
        return ""
    terminate, what, watchdog, lost = (
        next((line.strip() for line in reversed(lines) if kind.search(line)), "")
        for kind in _REASONS
    )
    found = f"{terminate} {what}".strip() if what else watchdog or lost or terminate
    return found[:_REASON_LENGTH_MAX]


def find_secrets(
    environ: Mapping[str, str], program: Sequence[str] = (), setup: Iterable[str] = ()
) -> set[str]:
    """Return the passwords, keys and tokens of a run, by the names of variables and options.

    Args:
        environ: Environment of the rank. The value of a name such as API_TOKEN is a secret.
        program: Words of the program. The value of an option such as `--password` is a secret.
        setup: Lines of `setup`. The value of a variable that they set may be a secret.
    """
    found = {value for name, value in environ.items() if _SECRET.search(name)}
    pairs = [*itertools.pairwise(program), *_find_assignments(program)]
    for text in (*program, *setup):
        for variable, option, value in _GIVEN.findall(text):
            pairs.append((variable or option, value.strip("\"'")))
        pairs += _find_shell_values(text)
    found |= {value for name, value in pairs if _SECRET_OPTION.search(name)}
    # logs and messages have the lines of a key one by one
    return found | {line.strip() for value in found for line in value.splitlines()}


def _find_assignments(words: Iterable[str]) -> list[tuple[str, str]]:
    """Return (name, value) of each word that is an assignment, such as `--api-key=value`."""
    return [(found[1], found[2]) for word in words if (found := _ASSIGNMENT.fullmatch(word))]


def _find_shell_values(text: str) -> list[tuple[str, str]]:
    """Return (name, value) of each secret in a shell line, in an assignment or after an option.

    Values are returned without quotes. A shell operator directly after a value, such as `;`, stays
    in it.
    """
    words = _SHELL_WORD.findall(text)
    pairs = [word.partition("=")[::2] for word in words if "=" in word]
    pairs += [pair for pair in itertools.pairwise(words) if pair[0].startswith("-")]
    return [(name, _unquote(value)) for name, value in pairs if _SECRET_OPTION.search(name)]


def _unquote(word: str) -> str:
    """Return a word as a shell reads it, without quotes; unchanged if it is not complete."""
    try:
        return "".join(shlex.split(word.replace("$'", "'")))
    except ValueError:
        return word


def mask_secrets(text: str, secrets: Set[str]) -> str:
    """Return a text with `***` in place of secrets, unless they are very short.

    Messages of exceptions may contain them, and the page shows why a run failed. A text that was
    cut may end within a secret: its beginning is replaced, too.

    Args:
        text: The text.
        secrets: The secrets.
    """
    for value in sorted(secrets, key=len, reverse=True):  # one may contain another
        if len(value) >= _SECRET_LENGTH_MIN:
            text = text.replace(value, "***")
            longest = min(len(value), len(text))
            begins = (value[:end] for end in range(longest, _SECRET_LENGTH_MIN - 1, -1))
            if begin := next((begin for begin in begins if text.endswith(begin)), ""):
                text = text.removesuffix(begin) + "***"
    return text


def mask_secrets_of_cause(cause: Cause, secrets: Set[str]) -> Cause:
    """Return the cause of a failure with `***` in place of secrets.

    Args:
        cause: The cause, with the last lines of a rank's log.
        secrets: The secrets.
    """
    lines = tuple(mask_secrets(line, secrets) for line in cause.last_lines)
    return replace(cause, message=mask_secrets(cause.message, secrets), last_lines=lines)
