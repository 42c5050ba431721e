"""The environment of runs: versions, hosts and machines, and what differs between runs.

`set_environment` sets the columns of a run's row. `varying_facts` finds versions that differ within
a platform, `count_overlapping_runs` runs that shared a machine.
"""

from __future__ import annotations

import json
import operator
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import pandas as pd
from msgspec import UNSET

from tfscaling.record.metrics import NAN
from tfscaling.record.rank_report import COMPARED, PROGRAM_PACKAGES, HostFacts, Rank
from tfscaling.record.run_record import RunRecord
from tfscaling.tables.row_types import SEPARATOR, RunRow

#: Facts of the environment that all runs of a platform should share.
ENVIRONMENT_FACTS = (*COMPARED, "python", *PROGRAM_PACKAGES, "git_commit", "slurm_settings")
#: Returns the facts of a host, without facts that differ between any two hosts.
_comparable_facts = operator.attrgetter(
    *(name for name in HostFacts.__struct_fields__ if name not in ("machine", "gpu_uuids"))
)


def set_environment(row: RunRow, record: RunRecord) -> None:
    """Set the row's columns on hosts, software, clocks and data from its record.

    The exception is `shared_with`, which depends on other runs.
    """
    environment, ranks = record.environment, record.ranks
    machines = dict.fromkeys(rank.host_facts.machine for rank in ranks)
    facts = _distinct_hosts(ranks)
    offsets_s = [abs(o) for r in ranks if (o := r.clock.offset_s) is not UNSET]
    uncertainties_s = [u for r in ranks if (u := r.clock.uncertainty_s) is not UNSET]
    for name in (*COMPARED, "python"):
        setattr(row, name, _join_distinct([getattr(fact, name) for fact in facts]))
    row.packages = {
        name: _join_distinct([fact.packages.get(name) for fact in facts])
        for name in PROGRAM_PACKAGES
    }
    row.hosts = " ".join(dict.fromkeys(rank.host for rank in ranks))
    # a rank without a known machine may share one: nothing is claimed about it
    row.machines = None if None in machines else " ".join(filter(None, machines))
    row.slowest_rank = record.metrics.slowest_rank
    row.slowest_host = record.metrics.slowest_host
    row.clock_offset_max_s = max(offsets_s, default=NAN)
    row.clock_uncertainty_max_s = max(uncertainties_s, default=NAN)
    row.cpu_mhz = min(filter(None, (fact.cpu_mhz for fact in facts)), default=NAN)
    row.cpus_online = min(filter(None, (fact.cpus_online for fact in facts)), default=None)
    row.git_commit = environment.git_commit
    row.slurm_settings = _fact_text(environment.slurm_settings)
    row.started = environment.started
    row.slurm_job_id = environment.slurm_job.id if environment.slurm_job else None
    if data := environment.dataset:
        row.dataset, row.dataset_sha256 = data.name, data.sha256
    row.unchecked = SEPARATOR.join(environment.unchecked) or None


def _distinct_hosts(ranks: Sequence[Rank]) -> list[HostFacts]:
    """Return the facts of the first rank's host, and of each rank whose host differs from it."""
    first, *others = (rank.host_facts for rank in ranks)
    usual = _comparable_facts(first)
    return [first, *(facts for facts in others if _comparable_facts(facts) != usual)]


def _fact_text(value: object) -> str | None:
    """Return a fact as the text of a cell: JSON unless it is a text; None for None."""
    if value is None or isinstance(value, str) or value in ((), {}):
        return str(value) if value else None
    return json.dumps(value, sort_keys=True)


def _join_distinct(values: Sequence[object]) -> str | None:
    """Return distinct facts as one text, separated by SEPARATOR; None without a fact."""
    return SEPARATOR.join(dict.fromkeys(filter(None, map(_fact_text, values)))) or None


def count_overlapping_runs(rows: Sequence[RunRow]) -> list[int | None]:
    """Return for each run how many others ran at the same time on one of its machines.

    On a virtual cluster all nodes are one machine. The result is None for a row without `machines`
    or `started`.
    """
    spans: dict[str, list[tuple[float, float, int]]] = {}
    found: list[int | None] = [None] * len(rows)
    for place, row in enumerate(rows):
        if row.machines is not None and row.started is not None:
            start_s = datetime.fromisoformat(row.started).timestamp()
            span = (start_s, start_s + row.wall_time_s, place)
            found[place] = 0
            for machine in row.machines.split():
                spans.setdefault(machine, []).append(span)
    others = defaultdict[int, set[int]](set)
    for machine_spans in spans.values():
        if len(machine_spans) == 1:  # as nearly always
            continue
        running: list[tuple[float, int]] = []
        for start_s, end_s, place in sorted(machine_spans):
            running = [other for other in running if other[0] > start_s]
            for _, other in running:
                others[place].add(other)
                others[other].add(place)
            running.append((end_s, place))
    return [None if own is None else len(others[place]) for place, own in enumerate(found)]


def varying_facts(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Return fact → platforms on which it varies between valid runs, or between ranks of a run."""
    found: dict[str, list[str]] = {}
    for platform, group in runs[runs["status"] == "ok"].groupby("platform", sort=False):
        for fact in ENVIRONMENT_FACTS:
            values = group[fact].dropna().astype(str)
            if values.nunique() > 1 or values.str.contains(SEPARATOR, regex=False).any():
                found.setdefault(fact, []).append(str(platform))
    return found
