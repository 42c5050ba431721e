"""The run manifest: every planned run with its parameters, every excluded point with its reason.

It is made once from the configuration. Jobs take their run from it, and the tables compare it with
the existing records.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfscaling.files import atomic, strict_json
from tfscaling.files.program_errors import InputError
from tfscaling.spec.config import Config, Limit, Platform, Quality, Search
from tfscaling.spec.registries import Strategy
from tfscaling.spec.run_spec import Point, RunSpec

SCHEMA_VERSION = 4


class ManifestError(InputError):
    """The file is no manifest that this version of the workflow reads."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of the grid, and what does not change it."""

    spec: RunSpec
    relative_interval: float | None = None
    """Width that the interval of the time may have, over the median."""
    extra_repeat: bool = False
    """Made only if the runs before leave the interval too wide."""
    smaller: str | None = None
    """The folder of the point with half of the batch: made only if all its runs fit in memory."""
    usd_per_node_hour: float | None = None
    """US dollars for one node with its GPUs, one hour."""
    peak_tflops: float | None = None
    """What the platform's device reaches at the precision of the run."""
    usd_per_kwh: float | None = None
    """US dollars for one kWh."""
    kg_co2_per_kwh: float | None = None
    """CO2 in kg for one kWh."""

    @property
    def is_conditional(self) -> bool:
        """Whether runs before it decide whether it is made."""
        return self.extra_repeat or self.smaller is not None


class Excluded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point of the grid that is not run, and why; shown in every table."""

    point: Point
    reason: str


class SearchedPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point that may be the best, and how many runs the full grid would make of it."""

    point: Point
    repeats: int


class PlannedSearch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search for the best configuration of a question; `limits` are by column."""

    work: str
    goal: str
    limits: dict[str, Limit] = {}
    indifference: float
    search: Search
    points: tuple[SearchedPoint, ...]


class Grid(NamedTuple):
    """All runs in the order of the configuration, the points left out, and the searches."""

    runs: tuple[PlannedRun, ...]
    excluded: tuple[Excluded, ...]
    searches: tuple[PlannedSearch, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is planned."""

    schema_version: int = SCHEMA_VERSION
    order_seed: int
    """Seed of the order in which runs start."""
    targets: dict[str, float]
    """Metric of a quality → the value to which time and cost are compared."""
    platforms: dict[str, Platform]
    """The platforms of the grid, each with its title."""
    synchronous_strategies: tuple[str, ...]
    """Strategies that train the same model at any size."""
    runs: tuple[PlannedRun, ...]
    excluded: tuple[Excluded, ...]
    searches: tuple[PlannedSearch, ...] = ()

    @classmethod
    def of(cls, config: Config, grid: Grid, strategies: Mapping[str, Strategy]) -> Manifest:
        """The manifest of a configuration whose grid is expanded."""
        points = [*(run.spec.point for run in grid.runs), *(out.point for out in grid.excluded)]
        return cls(
            order_seed=config.seed,
            targets=config.question.targets,
            platforms={
                name: msgspec.structs.replace(platform, title=platform.title or name)
                for name in dict.fromkeys(point.platform for point in points)
                for platform in [config.platforms[name]]
            },
            synchronous_strategies=tuple(n for n, s in strategies.items() if s.synchronous),
            runs=grid.runs,
            excluded=grid.excluded,
            searches=grid.searches,
        )

    @property
    def qualities(self) -> dict[str, Quality]:
        """Recipe → what its runs are compared by."""
        return {run.spec.point.recipe: run.spec.recipe.quality for run in self.runs}

    def encode(self) -> bytes:
        """The content of its file; raises strict_json.NotFiniteError for NaN and infinity."""
        return strict_json.encode(self)

    def write(self, path: Path) -> None:
        """Write the whole file or nothing; raises as `encode` does."""
        atomic.write_text(path, self.encode().decode())

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """The manifest of a file. Raises ManifestError if it is none of this version."""
        try:
            return cls.decode(path.read_bytes())
        except ManifestError as error:
            raise ManifestError(f"{path}: {error}") from None

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """The manifest that `encode` gave. Raises ManifestError if it is none of this version."""
        try:
            version = msgspec.json.decode(content, type=_Version).schema_version
            if version == SCHEMA_VERSION:
                return msgspec.json.decode(content, type=cls)
        except msgspec.DecodeError as error:  # the base class of ValidationError
            raise ManifestError(str(error)) from None
        raise ManifestError(
            f"schema_version {version}, not {SCHEMA_VERSION}: written by another version "
            "of the workflow; remove it, and snakemake writes it again"
        )


class _Version(msgspec.Struct):
    schema_version: int
