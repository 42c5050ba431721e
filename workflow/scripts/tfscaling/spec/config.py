"""The configuration as types: the one source of keys, types, bounds, defaults, units, descriptions.

`schemas.py` makes the schemas of `workflow/schemas` and the tables of `config/README.md` from them.
Only msgspec is imported here, for each rank of a run loads this module.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

#: The axes of a point of the grid, in the order of the result folders.
POINT_AXES = (
    "platform",
    "model",
    "strategy",
    "recipe",
    "nodes",
    "gpus_per_node",
    "tasks_per_node",
)
#: Points that share these differ in the number of nodes only: one line in plots and findings.
LINE_AXES = tuple(axis for axis in POINT_AXES if axis != "nodes")
#: The axes of a run.
AXES = (*POINT_AXES, "repeat")
#: The loss of all models that have none of their own.
CROSS_ENTROPY: Literal["sparse_categorical_crossentropy"] = "sparse_categorical_crossentropy"
#: The strategy of recipes that name a program, and the name of its model if none is given.
OWN_STRATEGY, PROGRAM = "own", "program"
#: The strategy whose ranks are started as those of an MPI job.
MPI_STRATEGY = "mpi_all_reduce"
#: Exactly one of these keys of a recipe is given.
BATCH_SIZE_KEYS = ("per_replica_batch_size", "per_worker_batch_size", "global_batch_size")


class Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the configuration: its fields are the keys that are allowed."""


def about(description: str, unit: str | None = None, **rules: Any) -> Meta:
    """What a key means, its unit, and further words of the schema."""
    words = {**({"unit": unit} if unit else {}), **rules}
    return Meta(description=description, extra_json_schema=words or None)


def text(pattern: str, form: str, max_length: int | None = None) -> Meta:
    r"""Text of this pattern (`$` is the end, `\d` is ASCII); `form` says it in words."""
    return Meta(pattern=pattern, max_length=max_length, extra_json_schema={"form": form})


_ONCE = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

#: Part of the names of folders.
Name = Annotated[
    str,
    text(rf"^{_NAME}$", "letters, digits and . _ -, a letter or digit first", max_length=100),
]
Names = Name | Annotated[tuple[Name, ...], _ONCE]
#: A name, or package.module:function.
ModelName = Annotated[
    str,
    text(
        rf"^({_NAME}|{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER})$",
        "a name (letters, digits and . _ -), or package.module:function",
        max_length=150,
    ),
]
ModelNames = ModelName | Annotated[tuple[ModelName, ...], _ONCE]
#: A recipe, or one of its variants.
RecipeName = Annotated[
    str,
    text(
        rf"^{_NAME}(\+{_IDENTIFIER}=[A-Za-z0-9._+-]+)*$",
        "a name (letters, digits and . _ -), or that of a variant, as wide+depth=18",
        max_length=200,
    ),
]
RecipeNames = RecipeName | Annotated[tuple[RecipeName, ...], _ONCE]
NodeCount = Annotated[int, Meta(ge=1, le=100_000)]
NodeCounts = NodeCount | Annotated[tuple[NodeCount, ...], _ONCE]
GpuCount = Annotated[int, Meta(ge=0, le=1000)]
GpuCounts = GpuCount | Annotated[tuple[GpuCount, ...], _ONCE]
#: A number, or for uneven tasks their numbers on the nodes, such as "2+1".
TaskCount = (
    Annotated[int, Meta(ge=1, le=1000)]
    | Annotated[
        str,
        text(
            r"^[1-9]\d{0,2}(\+[1-9]\d{0,2})+$",
            'a number for each node, such as "2+1"',
            max_length=150,
        ),
    ]
)
TaskCounts = TaskCount | Annotated[tuple[TaskCount, ...], _ONCE]

_PRINTED = r"\x00-\x1f\x7f-\x9f"
Line = Annotated[
    str,
    text(
        rf"^[^{_PRINTED}]*[^\s{_PRINTED}][^{_PRINTED}]*$",
        "one line of text, not empty and without control characters",
        max_length=1000,
    ),
]
#: The value of an option of sbatch.
OptionValue = Annotated[
    str,
    text(
        r"^[^\x00-\x20-][^\x00-\x1f]*$",
        "one line of text that does not begin with a hyphen",
        max_length=1000,
    ),
]
Reservation = Annotated[
    str,
    text(
        r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*$",
        "letters, digits and _ . , : @ + -, as Slurm's names have them",
        max_length=1000,
    ),
]
GpuResource = Annotated[
    str,
    text(
        r"^[A-Za-z0-9_]+(:[A-Za-z0-9_.]+)?$",
        "a name, or name:type; letters, digits, _ and in the type .",
        max_length=100,
    ),
]
VariableName = Annotated[
    str,
    text(
        r"^[A-Za-z_][A-Za-z0-9_]*$",
        "letters, digits and _, no digit first, as in names of environment variables",
        max_length=200,
    ),
]
NoZeroByte = Annotated[str, text(r"^[^\x00]*$", "text without a zero byte")]
NotEmpty = Annotated[str, Meta(min_length=1)]
ParameterName = Annotated[
    str,
    text(
        rf"^{_IDENTIFIER}$",
        "letters, digits and _, no digit first, as in names of arguments",
        max_length=100,
    ),
]
#: As a function of the user's gets it.
ParameterValue = (
    bool
    | int
    | float
    | Annotated[str, text(r"^[^\x00]*$", "text without a zero byte", max_length=1000)]
    | None
)
ParameterValues = ParameterValue | Annotated[tuple[ParameterValue, ...], _ONCE]
Examples = Annotated[int, Meta(ge=1, le=2_147_483_647)]
Usd = Annotated[float, Meta(ge=0, le=1_000_000)]


