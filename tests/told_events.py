"""Events of a run's first rank, as it writes them while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def told(folder: Path, *events: dict[str, Any], attempt: int = 1, name: str = "events") -> None:
    """Append events of the first rank."""
    scratch = folder / f"attempt={attempt}"
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / f"rank-0.{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def event(name: str, time_s: float, **details: Any) -> dict[str, Any]:
    return {"event": name, "time_s": time_s, **details}


START = [event("start", 100.0), event("imported", 104.0), event("rendezvous", 105.0)]
