"""How a user's program is observed from inside: what is added to its environment.

The files are in workflow/observe; what they write is read by `records.observed_events`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

#: Ways in which a program itself writes events.
EventsFrom = Literal["events", "fit"]
#: The file to which a rank's program writes its events.
VARIABLE = "TFSCALING_EVENTS"
#: What Python runs first where PYTHONPATH names this folder: it observes `Model.fit`.
SITE = Path(__file__).resolve().parents[3] / "observe" / "site"
#: Options of Python by which it takes nothing from the environment.
_ISOLATED = {"E", "I", "S"}


def events_path(folder: Path, rank: int) -> Path:
    """The events of a rank's program, beside those of the rank itself."""
    return folder / f"rank-{rank}.program.jsonl"


def variables(
    observe: EventsFrom | None, events: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """What a program's environment gets besides `environ`; nothing if it is not observed so."""
    if observe is None:
        return {}
    found = {VARIABLE: str(events)}
    if observe == "fit":
        paths = [str(SITE), *filter(None, [environ.get("PYTHONPATH")])]
        found["PYTHONPATH"] = os.pathsep.join(paths)
    return found


def refusal(observe: EventsFrom | None, words: Sequence[str]) -> str | None:
    """Why a command cannot be observed so, or None.

    The command is not changed, and may be any: Python finds the observer of `fit` by PYTHONPATH,
    also where a shell script or another launcher starts it.
    """
    if observe != "fit" or not Path(words[0]).name.startswith("python"):
        return None
    for word in words[1:]:
        if not word.startswith("-") or word.startswith("--") or word[1:2] in ("c", "m"):
            return None
        if found := _ISOLATED & set(word[1:]):
            return (
                f"Python's option -{min(found)} switches off `observe: fit`, which Python finds by "
                "PYTHONPATH; expected a command without it, or `observe: events`"
            )
    return None