#: Before the name of a metric: it is of held-out examples.
HELD_OUT = "test_"
#: The metrics of the workflow's own models.
OF_CLASSIFIERS = ("loss", "accuracy", "test_loss", "test_accuracy")
#: As Keras or a program names it.
MetricName = Annotated[
    str,
    text(
        r"^[A-Za-z0-9_][A-Za-z0-9_.:/@ -]*$",
        "letters, digits, spaces and _ . : / @ -, a letter, digit or _ first",
        max_length=100,
    ),
]


class RepeatUntil(Keys, frozen=True, kw_only=True):
    """The repeats of a point are enough when its interval is narrow."""

    relative_interval: Annotated[
        float,
        Meta(gt=0, le=1),
        about(
            "A point is precise enough if the 95 % interval of its median `execution_time_s` is "
            "at most this fraction of the median wide."
        ),
    ]
    repeats_max: Annotated[
        int, Meta(ge=2, le=10_000), about("A point gets at most this many runs.")
    ] = 20


#: Runs of each point that is still in a search, at each of its looks.
LOOKS = (2, 3, 4, 6, 8, 11, 15, 20)
#: What a search can be for: metrics of which less is better.
SearchGoal = Literal["execution_time_s", "cost_usd", "time_to_target_s", "cost_to_target_usd"]


class SearchLimit(Keys, frozen=True, kw_only=True):
    """A limit of a quality: exactly one of `at_least` and `at_most` is given."""

    at_least: Annotated[float | None, about("The mean over a point's runs is no less.")] = None
    at_most: Annotated[float | None, about("The mean over a point's runs is no more.")] = None
    indifference: Annotated[
        float,
        Meta(gt=0),
        about(
            "A point that misses the limit by at most this may be chosen, in the metric's unit; "
            "the smaller, the more runs it takes to know."
        ),
    ] = 0.001


class Search(Keys, frozen=True, kw_only=True):
    """A search makes runs in rounds, of the points alone that may still be the best of their work.

    It ends when one point is shown to be within the indifference of the best. All keys but
    `indifference` are to stay as they are while a search goes on.
    """

    goal: Annotated[
        SearchGoal | Annotated[tuple[SearchGoal, ...], _ONCE],
        about(
            "The best point has the least of this, among all points with the same model and "
            "recipe: `execution_time_s`, `cost_usd`, `time_to_target_s` or `cost_to_target_usd`. "
            "Several goals share the runs and the error."
        ),
    ] = "execution_time_s"
    indifference: Annotated[
        float,
        Meta(gt=0, lt=1),
        about(
            "The search may end at a point that is worse than the best by at most this fraction. "
            "A change reruns nothing."
        ),
    ] = 0.05
    confidence: Annotated[
        float,
        Meta(ge=0.5, lt=1),
        about("The search may be wrong in at most 1 - confidence of all searches."),
    ] = 0.95
    constraint: Annotated[
        dict[MetricName, SearchLimit],
        Meta(max_length=1),
        about(
            "Only a point whose quality keeps this limit is chosen: the metric of the recipe's "
            "`quality` and its limit, as `test_accuracy: {at_least: 0.98, indifference: 0.002}`. "
            "It is judged by the same runs, and takes a fifth of the error."
        ),
    ] = {}
    repeats_max: Annotated[
        int,
        Meta(ge=LOOKS[0], le=LOOKS[-1]),
        about(
            "A point gets at most this many runs; the search looks at its points at 2, 3, 4, 6, 8, "
            "11, 15 and 20 runs of each."
        ),
    ] = LOOKS[-1]
    screen: Annotated[
        bool,
        about(
            "If true, the search also looks at one run of each point: one that is far behind the "
            "best gets no second run. It assumes that runs scatter by at most 10 % and that no run "
            "takes more than three times as long as usual."
        ),
    ] = False

    at_most_linear: Annotated[
        bool,
        about(
            "If true, n times the nodes are taken to be at most n times as fast, all else being "
            "equal. A point that cannot be the best by this is not run: the smallest points have "
            "their runs first, then the largest, then what is left."
        ),
    ] = False

    @property
    def goals(self) -> tuple[SearchGoal, ...]:
        """The goals, one or more."""
        return values_of(self.goal)

    @property
    def first_runs(self) -> int:
        """Runs of each point before anything is looked at."""
        return 1 if self.screen else LOOKS[0]

    @property
    def looks(self) -> tuple[int, ...]:
        """Runs of each point that is still in the search, at each look."""
        return tuple(runs for runs in LOOKS if runs <= self.repeats_max)


class Exclusion(Keys, frozen=True, kw_only=True):
    """An entry leaves out the points whose axes all match."""

    reason: Annotated[Line | UnsetType, about("Every table shows this reason.")] = UNSET
    platform: Annotated[Names | UnsetType, about("The entry matches these platforms.")] = UNSET
    model: Annotated[ModelNames | UnsetType, about("The entry matches these models.")] = UNSET
    strategy: Annotated[Names | UnsetType, about("The entry matches these strategies.")] = UNSET
    recipe: Annotated[
        RecipeNames | UnsetType,
        about("The entry matches these recipes, each with all of its variants."),
    ] = UNSET
    nodes: Annotated[NodeCounts | UnsetType, about("The entry matches these numbers of nodes.")] = (
        UNSET
    )
    gpus_per_node: Annotated[
        GpuCounts | UnsetType, about("The entry matches these numbers of GPUs on each node.")
    ] = UNSET
    tasks_per_node: Annotated[
        TaskCounts | UnsetType, about("The entry matches these numbers of ranks on each node.")
    ] = UNSET

    @property
    def axes(self) -> dict[str, tuple[str | int, ...]]:
        """The axes that are given, each with its values."""
        given = {axis: getattr(self, axis) for axis in POINT_AXES}
        return {axis: values_of(value) for axis, value in given.items() if value is not UNSET}


