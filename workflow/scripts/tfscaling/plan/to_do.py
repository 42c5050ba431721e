"""Which runs of a study are to do: one answer for plan, budget, dry-run and sweep.

A run is to do if no record of its parameters exists, if it is stale and `rerun: stale` is given, or
if the user forces it. Snakemake's memory of earlier jobs decides nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tfscaling.record import attempts, prepared_data, run_record, run_states
from tfscaling.record.run_states import FoundRecord
from tfscaling.study import run_spec, user_code, variants
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.run_spec import RunRequest


class KeptRecord(NamedTuple):
    """A copy of a run's record in the folder of the attempt that made it.

    Attributes:
        file: The file in the attempt's folder.
        node_hours: Node-hours of the attempt.
    """

    file: Path
    node_hours: float


@dataclass(frozen=True)
class RunsToDo:
    """The runs of a study, and which of them are to do.

    Records are read once, when they are first needed. Records that are written later are ignored.

    Args:
        config: The configuration.
        planned: All planned runs.
        runs_dir: The folder of all runs.
        forced: Folders of runs that options of Snakemake force, with or without a record.
    """

    config: Config
    planned: tuple[PlannedRun, ...]
    runs_dir: Path
    forced: frozenset[str] = frozenset()
    _requests: dict[str, RunRequest] = field(default_factory=dict)

    @functools.cached_property
    def _run_by_folder(self) -> dict[str, PlannedRun]:
        """Folder → planned run."""
        return {run.spec.path: run for run in self.planned}

    @functools.cached_property
    def _records_and_errors(self) -> tuple[dict[str, FoundRecord], dict[str, str]]:
        """(folder of a run → its record, folder of a run → why its record cannot be read)."""
        records, unreadable = {}, {}
        for path, run in self._run_by_folder.items():
            try:
                if found := run_states.find_record(run.spec, self.runs_dir / path):
                    records[path] = found
            except run_record.RecordError as error:
                unreadable[path] = str(error)
        return records, unreadable

    @property
    def records(self) -> dict[str, FoundRecord]:
        """Folder of a run → its record, from the run's folder or else from an attempt."""
        return self._records_and_errors[0]

    @property
    def unreadable(self) -> dict[str, str]:
        """Folder of a run → why its record cannot be read; such runs are not to do."""
        return self._records_and_errors[1]

    @functools.cached_property
    def folders_to_do(self) -> frozenset[str]:
        """The folders of the runs to do, conditional ones included."""
        finished = self.records.keys() | self.unreadable.keys()
        return frozenset(self._run_by_folder.keys() - finished | self.repeated_folders)

    @functools.cached_property
    def repeated_folders(self) -> frozenset[str]:
        """The folders of runs that are to do even if they have a record.

        These are forced runs and, with `rerun: stale` in the configuration, stale ones.
        """
        if self.config.rerun != "stale":
            return self.forced
        specs = [run.spec for run in self.planned]
        data = prepared_data.datasets_folder(self.runs_dir)
        return self.forced | run_states.find_stale_runs(self.records, specs, data)

    @functools.cached_property
    def forced_again(self) -> frozenset[str]:
        """The folders of forced runs that have a record.

        Each is rerun, even if no round of a search has requested it yet.
        """
        return self.forced & self.records.keys()

    def folders_after_round(self, extra: Collection[str]) -> list[str]:
        """Return the folders of the runs that must have a record when a round ends.

        Results of other runs decide whether a conditional run (`PlannedRun.is_conditional`) is
        made; each round requests some of them. These runs must have a record:

        - all runs that are not conditional,
        - the conditional runs that were requested so far (`extra`),
        - the runs that an option of Snakemake forces to be repeated (`forced_again`).

        Args:
            extra: Folders of the conditional runs that the rounds up to this one have requested.
        """
        due = self.forced_again.union(extra)
        return [
            path
            for path, run in self._run_by_folder.items()
            if not run.is_conditional or path in due
        ]

    def file_of_record(self, path: str) -> Path | None:
        """Return the file of a finished run's record, in the run's folder or an attempt's folder.

        None if the run is to do.

        Args:
            path: The run's folder below results/runs.
        """
        if path in self.folders_to_do:
            return None
        if path in self.unreadable:
            return self.runs_dir / path / run_record.RECORD
        return self.records[path].file

    def why_repeated(self, path: str) -> str:
        """Return why a run with a record is repeated; "" if it is not.

        Args:
            path: The run's folder, below the folder of all runs.

        Returns:
            `forced` by an option of Snakemake, or `stale` because code or data changed.
        """
        if path not in self.repeated_folders or path not in self.records:
            return ""
        return "forced" if path in self.forced else "stale"

    def make_request(self, path: str) -> RunRequest:
        """Return what the next job of a run must do; later calls return the same object.

        Args:
            path: The run's folder, below the folder of all runs.
        """
        if path not in self._requests:
            is_repeated = path in self.repeated_folders
            numbers = attempts.attempt_numbers(self.runs_dir / path) if is_repeated else ()
            spec = self._run_by_folder[path].spec
            self._requests[path] = RunRequest(spec=spec, replaces=max(numbers, default=0))
        return self._requests[path]

    def restore_records(self) -> None:
        """Restore missing records of finished runs in the runs' folders, from attempts' folders.

        Raises:
            OSError: If a file cannot be written.
        """
        for path, found in self.records.items():
            folder = self.runs_dir / path
            if path in self.folders_to_do or found.file.parent == folder:
                continue
            attempts.restore_record(found.file, folder / run_record.RECORD)
            # a job of an earlier start that was to repeat the run finds it finished
            run_spec.write_request(folder, RunRequest(spec=self._run_by_folder[path].spec))

    def replaced_records(self, paths: Iterable[str]) -> list[KeptRecord]:
        """Return the records that reruns will replace, among runs with these folders."""
        return [
            self._kept_record(path)
            for path in paths
            if path in self.repeated_folders & self.records.keys()
        ]

    def back_up_record(self, path: str) -> list[KeptRecord]:
        """Save a run's record in the folder of its attempt; return [the copy], or [] without one.

        Call this before the run's job: Snakemake then deletes the record.

        Raises:
            OSError: If the file cannot be written.
        """
        if path not in self.records:
            return []
        file, record = self.records[path]
        if file.parent == self.runs_dir / path:
            attempts.keep_record(file, record.attempt)
        return [self._kept_record(path)]

    def _kept_record(self, path: str) -> KeptRecord:
        """Return the copy of a run's record in the folder of the attempt that made it."""
        record = self.records[path].record
        file = attempts.attempt_folder(self.runs_dir / path, record.attempt) / attempts.RECORD
        return KeptRecord(file, run_record.node_hours(record))

    def outdated_data(self) -> list[Path]:
        """Return files of prepared data that an older version of the custom code has written.

        Only data of runs that are to do is checked.
        """
        found = []
        for data, dataset in dict.fromkeys(self._data_to_read()):
            code = user_code.code_of_functions(dataset)
            file = prepared_data.datasets_folder(self.runs_dir) / f"{data}.npz"
            facts = prepared_data.read_facts(file) if code.functions else None
            if facts and user_code.describe_differences(facts.user_code, code.checksums()):
                found.append(file)
        return found

    def _data_to_read(self) -> Iterable[tuple[str, str]]:
        """Yield (name of its prepared data, its dataset) for each run to do on the chosen clusters.

        The name includes the parameters of a custom dataset. Runs that a search may not need are
        left out.
        """
        for path in self.folders_to_do:
            run = self._run_by_folder[path]
            data, dataset = variants.data_name_of_run(run.spec), run.spec.dataset
            is_selected = self.config.is_selected(run.spec.point.platform)
            if data and dataset and is_selected and not run.is_conditional:
                yield data, dataset


class RunRequests:
    """Writer of the request files from which jobs read their runs.

    It writes nothing before `accept` is called, which means that all checks of the sweep have
    passed. If a check fails, such as the check of the budget, no folder of a run has been made.
    """

    def __init__(self) -> None:
        self._is_accepted = False
        self._waiting: list[tuple[RunsToDo, str]] = []

    def add(self, runs: RunsToDo, path: str) -> None:
        """Write the request of a run to its folder; before `accept` is called, keep it for then.

        Args:
            runs: The runs of the study.
            path: The run's folder below results/runs.

        Raises:
            OSError: If the file cannot be written.
        """
        self._waiting.append((runs, path))
        if self._is_accepted:
            self.accept()

    def accept(self) -> None:
        """Write all requests that were added so far; from then on, `add` writes at once.

        The caller has checked that the sweep may begin. If a run's job will replace a record, the
        record is first saved in the folder of its attempt.

        Raises:
            OSError: If a file cannot be written.
        """
        self._is_accepted = True
        while self._waiting:
            runs, path = self._waiting.pop()
            runs.back_up_record(path)
            run_spec.write_request(runs.runs_dir / path, runs.make_request(path))
