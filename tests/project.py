"""A folder in which tests run the real snakemake on the repository's workflow."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loaded_python
import snakemake_server
import yaml
from tfscaling.page.plot_registry import PLOTS
from tfscaling.record.run_record import restore_omitted_keys
from tfscaling.study.config_types import AXES

REPOSITORY = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

#: Trains a run in seconds; enough to learn something.
TINY = {
    "per_replica_batch_size": 32, "optimizer": "adam", "learning_rate": 0.003, "epochs": 1,
    "train_examples_max": 1920, "test_examples_max": 500,
}  # fmt: skip

#: A model that costs little beside the start of its ranks, for what any model shows.
SMALL_MODEL = "small:model"
_SMALL = """
def model():
    import keras

    return keras.Sequential(
        [keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
"""
#: Trains it: it learns by a single epoch.
QUICK: dict[str, Any] = {**TINY, "dataset": "mnist", "learning_rate": 0.01}
#: The configuration of a page without plots: a plot takes a third of the page's CPU time.
NO_PLOTS: dict[str, None] = dict.fromkeys(sorted(PLOTS))


@dataclass
class Project:
    """`folder` has copies of config and resources; the workflow itself stays where it is."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("config", "resources"):
            if not (self.folder / name).exists():
                shutil.copytree(REPOSITORY / name, self.folder / name)
        if not (small := self.folder / "small.py").exists():
            small.write_text(_SMALL)

    def link_datasets(self, datasets: Path, names: str = "*") -> None:
        """Hard links to the prepared datasets whose names match."""
        own = self.folder / "results/datasets"
        own.mkdir(parents=True, exist_ok=True)
        for file in datasets.glob(f"{names}.*"):
            (own / file.name).hardlink_to(file)

    def copy(self, folder: Path) -> Project:
        """The project with its results and Snakemake's memory of them, mtimes included."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Project(folder)

    def overlay(self, content: dict[str, Any]) -> str:
        """Write an overlay of the configuration, with one repeat by default; returns its name.

        Tables are written as Markdown and plots as files too unless `export` has other values.
        No plots are drawn unless the overlay has `plots`; test_data_warnings.py looks at all.
        Models are built before the runs only where `check_models` asks for it: that takes seconds.
        """
        content.setdefault("check_models", False)
        content.setdefault("export", ["markdown", "svg"])
        content.setdefault("plots", NO_PLOTS)
        for block in content.get("grid", []):
            block.setdefault("repeats", 1)
        (self.folder / "overlay.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return "overlay.yaml"

    def snakemake(
        self,
        *arguments: str,
        profile: str | None = "local",
        config: list[str] | None = None,
        check: bool = True,
        snakefile: str = "Snakefile",
        environ: dict[str, str] | None = None,
        limit_s: float = snakemake_server.LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run snakemake here; stdout has its whole output.

        Programs on this machine are forks of a process that has loaded their libraries; programs in
        Slurm's jobs are processes as users have them. Raises HangError after `limit_s` seconds.
        """
        files = ["overlay.yaml"] if config is None else config
        # `--configfile` takes any number of files: it stands before another option
        words = [
            "--snakefile", str(REPOSITORY / snakefile),
            "--configfile", *files,
            *(["--profile", str(REPOSITORY / "profiles" / profile)] if profile else []),
            *arguments,
        ]  # fmt: skip
        variables = loaded_python.environ({**os.environ, **(environ or {})})
        code, output = snakemake_server.call(words, self.folder, variables, limit_s)
        if check:
            assert code == 0, output[-6000:] + self.logs()
        return subprocess.CompletedProcess(["snakemake", *words], code, output)

    def logs(self) -> str:
        """The ends of the runs' logs, for the message of a failed test."""
        return "\n".join(
            f"--- {path}\n{path.read_text(errors='replace')[-1500:]}"
            for path in self.files_of_runs("launch.log")
        )[-12000:]

    def planned(self, *arguments: str, config: list[str] | None = None) -> set[str]:
        """The training runs that snakemake would start, as paths below results/runs."""
        summary = self.snakemake("--summary", *arguments, config=config).stdout.splitlines()
        start = next(i for i, line in enumerate(summary) if line.startswith("output_file\t"))
        rows = csv.DictReader(summary[start:], delimiter="\t")
        return {
            row["output_file"].removeprefix("results/runs/").removesuffix("/run.json")
            for row in rows
            if row["output_file"].endswith("/run.json") and row["plan"] != "no update"
        }

    def table(self, name: str = "results/main/comparison.csv") -> list[dict[str, str]]:
        """The rows of a CSV."""
        with (self.folder / name).open() as file:
            return list(csv.DictReader(file))

    def files_of_runs(self, name: str) -> list[Path]:
        """Return the files of this name in the runs' folders.

        A search in all folders would fail while runs remove folders of their attempts.
        """
        return sorted(self.folder.glob(f"results/runs/{'*/' * (len(AXES) + 1)}{name}"))

    def records(self) -> list[dict[str, Any]]:
        """All run records, their ranks with all keys."""
        found = [json.loads(path.read_text()) for path in self.files_of_runs("run.json")]
        return [{**each, "ranks": [*restore_omitted_keys(each.get("ranks", ()))]} for each in found]

    def made(self) -> dict[Path, int]:
        """When each run and dataset was made, in nanoseconds since the epoch."""
        files = [*self.files_of_runs("run.json"), *self.folder.glob("results/datasets/*.npz")]
        return {path: path.stat().st_mtime_ns for path in files}

    def failures(self) -> list[dict[str, Any]]:
        """All failure reports of runs without a record."""
        return [json.loads(path.read_text()) for path in self.files_of_runs("failure.json")]

    def drivers(self) -> list[int]:
        """Process numbers of the sweeps that run here: they have their logs open."""
        logs, found = self.folder / ".snakemake/log", []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if any(logs in (file.readlink()).parents for file in process.glob("fd/*")):
                    found.append(int(process.name))
        return found

    def end_if_failed(self, happening: Future[None]) -> None:
        """End the sweeps here if this failed, which they might wait for without end."""
        if happening.exception():
            for pid in self.drivers():
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(pid, signal.SIGKILL)


def axis(path: str, name: str) -> str:
    """The value of an axis in a run's path."""
    return next(p.partition("=")[2] for p in path.split("/") if p.startswith(f"{name}="))