class Block(Keys, frozen=True, kw_only=True):
    """A block of the grid is the product of its axes; each axis is a value or a list of values."""

    platform: Annotated[Names, about("Each name is an entry of `platforms`.")]
    model: Annotated[
        ModelNames | None,
        about(
            "Each name is a built-in model or a function of yours as `package.module:function`. In "
            "a block whose recipes name a program it is any name, for the tables; null is "
            "`program` there, and an error elsewhere."
        ),
    ] = None
    strategy: Annotated[Names, about("Each name is a distribution strategy.")] = (
        "multi_worker_mirrored"
    )
    recipe: Annotated[
        RecipeNames,
        about(
            "Each name is an entry of `recipes`, with all of its variants if its `parameters` have "
            "lists, or one variant such as `wide+depth=18`."
        ),
    ]
    nodes: Annotated[NodeCounts, about("Each value is a number of nodes.")]
    gpus_per_node: Annotated[
        GpuCounts,
        about(
            "Each value is the number of GPUs (or logical devices) on a node, which its tasks "
            "share evenly; 0 trains on the CPU."
        ),
    ] = 0
    tasks_per_node: Annotated[
        TaskCounts,
        about(
            'Each value is the number of ranks on a node; "2+1" puts two on the first and one on '
            "the second of two nodes."
        ),
    ] = 1
    repeats: Annotated[
        int,
        Meta(ge=1, le=10_000),
        about("Each point has this many runs; fewer than 6 justify no 95 % interval of a median."),
    ] = 6
    repeat_until: Annotated[
        RepeatUntil | None,
        about(
            "A point whose interval is too wide after `repeats` runs gets extra repeats; null "
            "makes none."
        ),
    ] = None
    search: Annotated[
        Search | UnsetType | None,
        about(
            "The points get as many runs as a search needs, and `repeats` is what the search is "
            "compared with; without the key the `search` of the whole grid holds, null makes "
            "`repeats` runs of each point."
        ),
    ] = UNSET
    exclude: Annotated[
        tuple[Annotated[Exclusion, Meta(extra_json_schema={"minProperties": 1})], ...],
        about(
            "A point that matches an entry is left out; an entry gives values of some axes and "
            "may give the reason."
        ),
    ] = ()

    def values(self, axis: str) -> tuple[Any, ...]:
        """The values of an axis; the model of programs has a name, too."""
        value = getattr(self, axis)
        return values_of(PROGRAM if value is None else value)


