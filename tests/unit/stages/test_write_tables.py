"""What the console says of runs that failed, were cancelled or are missing."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from tfscaling.record.run_states import RunState
from tfscaling.stages.write_tables import RUNS_LISTED, summary_lines
from tfscaling.study.config_types import AXES


def table_of(*states: tuple[str, str]) -> pd.DataFrame:
    """Runs with these states and reasons, on 1, 2, 3 and more nodes."""
    usual = {**dict.fromkeys(AXES, "x"), "repeat": 1}
    return pd.DataFrame(
        [
            {**usual, "nodes": number, "status": status, "reason": reason}
            for number, (status, reason) in enumerate(states, 1)
        ]
    )


def test_runs_that_were_stopped_or_are_missing_share_a_line(dice: random.Random) -> None:
    stopped, missing = dice.randint(2, 9), dice.randint(2, 9)
    lines = summary_lines(
        table_of(
            *[(RunState.FAILED, "cancelled: by its user")] * stopped,
            *[(RunState.MISSING, "not run yet")] * missing,
            (RunState.FAILED, "exit code 3"),
        )
    )
    assert lines[0].startswith("runs: ") and f"{missing} missing" in lines[0]
    assert len(lines) == 4 and lines[1].startswith("failed: ")
    assert lines[1].endswith(": exit code 3") and f"nodes={stopped + missing + 1}" in lines[1]
    assert lines[2:] == [
        f"{stopped} runs cancelled: by its user", f"{missing} runs missing: not run yet"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [(1, "1 more run, with its reason"), (2, "2 more runs, with their reasons")],
)
def test_failures_of_one_cause_beyond_the_first_ones_are_counted(more: int, said: str) -> None:
    lines = summary_lines(table_of(*[(RunState.FAILED, "exit code 3")] * (RUNS_LISTED + more)))
    assert len(lines) == RUNS_LISTED + 2
    assert all(line.endswith(": exit code 3") for line in lines[1:-1])
    assert lines[-1] == f"failed: {said} in runs.csv: exit code 3"
