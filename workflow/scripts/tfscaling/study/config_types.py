"""The configuration as types: the one source of keys, types, bounds, defaults, units, descriptions.

The text below a key is its description. Schemas and the tables of `config/README.md` follow from
the types, and msgspec checks values by them. Each rank of a run loads this module, so that it
imports msgspec alone.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

PointAxis = Literal[
    "platform", "model", "strategy", "recipe", "nodes", "gpus_per_node", "tasks_per_node"
]
#: The axes of a configuration of the grid, in the order of the result folders.
POINT_AXES: tuple[str, ...] = get_args(PointAxis)
#: Axes of a line: its configurations differ in the number of nodes only, in plots and findings.
LINE_AXES = tuple(axis for axis in POINT_AXES if axis != "nodes")
#: Axes of a task: configurations with the same values train the same.
TASK_AXES = ("model", "recipe")
QuestionGoal = Literal[
    "execution_time_s",
    "time_with_queue_s",
    "cost_usd",
    "node_hours",
    "core_hours",
    "gpu_hours",
    "energy_kwh",
    "finish_time_s",
    "quality",
    "time_to_target_s",
    "cost_to_target_usd",
]
#: The axes of a run: the axes of its configuration, and the repeat.
AXES = (*POINT_AXES, "repeat")
#: The loss with which models without a loss are trained.
CROSS_ENTROPY: Literal["sparse_categorical_crossentropy"] = "sparse_categorical_crossentropy"
#: The strategy of recipes that name a program, and the model's name if the block has none.
PROGRAM_STRATEGY, PROGRAM = "own", "program"
#: The strategy whose ranks are started as an MPI job.
MPI_STRATEGY = "mpi_all_reduce"
#: Keys whose values may be secrets: messages name only the keys, or names of variables.
PRIVATE_KEYS = frozenset({"env", "setup", "program"})
#: Keys of a recipe's batch size: exactly one of them is given.
BATCH_SIZE_KEYS = ("per_replica_batch_size", "per_worker_batch_size", "global_batch_size")
#: The key of a batch size that may be an axis of doublings.
DOUBLED_KEY = BATCH_SIZE_KEYS[0]
#: Prefix of the names of metrics on held-out examples.
HELD_OUT = "test_"
#: The metrics of the built-in models, which are classifiers.
CLASSIFIER_METRICS = ("loss", "accuracy", "test_loss", "test_accuracy")


class ConfigMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all mappings of the configuration: the fields of a subclass are the allowed keys."""


def number_meta(unit: str, **bounds: Any) -> Meta:
    """Return the constraints of a number for msgspec, with its unit for documentation.

    Args:
        unit: The unit in words, such as "US dollars".
        **bounds: Bounds as in `msgspec.Meta`: `ge`, `gt`, `le`, `lt`.
    """
    return Meta(extra_json_schema={"unit": unit}, **bounds)


def text_meta(pattern: str, form: str, max_length: int | None = None) -> Meta:
    """Return the constraints of a text for msgspec, with its form in words for messages.

    Args:
        pattern: Regular expression that the text matches, in which `$` is the end.
        form: The pattern in words, for messages.
        max_length: Highest number of characters; None for no limit.
    """
    end = pattern.removesuffix("$") + r"\Z"  # Python's own `$` is also before a last newline
    return Meta(pattern=end, max_length=max_length, extra_json_schema={"form": form})


def sbatch_option(name: str) -> Meta:
    """Return metadata for a platform's key whose value becomes the option `--name` of sbatch."""
    return Meta(extra={"sbatch_option": name})


_ONCE = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_HIDDEN = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_COUNT = r"[1-9][0-9]{0,2}"

_NAME_FORM = "letters, digits and . _ -, a letter or digit first"
_MODEL = rf"^({_NAME}|{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER})$"
_MODEL_FORM = "a name (letters, digits and . _ -), or package.module:function"
_RECIPE = rf"^{_NAME}(\+{_IDENTIFIER}=[A-Za-z0-9._+-]+)*$"
_RECIPE_FORM = "a name (letters, digits and . _ -), or a variant, as wide+depth=18"
_COUNTS_FORM = 'a number for each node, such as "2+1"'
_LINE = rf"^[^{_HIDDEN}]*[^\s{_HIDDEN}][^{_HIDDEN}]*$"
_LINE_FORM = "one line of text, not empty and without control characters"
_OPTION_FORM = "one line of text that does not begin with a hyphen"
_SLURM_NAME_FORM = "letters, digits and _ . , : @ + -, as in Slurm's names"
_GRES_FORM = (
    "a name, or name:type; letters, digits, _ and in the type . + -; then others with their "
    "numbers, as in gpu:a100,nvme:1"
)
_GRES, _GRES_TYPE = "[A-Za-z0-9_]+", "[A-Za-z0-9_.+-]+"
_VARIABLE_FORM = "letters, digits and _, no digit first, as in names of environment variables"
_ARGUMENT_FORM = "letters, digits and _, no digit first, as in names of arguments"
_METRIC_FORM = "letters, digits, spaces and _ . : / @ -, a letter, digit or _ first"
_NO_ZERO, _NO_ZERO_FORM = r"^[^\x00]*$", "text without a zero byte"