def values_of(value: Any) -> tuple[Any, ...]:
    """A value or a list of values as a tuple."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class Quality(Keys, frozen=True, kw_only=True):
    """What the training is for: the metric by which its result is compared."""

    metric: Annotated[
        MetricName,
        about(
            "A metric of the run's epochs: `loss`, `accuracy`, `test_loss`, `test_accuracy`, or "
            "one of a model or program of yours by its name, after `test_` if it is of held-out "
            "examples."
        ),
    ] = "test_accuracy"
    direction: Annotated[
        Literal["auto", "higher", "lower"],
        about(
            "The better value is the `higher` or the `lower` one; `auto` is `higher` where the "
            "name ends with accuracy and `lower` where it ends with loss, and an error for others."
        ),
    ] = "auto"
    unit: Annotated[Line | None, about("Tables and plots show the values with this unit.")] = None
    best: Annotated[
        float | None,
        about(
            "No value can be better than this: values are compared by how far they are from it, "
            "as accuracies are by 1 - accuracy. null is 1 where the name ends with accuracy, and "
            "none for others."
        ),
    ] = None

    @property
    def best_value(self) -> float | None:
        """The best that is possible, from which values are compared by their distance."""
        return 1.0 if self.best is None and self.is_accuracy else self.best

    @property
    def better(self) -> Literal["higher", "lower"] | None:
        """The direction that is given, or else that of the name; None if that does not tell."""
        if self.direction != "auto":
            return self.direction
        if self.is_accuracy:
            return "higher"
        return "lower" if self.metric.endswith("loss") else None

    @property
    def is_accuracy(self) -> bool:
        """Whether it is an accuracy, by its name."""
        return self.metric.endswith("accuracy")

    @property
    def in_training(self) -> str:
        """The same metric of the examples that are trained."""
        return self.metric.removeprefix(HELD_OUT)

    @property
    def is_held_out(self) -> bool:
        """Whether it is of held-out examples."""
        return self.metric.startswith(HELD_OUT)

    @property
    def title(self) -> str:
        """The metric as people read it: `test mean absolute error`."""
        return self.metric.replace("_", " ")


class Recipe(Keys, frozen=True, kw_only=True):
    """A recipe says how to train, or which program of yours trains.

    Every key but `quality` and `compare_resumed` is part of a run's parameters: a change reruns the
    recipe's runs.
    """

    per_replica_batch_size: Annotated[
        Examples | None,
        about(
            "Each replica gets this many examples per step (weak scaling: the global batch grows "
            "with the replicas). Exactly one of the three batch sizes is given.",
            "examples",
        ),
    ] = None
    per_worker_batch_size: Annotated[
        Examples | None,
        about(
            "Each worker gets this many examples per step and splits them over its devices (weak "
            "scaling in workers, strong scaling inside a worker).",
            "examples",
        ),
    ] = None
    global_batch_size: Annotated[
        Examples | None,
        about(
            "All replicas together get this many examples per step (strong scaling: the global "
            "batch stays the same).",
            "examples",
        ),
    ] = None
    dataset: Annotated[
        Annotated[str, Meta(min_length=1, max_length=150)] | None,
        about(
            "The run trains on this dataset, a name or a function of yours as "
            "`package.module:function`; null takes the model's own. A program has its path as "
            "`{dataset}`."
        ),
    ] = None
    loss: Annotated[
        Literal["auto", "model", "sparse_categorical_crossentropy"],
        about(
            "`model` trains a model by its own loss and metrics if it is compiled or has a step of "
            "its own, else as a classifier; `sparse_categorical_crossentropy` trains every model "
            "as a classifier; `auto` is `model` for models of your own."
        ),
    ] = "auto"
    optimizer: Annotated[
        Literal["model", "sgd", "adam"],
        about(
            "Keras's optimizer of this name updates the weights; `model` takes that of a compiled "
            "model of your own, else `sgd`."
        ),
    ] = "model"
    learning_rate: Annotated[
        Annotated[float, Meta(gt=0, le=1e38)] | None,
        about(
            "The learning rate is for one replica; null takes that of a compiled model of your own "
            "and is an error for other models."
        ),
    ] = None
    learning_rate_scaling: Annotated[
        Literal["none", "linear", "sqrt"],
        about(
            "The learning rate follows the number of replicas: `none` keeps it, `linear` "
            "multiplies it by the number, `sqrt` by the square root of the number."
        ),
    ] = "none"
    momentum: Annotated[
        Annotated[float, Meta(ge=0, lt=1)] | None,
        about(
            "The optimizer `sgd` has this momentum, others ignore it; null takes that of a "
            "compiled model of your own, else 0."
        ),
    ] = None
    nesterov: Annotated[
        bool | None,
        about(
            "If true, the momentum of `sgd` is Nesterov's; null takes that of a compiled model of "
            "your own, else false."
        ),
    ] = None
    weight_decay: Annotated[
        Annotated[float, Meta(ge=0, lt=1)] | None,
        about(
            "Each update also takes this fraction, times the learning rate, off all weights "
            "(Keras's `weight_decay`, which is no L2 loss); null takes that of a compiled model of "
            "your own, else 0."
        ),
    ] = None
    warmup_epochs: Annotated[
        float,
        Meta(ge=0, le=1_000_000),
        about(
            "The learning rate rises from 0 to its full value in equal parts over so many epochs, "
            "of which there may be a fraction.",
            "epochs",
        ),
    ] = 0.0
    decay: Annotated[
        Literal["none", "linear", "cosine"],
        about(
            "From the end of the warm-up to the end of the training the learning rate stays "
            "(`none`), or falls to 0 along a line or half a cosine."
        ),
    ] = "none"
    label_smoothing: Annotated[
        float,
        Meta(ge=0, lt=1),
        about(
            "This fraction of each label is spread over all classes in the loss that is trained; "
            "the loss of held-out examples has their labels as they are."
        ),
    ] = 0.0
    accumulate_steps: Annotated[
        int,
        Meta(ge=1, le=1000),
        about(
            "A replica computes its batch of a step in so many equal parts, one after the other, "
            "and sums their gradients before the replicas exchange them: one update and one "
            "synchronisation per step, in the memory of a part.",
            "parts",
        ),
    ] = 1
    average_every: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        about(
            "Local SGD: each replica updates weights of its own by its own gradients, and after "
            "every so many steps and at the end of each epoch the replicas take the mean of their "
            "weights. null exchanges gradients in every step.",
            "steps",
        ),
    ] = None
    epochs: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about("The training passes over the training examples this many times."),
    ]
    stop_after_steps: Annotated[
        Annotated[int, Meta(ge=20, le=1_000_000_000)] | None,
        about(
            "A short run: it ends after so many steps, and the time and cost of the whole training "
            "of `epochs` are projected from it; its quality is not, see docs/projection.md. null "
            "trains all epochs.",
            "steps",
        ),
    ] = None
    steps_per_epoch: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        about(
            "An epoch of a pipeline has this many steps, and its data are repeated as often as "
            "needed; null ends it with the data, on the last worker that has some.",
            "steps",
        ),
    ] = None
    train_examples_max: Annotated[
        Examples | None,
        about(
            "The run trains on at most this many examples, the first ones; null takes all.",
            "examples",
        ),
    ] = None
    test_examples_max: Annotated[
        Examples | None,
        about(
            "The run evaluates on at most this many held-out examples, the first ones; null "
            "takes all.",
            "examples",
        ),
    ] = None
    validation_examples: Annotated[
        Examples | None,
        about(
            "The run trains without the last so many training examples and evaluates on them "
            "instead of the test data: a recipe is chosen by them, and then reported on the test "
            "data by a recipe with null.",
            "examples",
        ),
    ] = None
    evaluation_interval_epochs: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        about(
            "The run evaluates on the held-out examples after every so many epochs, which a time "
            "to a target needs; null evaluates only after the training.",
            "epochs",
        ),
    ] = None
    gradient_noise_scale: Annotated[
        bool,
        about(
            "If true, every evaluation on held-out examples also measures how much the gradients "
            "of parts of a batch differ, by some further steps that train nothing: it tells the "
            "global batch beyond which more replicas no longer help."
        ),
    ] = False
    attribution: Annotated[
        bool,
        about(
            "If true, the run measures after the training what holds a step back - input, "
            "computation, communication or slower ranks - by some hundred more steps."
        ),
    ] = False
    steps_per_execution: Annotated[
        int,
        Meta(ge=1, le=1_000_000_000),
        about(
            "One call of the compiled training function makes this many steps. 1 keeps the time "
            "of every step; more saves a little time per step.",
            "steps",
        ),
    ] = 1
    precision: Annotated[
        Literal["float32", "mixed_bfloat16", "mixed_float16"],
        about(
            "This is Keras's dtype policy; `mixed_float16` scales the loss so that small "
            "gradients are not lost."
        ),
    ] = "float32"
    gradient_exchange: Annotated[
        Literal["float32", "bfloat16"],
        about(
            "With `bfloat16` the strategy `mpi_all_reduce` rounds gradients to 16 bits before the "
            "replicas exchange them, and sums them in 32 bits: half the bytes between nodes, and "
            "each gradient to 8 significant bits. `float32` sums them as they are."
        ),
    ] = "float32"
    communication: Annotated[
        Literal["auto", "ring", "nccl"],
        about("The strategy `multi_worker_mirrored` uses this implementation of collectives."),
    ] = "auto"
    parameter_servers: Annotated[
        int,
        Meta(ge=1, le=100_000),
        about("Strategies with parameter servers use this many of them.", "tasks"),
    ] = 1
    checkpoint_every_epochs: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        about(
            "The run writes a checkpoint after every so many epochs, from which its next attempt "
            "goes on if it is interrupted; null writes none by epochs.",
            "epochs",
        ),
    ] = None
    checkpoint_every_s: Annotated[
        Annotated[int, Meta(ge=1, le=31_536_000)] | None,
        about(
            "The run writes a checkpoint whenever the last one is so old, in the middle of an "
            "epoch too; null writes none by time.",
            "s",
        ),
    ] = None
    compare_resumed: Annotated[
        bool,
        about(
            "If true, a run that went on from a checkpoint takes part in comparisons of time, with "
            "its last attempt and the training that it did not repeat. If false, only with its "
            "quality. A change reruns nothing."
        ),
    ] = False
    quality: Annotated[
        Quality,
        about(
            "Tables, plots and decisions compare the runs by this metric of their result. A change "
            "reruns nothing."
        ),
    ] = Quality()
    program: Annotated[
        tuple[NoZeroByte, ...],
        about(
            "Every rank starts this program instead of training a model: a list of words, in which "
            "`{epochs}`, `{per_replica_batch_size}`, `{global_batch_size}`, `{seed}`, `{replicas}` "
            "and `{folder}` (the rank's own) stand for values, `{dataset}` for the path of the "
            "prepared dataset; see docs/programs.md. An empty list trains a model."
        ),
    ] = ()
    environment: Annotated[
        NotEmpty | None,
        about(
            "The program runs in this virtual environment, a folder with `bin/python`: its `bin` "
            "is first on PATH, so that `python` in `program` is its Python. A relative path starts "
            "in the folder in which snakemake runs. null takes what is on PATH."
        ),
    ] = None
    observe: Annotated[
        Literal["nothing", "fit", "events", "mllog", "tensorboard", "output"],
        about(
            "The steps, epochs and quality of the program are read from this: nothing, the calls "
            "of Keras's `fit`, the events that the program writes, MLPerf's log lines, TensorBoard "
            "scalars, or patterns on its output."
        ),
    ] = "nothing"
    patterns: Annotated[
        dict[Name, NotEmpty],
        about(
            "With `observe: output`: name of a metric, and the regular expression whose one group "
            "is its value in a line of the output."
        ),
    ] = {}
    log_folder: Annotated[
        NotEmpty | None,
        about(
            "The program writes TensorBoard's or MLPerf's logs into this folder; it may have the "
            "placeholders of `program`. null reads MLPerf's lines in the output."
        ),
    ] = None
    train_examples: Annotated[
        Examples | None,
        about(
            "An epoch of the program has this many examples: a run that claims more fails. null "
            "checks nothing.",
            "examples",
        ),
    ] = None
    parameters: Annotated[
        dict[ParameterName, ParameterValues],
        about(
            "Your functions of model and dataset get these values (numbers, texts, true, false, "
            "null), each by the name of an argument. A list of values is an axis: the recipe "
            "stands for one variant for each combination."
        ),
    ] = {}

    @property
    def parameter_axes(self) -> dict[str, tuple[ParameterValue, ...]]:
        """The parameters that are lists of values."""
        return {key: value for key, value in self.parameters.items() if isinstance(value, tuple)}

    @property
    def constants(self) -> dict[str, ParameterValue]:
        """The parameters that have one value: all those of a variant."""
        return {
            key: value for key, value in self.parameters.items() if not isinstance(value, tuple)
        }

    @property
    def batch_scaling(self) -> Literal["strong", "weak"]:
        """`strong` if the global batch is fixed, else `weak`."""
        return "weak" if self.global_batch_size is None else "strong"

    def for_classifier(self) -> Recipe:
        """The same for a model that has no loss or optimizer of its own: all keys have values."""
        return msgspec.structs.replace(
            self,
            loss="auto",
            optimizer="sgd" if self.optimizer == "model" else self.optimizer,
            momentum=self.momentum or 0.0,
            nesterov=self.nesterov or None,
            weight_decay=self.weight_decay or None,
        )

    @property
    def steps_timed_together(self) -> int:
        """Steps between two times that a rank takes, at most."""
        return max(self.steps_per_execution, self.average_every or 1)

    @property
    def steps_per_synchronisation(self) -> int:
        """Steps from one exchange between the replicas to the next."""
        return self.average_every or 1

    @property
    def writes_checkpoints(self) -> bool:
        """Whether the workflow's own trainer writes checkpoints."""
        return self.checkpoint_every_epochs is not None or self.checkpoint_every_s is not None

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate changes during the training, as the recipe says."""
        return self.warmup_epochs > 0 or self.decay != "none"


class Measured(Keys, frozen=True, kw_only=True):
    """What of a platform can change a measurement: part of a run's parameters."""

    launcher: Annotated[
        Name,
        about(
            "This entry of launch/launchers.py starts the ranks: `srun` as a Slurm job step, "
            "`local` as processes on one machine."
        ),
    ]
    mpi: Annotated[
        Name,
        about(
            "The strategy `mpi_all_reduce` has its ranks started by `srun` with this `--mpi`: "
            "`pmi2` for MPICH, which the project installs, and for Intel MPI and MVAPICH; `pmix` "
            "for Open MPI. `srun --mpi=list` names those of a cluster."
        ),
    ] = "pmi2"
    devices: Annotated[
        Literal["physical", "logical"],
        about(
            "With `physical`, `gpus_per_node` counts GPUs. With `logical`, a worker splits its "
            "CPU into logical devices instead, which tests several devices on a machine without "
            "GPUs."
        ),
    ] = "physical"
    gpu_type: Annotated[
        Line | None,
        about(
            "The GPUs must be of this model, such as v100, a100-80gb or nvidia_a100-sxm4-80gb: a "
            "run on physical GPUs of another model does not count. A size or form factor that "
            "cannot be compared is listed in `unchecked`. null compares nothing."
        ),
    ] = None
    instance_type: Annotated[Line | None, about("The tables show this machine type.")] = None
    cpus_per_node: Annotated[
        int,
        Meta(ge=1, le=100_000),
        about(
            "A job requests this many CPUs on each node, and the tasks of a node share them "
            "evenly.",
            "CPUs",
        ),
    ]
    node_check: Annotated[
        Literal["flag", "bar"] | None,
        about(
            "A run on several nodes begins with a check of a few seconds: how fast the processors "
            "of each node compute, how fast neighbours send to each other. A node that is much "
            "slower than the others of the job is told with the run (`flag`), or ends the attempt, "
            "and the next one is submitted without it (`bar`). null makes no check."
        ),
    ] = None
    node_check_factor: Annotated[
        float,
        Meta(gt=1, le=1000),
        about("A node is much slower if the median of the others is more than so many times it."),
    ] = 2.0
    setup: Annotated[
        tuple[NoZeroByte, ...],
        about("Every rank runs these shell lines before the trainer, such as `module load cuda`."),
    ] = ()
    env: Annotated[
        dict[VariableName, NoZeroByte], about("The trainer gets these environment variables.")
    ] = {}


