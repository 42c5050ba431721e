"""On what the runs were made: hosts, machines, versions, and where they differ."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from datetime import datetime

import pandas as pd
from msgspec import UNSET

from tfscaling.record.metrics import NAN
from tfscaling.record.rank_report import COMPARED, PROGRAM_PACKAGES, HostFacts, Rank
from tfscaling.record.run_record import RunRecord
from tfscaling.tables.display import TextTable, rounded
from tfscaling.tables.rows import RunRow

#: What should be the same in all runs of a platform.
ALIKE = (*COMPARED, "python", *PROGRAM_PACKAGES, "git_commit", "slurm_settings")
SEPARATOR = "; "
#: A host's facts but for those that are of one host in any case.
_comparable = operator.attrgetter(
    *(name for name in HostFacts.__struct_fields__ if name not in ("machine", "gpu_uuids"))
)
UNCHECKED = "not checked"


def add(row: RunRow, record: RunRecord) -> None:
    """Set the environment of a run from its record, except `shared_with`, which needs all runs."""
    environment, ranks = record.environment, record.ranks
    machines = dict.fromkeys(rank.host_facts.machine for rank in ranks)
    facts = _differing(ranks)
    offsets_s = [abs(o) for r in ranks if (o := r.clock.offset_s) is not UNSET]
    uncertainties_s = [u for r in ranks if (u := r.clock.uncertainty_s) is not UNSET]
    for name in (*COMPARED, "python"):
        setattr(row, name, _distinct([getattr(fact, name) for fact in facts]))
    row.packages = {
        name: _distinct([fact.packages.get(name) for fact in facts]) for name in PROGRAM_PACKAGES
    }
    speeds = [fact.cpu_mhz for fact in facts if fact.cpu_mhz]
    cpus = [fact.cpus_online for fact in facts if fact.cpus_online]
    row.hosts = " ".join(dict.fromkeys(rank.host for rank in ranks))
    # a rank that does not know its machine may share one: nothing is claimed of it
    row.machines = None if None in machines else " ".join(filter(None, machines))
    row.slowest_rank = record.metrics.slowest_rank
    row.slowest_host = record.metrics.slowest_host
    row.clock_offset_max_s = max(offsets_s, default=NAN)
    row.clock_uncertainty_max_s = max(uncertainties_s, default=NAN)
    row.cpu_mhz = min(speeds, default=NAN)
    row.cpus_online = min(cpus, default=None)
    row.git_commit = environment.git_commit
    row.slurm_settings = _text(environment.slurm_settings)
    row.started = environment.started
    row.slurm_job_id = environment.slurm_job.id if environment.slurm_job else None
    row.dataset = environment.dataset.name if environment.dataset else None
    row.dataset_sha256 = environment.dataset.sha256 if environment.dataset else None
    row.unchecked = SEPARATOR.join(environment.unchecked) or None


def _differing(ranks: Sequence[Rank]) -> list[HostFacts]:
    """The facts of the first rank, and of each that differs in more than what is of one host."""
    first, *others = (rank.host_facts for rank in ranks)
    usual = _comparable(first)
    return [first, *(facts for facts in others if _comparable(facts) != usual)]


def _text(value: object) -> str | None:
    """A text as it is, other values as JSON; None for none."""
    if value is None or isinstance(value, str) or value in ((), {}):
        return str(value) if value else None
    return json.dumps(value, sort_keys=True)


def _distinct(values: Sequence[object]) -> str | None:
    return SEPARATOR.join(dict.fromkeys(filter(None, map(_text, values)))) or None


def shared_with(rows: Sequence[RunRow]) -> list[int | None]:
    """For each run how many others ran at the same time on one of its machines.

    Such runs took each other's time: on a virtual cluster all nodes are one machine. A row needs
    `machines`, `started` and `wall_time_s`; None where a run has none.
    """
    spans: dict[str, list[tuple[float, float, int]]] = {}
    found: list[int | None] = [None] * len(rows)
    for number, row in enumerate(rows):
        if row.machines is not None and row.started is not None:
            start_s = datetime.fromisoformat(row.started).timestamp()
            span = (start_s, start_s + row.wall_time_s, number)
            found[number] = 0
            for machine in row.machines.split():
                spans.setdefault(machine, []).append(span)
    others: list[set[int]] = [set() for _ in rows]
    for machine_spans in spans.values():
        if len(machine_spans) == 1:  # as nearly always
            continue
        running: list[tuple[float, int]] = []
        for start_s, end_s, number in sorted(machine_spans):
            running = [other for other in running if other[0] > start_s]
            for _, other in running:
                others[number].add(other)
                others[other].add(number)
            running.append((end_s, number))
    return [None if own is None else len(others[number]) for number, own in enumerate(found)]


def differences(runs: pd.DataFrame) -> pd.DataFrame:
    """What differs between the valid runs of a platform, or could not be compared with the request.

    Columns platform, fact, values, runs.
    """
    rows = []
    for platform, group in runs[runs["status"] == "ok"].groupby("platform", sort=False):
        for fact in ALIKE:
            values = group[fact].dropna().astype(str)
            if values.nunique() > 1 or values.str.contains(SEPARATOR, regex=False).any():
                counts = values.value_counts()
                text = " | ".join(f"{value} ({count} runs)" for value, count in counts.items())
                rows.append(
                    {"platform": platform, "fact": fact, "values": text, "runs": len(values)}
                )
        for reason, count in group["unchecked"].value_counts().items():
            rows.append(
                {"platform": platform, "fact": UNCHECKED, "values": str(reason), "runs": count}
            )
    return pd.DataFrame(rows, columns=["platform", "fact", "values", "runs"])


def as_text(found: pd.DataFrame) -> TextTable:
    """The differences as people read them."""
    differing = (found["fact"] != UNCHECKED).any()
    notes = [
        "These runs were not all made in one environment: their differences may be of it."
        if differing
        else "All runs of a platform were made in one environment."
    ]
    if (found["fact"] == UNCHECKED).any():
        notes.append(f"What is {UNCHECKED} may not be what the platform says.")
    rows = ([*map(str, row[:-1]), rounded(row[-1], 0)] for row in found.itertuples(index=False))
    return TextTable.of(
        "Environment differences", ["platform", "fact", "values", "runs"], rows, notes
    )
