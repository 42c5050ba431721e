"""What is made again although it is there: stale runs and benchmarks, data of changed code.

And what is there again without being made: records of runs that were to be made again, and failed.
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


def is_outdated(file: Path, content: bytes) -> bool:
    """Whether the file is there with another content."""
    return file.exists() and file.read_bytes() != content


@dataclass(frozen=True)
class Reruns:
    """Asked of the runs and benchmarks of a grid, by their folders, and of what `results` has.

    Records and code are read when the first question is asked, and once.
    """

    config: Config
    runs: Mapping[str, PlannedRun]
    benchmarks: Mapping[str, BenchmarkSpec]
    results: Path

    def bring_back(self) -> frozenset[str]:
        """Put earlier records that count again in their places, once; their folders.

        What was to replace them failed or was cut off, and parameters, code and data are those that
        they are of.
        """
        return self._brought_back

    def is_made(self, path: str) -> bool:
        """Whether the run has a record of its parameters; False of what is no run."""
        run = self.runs.get(path)
        return run is not None and not run_states.to_make([run.spec], self.results / "runs")

    def keep_earlier(self, to_do: Collection[str]) -> None:
        """Keep the records that the jobs to do, by these outputs, replace; and no others.

        With them those of extra repeats: whether they are to do is known when the others are made.
        """
        for path, run in self.runs.items():
            may_be_to_do = run.extra_repeat and bool(to_do)
            self._keep(self.results / "runs" / path / run_record.RECORD, to_do, may_be_to_do)
        for path in self.benchmarks:
            self._keep(self._benchmark(path), to_do)

    @staticmethod
    def _keep(record: Path, to_do: Collection[str], may_be_to_do: bool = False) -> None:
        if may_be_to_do or str(record) in to_do:
            attempts.keep_backup(record)
        elif record.exists():
            attempts.drop_backup(record)

    @functools.cached_property
    def _brought_back(self) -> frozenset[str]:
        specs = [run.spec for run in self.runs.values()]
        runs = run_states.to_bring_back(specs, self.results / "runs")
        for path in runs:
            attempts.restore_backup(self.results / "runs" / path / run_record.RECORD)
        benchmarks = set(filter(self._is_benchmark_to_bring_back, self.benchmarks))
        for path in benchmarks:
            attempts.restore_backup(self._benchmark(path))
        return frozenset(runs | benchmarks)

    def _benchmark(self, path: str) -> Path:
        from tfscaling.record import benchmark_record  # not for each dry-run

        return self.results / "all_reduce" / path / benchmark_record.RECORD

    def _is_benchmark_to_bring_back(self, path: str) -> bool:
        record = self._benchmark(path)
        if record.exists() or not attempts.backup_of(record).exists():
            return False
        from tfscaling.conclusions import communication  # loads pandas

        found = communication.read(
            self.benchmarks[path], self.results / "all_reduce", attempts.backup_of(record).name
        )
        return found.status == communication.OK

    def is_stale(self, path: str) -> bool:
        """Whether the run is to be made again because its record is stale, by `rerun: stale`."""
        return self._makes_stale and path in self._stale_runs

    def is_stale_benchmark(self, path: str) -> bool:
        """The same of the benchmark of a point; False of a point without one."""
        if not self._makes_stale or path not in self.benchmarks:
            return False
        from tfscaling.conclusions import communication  # loads pandas

        found = communication.read(self.benchmarks[path], self.results / "all_reduce")
        return found.status == communication.STALE

    def is_changed_data(self, name: str) -> bool:
        """Whether prepared data is of earlier code of the user's, and a run to make reads it."""
        return any(
            variants.data_of(self.runs[path].spec) == name for path in self.runs_of_changed_data
        )

    @functools.cached_property
    def runs_of_changed_data(self) -> frozenset[str]:
        """Folders of the runs to make whose prepared data is of earlier code of the user's."""
        self.bring_back()
        due = list(self._due_on_changed_data())
        made = self._stale_runs if self._makes_stale else frozenset()
        made |= run_states.to_make(due, self.results / "runs")
        return made & {spec.path for spec in due}

    @property
    def _makes_stale(self) -> bool:
        return self.config.rerun == "stale"

    @functools.cached_property
    def _stale_runs(self) -> frozenset[str]:
        self.bring_back()
        specs = [run.spec for run in self.runs.values()]
        return frozenset(run_states.stale(specs, self.results / "runs"))

    def _due_on_changed_data(self) -> Iterator[RunSpec]:
        """The planned runs, made or not, whose data is of earlier code; no extra repeats."""
        changed: dict[str, bool] = {}
        for run in self.runs.values():
            spec, data = run.spec, variants.data_of(run.spec)
            if data is None or spec.dataset is None or run.extra_repeat:
                continue
            if data not in changed:
                changed[data] = self._has_other_code(data, spec.dataset)
            if changed[data] and self.config.is_selected(spec.point.platform):
                yield spec

    def _has_other_code(self, data: str, dataset: str) -> bool:
        facts = prepared_data.facts(self.results / "datasets" / f"{data}.npz")
        code = user_code.of_names(dataset)
        if facts is None or not code.functions:
            return False
        return bool(user_code.differences(facts.user_code, code.checksums()))