class Platform(Measured, frozen=True, kw_only=True):
    """A platform says where to run.

    Keys marked "measured" are part of a run's parameters: a change reruns the platform's runs. A
    change of the others reruns nothing.
    """

    title: Annotated[
        Line | None, about("Tables and plots show the platform by this name; null takes its key.")
    ] = None
    cloud: Annotated[
        Line | None,
        about("The platform runs on this cloud; clouds are compared with each other."),
    ] = None
    published_as: Annotated[
        Line | None,
        about("The published results have the platform under this name; null takes its key."),
    ] = None
    cluster: Annotated[
        Name | None,
        about(
            "The platform belongs to this Slurm cluster; `--config cluster=NAME` submits only "
            "that cluster's runs. If `multi_cluster` is true, sbatch gets the name as "
            "`--clusters`."
        ),
    ] = None
    multi_cluster: Annotated[
        bool,
        about(
            "If true, jobs are submitted with `--clusters` (several clusters under one slurmdbd); "
            "it needs `--slurm-sweep-status-command sacct`."
        ),
    ] = False
    nodes_max: Annotated[
        NodeCount, about("Points with more nodes are excluded with this reason.", "nodes")
    ]
    gpus_per_node_max: Annotated[
        GpuCount,
        about(
            "A node has this many GPUs (or logical devices); a point with more is an error.", "GPUs"
        ),
    ] = 0
    gpus_max: Annotated[
        Annotated[int, Meta(ge=0, le=100_000_000)] | None,
        about(
            "A run may use this many GPUs over all its nodes; points beyond this quota are "
            "excluded with this reason. null sets no quota.",
            "GPUs",
        ),
    ] = None
    mem_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000_000)] | None,
        about(
            "A job requests this much memory per node; 0 or null leaves it to Slurm's default.",
            "MB",
        ),
    ] = None
    runtime_min: Annotated[
        int, Meta(ge=1, le=5_256_000), about("Slurm ends a run after this time.", "min")
    ] = 60
    stall_timeout_s: Annotated[
        int,
        Meta(ge=10, le=315_360_000),
        about(
            "Ranks that hang are ended as failed after this time at the latest: all ranks if none "
            "makes progress or uses CPU time. A rank that trains, or runs a program, and gives no "
            "sign of life is found in 40 s; ranks that all wait for one another in training in "
            "50 s, but not on a pipeline, which may wait for its data. Ranks that use CPU time but "
            "make no progress are ended after ten times this time.",
            "s",
        ),
    ] = 600
    latency_wait_s: Annotated[
        int,
        Meta(ge=0),
        about(
            "A shared file system may take this long to show the launcher what ranks on other "
            "nodes have written.",
            "s",
        ),
    ] = 60
    partition: Annotated[OptionValue | None, about("Jobs go to this Slurm partition.")] = None
    account: Annotated[OptionValue | None, about("Jobs are charged to this Slurm account.")] = None
    qos: Annotated[OptionValue | None, about("Jobs run with this Slurm quality of service.")] = None
    constraint: Annotated[OptionValue | None, about("Nodes must have these Slurm features.")] = None
    reservation: Annotated[Reservation | None, about("Jobs use this Slurm reservation.")] = None
    exclusive: Annotated[bool, about("If true, jobs request whole nodes (`--exclusive`).")] = False
    gpu_gres: Annotated[
        GpuResource | None,
        about(
            'Jobs request GPUs in `--gres` by this name, "gpu" or typed as "gpu:v100"; null '
            "requests no GPUs from Slurm (logical devices need none)."
        ),
    ] = "gpu"
    extra: Annotated[
        Line | None,
        about(
            "sbatch gets these further options, as one string; an option for which there is a "
            "key here, in the grid or in the profile is refused."
        ),
    ] = None
    usd_per_node_hour: Annotated[
        Usd | None,
        about(
            "One node costs this much per hour. A price needs `price_date` and `price_source`.",
            "US dollars",
        ),
    ] = None
    usd_per_gpu_hour: Annotated[
        Usd | None,
        about(
            "One GPU costs this much per hour where GPUs are added to the node's price; null "
            "says that the node's price includes them.",
            "US dollars",
        ),
    ] = None
    price_date: Annotated[
        Annotated[str, text(r"^\d{4}(-\d{2}){0,2}$", "YYYY, YYYY-MM or YYYY-MM-DD")] | None,
        about("The price was valid on this date."),
    ] = None
    price_source: Annotated[Line | None, about("The price was read from this source.")] = None

    @property
    def measured(self) -> Measured:
        """Its keys that can change a measurement."""
        return Measured(**{key: getattr(self, key) for key in Measured.__struct_fields__})

    def price_usd(self, gpus_per_node: int) -> float | None:
        """Price of one node with so many GPUs for one hour in US dollars; None without a price."""
        if self.usd_per_node_hour is None or self.usd_per_gpu_hour is None:
            return self.usd_per_node_hour
        return self.usd_per_node_hour + self.usd_per_gpu_hour * gpus_per_node


