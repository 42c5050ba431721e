"""The manifest: every planned run with its parameters, every exclusion with its reason.

It is made once from the configuration. The tables compare it with the existing records. A job reads
its run from `request.json` in the run's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec

from tfscaling.files import atomic, strict_json
from tfscaling.files.program_errors import InputError
from tfscaling.study.config_types import Limit, MeasuredKeys, Platform, Quality, Recipe, Search
from tfscaling.study.run_spec import Point, RunSpec

SCHEMA_VERSION = 4


class ManifestError(InputError):
    """The file is no manifest, or a manifest of another version of the workflow."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of the grid, with facts that do not change the run itself, such as its price."""

    spec: RunSpec
    """The specification of the run."""
    extra_repeat: bool = False
    """Whether the run is made only if a search needs it."""
    explains: tuple[Point, ...] = ()
    """For a run on one replica that `explain` adds: the configurations whose steps it explains.
    Empty for runs of the grid."""
    smaller: str | None = None
    """If the batch size is an axis of doublings: folder of the configuration that differs only in
    the next smaller batch size. The run is made only if the due runs of that configuration have
    ended and most of them fit in memory. null: no such condition."""
    whole_epochs: int | None = None
    """Epochs of the complete training, if its time and cost are projected from this run with fewer
    `epochs`. null for other runs, also with `stop_after_steps`: those are projected to the recipe's
    `epochs`."""
    usd_per_node_hour: float | None = None
    """Price of one node with its GPUs for one hour, in US dollars; null if unknown."""
    peak_tflops: float | None = None
    """Peak TFLOP/s of a replica's device at the precision of the run; null if unknown."""
    usd_per_kwh: float | None = None
    """Price of one kWh in US dollars; null if unknown."""
    kg_co2_per_kwh: float | None = None
    """CO2 in kg for one kWh; null if unknown."""

    @property
    def is_short(self) -> bool:
        """Whether a longer training is projected from the run."""
        return self.whole_epochs is not None or self.spec.recipe.stop_after_steps is not None

    @property
    def is_conditional(self) -> bool:
        """Whether results of other runs decide whether this run is made."""
        return self.extra_repeat or self.smaller is not None


class ExcludedConfiguration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of the grid that is not run.

    Attributes:
        point: The configuration.
        reason: Why it is not run; tables show it.
    """

    point: Point
    reason: str


class SearchedPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of a search, with the number of its runs.

    Attributes:
        point: The configuration.
        repeats: Number of its runs without a search: the block's `repeats`. The savings of a search
            are relative to these runs.
        short: The configuration of its short runs; None without short runs.
    """

    point: Point
    repeats: int
    short: Point | None = None


class PlannedSearch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search for the best configuration of one question.

    Attributes:
        question: Name of the question: the values on the axes that `question.choose` does not list.
        goal: The metric that is to be best.
        limits: Column of the tables → its limit in the question.
        indifference: Fraction below which a difference from the best does not matter.
        trainings: Number of trainings for which the answer is needed, as in `question.trainings`;
            None if not configured.
        search: The keys of the search in the configuration file.
        points: The configurations to choose from.
    """

    question: str
    goal: str
    limits: dict[str, Limit] = {}
    indifference: float
    trainings: int | None = None
    search: Search
    points: tuple[SearchedPoint, ...]

    @property
    def all_points(self) -> Iterator[Point]:
        """The configurations of the search, each followed by the one for its short runs, if any."""
        for each in self.points:
            yield each.point
            if each.short is not None:
                yield each.short


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All planned runs, exclusions and searches of a study, with the settings for its tables."""

    schema_version: int = SCHEMA_VERSION
    order_seed: int
    """Seed of the order in which runs start."""
    targets: dict[str, float]
    """Quality metric → target value, for time and cost to the target."""
    platforms: dict[str, Platform]
    """Name → platform, for the platforms of the grid; missing titles are filled in."""
    synchronous_strategies: tuple[str, ...]
    """Strategies with one update per step from all workers' gradients: with the same global batch,
    all of them train the same model."""
    runs: tuple[PlannedRun, ...]
    """All runs of the grid; `grid.randomise_order` gives the order in which they start."""
    explaining: tuple[PlannedRun, ...] = ()
    """The runs on one replica that the key `explain` adds: they are made and counted, but not
    compared."""
    excluded: tuple[ExcludedConfiguration, ...]
    """The configurations that are not run."""
    searches: tuple[PlannedSearch, ...] = ()
    """The searches, one for each question that has a search."""
    revisions: tuple[str, ...] = ()
    """Recipes that are revisions of one training; the first is the reference. Empty without
    `compare_revisions`."""

    @property
    def all_runs(self) -> tuple[PlannedRun, ...]:
        """The runs of the grid, then those on one replica that the key `explain` adds."""
        return (*self.runs, *self.explaining)

    @property
    def explaining_points(self) -> frozenset[Point]:
        """The configurations of the runs that `explain` adds; the grid has no runs of them."""
        return frozenset(run.spec.point for run in self.explaining)

    @property
    def qualities(self) -> dict[str, Quality]:
        """Recipe → the quality by which its runs are compared."""
        return {run.spec.point.recipe: run.spec.recipe.quality for run in self.runs}

    def encode(self) -> bytes:
        """Return the manifest as JSON, for its file.

        Raises:
            strict_json.NotFiniteError: A number is NaN or infinite.
        """
        return strict_json.encode(self, _decode_manifest)

    def write(self, path: Path) -> None:
        """Write the complete manifest to a file or nothing; raises the errors of `encode`."""
        with atomic.replacement(path) as temporary:
            temporary.write_bytes(self.encode())

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
                return _decode_manifest(content)
        except (msgspec.DecodeError, RecursionError) as error:  # the base class of ValidationError
            raise ManifestError(f"{path}: {error}") from None
        raise ManifestError(
            f"{path}: schema_version {version}, not {SCHEMA_VERSION}: written by another version "
            "of the workflow; remove it, and snakemake writes it again"
        )


