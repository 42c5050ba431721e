"""Ranks as forks of one process, which has loaded what all of them need.

Loading TensorFlow takes seconds of a core: on few cores, most of the start of many ranks. A process
that has loaded it can be forked until its first operation starts threads; so the process only
loads. Ranks that use GPUs are not forked: a loaded driver cannot be. `multiprocessing`'s forkserver
is not used: its `start` blocks while it loads, and its ranks outlive a launcher that is killed.

The process and its ranks are one process group, which gets the launcher's signals. Two files in the
attempt's folder connect them with the launcher: the ranks to fork, and their exit codes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tfscaling.launch import launchers
from tfscaling.launch.launchers import Command, make_parent_death_hook

#: Option of a rank's program, with the file of ranks, that makes it load and fork ranks instead of
#: being a rank itself.
FLAG = "--forks-ranks"
#: In the attempt's folder: the file that lists each rank's log and own variables; the file with a
#: line (rank, exit code) for each rank that has ended.
_RANKS, _EXITS = "forks.json", "forks.exits"
#: Signals that end a launch; the forking process leaves them to its ranks.
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start_forking_process(commands: Sequence[Command], folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that loads TensorFlow once and forks the ranks of `commands`.

    Args:
        commands: One command for each rank; all have the same `argv`.
        folder: The attempt's folder, which gets the list of ranks.

    Returns:
        The process, which ends after all ranks have ended.
    """
    shared = set.intersection(*(set(command.env.items()) for command in commands))
    orders = [
        {"rank": c.rank, "env": dict(c.env.items() - shared), "log": str(c.log)} for c in commands
    ]
    (folder / _RANKS).write_text(json.dumps(orders))
    first = commands[0]
    argv = (*first.argv, FLAG, str(folder / _RANKS))
    return launchers.start_process(Command(argv, dict(shared), first.log, first.rank))


def read_exit_codes(folder: Path) -> dict[int, int]:
    """Return rank → exit code of the forked ranks that have ended; negative for a signal."""
    try:
        lines = (folder / _EXITS).read_text().splitlines()
    except OSError:  # no rank has ended, or the file system is away for a while
        return {}
    return {int(rank): int(code) for rank, code in map(str.split, lines)}


def fork_all(
    ranks_file: Path, load: Callable[[], object] | None, main: Callable[[], object]
) -> NoReturn:
    """Run the forking process: load, fork each rank, and write the exit codes of the ranks.

    The process exits after the last rank has ended.

    Args:
        ranks_file: The file, written by `start_forking_process`, that lists rank, variables and log
            of each rank.
        load: Called once before the forks to load what all ranks need; None: nothing is loaded. If
            it fails, each rank loads by itself and reports the error.
        main: The program of a rank.
    """
    # a warning that comes before a rank can take it ends nothing
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if load is not None:
        with contextlib.suppress(Exception):
            load()
    # from here on signals end the ranks, not the process that reports how they ended
    for asking in _END_SIGNALS:
        signal.signal(asking, signal.SIG_IGN)
    running: dict[int, int] = {}
    for order in json.loads(ranks_file.read_text()):
        prepare = make_parent_death_hook(signal.SIGKILL)
        pid = os.fork()
        if pid == 0:
            prepare()
            _run_forked_child(main, order["env"], order["log"])
        running[pid] = order["rank"]
    with ranks_file.with_name(_EXITS).open("w", buffering=1) as file:
        while running:
            pid, status = os.wait()
            if pid in running:
                file.write(f"{running.pop(pid)} {os.waitstatus_to_exitcode(status)}\n")
    os._exit(0)


def _run_forked_child(
    main: Callable[[], object], environment: Mapping[str, str], log: str
) -> NoReturn:
    """Run `main` in a forked child, and exit with the status that a separate process would have.

    Before that, signals get their default handlers again.

    Args:
        main: The program of a rank.
        environment: The rank's own variables, which are added to the environment.
        log: File to which output and errors are redirected.
    """
    code = 1
    try:
        for asking in _END_SIGNALS:
            signal.signal(asking, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for target in (1, 2):
            os.dup2(output, target)
        os.environ.update(environment)
        main()
        code = 0
    except SystemExit as error:  # as Python's own end
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
