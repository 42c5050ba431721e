"""Outputs to regenerate although they exist: stale runs and benchmarks, data of changed code.

And records that count again without a new run: records of runs whose repetition failed.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfscaling.record import attempts, prepared_data, run_record, run_states
from tfscaling.spec import user_code, variants
from tfscaling.spec.config import Config
from tfscaling.spec.manifest import PlannedRun
from tfscaling.spec.run_spec import BenchmarkSpec, RunSpec

OK, STALE = run_states.RunState.OK, run_states.RunState.STALE


@dataclass(frozen=True)
class Reruns:
    """Decides for the runs and benchmarks of a grid, by their folders, and the folder `results`.

    Records and code are read once, when they are first needed.
    """

    config: Config
    runs: Mapping[str, PlannedRun]
    benchmarks: Mapping[str, BenchmarkSpec]
    results: Path

    @functools.cached_property
    def outdated(self) -> frozenset[str]:
        """Files to regenerate: prepared data of changed code and, by `rerun: stale`, records."""
        changed = self.runs_of_changed_data
        data = {f"datasets/{variants.data_of(self.runs[path].spec)}.npz" for path in changed}
        records = {f"runs/{path}/{run_record.RECORD}" for path in self._stale_runs}
        stale = self.benchmarks if self._makes_stale else ()
        made = {path: self._benchmark(path) for path in stale}
        benchmarks = {str(r) for path, r in made.items() if self._status(path, r) == STALE}
        return frozenset({f"{self.results}/{file}" for file in data | records} | benchmarks)

    @functools.cached_property
    def brought_back(self) -> frozenset[str]:
        """Records that count again and were put in their places.

        The runs that were to replace them failed or were cut off, and parameters, code and data
        match the record.
        """
        specs = [run.spec for run in self.runs.values()]
        folders = run_states.to_bring_back(specs, self.results / "runs")
        records = [self.results / "runs" / path / run_record.RECORD for path in folders]
        records += [self._benchmark(p) for p in self.benchmarks if self._is_to_bring_back(p)]
        for record in records:
            attempts.restore_backup(record)
        return frozenset(map(str, records))

    def is_made(self, path: str) -> bool:
        """Whether the run has a record of the planned parameters."""
        return not run_states.to_make([self.runs[path].spec], self.results / "runs")

    def keep_earlier(self, to_do: Collection[str]) -> None:
        """Keep the records that jobs with these outputs replace, and no others.

        Records of extra repeats are kept: which of them are to do is known after other runs.
        """
        for path, run in self.runs.items():
            may_be_to_do = run.is_conditional and bool(to_do)
            self._keep(self.results / "runs" / path / run_record.RECORD, to_do, may_be_to_do)
        for path in self.benchmarks:
            self._keep(self._benchmark(path), to_do)

    @staticmethod
    def _keep(record: Path, to_do: Collection[str], may_be_to_do: bool = False) -> None:
        if may_be_to_do or str(record) in to_do:
            attempts.keep_backup(record)
        elif record.exists():
            attempts.drop_backup(record)

    def _benchmark(self, path: str) -> Path:
        from tfscaling.record import benchmark_record  # not for each dry-run

        return self.results / "all_reduce" / path / benchmark_record.RECORD

    def _is_to_bring_back(self, path: str) -> bool:
        record = self._benchmark(path)
        kept = attempts.backup_of(record)
        return not record.exists() and kept.exists() and self._status(path, kept) == OK

    def _status(self, path: str, record: Path) -> str:
        """The status of a benchmark by this record."""
        from tfscaling.conclusions import communication  # loads pandas

        folder = self.results / "all_reduce"
        return communication.read(self.benchmarks[path], folder, record.name).status

    @functools.cached_property
    def runs_of_changed_data(self) -> frozenset[str]:
        """Folders of the runs to do whose prepared data is of older code of the user."""
        due = list(self._due_on_changed_data())
        to_do = self._stale_runs | run_states.to_make(due, self.results / "runs")
        return to_do & {spec.path for spec in due}

    @property
    def _makes_stale(self) -> bool:
        return self.config.rerun == "stale"

    @functools.cached_property
    def _stale_runs(self) -> frozenset[str]:
        """Folders of the stale runs to repeat, none unless `rerun: stale` asks for it."""
        if not self._makes_stale:
            return frozenset()
        specs = [run.spec for run in self.runs.values()]
        return frozenset(run_states.stale(specs, self.results / "runs"))

    def _due_on_changed_data(self) -> Iterator[RunSpec]:
        """The planned runs, made or not, whose data is of older code; no extra repeats."""
        changed: dict[str, bool] = {}
        for run in self.runs.values():
            spec, data = run.spec, variants.data_of(run.spec)
            if data is None or spec.dataset is None or run.is_conditional:
                continue
            if data not in changed:
                changed[data] = self._has_other_code(data, spec.dataset)
            if changed[data] and self.config.is_selected(spec.point.platform):
                yield spec

    def _has_other_code(self, data: str, dataset: str) -> bool:
        code = user_code.of_names(dataset)
        if not code.functions:
            return False
        facts = prepared_data.facts(self.results / "datasets" / f"{data}.npz")
        return bool(facts and user_code.differences(facts.user_code, code.checksums()))
