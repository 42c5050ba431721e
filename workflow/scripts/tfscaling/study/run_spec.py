"""One training run as it is asked for: the point of the grid, and all that follows from it.

A `RunSpec` is made once, by `grid.expand`, and goes as it is to the manifest, to the launcher, to
the ranks and to the tables. Only the run record holds its `parameters` as a flat dictionary.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from tfscaling.study.config import AXES, POINT_AXES, Measured, Recipe
from tfscaling.study.geometry import Geometry

#: The value of a parameter, as JSON has it.
Value = str | int | float | None | list[str] | dict[str, str]


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point of the grid: what its runs have in common. Its identity wherever points are keys."""

    platform: str
    model: str
    strategy: str
    recipe: str
    nodes: Annotated[int, Meta(ge=1)]
    gpus_per_node: Annotated[int, Meta(ge=0, description="GPUs or logical devices; 0 is the CPU.")]
    tasks_per_node: Annotated[int | str, Meta(description='A number, or uneven such as "2+1".')]

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value, in the order of the result folders."""
        return {axis: getattr(self, axis) for axis in POINT_AXES}

    @property
    def path(self) -> str:
        """`platform=…/…/tasks_per_node=…`; the platform first, so clusters merge by copying."""
        return (
            f"platform={self.platform}/model={self.model}/strategy={self.strategy}/"
            f"recipe={self.recipe}/nodes={self.nodes}/gpus_per_node={self.gpus_per_node}/"
            f"tasks_per_node={self.tasks_per_node}"
        )

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.nodes, self.tasks_per_node, self.gpus_per_node)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run: its point, its repeat, how it is made, and the sizes that follow from these."""

    point: Point
    repeat: int
    recipe: Recipe
    measured: Annotated[Measured, Meta(description="Of the platform what can change the run.")]
    dataset: Annotated[str, Meta(description="The recipe's dataset, or else the model's own.")]
    seed: Annotated[int, Meta(description="Seed of weights and of the order of examples.")]
    trainer_version: Annotated[int, Meta(description="Version of the trainer's meaning.")]
    replicas: Annotated[int, Meta(ge=1, description="Copies of the model that train.")]
    per_replica_batch_size: Annotated[int, Meta(ge=1, description="Examples per step.")]
    global_batch_size: Annotated[int, Meta(ge=1, description="Examples per step of all replicas.")]
    jobs: Annotated[dict[str, int], Meta(description="Job of the cluster → number of its tasks.")]

    @classmethod
    def from_parameters(
        cls,
        axes: Mapping[str, Any],
        parameters: Mapping[str, Any],
        replicas: int,
        batch_sizes: tuple[int, int],
        jobs: Mapping[str, int],
    ) -> RunSpec:
        """From the flat dictionary of parameters; `batch_sizes` are per replica and global."""
        point = {axis: axes[axis] for axis in POINT_AXES}
        rest = {name: parameters[name] for name in ("dataset", "seed", "trainer_version")}
        return cls(
            point=Point(**point),
            repeat=axes["repeat"],
            recipe=msgspec.convert(_part(parameters, Recipe), Recipe),
            measured=msgspec.convert(_part(parameters, Measured), Measured),
            replicas=replicas,
            per_replica_batch_size=batch_sizes[0],
            global_batch_size=batch_sizes[1],
            jobs=dict(jobs),
            **rest,
        )

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value, in the order of the result folders; the last is the repeat."""
        return {**self.point.axes, "repeat": self.repeat}

    @property
    def path(self) -> str:
        """The run's folder below results/runs."""
        return f"{self.point.path}/repeat={self.repeat}"

    @property
    def geometry(self) -> Geometry:
        return self.point.geometry

    @property
    def cpus_per_task(self) -> int:
        """CPUs of one rank: the node's, shared evenly by its tasks."""
        return self.measured.cpus_per_node // self.geometry.tasks_per_node_max

    @property
    def batch_scaling(self) -> Literal["strong", "weak"]:
        return self.recipe.batch_scaling

    @property
    def parameters(self) -> dict[str, Value]:
        """All that can change the run, flat, as its record holds it."""
        return {
            **flat(self.recipe),
            "dataset": self.dataset,
            **flat(self.measured),
            "seed": self.seed,
            "trainer_version": self.trainer_version,
        }

    @property
    def parameters_hash(self) -> str:
        return parameters_hash(self.axes, self.parameters)


class BenchmarkSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The all-reduce benchmark of a point: what of it can change the time of an all-reduce."""

    point: Point
    measured: Annotated[Measured, Meta(description="Of the platform what can change the times.")]
    precision: str
    communication: str
    sizes_bytes: Annotated[tuple[int, ...], Meta(description="Sizes of the sweep.")]
    repetitions: Annotated[int, Meta(ge=1, description="Timed all-reduces of each size.")]
    benchmark_version: Annotated[int, Meta(description="Version of the benchmark's meaning.")]
    replicas: Annotated[int, Meta(ge=1, description="Copies of the model that take part.")]
    jobs: Annotated[dict[str, int], Meta(description="Job of the cluster → number of its tasks.")]

    @classmethod
    def from_parameters(
        cls,
        axes: Mapping[str, Any],
        parameters: Mapping[str, Any],
        replicas: int,
        jobs: Mapping[str, int],
    ) -> BenchmarkSpec:
        """From the flat dictionary of parameters."""
        point = {axis: axes[axis] for axis in POINT_AXES}
        rest = {
            name: parameters[name]
            for name in ("precision", "communication", "repetitions", "benchmark_version")
        }
        return cls(
            point=Point(**point),
            measured=msgspec.convert(_part(parameters, Measured), Measured),
            sizes_bytes=tuple(parameters["sizes_bytes"]),
            replicas=replicas,
            jobs=dict(jobs),
            **rest,
        )

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value, in the order of the result folders."""
        return self.point.axes

    @property
    def path(self) -> str:
        """The benchmark's folder below results/all_reduce."""
        return self.point.path

    @property
    def geometry(self) -> Geometry:
        return self.point.geometry

    @property
    def cpus_per_task(self) -> int:
        """CPUs of one rank: the node's, shared evenly by its tasks."""
        return self.measured.cpus_per_node // self.geometry.tasks_per_node_max

    @property
    def parameters(self) -> dict[str, Value | list[int]]:
        """All that can change the benchmark, flat, as its record holds it."""
        return {
            "precision": self.precision,
            "communication": self.communication,
            **flat(self.measured),
            "sizes_bytes": list(self.sizes_bytes),
            "repetitions": self.repetitions,
            "benchmark_version": self.benchmark_version,
        }

    @property
    def parameters_hash(self) -> str:
        return parameters_hash(self.axes, self.parameters)


class SpecError(ValueError):
    """A file is no specification of this version."""


_S = TypeVar("_S", RunSpec, BenchmarkSpec)


def read(path: Path, kind: type[_S]) -> _S:
    """The specification in a file. Raises SpecError with the file and what is wrong."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise SpecError(f"{path}: {error}") from error


def flat(keys: Recipe | Measured) -> dict[str, Value]:
    """The keys with their values as JSON has them."""
    values = {key: getattr(keys, key) for key in keys.__struct_fields__}
    return {key: list(v) if type(v) is tuple else v for key, v in values.items()}


def _part(parameters: Mapping[str, Any], kind: type[Recipe | Measured]) -> dict[str, Any]:
    return {name: parameters[name] for name in kind.__struct_fields__}


def parameters_hash(axes: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """16 hex digits over the canonical JSON of axes and parameters.

    Records hold it: another way to write a number would make all earlier records stale.
    """
    content = [dict(axes), dict(parameters)]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_path(axes: Mapping[str, Any]) -> str:
    """The folder of the run with these axes, below results/runs."""
    return "/".join(f"{axis}={axes[axis]}" for axis in AXES)