class DatasetCopy(Keys, frozen=True, kw_only=True):
    """An entry names a local copy of a dataset."""

    path: Annotated[
        NotEmpty | None,
        about(
            "The dataset is read from this folder with its files as published (IDX files may be "
            "gzipped), or from this `.npz` with `x_train`, `y_train`, `x_test`, `y_test`; null "
            "fetches it."
        ),
    ] = None


class Budget(Keys, frozen=True, kw_only=True):
    """The runs that are still to do may cost this much by their estimate."""

    usd: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        about(
            "A sweep is refused before anything is submitted if the estimate of its runs still "
            "to do is above this; every platform with runs to do needs a price then. null sets "
            "no budget.",
            "US dollars",
        ),
    ] = None
    node_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        about(
            "The same holds for the number of nodes times hours. null sets no budget.", "node-hours"
        ),
    ] = None


class AllReduceBenchmark(Keys, frozen=True, kw_only=True):
    """All-reduces are timed alone at each point that trains by them."""

    enabled: Annotated[
        bool,
        about(
            "If true, each point with two or more replicas that trains by all-reduce gets one "
            "more job."
        ),
    ] = False
    sizes_bytes: Annotated[
        tuple[Annotated[int, Meta(ge=4, le=17_179_869_184, multiple_of=4)], ...],
        _ONCE,
        about(
            "Latency and bandwidth come from one float32 tensor of each of these sizes, "
            "multiples of 4; the model's gradient is always timed as well.",
            "bytes",
        ),
    ] = (4, 64, 1024, 16384, 65536, 262144, 1048576, 4194304, 16777216)
    repetitions: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about("Each size is timed this many times, after two untimed calls."),
    ] = 20


