"""Whether a process was ended for want of memory, which its exit alone does not tell."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from tfscaling.record.attempts import Cause

#: Slurm's words, of a step whose memory is limited by cgroups or watched.
_SLURMS = re.compile(r"out of memory|oom.kill|exceeded (?:job |step )?memory limit", re.IGNORECASE)


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """How many processes of this machine its kernel has ended for want of memory so far."""
    try:
        found = re.search(r"^oom_kill (\d+)$", vmstat.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def named(cause: Cause, kills_before: int, slurms_words: Iterable[str] = ()) -> Cause:
    """The cause of a dead rank or program, by name if it was ended for want of memory.

    `kills_before` is what `oom_kills` gave when the ranks were started, `slurms_words` are lines
    that Slurm has written of them.
    """
    killed = signal.SIGKILL.name in (cause.error or "")  # of a program
    if cause.kind != "rank_died" and not (cause.kind == "program_failed" and killed):
        return cause
    for words in (cause.message, *slurms_words):
        if _SLURMS.search(words):
            message = cause.message if words == cause.message else f"{cause.message}: {words}"
            return replace(cause, kind="out_of_memory", message=message)
    if (killed or cause.exit_code == -signal.SIGKILL) and oom_kills() > kills_before:
        message = f"{cause.message}: the kernel of this machine had no memory left"
        return replace(cause, kind="out_of_memory", message=message)
    return cause
