"""The manifest: every planned run with its parameters, every exclusion with its reason.

It is made once from the configuration. Jobs read their run from it, and the tables compare it with
the existing records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tfscaling.files import atomic, strict_json
from tfscaling.files.program_errors import InputError
from tfscaling.study.config_types import Limit, Platform, Quality, Search
from tfscaling.study.run_spec import Point, RunSpec

SCHEMA_VERSION = 4


class ManifestError(InputError):
    """The file is no manifest, or a manifest of another version of the workflow."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of the grid, with facts that do not change the run itself, such as its price."""

    spec: RunSpec
    extra_repeat: bool = False
    """Made only if the search still needs it."""
    smaller: str | None = None
    """The folder of the point with half of the batch: made only if all its runs fit in memory."""
    whole_epochs: int | None = None
    """Epochs of the whole training that is projected from the run's own; null if it trains all."""
    usd_per_node_hour: float | None = None
    """US dollars for one node with its GPUs, one hour."""
    peak_tflops: float | None = None
    """What the platform's device reaches at the precision of the run."""
    usd_per_kwh: float | None = None
    """US dollars for one kWh."""
    kg_co2_per_kwh: float | None = None
    """CO2 in kg for one kWh."""

    @property
    def is_short(self) -> bool:
        """Whether a longer training is projected from the run."""
        return self.whole_epochs is not None or self.spec.recipe.stop_after_steps is not None

    @property
    def is_conditional(self) -> bool:
        """Whether results of other runs decide whether it is made."""
        return self.extra_repeat or self.smaller is not None


class Excluded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of the grid that is not run, with the reason that tables show."""

    point: Point
    reason: str


class SearchedPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of a search: its repeats in the full grid, and its short runs."""

    point: Point
    repeats: int
    short: Point | None = None


class PlannedSearch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search for the best configuration of a question; `limits` maps columns to limits."""

    work: str
    goal: str
    limits: dict[str, Limit] = {}
    indifference: float
    search: Search
    points: tuple[SearchedPoint, ...]

    @property
    def with_shorts(self) -> Iterator[Point]:
        """All configurations of the search, also the ones of short runs."""
        for each in self.points:
            yield each.point
            if each.short is not None:
                yield each.short


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All planned runs, exclusions and searches of a study, and what their tables need."""

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
    revisions: tuple[str, ...] = ()
    """Recipes that are revisions of one training; the first is the reference. Empty without
    `compare_revisions`."""

    @property
    def qualities(self) -> dict[str, Quality]:
        """Recipe → the quality by which its runs are compared."""
        return {run.spec.point.recipe: run.spec.recipe.quality for run in self.runs}

    def encode(self) -> bytes:
        """Return the content of the manifest's file.

        Raises:
            strict_json.NotFiniteError: A number is NaN or infinite.
        """
        return strict_json.encode(self)

    def write(self, path: Path) -> None:
        """Write the complete file or nothing; raises the errors of `encode`."""
        atomic.write_text(path, self.encode().decode())

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest from a file.

        Raises:
            ManifestError: The file is not a manifest of this version.
        """
        content = path.read_bytes()
        try:
            version = msgspec.json.decode(content, type=_Version).schema_version
            if version == SCHEMA_VERSION:
                return msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:  # the base class of ValidationError
            raise ManifestError(f"{path}: {error}") from None
        raise ManifestError(
            f"{path}: schema_version {version}, not {SCHEMA_VERSION}: written by another version "
            "of the workflow; remove it, and snakemake writes it again"
        )


class _Version(msgspec.Struct):
    schema_version: int