#: Name of a study, platform, recipe and the like: it may be part of a folder's name.
Name = Annotated[str, text_meta(rf"^{_NAME}$", _NAME_FORM, 100)]
Names = Name | Annotated[tuple[Name, ...], _ONCE]
ModelName = Annotated[str, text_meta(_MODEL, _MODEL_FORM, 150)]
ModelNames = ModelName | Annotated[tuple[ModelName, ...], _ONCE]
#: Name of a recipe, or of one of its variants.
RecipeName = Annotated[str, text_meta(_RECIPE, _RECIPE_FORM, 200)]
RecipeNames = RecipeName | Annotated[tuple[RecipeName, ...], _ONCE]
NodeCount = Annotated[int, Meta(ge=1, le=100_000)]
NodeCounts = NodeCount | Annotated[tuple[NodeCount, ...], _ONCE]
GpuCount = Annotated[int, Meta(ge=0, le=1000)]
GpuCounts = GpuCount | Annotated[tuple[GpuCount, ...], _ONCE]
#: A number, or for uneven tasks their numbers on the nodes, such as "2+1".
TaskCount = (
    Annotated[int, Meta(ge=1, le=1000)]
    | Annotated[str, text_meta(rf"^{_COUNT}(\+{_COUNT})+$", _COUNTS_FORM, 150)]
)
TaskCounts = TaskCount | Annotated[tuple[TaskCount, ...], _ONCE]
#: Value of a block's `tasks_per_node`: as many tasks as GPUs.
PER_GPU = "gpus"
_GRID_COUNTS, _GRID_COUNTS_FORM = (
    rf"^({PER_GPU}|{_COUNT}(\+{_COUNT})+)$",
    f"{_COUNTS_FORM}, or gpus",
)
#: A `TaskCount`, or PER_GPU.
GridTaskCount = (
    Annotated[int, Meta(ge=1, le=1000)]
    | Annotated[str, text_meta(_GRID_COUNTS, _GRID_COUNTS_FORM, 150)]
)
GridTaskCounts = GridTaskCount | Annotated[tuple[GridTaskCount, ...], _ONCE]
Line = Annotated[str, text_meta(_LINE, _LINE_FORM, 1000)]
#: The value of an option of sbatch.
OptionValue = Annotated[str, text_meta(r"^[^\x00-\x20-][^\x00-\x1f]*$", _OPTION_FORM, 1000)]
_SUFFIX_FORM = "letters, digits, - and . of a host's name"
HostSuffix = Annotated[str, text_meta("^[A-Za-z0-9.-]+$", _SUFFIX_FORM, 100)]
SlurmName = Annotated[str, text_meta("^[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*$", _SLURM_NAME_FORM, 1000)]
GpuResource = Annotated[
    str,
    text_meta(
        f"^{_GRES}(:{_GRES_TYPE})?(,{_GRES}(:{_GRES_TYPE})?:[0-9]+[KMGTP]?)*$",
        _GRES_FORM,
        400,
    ),
]
VariableName = Annotated[str, text_meta(f"^{_IDENTIFIER}$", _VARIABLE_FORM, 200)]
NoZeroByte = Annotated[str, text_meta(_NO_ZERO, _NO_ZERO_FORM)]
NotEmpty = Annotated[str, Meta(min_length=1)]
ParameterName = Annotated[str, text_meta(f"^{_IDENTIFIER}$", _ARGUMENT_FORM, 100)]
#: A single value of a custom function's argument.
ParameterValue = (
    bool | int | float | Annotated[str, text_meta(_NO_ZERO, _NO_ZERO_FORM, 1000)] | None
)
ParameterValues = ParameterValue | Annotated[tuple[ParameterValue, ...], _ONCE]
Examples = Annotated[int, number_meta("examples", ge=1, le=2_147_483_647)]
Usd = Annotated[float, number_meta("US dollars", ge=0, le=1_000_000)]
_DURATION = r"[0-9]+(\.[0-9]+)? (s|min|h|d)"
_DURATION_FORM = 'a duration such as "90 s", "15 min", "6 h", "3 d"'
Duration = Annotated[
    str,
    text_meta(rf"^{_DURATION}$", _DURATION_FORM),
]
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_MOMENT_FORM = 'a time such as "2026-12-04T14:00", or with its zone "2026-12-04T14:00+01:00"'
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}([+-][0-9]{2}:[0-9]{2}|Z)?"
#: A moment by ISO 8601, in the local time zone or with its offset from UTC.
Moment = Annotated[
    str,
    text_meta(rf"^{_MOMENT}$", _MOMENT_FORM),
]
#: The end of a limit: a time, or the date on which all trainings are to be done.
DurationOrMoment = Annotated[
    str, text_meta(rf"^({_DURATION}|{_MOMENT})$", f"{_DURATION_FORM}, or {_MOMENT_FORM}")
]
#: Metric name as Keras or the program reports it.
MetricName = Annotated[str, text_meta("^[A-Za-z0-9_][A-Za-z0-9_.:/@ -]*$", _METRIC_FORM, 100)]


#: Number of runs that show that a configuration keeps limits or reaches a target. If each run
#: misses with a probability of 24 %, all of them keep it with a probability of 5 %.
LIMITED_RUNS_MIN = 11
#: Minimum runs of a configuration on each side of a comparison of sweeps or revisions: fewer show
#: neither outliers nor a second mode.
COMPARED_RUNS_MIN = 4
#: The goals that a search can have.
SEARCH_GOALS = ("execution_time_s", "cost_usd", "time_to_target_s", "cost_to_target_usd")


#: Most short runs of a configuration in a search.
SHORT_RUNS_MAX = 9
#: Value of `stop_after_steps` for short runs that end by themselves: after this many steps, or
#: twice as many as often as is needed.
AUTO, AUTO_STEPS = "auto", 500
StopAfterSteps = (
    Annotated[int, number_meta("steps", ge=20, le=1_000_000_000)] | Literal["auto"] | None
)


class Search(ConfigMapping, frozen=True, kw_only=True):
    """Keys of a search, which runs only the configurations that may still answer the question.

    Runs start in rounds. The search ends when one configuration is shown to be within the
    indifference of the best. These keys and the `question`, except its `indifference` and
    `trainings`, must not change during a search.
    """

    basis: Literal["every configuration once", "lines are smooth"] = "every configuration once"
    """`every configuration once` runs each configuration before a decision. `lines are smooth`
    assumes that times change smoothly with the number of nodes: a configuration that is behind by
    this assumption gets no run."""
    repeats_max: Annotated[int, Meta(ge=2, le=20)] = 20
    """A configuration gets at most this many complete runs."""
    stop_after_steps: StopAfterSteps = None
    """The search begins with short runs, which end after this many steps and are projected to the
    whole training (docs/projection.md)."""
    stop_after_epochs: Annotated[int, number_meta("epochs", ge=3, le=1_000_000)] | None = None
    """The search begins with short runs of this many `epochs`. Programs and parameter servers need
    it in place of `stop_after_steps`."""

    @property
    def short_run_keys(self) -> dict[str, int | str]:
        """Keys of a recipe that short runs replace → their values; empty if no run is short."""
        keys = {"stop_after_steps": self.stop_after_steps, "epochs": self.stop_after_epochs}
        return {key: value for key, value in keys.items() if value is not None}

    @property
    def assumes_smooth_lines(self) -> bool:
        """Whether times are assumed to change smoothly with the number of nodes."""
        return self.basis == "lines are smooth"


class Exclusion(ConfigMapping, frozen=True, kw_only=True):
    """An entry of `exclude`: it leaves out the configurations that match it on all of its axes."""

    reason: Line | UnsetType = UNSET
    """Reason for the exclusion; every table shows it."""
    platform: Names | UnsetType = UNSET
    """The entry matches these platforms."""
    model: ModelNames | UnsetType = UNSET
    """The entry matches these models."""
    strategy: Names | UnsetType = UNSET
    """The entry matches these strategies."""
    recipe: RecipeNames | UnsetType = UNSET
    """The entry matches these recipes, each with all of its variants."""
    nodes: NodeCounts | UnsetType = UNSET
    """The entry matches these numbers of nodes."""
    gpus_per_node: GpuCounts | UnsetType = UNSET
    """The entry matches these numbers of GPUs on each node."""
    tasks_per_node: TaskCounts | UnsetType = UNSET
    """The entry matches these numbers of ranks on each node."""

    @property
    def axes(self) -> dict[str, tuple[str | int, ...]]:
        """Axis → the values that the entry matches, for each axis in the entry."""
        given = {axis: getattr(self, axis) for axis in POINT_AXES}
        return {axis: as_values(value) for axis, value in given.items() if value is not UNSET}


