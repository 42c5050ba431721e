"""The check of a run's nodes, a job step of its own before the ranks of the run."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tfscaling.launch import rank_files
from tfscaling.launch.attempt import Attempt, Limits
from tfscaling.record import rank_report
from tfscaling.record.attempts import Cause
from tfscaling.record.rank_report import NodeCheck
from tfscaling.spec.run_spec import RunSpec

#: In an attempt's folder: that of the check.
FOLDER = "node_check"
#: Ranks wait for one another for this share of the time after which their launcher ends them: so
#: the one that misses another says which.
_MEET_SHARE = 0.9


def run(attempt: Attempt, script: Path, spec: RunSpec, limits: Limits) -> NodeCheck | Cause | None:
    """What the check found; None if none is asked for, or there is nothing to compare.

    The cause if it failed, or if a slow node bars the run.
    """
    asked = spec.measured.node_check
    if asked is None or spec.geometry.nodes < 2:
        return None
    begun_s = time.monotonic()
    check = replace(attempt, part=FOLDER)
    check.scratch.mkdir()
    words = ["--meet-s", str(_MEET_SHARE * limits.stall_timeout_s)]
    if (cause := check.run_ranks(script, words, spec, limits)) is not None:
        return cause
    rates = [report.rate for report in rank_files.check_reports(check.scratch)]
    factor = spec.measured.node_check_factor
    found = rank_report.judge_nodes(rates, factor, time.monotonic() - begun_s)
    if found.sentence:
        print(found.sentence, flush=True)
    if asked == "bar" and found.slow_hosts:
        host = found.slow_hosts[0]
        rank = next(rate.rank for rate in rates if rate.host == host)
        return Cause(kind="slow_node", message=found.sentence, rank=rank, host=host)
    return found