def _decode_manifest(content: bytes) -> Manifest:
    """Return the manifest in a file's content; runs with equal parts share one object for each.

    Thousands of runs have equal recipes, platforms and configurations. They are decoded once.

    Raises:
        msgspec.DecodeError: It is no manifest.
    """
    try:
        encoded: Any = msgspec.json.decode(content, type=_EncodedManifest)
        parts: dict[tuple[type, bytes], object] = {}

        def decode_part(kind: type, raw: msgspec.Raw) -> object:
            key = kind, bytes(raw)
            if key not in parts:
                parts[key] = msgspec.json.decode(raw, type=kind)
            return parts[key]

        def decode_run(run: Any) -> PlannedRun:
            fields, spec = _fields_of(run), _fields_of(run.spec)
            shared = {name: decode_part(kind, spec[name]) for name, kind in _SHARED_PARTS.items()}
            return PlannedRun(**{**fields, "spec": RunSpec(**{**spec, **shared})})

        runs = {name: tuple(map(decode_run, getattr(encoded, name))) for name in _RUNS}
        return Manifest(**{**_fields_of(encoded), **runs})
    except msgspec.ValidationError:
        # the message then has the place in the file
        return msgspec.json.decode(content, type=Manifest)


def _fields_of(struct: Any) -> dict[str, Any]:
    """Return name → value of a struct's fields."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _replace_field_types(kind: type[msgspec.Struct], changed: dict[str, Any]) -> Any:
    """Return a struct type with the fields of `kind`, some of them with other types.

    Args:
        kind: The struct type.
        changed: Name of a field → its type.
    """
    fields: list[Any] = []
    for each in msgspec.structs.fields(kind):
        field = each.name, changed.get(each.name, each.type)
        if each.required:
            fields.append(field)
        elif each.default is not msgspec.NODEFAULT:
            fields.append((*field, msgspec.field(default=each.default)))
        else:
            factory: Any = each.default_factory
            fields.append((*field, msgspec.field(default_factory=factory)))
    name = f"_Encoded{kind.__name__}"
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


#: Field of a run's specification that many runs share → its type.
_SHARED_PARTS: dict[str, type] = {"point": Point, "recipe": Recipe, "measured": MeasuredKeys}
#: Fields of a manifest with runs.
_RUNS = ("runs", "explaining")
_EncodedSpec = _replace_field_types(RunSpec, dict.fromkeys(_SHARED_PARTS, msgspec.Raw))
_EncodedRun = _replace_field_types(PlannedRun, {"spec": _EncodedSpec})
#: A manifest in which `_SHARED_PARTS` of each run are still JSON.
_EncodedManifest = _replace_field_types(
    Manifest, dict.fromkeys(_RUNS, GenericAlias(tuple, (_EncodedRun, ...)))
)


class _Version(msgspec.Struct):
    """The version in the file of a manifest; it is decoded before the other fields."""

    schema_version: int
