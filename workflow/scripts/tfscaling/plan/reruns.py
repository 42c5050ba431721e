"""Outputs to regenerate although they exist: stale runs, data of changed code.

And records that count again without a new run: records of runs whose repetition failed.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfscaling.files import atomic
from tfscaling.record import attempts, prepared_data, run_record, run_states
from tfscaling.spec import user_code, variants
from tfscaling.spec.config import Config
from tfscaling.spec.manifest import PlannedRun
from tfscaling.spec.run_spec import RunSpec


@dataclass(frozen=True)
class Reruns:
    """Decides for the runs of a grid, by their folders, and the folder `results`.

    Records and code are read once, when they are first needed.
    """

    config: Config
    runs: Mapping[str, PlannedRun]
    results: Path

    @functools.cached_property
    def outdated(self) -> frozenset[str]:
        """Files to regenerate: prepared data of changed code and, by `rerun: stale`, records."""
        changed = self.runs_of_changed_data
        data = {f"datasets/{variants.data_of(self.runs[path].spec)}.npz" for path in changed}
        records = {f"runs/{path}/{run_record.RECORD}" for path in self._stale_runs}
        return frozenset(f"{self.results}/{file}" for file in data | records)

    def bring_back(self) -> None:
        """Put records that count again in their places.

        The runs that were to replace them failed or were cut off, and parameters, code and data
        match the record.
        """
        specs = [run.spec for run in self.runs.values()]
        for path in run_states.to_bring_back(specs, self.results / "runs"):
            record = self.results / "runs" / path / run_record.RECORD
            # the backup stays, as a job may be about to remove the file again
            atomic.link(attempts.backup_of(record), record)

    def restore_records(self) -> list[str]:
        """Restore records that cannot be read; return why the others cannot."""
        runs_dir = self.results / "runs"
        specs = [run.spec for run in self.runs.values()]
        broken = [*run_states.unreadable(specs, runs_dir)]
        return [why for spec, why in broken if not run_states.restore_record(spec, runs_dir)]

    def keep_earlier(self, to_do: Collection[str]) -> None:
        """Keep the records that jobs with these outputs replace, and no others.

        Records of extra repeats are kept: which of them are to do is known after other runs.
        """
        for path, run in self.runs.items():
            record = self.results / "runs" / path / run_record.RECORD
            if (run.is_conditional and to_do) or str(record) in to_do:
                if record.exists():  # else an earlier backup stays
                    atomic.link(record, attempts.backup_of(record))
            elif record.exists():
                attempts.backup_of(record).unlink(missing_ok=True)

    @functools.cached_property
    def runs_of_changed_data(self) -> frozenset[str]:
        """Folders of the runs to do whose prepared data is of older code of the user."""
        due = list(self._due_on_changed_data())
        to_do = self._stale_runs | run_states.to_make(due, self.results / "runs")
        return to_do & {spec.path for spec in due}

    @functools.cached_property
    def _stale_runs(self) -> frozenset[str]:
        """Folders of the stale runs to repeat, none unless `rerun: stale` asks for it."""
        if self.config.rerun != "stale":
            return frozenset()
        specs = [run.spec for run in self.runs.values()]
        return frozenset(run_states.stale(specs, self.results / "runs"))

    def _due_on_changed_data(self) -> Iterator[RunSpec]:
        """The planned runs, made or not, whose data is of older code; no extra repeats."""
        has_other_code = functools.cache(self._has_other_code)
        for run in self.runs.values():
            spec, data = run.spec, variants.data_of(run.spec)
            if data is None or spec.dataset is None or run.is_conditional:
                continue
            if has_other_code(data, spec.dataset) and self.config.is_selected(spec.point.platform):
                yield spec

    def _has_other_code(self, data: str, dataset: str) -> bool:
        code = user_code.of_names(dataset)
        file = self.results / "datasets" / f"{data}.npz"
        facts = prepared_data.facts(file) if code.functions else None
        return bool(facts and user_code.differences(facts.user_code, code.checksums()))