class Baseline(Keys, frozen=True, kw_only=True):
    """Axes that are left out are the point's own, or those of the fewest replicas."""

    platform: Annotated[Name | UnsetType, about("The baseline is on this platform.")] = UNSET
    model: Annotated[ModelName | UnsetType, about("The baseline trains this model.")] = UNSET
    strategy: Annotated[Name | UnsetType, about("The baseline uses this strategy.")] = UNSET
    recipe: Annotated[
        RecipeName | UnsetType,
        about(
            "The baseline uses this recipe; of a recipe with variants, points have a baseline of "
            "their own variant."
        ),
    ] = UNSET
    nodes: Annotated[NodeCount | UnsetType, about("The baseline has this many nodes.")] = UNSET
    gpus_per_node: Annotated[
        GpuCount | UnsetType, about("The baseline has this many GPUs on each node.")
    ] = UNSET
    tasks_per_node: Annotated[
        TaskCount | UnsetType, about("The baseline has this many ranks on each node.")
    ] = UNSET

    @property
    def axes(self) -> dict[str, str | int]:
        """The axes that are given, with their values."""
        given = {axis: getattr(self, axis) for axis in POINT_AXES}
        return {axis: value for axis, value in given.items() if value is not UNSET}


class Comparison(Keys, frozen=True, kw_only=True):
    """These keys set what the comparison shows."""

    title: Annotated[Line, about("This is the heading of `comparison.md`.")] = (
        "Comparison of distributed training runs"
    )
    columns: Annotated[
        tuple[str, ...],
        _ONCE,
        about(
            "`comparison.md` shows these metrics in this order; `comparison.csv` always has "
            "every metric."
        ),
    ] = (
        "execution_time_s",
        "speedup",
        "scaling_efficiency",
        "throughput_examples_per_s",
        "loss",
        "accuracy",
        "quality",
        "cost_usd",
    )
    baseline: Annotated[
        Baseline,
        about(
            "Speed-up is relative to the point with these values of axes. Axes that are left out "
            "are the point's own (platform, model, strategy, recipe) or those of the fewest "
            "replicas (the others) with the same kind of device."
        ),
    ] = Baseline()
    indifference: Annotated[
        float,
        Meta(ge=0, lt=1),
        about(
            "A point that is worse than the best by at most this fraction counts as equally "
            "good, so that cost decides; of metrics with a best value it is a fraction of the "
            "distance from it, as 1 - accuracy. Only a point that is shown to be so near is a "
            "supported decision."
        ),
    ] = 0.05
    time: Annotated[
        Literal["execution_time_s", "time_with_queue_s"],
        about(
            "The decision and the headline go by the time of the run, or by that with its wait in "
            "the queue (and the boot of nodes), as the runs of the sweep waited: see the limits in "
            "docs/method.md. Points without a measured wait take no part then."
        ),
    ] = "execution_time_s"
    targets: Annotated[
        dict[MetricName, float],
        about(
            "Metrics that are the quality of a recipe, each with the value at which a run reaches "
            "the target, for `time_to_target_s` and `cost_to_target_usd`."
        ),
    ] = {}