class Block(ConfigMapping, frozen=True, kw_only=True):
    """A block of the grid: all combinations of values of its axes, each a value or a list."""

    platform: Names
    """Entries of `platforms`."""
    model: ModelNames | None = None
    """A built-in model or your function, `package.module:function`. With a program it is any name
    for the tables (`program` by default). Without a program, null is an error."""
    strategy: Names = "multi_worker_mirrored"
    """Names of distribution strategies."""
    recipe: RecipeNames
    """Entries of `recipes`, with all of their variants, or one variant such as `wide+depth=18`."""
    nodes: NodeCounts
    """Numbers of nodes."""
    gpus_per_node: GpuCounts = 0
    """GPUs (or logical devices) per node, divided evenly among its tasks; 0 trains on the CPU."""
    tasks_per_node: GridTaskCounts = 1
    """Numbers of ranks on each node. `gpus` starts one rank for each GPU of the configuration.
    "2+1" means two ranks on the first node and one on the second."""
    repeats: Annotated[int, Meta(ge=1, le=10_000)] = 6
    """Runs of each configuration; with fewer than 6, a median has no 95 % interval."""
    explain: bool = False
    """If true, and with a program: adds runs on one replica from which the parts of a step are
    estimated (docs/configuration/recipes.md), unless the grid has runs with the same work. The
    added runs are in no comparison."""
    search: Search | UnsetType | None = UNSET
    """Search among these configurations, instead of the top-level `search`; null makes `repeats`
    runs of each. The savings of a search are relative to `repeats` runs of each configuration."""
    exclude: tuple[Annotated[Exclusion, Meta(extra_json_schema={"minProperties": 1})], ...] = ()
    """Configurations that match an entry are excluded; an entry has values of some axes and may
    have a reason."""

    def axis_values(self, axis: str) -> tuple[Any, ...]:
        """Return all values of an axis in this block; the model of a program is named `program`."""
        value = getattr(self, axis)
        return as_values(PROGRAM if value is None else value)


def as_values(value: Any) -> tuple[Any, ...]:
    """Return a list of values as a tuple, and a single value as a tuple of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class Quality(ConfigMapping, frozen=True, kw_only=True):
    """The metric by which the results of trainings are compared."""

    metric: MetricName = "test_accuracy"
    """A metric of the run's epochs: `loss`, `accuracy`, or a metric of your model or program. The
    prefix `test_` means held-out examples."""
    direction: Literal["auto", "higher", "lower"] = "auto"
    """Which value is better. `auto` is `higher` for names that end with accuracy, `lower` for loss,
    and an error for others."""
    unit: Line | None = None
    """Tables and plots show the values with this unit."""
    best: float | None = None
    """Best possible value: values are compared by their distance from it. null means
    1 for accuracies, and no such value for other metrics."""

    @property
    def best_value(self) -> float | None:
        """Best possible value, from which values are compared by distance; None if unknown."""
        return 1.0 if self.best is None and self.is_accuracy else self.best

    @property
    def better(self) -> Literal["higher", "lower"] | None:
        """Which values are better, as configured or by the metric's name; None if unknown."""
        if self.direction != "auto":
            return self.direction
        if self.is_accuracy:
            return "higher"
        return "lower" if self.metric.endswith("loss") else None

    @property
    def is_accuracy(self) -> bool:
        """Whether the metric is an accuracy, by its name."""
        return self.metric.endswith("accuracy")

    @property
    def training_metric(self) -> str:
        """Name of the same metric on the training data: without the prefix `test_`."""
        return self.metric.removeprefix(HELD_OUT)

    @property
    def is_held_out(self) -> bool:
        """Whether the metric is measured on held-out data."""
        return self.metric.startswith(HELD_OUT)

    @property
    def title(self) -> str:
        """The metric's name in words: `test mean absolute error`."""
        return self.metric.replace("_", " ")


