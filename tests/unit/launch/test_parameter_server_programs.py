"""Programs whose first rank serves parameters to the others: they end, or the message says why."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from builders import REPOSITORY
from program_runs import cause_of, record_of

JOINS = """
import os, sys, threading
if int(os.environ["RANK"]) in {servers}:
    threading.Event().wait()
print("trained")
"""


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_server_that_only_joins_is_named_with_the_reason(tmp_path: Path, nodes: int) -> None:
    server = random.randrange(nodes)
    code = JOINS.format(servers={server})
    cause = cause_of(tmp_path, code, nodes=nodes, stall_timeout_s=6)
    assert (cause["kind"], cause["rank"]) == ("stalled", server)
    assert f"rank {server} did not end" in cause["message"]
    assert "all other ranks have ended well" in cause["message"]
    assert f"rank {server} hung at user.py:4" in cause["message"]


def test_where_no_rank_has_ended_none_is_said_to_have(tmp_path: Path) -> None:
    cause = cause_of(tmp_path, JOINS.format(servers={0, 1}), nodes=2, stall_timeout_s=6)
    assert cause["kind"] == "stalled" and "ended well" not in cause["message"]


@pytest.mark.full
def test_the_documented_program_with_a_parameter_server_ends(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/programs.md").read_text()
    (code,) = re.findall(r"```python\n(import json.*?MonitoredTrainingSession.*?)```", text, re.S)
    record = record_of(tmp_path, code, nodes=3, stall_timeout_s=60)
    assert record.is_valid
    assert "all workers are done" in (tmp_path / "run/attempt=1/rank-0.log").read_text()