class Published(Keys, frozen=True, kw_only=True):
    """Published results are shown next to the measured ones."""

    path: Annotated[
        NotEmpty | None,
        about(
            "This CSV has the published results in the columns of "
            "resources/published_results.csv; a relative path starts in the folder in which "
            "snakemake runs. null shows none."
        ),
    ] = None
    tolerance: Annotated[
        float,
        Meta(ge=0, le=1),
        about(
            "A published loss or accuracy agrees if it is in the measured range after the range "
            "is widened by this fraction of the loss, or of the error 1 - accuracy."
        ),
    ] = 0.25


class Forecast(Keys, frozen=True, kw_only=True):
    """The time on numbers of nodes that were not run is forecast from those that were."""

    nodes: Annotated[
        tuple[NodeCount, ...],
        about(
            "Each line of points has a forecast for these numbers of nodes, as far as they were "
            "not measured; beyond `nodes_max`, too.",
            "nodes",
        ),
    ] = ()


class PlotOptions(Keys, frozen=True, kw_only=True):
    """An entry names a plot to draw."""

    title: Annotated[
        Line | None, about("This is the title of the plot; null takes the default one.")
    ] = None


class Config(Keys, frozen=True, kw_only=True):
    """The configuration is merged from config/config.yaml, config/platforms.yaml and overlays."""

    study: Annotated[
        Name,
        about("Tables, plots, report and plan of this configuration are in `results/<study>/`."),
    ] = "main"
    grid: Annotated[
        tuple[Block, ...],
        Meta(min_length=1),
        about("The grid says what to run; each entry is a block, the product of its axes."),
    ]
    search: Annotated[
        Search | None,
        about(
            "Every block without a `search` of its own has this one; null makes `repeats` runs "
            "of each point."
        ),
    ] = None
    recipes: Annotated[
        dict[Name, Recipe], Meta(min_length=1), about("Each entry says how to train.")
    ]
    platforms: Annotated[
        dict[Name, Platform], Meta(min_length=1), about("Each entry says where to run.")
    ]
    datasets: Annotated[
        dict[Name, DatasetCopy], about("Each entry names a local copy of the dataset of that name.")
    ] = {}
    seed: Annotated[
        int,
        Meta(ge=0, le=4_294_967_295),
        about("Repeat 1 trains with this seed, and repeat k with seed + k - 1."),
    ] = 1
    cluster: Annotated[
        NotEmpty | None,
        about("Only the platforms of this cluster are run; null runs all. Tables show all runs."),
    ] = None
    rerun: Annotated[
        Literal["none", "stale"],
        about(
            "`stale` makes runs again whose record is stale: made with other parameters, by other "
            "code or of other data. Give it on the command line: `--config rerun=stale`."
        ),
    ] = "none"
    check_models: Annotated[
        bool,
        about(
            "Models of your own are built once, on the CPU of the machine where snakemake runs, "
            "before runs start: one that cannot be built starts none. `false` where that machine "
            "must not import TensorFlow."
        ),
    ] = True
    readable_by: Annotated[
        Literal["owner", "group", "all"],
        about(
            "Files that runs and tables write may be read by nobody else, by the group, or by all "
            "users of the machines; what the umask of the shell takes away stays away."
        ),
    ] = "owner"
    budget: Annotated[
        Budget,
        about(
            "The runs that are still to do may cost this much by their estimate; a sweep beyond "
            "it is refused."
        ),
    ] = Budget()
    all_reduce_benchmark: Annotated[
        AllReduceBenchmark,
        about(
            "All-reduces are timed alone at each point that trains by them, as a measure of its "
            "communication."
        ),
    ] = AllReduceBenchmark()
    comparison: Annotated[Comparison, about("These keys set what the comparison shows.")] = (
        Comparison()
    )
    published: Annotated[
        Published, about("Published results are shown next to the measured ones.")
    ] = Published()
    forecast: Annotated[
        Forecast,
        about(
            "The time on numbers of nodes that were not run is forecast from those that were; it "
            "is part of no decision."
        ),
    ] = Forecast()
    compare_with: Annotated[
        NotEmpty | None,
        about(
            "This folder has another study's results, such as `results/main` of another copy of "
            "the project: each point is compared with the same point there. A relative path starts "
            "in the folder in which snakemake runs. null compares with nothing."
        ),
    ] = None
    plots: Annotated[
        dict[str, PlotOptions | None],
        about("Each entry is a plot to draw, by its name; null draws none."),
    ] = {}

    def search_of(self, block: Block) -> Search | None:
        """The search that makes the runs of a block, if one does."""
        return self.search if block.search is UNSET else block.search

    def is_selected(self, platform: str) -> bool:
        """Whether the platform is on the cluster that was chosen with --config cluster=NAME."""
        return self.cluster in (None, self.platforms[platform].cluster)