class Doublings(ConfigMapping, frozen=True, kw_only=True):
    """An axis of batch sizes, each twice the one before."""

    from_: Examples = msgspec.field(name="from")
    """The smallest batch."""
    to: Examples
    """The largest allowed batch."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batch sizes from `from` on, each twice the one before; empty if `to` is smaller."""
        return tuple(self.from_ << n for n in range((self.to // self.from_).bit_length()))


class Recipe(ConfigMapping, frozen=True, kw_only=True):
    """How to train a model, or which program trains it.

    Every key but `quality` and `compare_resumed` is part of a run's parameters: a change reruns the
    recipe's runs.
    """

    per_replica_batch_size: Examples | Doublings | None = None
    """Examples per step and replica (weak scaling: the global batch grows with the replicas).
    `{from: 64, to: 4096}` is an axis: one variant for each of 64, 128, 256 and so on."""
    per_worker_batch_size: Examples | None = None
    """Examples per step and worker, split over its devices (weak scaling in workers, strong scaling
    inside a worker)."""
    global_batch_size: Examples | None = None
    """Examples per step of all replicas together (strong scaling: the global batch stays the
    same)."""
    dataset: Annotated[str, Meta(min_length=1, max_length=150)] | None = None
    """A built-in dataset or your function, `package.module:function`; null takes the model's
    default. Programs get its path as `{dataset}`."""
    loss: Literal["auto", "model", "sparse_categorical_crossentropy"] = "auto"
    """`model` trains a custom model by its own loss and metrics. `sparse_categorical_crossentropy`
    trains every model as a classifier. `auto` is `model` for custom models."""
    optimizer: Literal["model", "sgd", "adam"] = "model"
    """Keras's optimizer of this name; `model` takes the optimizer of a compiled custom model, else
    `sgd`."""
    learning_rate: Annotated[float, Meta(gt=0, le=1e38)] | None = None
    """Learning rate before `learning_rate_scaling`; null takes the rate of a compiled custom model,
    and is an error for other models."""
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = "none"
    """The learning rate stays, or is multiplied by the number of replicas (`linear`) or its square
    root (`sqrt`)."""
    momentum: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Momentum of `sgd`; null takes the compiled model's, else 0."""
    nesterov: bool | None = None
    """If true, `sgd` uses Nesterov momentum; null takes the compiled model's setting, else
    false."""
    weight_decay: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Keras's `weight_decay` of the optimizer (no L2 loss); null takes the compiled model's, else
    0."""
    warmup_epochs: Annotated[float, number_meta("epochs", ge=0, le=1_000_000)] = 0.0
    """The learning rate rises linearly from 0 over this many epochs, or a fraction of one."""
    decay: Literal["none", "linear", "cosine"] = "none"
    """After the warm-up the learning rate stays (`none`), or falls to 0 along a line or half a
    cosine."""
    label_smoothing: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """This fraction of each label is spread over all classes in the trained loss, not in the loss
    of held-out examples."""
    epochs: Annotated[int, Meta(ge=1, le=1_000_000)]
    """Passes over the training examples."""
    stop_after_steps: StopAfterSteps = None
    """A short run ends after this many steps; time and cost of all `epochs` are projected from it
    (docs/projection.md). `auto` ends it when the steps suffice; null trains all epochs."""
    steps_per_epoch: Annotated[int, number_meta("steps", ge=1, le=1_000_000_000)] | None = None
    """Steps in an epoch of an input pipeline (docs/configuration/pipelines.md), whose data are
    repeated as often as needed; null ends an epoch with the data."""
    train_examples_max: Examples | None = None
    """The run trains on the first n examples; null takes all."""
    test_examples_max: Examples | None = None
    """The run evaluates on the first n held-out examples; null takes all."""
    validation_examples: Examples | None = None
    """The run holds out the last n training examples and evaluates on them instead of the test
    data: to choose a recipe without the test data."""
    evaluation_interval_epochs: Annotated[int, number_meta("epochs", ge=1, le=1_000_000)] | None = (
        None
    )
    """The run evaluates after every n epochs, which a time to a target needs; null evaluates only
    at the end."""
    steps_per_execution: Annotated[int, number_meta("steps", ge=1, le=1_000_000_000)] = 1
    """Steps in one call of the compiled training function. 1 keeps the time of every step; more
    saves a little time."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras's dtype policy; `mixed_float16` scales the loss."""
    jit_compile: bool = False
    """If true, XLA compiles forward and backward pass of each replica. Sums over replicas and the
    optimizer's update stay outside of XLA."""
    measure_computation: bool = True
    """If true, runs on several replicas measure some steps without communication after the
    training, for the bottleneck analysis. These take at most 5 % of the training time, or 3 s."""
    communication: Literal["auto", "ring", "nccl"] = "auto"
    """Implementation of the collective operations of `multi_worker_mirrored`."""
    parameter_servers: Annotated[int, number_meta("tasks", ge=1, le=100_000)] = 1
    """Number of parameter servers, for strategies that have them."""
    checkpoint_every_epochs: Annotated[int, number_meta("epochs", ge=1, le=1_000_000)] | None = None
    """The run writes a checkpoint after every n epochs, from which the next attempt resumes; null
    sets no interval in epochs."""
    checkpoint_every_s: Annotated[int, number_meta("s", ge=1, le=31_536_000)] | None = None
    """The run writes a checkpoint when the last one is this old; null sets no interval in time."""
    compare_resumed: bool = False
    """If true, comparisons of time include resumed runs. Training that was lost and repeated counts
    once. A change reruns nothing."""
    quality: Quality = Quality()
    """The metric by which results are compared. A change reruns nothing."""
    program: tuple[NoZeroByte, ...] = ()
    """The words of a command that every rank starts instead of training a model. Placeholders such
    as `{epochs}` are filled in (docs/programs.md). An empty list trains a model."""
    environment: NotEmpty | None = None
    """Your virtual or conda environment, a folder with `bin/python`. Models are trained with its
    TensorFlow (docs/own-training.md); programs find its `bin` first on PATH. Relative paths start
    where snakemake runs. null takes the platform's `python`, or PATH as it is."""
    observe: Literal["nothing", "fit", "events", "output"] = "nothing"
    """How steps, epochs and quality of a program are read: not at all, Keras's `fit`, events that
    it writes, or patterns on its output."""
    patterns: dict[Name, NotEmpty] = {}
    """With `observe: output`: metric → regular expression for a line of the output. Its only group
    matches the metric's value."""
    train_examples: Examples | None = None
    """Number of training examples in an epoch of the program. A run that reports a higher number
    fails. With null there is no such check."""
    parameters: dict[ParameterName, ParameterValues] = {}
    """Arguments of your functions, by name: numbers, texts, true, false, null. A list is an axis:
    one variant for each combination."""

    @property
    def doublings(self) -> tuple[int, ...]:
        """The batch sizes if the batch size is an axis of doublings; empty for a single size."""
        size = self.per_replica_batch_size
        return size.sizes if isinstance(size, Doublings) else ()

    @property
    def parameter_axes(self) -> dict[str, tuple[ParameterValue, ...]]:
        """Name of a parameter → its values, for the parameters whose value is a list."""
        return {key: value for key, value in self.parameters.items() if isinstance(value, tuple)}

    @property
    def single_parameters(self) -> dict[str, ParameterValue]:
        """Name of a parameter → its value, for each parameter that is not a list.

        In a variant, no parameter is a list.
        """
        return {
            key: value for key, value in self.parameters.items() if not isinstance(value, tuple)
        }

    @property
    def batch_scaling(self) -> Literal["strong", "weak"]:
        """`strong` if the recipe sets the global batch size, else `weak`."""
        return "weak" if self.global_batch_size is None else "strong"

    @property
    def writes_checkpoints(self) -> bool:
        """Whether the built-in trainer writes checkpoints for this recipe."""
        return self.checkpoint_every_epochs is not None or self.checkpoint_every_s is not None

    @property
    def has_schedule(self) -> bool:
        """Whether the recipe changes the learning rate during the training."""
        return self.warmup_epochs > 0 or self.decay != "none"


class Container(ConfigMapping, frozen=True, kw_only=True):
    """The image in which the ranks of a platform run; launcher and workflow stay outside."""

    image: Line
    """File or folder of the image, at the same path on all nodes; for pyxis, a value of
    `--container-image`."""
    engine: Literal["apptainer", "singularity", "charliecloud", "pyxis"] = "apptainer"
    """Program that starts the container. `pyxis`, a plugin of Slurm, needs `launcher: srun`."""
    binds: tuple[Line, ...] = ()
    """More folders to bind into the container, as FOLDER or FOLDER:PATH_INSIDE. The project's
    folder is always bound."""


class MeasuredKeys(ConfigMapping, frozen=True, kw_only=True):
    """Keys of a platform that can change a measurement: they are part of a run's parameters."""

    launcher: Name
    """`srun` starts the ranks as a Slurm job step, `local` as processes on one machine."""
    mpi: Name = "pmi2"
    """`srun` starts the ranks of `mpi_all_reduce` with this `--mpi`: `pmi2` for MPICH (installed by
    the project), Intel MPI and MVAPICH, `pmix` for Open MPI."""
    devices: Literal["physical", "logical"] = "physical"
    """With `physical`, `gpus_per_node` counts GPUs. With `logical`, a worker splits its CPU into
    logical devices, to test without GPUs."""
    gpu_type: Line | None = None
    """Model of the GPUs, such as v100 or a100-80gb; a run on a different model is not valid. GPUs
    that cannot be compared with it are listed in `unchecked`. null checks no model."""
    instance_type: Line | None = None
    """Machine type of the nodes, which the tables show."""
    cpus_per_node: Annotated[int, number_meta("CPUs", ge=1, le=100_000)]
    """CPUs that a job requests on each node; its tasks share them evenly."""
    cpu_bind: OptionValue | None = None
    """`srun` binds ranks to CPUs by this `--cpu-bind`, such as `cores`. null leaves it to Slurm."""
    gpu_bind: OptionValue | None = None
    """`srun` binds ranks to GPUs by this `--gpu-bind`, such as `closest`. null leaves it to
    Slurm."""
    switches: Annotated[OptionValue | None, sbatch_option("switches")] = None
    """Highest number of network switches that connect a job's nodes, and how long to wait for such
    nodes. The value is given to `--switches`, such as `1@02:00:00`. null sets no limit."""
    host_suffix: HostSuffix | None = None
    """Text added to a node's name, before its domain, in the addresses of ranks (TF_CONFIG,
    MASTER_ADDR). It selects a faster network of the nodes, such as `-ib0` or `i`. null adds
    nothing."""
    setup: tuple[NoZeroByte, ...] = ()
    """Shell lines that every rank runs before the trainer, such as `module load cuda`."""
    python: Line | None = None
    """Python of the ranks: a path, inside the container if there is one, or a command that `setup`
    puts on PATH, such as `python3`. It has its own TensorFlow (docs/own-training.md). null takes
    the workflow's environment, which is then bound into a container."""
    container: Container | None = None
    """Ranks run in this container; `setup` runs before it is started. null uses no container."""
    env: dict[VariableName, NoZeroByte] = {}
    """Environment variables of the trainer or program."""

    @property
    def srun_binding_options(self) -> tuple[str, ...]:
        """Options of srun that bind ranks to CPUs and GPUs, such as `--cpu-bind=cores`."""
        given = {"--cpu-bind": self.cpu_bind, "--gpu-bind": self.gpu_bind}
        return tuple(f"{option}={value}" for option, value in given.items() if value is not None)


class WideJobs(ConfigMapping, frozen=True, kw_only=True):
    """Which jobs are wide, and how long they should run at least.

    Slurm keeps nodes idle until enough of them are free for a wide job. A short one then wastes
    more node-hours than it uses.
    """

    nodes: NodeCount
    """Jobs on at least this many nodes are wide."""
    minutes: Annotated[int, number_meta("min", ge=1, le=5_256_000)]
    """Wide jobs should run for at least this long."""


class Platform(MeasuredKeys, frozen=True, kw_only=True):
    """Where to run: a cluster, a part of one, or a single machine.

    The keys of `MeasuredKeys`, marked "measured" in the reference, are part of a run's parameters:
    a change reruns the platform's runs. A change of the others reruns nothing.
    """

    title: Line | None = None
    """Name in tables and plots; null takes the name in `platforms`."""
    cloud: Line | None = None
    """The cloud on which the platform runs; clouds are compared with each other."""
    published_as: Line | None = None
    """Name in the published results; null takes the name in `platforms`."""
    cluster: Name | None = None
    """The Slurm cluster of the platform; `--config cluster=NAME` submits only that cluster's
    runs."""
    nodes_max: Annotated[NodeCount, number_meta("nodes")]
    """Configurations with more nodes are excluded."""
    gpus_per_node_max: Annotated[GpuCount, number_meta("GPUs")] = 0
    """A configuration with more GPUs (or logical devices) per node is an error."""
    gpus_max: Annotated[int, number_meta("GPUs", ge=0, le=100_000_000)] | None = None
    """Quota of GPUs over all nodes of a run; configurations beyond it are excluded. null sets no
    quota."""
    mem_mb: Annotated[int, number_meta("MB", ge=0, le=1_000_000_000)] | None = None
    """Memory that a job requests per node; 0 or null leaves it to Slurm's default."""
    mem_mb_per_cpu: Annotated[int, number_meta("MB", ge=1, le=1_000_000_000)] | None = None
    """Memory per CPU in place of `mem_mb`, where the site requires `--mem-per-cpu`."""
    mem_mb_per_gpu: Annotated[int, number_meta("MB", ge=1, le=1_000_000_000)] | None = None
    """Memory per GPU in place of `mem_mb`, where the site requires `--mem-per-gpu` of GPU jobs."""
    runtime_min: Annotated[int, number_meta("min", ge=1, le=5_256_000)] = 60
    """Slurm ends a run after this time."""
    wide_jobs: WideJobs | None = None
    """Plan and recommendation warn of jobs on `nodes` or more that run for less than `minutes`
    (docs/configuration/platforms.md#wide-and-short-jobs). null gives no warning."""
    stall_timeout_s: Annotated[int, number_meta("s", ge=10, le=315_360_000)] = 600
    """A run fails if no rank makes progress, uses CPU time or waits for it for this long, or if
    ranks use or wait for CPU time without progress for ten times as long."""
    latency_wait_s: Annotated[int, number_meta("s", ge=0)] = 60
    """How long a shared file system may take to show the launcher what ranks on other nodes have
    written."""
    partition: SlurmName | None = None
    """Jobs go to this Slurm partition."""
    account: SlurmName | None = None
    """Jobs are charged to this Slurm account."""
    qos: SlurmName | None = None
    """Jobs run with this Slurm quality of service."""
    constraint: OptionValue | None = None
    """Nodes must have these Slurm features."""
    reservation: Annotated[SlurmName | None, sbatch_option("reservation")] = None
    """Jobs use this Slurm reservation."""
    exclusive: bool = False
    """If true, jobs request whole nodes (`--exclusive`)."""
    gpu_gres: GpuResource | None = "gpu"
    """Name of GPUs in `--gres`: "gpu", or typed as "gpu:v100"; null requests no GPUs from Slurm.
    Other resources of a node may follow with their numbers: "gpu:v100,nvme:1"."""
    extra: Line | None = None
    """Further options of sbatch, as one string; options that a key here, the grid or the
    profile sets are rejected."""
    peak_tflops: dict[
        Literal["float32", "tf32", "bfloat16", "float16"], Annotated[float, Meta(gt=0, le=1e6)]
    ] = {}
    """Peak TFLOP/s of one replica's device when it multiplies large matrices, by precision. It is
    for the column `share_of_peak` (docs/gpu.md). A change reruns nothing."""
    usd_per_node_hour: Usd | None = None
    """Price of a node per hour. It needs `price_date` and `price_source`."""
    usd_per_gpu_hour: Usd | None = None
    """Price of a GPU per hour, added to the node's price; null if the node's price includes its
    GPUs."""
    usd_per_kwh: Usd | None = None
    """Price of energy, for the column `energy_usd`; `cost_usd` does not include it."""
    kg_co2_per_kwh: Annotated[float, number_meta("kg", ge=0, le=10)] | None = None
    """CO2 emissions per kWh of energy, for the column `energy_kg_co2`."""
    price_date: (
        Annotated[str, text_meta(r"^[0-9]{4}(-[0-9]{2}){0,2}$", "YYYY, YYYY-MM or YYYY-MM-DD")]
        | None
    ) = None
    """Date on which the price was valid."""
    price_source: Line | None = None
    """Source of the price."""

    @property
    def measured_keys(self) -> MeasuredKeys:
        """The keys that can change a measurement, without prices, limits and Slurm's settings."""
        return MeasuredKeys(**{key: getattr(self, key) for key in MeasuredKeys.__struct_fields__})

    def peak_tflops_for(self, recipe: Recipe) -> float | None:
        """Return the peak TFLOP/s of a replica's device at the recipe's precision; None if unknown.

        The precision of a program is its parameter of this name.
        """
        own = recipe.parameters.get("precision")
        precision = own if recipe.program else recipe.precision.removeprefix("mixed_")
        return next((peak for name, peak in self.peak_tflops.items() if name == precision), None)

    def is_wide_and_short(self, nodes: int, duration_s: float) -> bool:
        """Return whether a job is wide and shorter than `wide_jobs` allows.

        Args:
            nodes: Nodes of the job.
            duration_s: Its time in seconds; NaN if unknown.
        """
        wide = self.wide_jobs
        return wide is not None and nodes >= wide.nodes and duration_s < 60 * wide.minutes

    def node_price_usd_per_hour(self, gpus_per_node: int) -> float | None:
        """Return the price of a node with this many GPUs, US dollars per hour; None if unknown."""
        if self.usd_per_node_hour is None or self.usd_per_gpu_hour is None:
            return self.usd_per_node_hour
        return self.usd_per_node_hour + self.usd_per_gpu_hour * gpus_per_node


class DatasetCopy(ConfigMapping, frozen=True, kw_only=True):
    """A local copy of a dataset."""

    path: NotEmpty | None = None
    """Folder with the dataset's files as published (IDX files may be gzipped), or an `.npz` with
    `x_train`, `y_train`, `x_test`, `y_test`; null downloads the dataset."""


class Budget(ConfigMapping, frozen=True, kw_only=True):
    """Limits of the estimated cost of the runs that are still to do."""

    usd: Annotated[float, number_meta("US dollars", ge=0)] | None = None
    """A sweep is refused before submission if the estimate of its remaining runs is higher. Every
    platform with runs to do needs a price. null sets no budget."""
    node_hours: Annotated[float, number_meta("node-hours", ge=0)] | None = None
    """A sweep is refused before submission if its remaining runs are estimated to take more
    node-hours. null sets no budget."""


class Baseline(ConfigMapping, frozen=True, kw_only=True):
    """The axes of the configuration that speed-up is relative to.

    An omitted platform, model, strategy or recipe is the same as in the compared configuration. If
    nodes, tasks or GPUs are omitted, the baseline has the fewest replicas.
    """

    platform: Name | UnsetType = UNSET
    """The baseline is on this platform."""
    model: ModelName | UnsetType = UNSET
    """The baseline trains this model."""
    strategy: Name | UnsetType = UNSET
    """The baseline uses this strategy."""
    recipe: RecipeName | UnsetType = UNSET
    """The baseline uses this recipe; with variants, each configuration has a baseline of the same
    variant."""
    nodes: NodeCount | UnsetType = UNSET
    """The baseline has this many nodes."""
    gpus_per_node: GpuCount | UnsetType = UNSET
    """The baseline has this many GPUs on each node."""
    tasks_per_node: TaskCount | UnsetType = UNSET
    """The baseline has this many ranks on each node."""

    @property
    def axes(self) -> dict[str, str | int]:
        """Axis → value of the baseline, for each axis that is set."""
        return {axis: v for axis in POINT_AXES if (v := getattr(self, axis)) is not UNSET}


class Comparison(ConfigMapping, frozen=True, kw_only=True):
    """What the comparison of configurations shows."""

    title: Line = "Comparison of distributed training runs"
    """Heading of `comparison.md`."""
    columns: Annotated[tuple[str, ...], _ONCE] = (
        "execution_time_s",
        "speedup",
        "scaling_efficiency",
        "steady_state_speedup",
        "throughput_examples_per_s",
        "loss",
        "accuracy",
        "test_accuracy",
        "quality",
        "cost_usd",
    )
    """`comparison.md` shows these metrics in this order; `comparison.csv` always has every
    metric."""
    baseline: Baseline = Baseline()
    """Speed-up is relative to the configuration with these axes. An omitted platform, model,
    strategy or recipe is the same as in the compared configuration. If nodes, tasks or GPUs are
    omitted, the baseline has the fewest replicas."""


class Limit(ConfigMapping, frozen=True, kw_only=True):
    """A limit of a metric: exactly one of `at_most` and `at_least` is given.

    A number is in the metric's unit; times may be written as "90 s", "15 min", "6 h" or "3 d", and
    `finish_time_s` as a date, such as "2026-12-05T18:00".
    """

    at_most: float | DurationOrMoment | None = None
    """Configurations with a higher value are not recommended."""
    at_least: float | None = None
    """Configurations with a lower value are not recommended."""

    @property
    def value(self) -> float:
        """The limit's number in the metric's unit; a duration such as "15 min" in seconds.

        It is NaN for a date. `Question.limits_in_force` converts dates to seconds since the start
        of the campaign.
        """
        if self.is_date:
            return float("nan")
        given = self.at_least if self.at_most is None else self.at_most
        assert given is not None
        return parse_duration(given) if isinstance(given, str) else given

    @property
    def is_date(self) -> bool:
        """Whether the limit is a date."""
        return isinstance(self.at_most, str) and ":" in self.at_most

    def since(self, start: str) -> Limit:
        """Return the limit, in which a date is replaced by the seconds from `start` to it.

        A date that does not exist is left unchanged; a later check rejects it.
        """
        if not self.is_date:
            return self
        assert isinstance(self.at_most, str)
        try:
            return Limit(at_most=seconds_between(start, self.at_most))
        except ValueError:
            return self


#: Metrics that are ratios of a configuration to its baseline; their limits are at most 1.
EFFICIENCIES = ("scaling_efficiency", "weak_scaling_efficiency")
#: Metrics of a campaign, which are simulated: when all trainings are done, and what they cost.
CAMPAIGN_METRICS = ("finish_time_s", "campaign_cost_usd")
#: Metrics that may have a limit besides the recipes' quality → which values are better.
LIMITABLE_METRICS: dict[str, Literal["lower", "higher"]] = {
    "execution_time_s": "lower",
    "time_with_queue_s": "lower",
    "finish_time_s": "lower",
    "cost_usd": "lower",
    "campaign_cost_usd": "lower",
    "node_hours": "lower",
    "core_hours": "lower",
    "gpu_hours": "lower",
    "scaling_efficiency": "higher",
    "weak_scaling_efficiency": "higher",
    "energy_kwh": "lower",
    "rank_memory_gb": "lower",
    "gpu_memory_gb": "lower",
}


#: Most trainings of a campaign.
CAMPAIGN_TRAININGS_MAX = 10_000
#: Fewest epochs of complete runs from which a longer training is projected.
PROJECTABLE_EPOCHS_MIN = 3


def seconds_between(start: str, end: str) -> float:
    """Return the time between two moments in seconds.

    Args:
        start: A `Moment`; local time without an offset from UTC.
        end: The second moment.
    """
    first, last = (datetime.datetime.fromisoformat(each).timestamp() for each in (start, end))
    return last - first


def parse_duration(text: str) -> float:
    """Return a `Duration` in seconds."""
    number, unit = text.split()
    return float(number) * _SECONDS[unit]


class Spot(ConfigMapping, frozen=True, kw_only=True):
    """Nodes that their owner may take away at any time, such as spot or preemptible instances."""

    interruptions_per_hour: Annotated[
        float, number_meta("interruptions per node and hour", gt=0, le=100)
    ]
    """Expected interruptions of a node in an hour. An interruption of one node ends the job."""


class Campaign(ConfigMapping, frozen=True, kw_only=True):
    """How all trainings are run, to estimate the date on which they are done (docs/campaign.md)."""

    trainings: Annotated[int, number_meta("trainings", ge=1, le=CAMPAIGN_TRAININGS_MAX)] | None = (
        None
    )
    """Number of trainings; null takes `question.trainings`. Searches use that key and ignore this
    one."""
    at_once: Annotated[int, number_meta("trainings", ge=1, le=CAMPAIGN_TRAININGS_MAX)] = 1
    """At most this many trainings have a job in the queue or running at the same time."""
    time_limit: Duration | None = None
    """A job ends after this time, such as "24 h"; the next job continues the training from its last
    checkpoint. null means that jobs may take any time."""
    checkpoint_every: Duration | None = None
    """A training writes a checkpoint at this interval, such as "30 min". null means that it writes
    none: each further job of the training begins with its first step."""
    spot: Spot | None = None
    """The trainings run on nodes that can be taken away; null if they do not."""
    start: Moment | None = None
    """When the first trainings are submitted, such as "2026-12-01T09:00", in the local time zone
    unless it has an offset from UTC. null gives the time until all are done instead of dates."""


class WholeTraining(ConfigMapping, frozen=True, kw_only=True):
    """The complete training that the question is about, if runs train fewer epochs."""

    epochs: Annotated[int, number_meta("epochs", ge=1, le=1_000_000)]
    """Epochs of the complete training. Its time and cost are projected from runs with fewer epochs
    (docs/projection.md). A change reruns nothing."""


class Question(ConfigMapping, frozen=True, kw_only=True):
    """The question that the study answers by its headline, recommendation and search."""

    goal: QuestionGoal = "execution_time_s"
    """The best configuration has the lowest value of this metric, or the best quality.
    `…_to_target_…` needs a limit of the quality, which is the target. `time_with_queue_s` includes
    waiting and boot (docs/method.md). `finish_time_s` is when all trainings of `campaign` are
    done."""
    limits: dict[MetricName, Limit | None] = {}
    """Metric → its limit. A configuration is recommended only if its runs show that it keeps all
    limits. Metrics: time, time with queue, cost, time until all trainings are done and cost of all
    trainings (docs/campaign.md), node-, core- and GPU-hours, scaling efficiency
    (docs/efficiency.md), energy, memory of ranks and GPUs, and the recipes' quality, by its name.
    `test_accuracy: null` ignores this quality: all recipes count as equally good."""
    choose: Annotated[tuple[PointAxis, ...], _ONCE] = (
        *("platform", "strategy", "nodes", "gpus_per_node", "tasks_per_node"),
    )
    """The recommendation is chosen among configurations that differ in these axes. Each combination
    of values on the other axes is a separate question. If `recipe` or `model` is listed, all
    recipes must have the same quality metric, and `limits` an entry for it, which may be null."""
    indifference: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    """A configuration that is shown to be worse than the best by at most this fraction counts as
    equally good, and cost decides. For accuracies it is a fraction of the error. A change reruns
    nothing."""

    trainings: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Number of trainings that the answer is for: headline, recommendation and proposal have the
    total time and cost of this many trainings, and a search ends when its next round costs more
    than it is expected to save in all trainings (docs/search.md). With null the answer is for one
    training, and the cost of runs ends no search. A change reruns nothing."""
    whole_training: WholeTraining | None = None
    """The complete training that short runs represent; null takes each recipe's own `epochs`."""
    campaign: Campaign | None = None
    """How all trainings are run: the page then has the date on which they are done, and their cost.
    A change reruns nothing."""

    @property
    def campaign_trainings(self) -> int:
        """Number of trainings of the campaign."""
        return (self.campaign and self.campaign.trainings) or self.trainings or 1

    def epochs_to_project(self, recipe: Recipe) -> int | None:
        """Return the epochs to which a recipe's runs are projected by `whole_training`; or None.

        It is None without `whole_training`, if the recipe has the same number of epochs, and if
        `stop_after_steps` ends its runs: they are projected to the recipe's own `epochs`.
        """
        whole = self.whole_training
        if whole is None or recipe.stop_after_steps or recipe.epochs == whole.epochs:
            return None
        return whole.epochs

    @property
    def separating_axes(self) -> tuple[str, ...]:
        """The axes whose combinations of values are separate questions."""
        return tuple(axis for axis in POINT_AXES if axis not in self.choose)

    @property
    def ignored_qualities(self) -> set[str]:
        """Metrics of quality whose limit is null: results are not compared by them."""
        return self.limits.keys() - self.limits_in_force.keys()

    @property
    def limits_in_force(self) -> dict[str, Limit]:
        """Metric → its limit if that is not null; dates as seconds since the campaign's start."""
        start = (self.campaign and self.campaign.start) or None
        found = {name: each for name, each in self.limits.items() if each is not None}
        return {n: each.since(start) if start else each for n, each in found.items()}

    @property
    def targets(self) -> dict[str, float]:
        """Quality metric → its limit, which is the target of the goals `…_to_target_…`."""
        limits = self.limits_in_force.items()
        # a limit without a value is refused later, with its place
        return {
            n: each.value for n, each in limits if n not in LIMITABLE_METRICS and each != Limit()
        }

    def limits_for(self, goal: str, quality: str | None) -> dict[str, Limit]:
        """Return column of the tables → limit, for the limits that a configuration must keep.

        With a goal such as `time_to_target_s`, the limit of the quality is the target: it is left
        out.

        Args:
            goal: The metric that is to be best.
            quality: The recipes' quality metric, whose limit gets the column `quality`; None
                without one.
        """
        own = {
            name: each for name, each in self.limits_in_force.items() if name in LIMITABLE_METRICS
        }
        if quality in self.limits_in_force and "_to_target" not in goal:
            own["quality"] = self.limits_in_force[quality]
        return own


class Published(ConfigMapping, frozen=True, kw_only=True):
    """Published results, which are shown next to the measured ones."""

    path: NotEmpty | None = None
    """This CSV has the published results in the columns of resources/published_results.csv; a
    relative path starts in the folder in which snakemake runs. null shows none."""
    tolerance: Annotated[float, Meta(ge=0, le=1)] = 0.25
    """A published loss or accuracy agrees if it is in the measured range after the range is
    widened by this fraction of the loss, or of the error 1 - accuracy."""


class Forecast(ConfigMapping, frozen=True, kw_only=True):
    """Numbers of nodes without runs, for which times are forecast from the measured ones."""

    nodes: Annotated[tuple[NodeCount, ...], number_meta("nodes")] = ()
    """Times on these numbers of nodes are forecast from configurations that differ only in nodes.
    Numbers with measured runs are skipped; numbers above `nodes_max` are allowed."""


class Proposal(ConfigMapping, frozen=True, kw_only=True):
    """Options of `snakemake proposal`, which requests compute time for the trainings."""

    margin: Annotated[float, Meta(ge=0, le=1)] = 0.2
    """Fraction of the node-hours that is added for tests and failed runs. The node-hours of a
    campaign include failed runs."""


class PlotOptions(ConfigMapping, frozen=True, kw_only=True):
    """Options of a plot."""

    title: Line | None = None
    """Title of the plot; null takes the default one."""


class Config(ConfigMapping, frozen=True, kw_only=True):
    """Configuration of a study, merged from config/platforms.yaml and the study's own files.

    The files of the study follow --configfile; without it, config/config.yaml is used.
    """

    study: Name = "main"
    """Name of the study: page, tables and plan are in `results/<study>/`."""
    grid: Annotated[tuple[Block, ...], Meta(min_length=1)]
    """What to run: a list of blocks, each the product of its axes."""
    search: Search | None = None
    """Search of every block without its own `search`; null makes `repeats` runs of each
    configuration."""
    recipes: Annotated[dict[Name, Recipe], Meta(min_length=1)]
    """How to train, by name."""
    platforms: Annotated[dict[Name, Platform], Meta(min_length=1)]
    """Where to run, by name."""
    datasets: dict[Name, DatasetCopy] = {}
    """Local copies of built-in datasets, by name."""
    seed: Annotated[int, Meta(ge=0, le=4_294_967_295)] = 1
    """Repeat k trains with seed + k - 1."""
    cluster: NotEmpty | None = None
    """Only the platforms of this cluster are run; null runs all. Tables show all runs."""
    rerun: Literal["none", "stale"] = "none"
    """`stale` reruns runs made by other code or from other data. Give it on the command line:
    `--config rerun=stale`."""
    clean: Literal["list", "remove"] = "list"
    """`remove` lets `snakemake clean_runs` remove the runs that it lists. Give it on the command
    line: `--config clean=remove`."""
    check_models: bool = True
    """Custom models are built once, on the CPU where snakemake runs, before any run: if one cannot
    be built, no run starts. `false` where that machine must not import TensorFlow."""
    readable_by: Literal["owner", "group", "all"] = "owner"
    """Who may read the files of runs and tables, within your umask."""
    budget: Budget = Budget()
    """Limits of the remaining runs' estimated cost; a sweep beyond a limit is rejected."""
    comparison: Comparison = Comparison()
    """What the comparison of configurations shows."""
    question: Question = Question()
    """The question that the study answers."""
    timings: NotEmpty | None = None
    """This CSV has the runs of the study, one row for each: they are shown and nothing is run
    (docs/timings.md). A relative path starts in the folder in which snakemake runs."""
    published: Published = Published()
    """Published results, which are shown next to the measured ones."""
    forecast: Forecast = Forecast()
    """Forecasts of times on numbers of nodes without runs; no decision uses them."""
    proposal: Proposal = Proposal()
    """Options of `snakemake proposal`, which requests node-hours for the question's trainings."""
    compare_with: NotEmpty | None = None
    """Folder with the results of another study, such as `before/results/main`: each configuration
    is compared with the equal one there. A relative path starts where snakemake runs."""
    compare_revisions: (
        Annotated[tuple[NotEmpty, ...], Meta(min_length=2, extra_json_schema={"uniqueItems": True})]
        | None
    ) = None
    """Recipes that are revisions of one training, such as the code of two commits: in each repeat
    they run one after the other, and each configuration is compared with the first revision."""
    plots: dict[str, PlotOptions | None] = {}
    """Plot → its options; null omits the plot. Plots without an entry are drawn."""
    export: tuple[Literal["markdown", "parquet", "svg"], ...] = ()
    """Additional files in `details/`: tables (`markdown`), `runs.parquet`, plots (`svg`)."""

    def search_of(self, block: Block) -> Search | None:
        """Return the search of a block: its own, or the configuration's; None without one."""
        return self.search if block.search is UNSET else block.search

    def is_selected(self, platform: str) -> bool:
        """Return whether a platform is on the cluster that `--config cluster=NAME` has chosen.

        If no cluster is chosen, the result is True for every platform.
        """
        return self.cluster in (None, self.platforms[platform].cluster)
