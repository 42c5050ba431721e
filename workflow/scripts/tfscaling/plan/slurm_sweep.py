"""What the executor plugin slurm-sweep asks about the runs and benchmarks of a study."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfscaling.plan import lasting_failures
from tfscaling.record import attempts, run_record, run_states
from tfscaling.record.attempts import Cause, FailureReport, Kind
from tfscaling.spec import run_spec
from tfscaling.spec.run_spec import JobSpec, RunSpec

_KINDS: dict[str, Kind] = {
    "BOOT_FAIL": "node_failed",
    "CANCELLED": "cancelled",
    "DEADLINE": "time_limit",
    "NODE_FAIL": "node_failed",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "TIMEOUT": "time_limit",
}
#: Causes that lie in a node.
_UNFIT: frozenset[Kind] = frozenset({"slow_node", "missing_gpus"})
#: Clocks of hosts and file servers differ by less.
_CLOCKS_S = 60.0


@dataclass(frozen=True)
class SlurmSweep:
    """Records, failures and attempts of a study: the plugin's protocol `Sweep`.

    `specs` are runs and benchmarks by the files of their records.
    """

    specs: Mapping[str, JobSpec]
    runs_dir: Path

    def is_finished(self, output: Path, number: str) -> bool:
        """Whether the record was made by Slurm's job of this number.

        Slurm may report a failure later: a lost node or a time limit while the job ended.
        """
        try:
            record = run_record.read(output) if output.name == run_record.RECORD else None
        except run_record.RecordError:
            return False
        job = None if record is None else record.environment.slurm_job
        return job is not None and job.id == number

    def failed(self, output: Path, number: str, state: str) -> None:
        """Write a failure report with Slurm's state, unless the launcher has left its own."""
        spec, folder = self.specs.get(str(output)), output.parent
        last = _last_attempt(folder)
        if spec is None or ((last or folder) / run_record.FAILURE).exists():
            return
        text = f"Slurm's job {number} ended as {state}, and its launcher left no report"
        failure = FailureReport(
            axes=spec.axes,
            attempt=max(attempts.numbers(folder), default=1),
            cause=Cause(kind=_KINDS.get(state, "launcher_failed"), message=text),
            parameters_hash=spec.parameters_hash,
        )
        with contextlib.suppress(OSError):  # a full disk, which the console has reported
            folder.mkdir(parents=True, exist_ok=True)
            for place in filter(None, (last, folder)):
                attempts.write_failure(place, failure)

    def fails_again(self, output: Path) -> bool:
        return lasting_failures.is_lasting(output)

    def unfit_nodes(self, output: Path) -> list[str]:
        """The hosts that were too slow or lacked GPUs in an attempt at this run."""
        hosts: set[str] = set()
        folder = output.parent
        for number in attempts.numbers(folder) if output.name == run_record.RECORD else ():
            try:
                failure = attempts.read_failure(attempts.path(folder, number))
            except run_record.RecordError:
                continue
            if failure is not None and failure.cause.kind in _UNFIT and failure.cause.host:
                hosts.add(failure.cause.host)
        return sorted(hosts)

    def has_other_settings(self, output: Path, since_s: float | None = None) -> bool:
        planned, last = self.specs.get(str(output)), _last_attempt(output.parent)
        spec = last / attempts.SPEC if last else None
        if planned is None or spec is None or not spec.exists():
            return False
        if since_s is not None and spec.stat().st_mtime <= since_s - _CLOCKS_S:
            return False
        return spec.read_text() != run_spec.encode(planned)

    def accept(self, output: Path) -> None:
        """Drop the record that the output replaces."""
        attempts.drop_backup(output)

    def note(self, words: Mapping[Path, str]) -> None:
        """Write the notes for the tables."""
        runs = [spec for spec in self.specs.values() if isinstance(spec, RunSpec)]
        named = {file: spec.path for file, spec in self.specs.items() if isinstance(spec, RunSpec)}
        found = {named[str(file)]: said for file, said in words.items() if str(file) in named}
        with contextlib.suppress(OSError):  # a full disk must not end the sweep
            run_states.write_queue_notes(self.runs_dir, runs, found)


def _last_attempt(folder: Path) -> Path | None:
    begun = attempts.numbers(folder)
    return attempts.path(folder, begun[-1]) if begun else None
