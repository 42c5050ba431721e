"""The specification of one training run: its configuration, and everything that follows from it.

`grid` makes each `RunSpec` once; manifest, launcher, ranks and tables use it unchanged. Only the
run record has its `parameters` as a flat dictionary.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import NODEFAULT, Meta

from tfscaling import PROGRAM_VERSION, TRAINER_VERSION
from tfscaling.files import atomic, strict_json
from tfscaling.files.outside_text import make_visible
from tfscaling.files.program_errors import InputError
from tfscaling.study.config_types import (
    AXES,
    BATCH_SIZE_KEYS,
    MPI_STRATEGY,
    POINT_AXES,
    PRIVATE_KEYS,
    MeasuredKeys,
    ParameterValue,
    Recipe,
)
from tfscaling.study.geometry import Geometry

_T = TypeVar("_T")
#: Placeholders that a word of a recipe's `program` may have in braces, besides `parameters.NAME`.
PLACEHOLDERS = (
    "epochs",
    "per_replica_batch_size",
    "global_batch_size",
    "seed",
    "replicas",
    "folder",
)
#: Placeholder for the path of the prepared data, in recipes that name a dataset.
DATASET_PLACEHOLDER = "dataset"
#: The JSON value of a parameter of a run.
Value = (
    bool | int | float | str | None | list[str | int] | dict[str, ParameterValue | list[str | int]]
)
#: Name before the hash of the parameters in the path of a run's folder.
PARAMETERS_AXIS = "parameters"
#: Name of a parameter of a run → its value.
Parameters = Mapping[str, Value]


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of the grid, identified by its axes; dictionaries use it as key.

    Its repeats have the same `Point` and different seeds.

    Attributes:
        platform: Name of the platform.
        model: Name of the model, or `package.module:function`.
        strategy: Name of the distribution strategy.
        recipe: Name of the recipe's variant.
        nodes: Number of nodes.
    """

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
        """The axes as a folder, `platform=…/…/tasks_per_node=…`.

        The platform is first, so that results from clusters can be merged by copying.
        """
        return "/".join(f"{axis}={value}" for axis, value in self.axes.items())

    @property
    def geometry(self) -> Geometry:
        """Nodes, tasks and GPUs of the configuration."""
        return Geometry(self.nodes, self.tasks_per_node, self.gpus_per_node)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The specification of one run: configuration, repeat, parameters, and derived sizes.

    Attributes:
        point: The configuration.
        repeat: Number of the run among the runs of its configuration, from 1.
        recipe: The variant of the recipe, with defaults filled in.
    """

    point: Point
    measured: Annotated[
        MeasuredKeys, Meta(description="Keys of the platform that can change the run.")
    ]
    replicas: Annotated[int, Meta(ge=1, description="Copies of the model that train together.")]
    jobs: Annotated[dict[str, int], Meta(description="Job of the cluster → number of its tasks.")]
    repeat: int
    recipe: Recipe
    dataset: str | None
    """The recipe's dataset, or else the model's default dataset; null for a program without a
    dataset."""
    seed: Annotated[int, Meta(description="Seed of weights and of the order of examples.")]
    trainer_version: Annotated[int, Meta(description="Version of the trainer's meaning.")]
    per_replica_batch_size: Annotated[int, Meta(ge=1, description="Examples per step.")]
    global_batch_size: Annotated[int, Meta(ge=1, description="Examples per step of all replicas.")]

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value, in the order of the result folders; the last one is the repeat."""
        return {**self.point.axes, "repeat": self.repeat}

    @functools.cached_property
    def path(self) -> str:
        """The run's folder below results/runs; it contains a hash of the parameters."""
        return run_path(self.axes, self.parameters_hash)

    @property
    def geometry(self) -> Geometry:
        """Nodes, tasks and GPUs of the run."""
        return self.point.geometry

    @property
    def cpus_per_task(self) -> int:
        """CPUs of one rank: the CPUs of a node, shared evenly by its tasks."""
        return self.measured.cpus_per_node // self.geometry.tasks_per_node_max

    def threads_per_operation(self, cpus: int) -> int:
        """Return the number of threads that one TensorFlow operation of a rank uses.

        With the local launcher, ranks share the CPUs of a machine, and get no more threads than
        CPUs: a rank that waits for a CPU keeps all ranks waiting.

        Args:
            cpus: Number of CPUs on which the rank may run.
        """
        if self.measured.launcher != "local":
            return self.cpus_per_task
        return min(self.cpus_per_task, max(1, cpus // self.geometry.tasks))

    @property
    def uses_gpus(self) -> bool:
        """Whether ranks compute on GPUs, not on the CPU or logical devices."""
        return self.point.gpus_per_node > 0 and self.measured.devices == "physical"

    @property
    def rank_python(self) -> str | None:
        """Python that runs the ranks: a path, or a name that the rank's shell looks up.

        For a Keras model it is the Python of the recipe's `environment`. Without one, and for a
        program, it is the platform's `python`. If neither is set, it is None: the ranks run in the
        workflow's own environment.
        """
        if self.recipe.environment is not None and not self.recipe.program:
            return str(python_path(self.recipe.environment))
        python = self.measured.python
        is_file_here = python is not None and "/" in python and self.measured.container is None
        return str(Path(python).absolute()) if python and is_file_here else python

    @property
    def uses_mpi(self) -> bool:
        """Whether the ranks are started as an MPI job."""
        return self.point.strategy == MPI_STRATEGY

    @property
    def parameters(self) -> dict[str, Value]:
        """Name → value of all parameters that can change the run, for its record and its hash."""
        return {
            **flatten_parameters(self.recipe),
            "dataset": self.dataset,
            **flatten_parameters(self.measured),
            "seed": self.seed,
            "trainer_version": self.trainer_version,
        }

    @functools.cached_property
    def parameters_hash(self) -> str:
        """Hash of the run's axes and parameters, 16 hexadecimal digits.

        It identifies the run: it is in the name of the run's folder and in its record. The function
        `parameters_hash` of this module computes it.
        """
        return parameters_hash(self.axes, self.parameters)

    def fill_placeholders(self, text: str, folder: Path, dataset: Path | None = None) -> str:
        """Return a word of the recipe's `program` with values in place of its placeholders.

        Args:
            text: The word, such as "--epochs={epochs}".
            folder: The rank's folder, for `{folder}`.
            dataset: Path of the prepared data, for `{dataset}`; None without a dataset.
        """
        values: dict[str, Value] = {
            **{f"parameters.{key}": value for key, value in self.recipe.single_parameters.items()},
            "epochs": self.recipe.epochs,
            "per_replica_batch_size": self.per_replica_batch_size,
            "global_batch_size": self.global_batch_size,
            "seed": self.seed,
            "replicas": self.replicas,
            "folder": str(folder),
            DATASET_PLACEHOLDER: str(dataset),
        }
        parts = string.Formatter().parse(text)
        return "".join(
            t + ("" if name is None else value_as_text(values[name])) for t, name, *_ in parts
        )


def python_path(environment: str) -> Path:
    """Return the absolute path of the Python in a recipe's environment, which is a folder."""
    return Path(environment).absolute() / "bin/python"


def trainer_version(recipe: Recipe) -> int:
    """Return the version of the workflow's code that runs a recipe.

    This is the version of the built-in trainer, or of the code that starts a program.
    """
    return PROGRAM_VERSION if recipe.program else TRAINER_VERSION


def value_as_text(value: Value) -> str:
    """Return a value as text for a command or a name: texts unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


#: Name of the file in a run's folder with its `RunRequest`. No other user can read it.
REQUEST_FILE = "request.json"


class SpecError(InputError):
    """The file is no specification of this version of the workflow."""


#: Keys of recipes that cannot change a run, only how the tables show it.
KEYS_WITHOUT_EFFECT = frozenset({"quality", "compare_resumed"})
#: Keys that all records have, even with their default. A new key is not added here.
_ALWAYS_WRITTEN = frozenset(
    (
        *BATCH_SIZE_KEYS,
        *("dataset", "optimizer", "learning_rate", "learning_rate_scaling", "momentum", "epochs"),
        *("train_examples_max", "test_examples_max", "evaluation_interval_epochs"),
        *("steps_per_execution", "precision", "communication", "parameter_servers"),
        *("launcher", "devices", "gpu_type", "instance_type", "cpus_per_node", "setup", "env"),
    )
)


def encode_spec(spec: RunSpec) -> str:
    """Return a specification as JSON; equal specifications give equal texts.

    The text is a part of the run's `request.json`, which is rewritten only if its text changes. So
    keys that do not change the run's hash are omitted, as in `flatten_parameters`.

    Raises:
        strict_json.NotFiniteError: If a number is NaN or infinite.
    """
    plain = {name: getattr(spec, name) for name in spec.__struct_fields__}
    plain |= {
        key: flatten_parameters(keys)
        for key, keys in plain.items()
        if isinstance(keys, Recipe | MeasuredKeys)
    }
    written = msgspec.json.encode(plain, order="deterministic")
    strict_json.check_finite(written, spec)
    return written.decode()


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file in a run's folder from which its jobs read what to run."""

    spec: RunSpec
    """The specification of the run."""
    replaces: Annotated[int, Meta(ge=0)] = 0
    """Number of the last attempt whose record is ignored, because the user has requested a rerun; 0
    if none is ignored."""


def write_request(folder: Path, request: RunRequest) -> None:
    """Write a request to the run's folder, unless the folder has an equal request.

    Raises:
        OSError: If it cannot be written.
    """
    fields = {"replaces": request.replaces, "spec": msgspec.Raw(encode_spec(request.spec).encode())}
    text, file = msgspec.json.encode(fields).decode(), folder / REQUEST_FILE
    try:
        if file.read_text() == text:
            return
    except (OSError, ValueError):  # it is missing or broken
        folder.mkdir(parents=True, exist_ok=True)
    atomic.write_private_text(file, text)


def read_request(folder: Path) -> RunRequest:
    """Read the request from a run's folder.

    Raises:
        SpecError: If there is no request of this version, or if it is the request of another
            folder.
    """
    file = folder / REQUEST_FILE
    request = _decode_file(file, RunRequest)
    _check_version(file, request.spec)
    if not folder.absolute().as_posix().endswith(f"/{request.spec.path}"):
        raise SpecError(f"{file}: expected the run of this folder, found {request.spec.path}")
    return request


def read_spec(path: Path) -> RunSpec:
    """Read a specification from a JSON file or pipe.

    Raises:
        SpecError: If it is no specification, or has another trainer_version.
    """
    spec = _decode_file(path, RunSpec)
    _check_version(path, spec)
    return spec


def _decode_file(path: Path, kind: type[_T]) -> _T:
    """Return the content of a JSON file as a value of the type `kind`.

    Raises:
        SpecError: If the file cannot be read, or has no such value.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise SpecError(f"{path}: {error}") from error


def _check_version(path: Path, spec: RunSpec) -> None:
    """Raise SpecError if the specification in a file is for another version of the trainer."""
    if spec.trainer_version != (here := trainer_version(spec.recipe)):
        raise SpecError(f"{path}: trainer_version {spec.trainer_version}, this is {here}")


def add_spec_option(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the option `--spec FILE` to a parser; its parsed value is the `RunSpec` in the file."""

    def specification(name: str) -> RunSpec:
        try:
            return read_spec(Path(name))
        except SpecError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    what = "the specification, such as spec.json of an attempt"
    parser.add_argument("--spec", type=specification, required=required, metavar="FILE", help=what)


def flatten_parameters(keys: Recipe | MeasuredKeys) -> dict[str, Value]:
    """Return key → JSON value, for the keys of a recipe or platform that are parameters of runs.

    A key that was added later is omitted while it has its default, so that records without the key
    keep their hash.
    """
    return dict(_flatten_cached(_ByIdentity(keys)))


class _ByIdentity:
    """Key of a cache, for the keys of a recipe or platform: equal only for the same object.

    Many runs share an object, which is immutable. To compare the contents of two objects would take
    as long as the computation that the cache saves.

    Args:
        keys: The keys of the recipe or platform.
    """

    __slots__ = ("keys",)

    def __init__(self, keys: Recipe | MeasuredKeys) -> None:
        self.keys = keys

    def __hash__(self) -> int:
        """Return a hash of the identity of the object."""
        return id(self.keys)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same object.

        The cache keeps the object alive, so that no other object gets its identity.
        """
        return isinstance(other, _ByIdentity) and other.keys is self.keys


@functools.lru_cache(maxsize=256)
def _flatten_cached(identity: _ByIdentity) -> dict[str, Value]:
    """Return the result of `flatten_parameters`, from a cache; callers must not change it."""
    keys = identity.keys
    defaults = _field_defaults(type(keys))
    values: dict[str, Value] = {}
    for key, value in msgspec.structs.asdict(keys).items():
        if key not in KEYS_WITHOUT_EFFECT and (key in _ALWAYS_WRITTEN or value != defaults[key]):
            is_plain = not isinstance(value, (tuple, msgspec.Struct))
            values[key] = value if is_plain else msgspec.json.decode(msgspec.json.encode(value))
    return values


@functools.cache
def _field_defaults(kind: type[Recipe | MeasuredKeys]) -> dict[str, object]:
    """Return name of a field → its default; msgspec.NODEFAULT for fields without one."""
    return {
        field.name: field.default if field.default_factory is NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
    }


def defaults_of_omitted_keys() -> dict[str, Value]:
    """Return key → default, for keys that parameters omit while they have their default.

    Records that were written before such a key existed lack it: their runs had its default.
    """
    found = {**_field_defaults(Recipe), **_field_defaults(MeasuredKeys)}
    left_out = _ALWAYS_WRITTEN | KEYS_WITHOUT_EFFECT
    return {
        key: msgspec.to_builtins(default)
        for key, default in found.items()
        if key not in left_out and default is not NODEFAULT
    }


def parameters_hash(axes: Mapping[str, str | int], parameters: Parameters) -> str:
    """Return the hash of a run: 16 hex digits over the canonical JSON of axes and parameters.

    Records contain the hash: a change of the format of numbers would make all earlier records
    stale.
    """
    content = [dict(axes), dict(parameters)]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def describe_changes(expected: Parameters, found: Parameters) -> list[str]:
    """Return the text of `describe_change` for each parameter that differs; [] if none does.

    Mappings are compared key by key. A missing parameter is compared as None.

    Args:
        expected: The parameters of the configuration.
        found: The parameters of a record.
    """
    now, before = _flatten_mappings(expected), _flatten_mappings(found)
    keys = [key for key in now | before if now.get(key) != before.get(key)]
    return [describe_change(key, before.get(key), now.get(key)) for key in keys]


def describe_change(key: str, before: object, now: object) -> str:
    """Return a text such as `epochs: 3, now 5`; `env: changed` if the values may be secret.

    Control characters are written out.

    Args:
        key: Name of the parameter; `env.NAME` for an entry of a mapping.
        before: The value of a record.
        now: The value of the configuration.
    """
    if key.partition(".")[0] in PRIVATE_KEYS:
        return f"{key}: changed"
    return make_visible(f"{key}: {before}, now {now}")


def _flatten_mappings(parameters: Parameters) -> dict[str, Value]:
    """Return the parameters, each mapping replaced by an entry `key.inner` for each of its keys."""
    single: dict[str, Value] = {}
    for key, value in parameters.items():
        if isinstance(value, dict):
            single |= {f"{key}.{inner}": of for inner, of in value.items()}
        else:
            single[key] = value
    return single


def run_path(axes: Mapping[str, str | int], hashed: str) -> str:
    """Return the folder of a run below results/runs, from its axes and its hash."""
    return "/".join([*(f"{axis}={axes[axis]}" for axis in AXES), f"{PARAMETERS_AXIS}={hashed}"])


class ModelToCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that is built before its runs start, so that its errors are found early.

    Attributes:
        spec: The run for which the model is built: the one with the fewest tasks.
        largest: The run for which its input pipeline is read: the one with the most workers and
            replicas.
    """

    spec: RunSpec
    largest: RunSpec


class CheckedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of building a ModelToCheck.

    Attributes:
        problem: Why the runs with the model cannot start; None if they can.
        warnings: Warnings about the model.
    """

    problem: str | None
    warnings: tuple[str, ...] = ()
