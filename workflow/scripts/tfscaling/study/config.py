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
#: Exactly one of these keys of a recipe is given.
BATCH_SIZE_KEYS = ("per_replica_batch_size", "per_worker_batch_size", "global_batch_size")


class Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the configuration: its fields are the keys that are allowed."""


def about(description: str, unit: str | None = None, **rules: Any) -> Meta:
    """What a key means, its unit, and further words of the schema."""
    words = {**({"unit": unit} if unit else {}), **rules}
    return Meta(description=description, extra_json_schema=words or None)


def text(pattern: str, form: str | None = None, max_length: int | None = None) -> Meta:
    r"""Text of this pattern (`$` is the end, `\d` is ASCII); `form` says it in words."""
    words = {"form": form} if form else None
    return Meta(pattern=pattern, max_length=max_length, extra_json_schema=words)


_ONCE = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

#: Part of the names of folders.
Name = Annotated[str, text(rf"^{_NAME}$", max_length=100)]
Names = Name | Annotated[tuple[Name, ...], _ONCE]
#: A name, or package.module:function.
ModelName = Annotated[
    str, text(rf"^({_NAME}|{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER})$", max_length=150)
]
ModelNames = ModelName | Annotated[tuple[ModelName, ...], _ONCE]
NodeCount = Annotated[int, Meta(ge=1, le=100_000)]
NodeCounts = NodeCount | Annotated[tuple[NodeCount, ...], _ONCE]
GpuCount = Annotated[int, Meta(ge=0, le=1000)]
GpuCounts = GpuCount | Annotated[tuple[GpuCount, ...], _ONCE]
#: A number, or for uneven tasks their numbers on the nodes, such as "2+1".
TaskCount = (
    Annotated[int, Meta(ge=1, le=1000)]
    | Annotated[str, text(r"^[1-9]\d{0,2}(\+[1-9]\d{0,2})+$", max_length=150)]
)
TaskCounts = TaskCount | Annotated[tuple[TaskCount, ...], _ONCE]

Line = Annotated[str, text(r"^[^\x00-\x1f]*\S[^\x00-\x1f]*$", "one line of text that is not empty")]
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
        "the name of an environment variable: letters, digits and _, no digit first",
        max_length=200,
    ),
]
NoZeroByte = Annotated[str, text(r"^[^\x00]*$", "text without a zero byte")]
NotEmpty = Annotated[str, Meta(min_length=1)]
Examples = Annotated[int, Meta(ge=1, le=2_147_483_647)]
Usd = Annotated[float, Meta(ge=0, le=1_000_000)]


class RepeatUntil(Keys, frozen=True, kw_only=True):
    """When the repeats of a point are enough."""

    relative_interval: Annotated[
        float,
        Meta(gt=0, le=1),
        about(
            "The point is precise enough when the 95 % interval of the median execution_time_s is "
            "at most so wide, as a fraction of the median."
        ),
    ]
    repeats_max: Annotated[int, Meta(ge=2, le=10_000), about("Runs of a point at most.")] = 20


class Exclusion(Keys, frozen=True, kw_only=True):
    """A combination of axes to leave out; all axes that are given must match."""

    reason: Annotated[Line | UnsetType, about("Why, for the tables.")] = UNSET
    platform: Annotated[Names | UnsetType, about("Names from platforms.")] = UNSET
    model: Annotated[ModelNames | UnsetType, about("Names of models.")] = UNSET
    strategy: Annotated[Names | UnsetType, about("Names of strategies.")] = UNSET
    recipe: Annotated[Names | UnsetType, about("Names from recipes.")] = UNSET
    nodes: Annotated[NodeCounts | UnsetType, about("Numbers of nodes.")] = UNSET
    gpus_per_node: Annotated[GpuCounts | UnsetType, about("GPUs on each node.")] = UNSET
    tasks_per_node: Annotated[TaskCounts | UnsetType, about("Ranks on each node.")] = UNSET

    @property
    def axes(self) -> dict[str, tuple[str | int, ...]]:
        """The axes that are given, each with its values."""
        given = {axis: getattr(self, axis) for axis in POINT_AXES}
        return {axis: values_of(value) for axis, value in given.items() if value is not UNSET}


class Block(Keys, frozen=True, kw_only=True):
    """One block of the grid; each axis is a value or a list of values."""

    platform: Annotated[Names, about("Names from platforms.")]
    model: Annotated[
        ModelNames, about("Names of models, or functions of your own as package.module:function.")
    ]
    strategy: Annotated[Names, about("Names of distribution strategies.")] = "multi_worker_mirrored"
    recipe: Annotated[Names, about("Names from recipes.")]
    nodes: Annotated[NodeCounts, about("Numbers of nodes.")]
    gpus_per_node: Annotated[
        GpuCounts, about("GPUs (or logical devices) on each node; 0 trains on the CPU.")
    ] = 0
    tasks_per_node: Annotated[
        TaskCounts,
        about(
            'Ranks on each node; "2+1" puts two on the first and one on the second of two nodes.'
        ),
    ] = 1
    repeats: Annotated[
        int,
        Meta(ge=1, le=10_000),
        about("Runs of each point; fewer than 6 justify no 95 % interval of a median."),
    ] = 6
    repeat_until: Annotated[
        RepeatUntil | None,
        about(
            "Extra repeats, only of the points whose interval is too wide after `repeats` runs; "
            "null makes none."
        ),
    ] = None
    exclude: Annotated[
        tuple[Annotated[Exclusion, Meta(extra_json_schema={"minProperties": 1})], ...],
        about(
            "Combinations to leave out; each entry gives values of some axes, and may give the "
            "reason."
        ),
    ] = ()

    def values(self, axis: str) -> tuple[Any, ...]:
        """The values of an axis."""
        return values_of(getattr(self, axis))


def values_of(value: Any) -> tuple[Any, ...]:
    """A value or a list of values as a tuple."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class Recipe(Keys, frozen=True, kw_only=True):
    """How to train. Every key is part of a run's parameters - a change reruns the recipe's runs."""

    per_replica_batch_size: Annotated[
        Examples | None,
        about(
            "Examples per step and replica (weak scaling - the global batch grows with the "
            "replicas). Exactly one of the three batch sizes is given.",
            "examples",
        ),
    ] = None
    per_worker_batch_size: Annotated[
        Examples | None,
        about(
            "Examples per step and worker, split over the worker's devices (weak scaling in "
            "workers, strong inside a worker).",
            "examples",
        ),
    ] = None
    global_batch_size: Annotated[
        Examples | None,
        about(
            "Examples per step over all replicas (strong scaling - the global batch stays).",
            "examples",
        ),
    ] = None
    dataset: Annotated[
        Annotated[str, Meta(min_length=1, max_length=150)] | None,
        about(
            "The dataset to train on, a name or a function of your own as package.module:function; "
            "null takes the model's own."
        ),
    ] = None
    optimizer: Annotated[Literal["sgd", "adam"], about("The optimizer.")] = "sgd"
    learning_rate: Annotated[float, Meta(gt=0), about("The learning rate of one replica.")]
    learning_rate_scaling: Annotated[
        Literal["none", "linear", "sqrt"],
        about(
            "How the learning rate follows the number of replicas - none, linear (times replicas) "
            "or sqrt (times its square root)."
        ),
    ] = "none"
    momentum: Annotated[float, Meta(ge=0, lt=1), about("Momentum of sgd; adam ignores it.")] = 0.0
    epochs: Annotated[int, Meta(ge=1, le=1_000_000), about("Passes over the training examples.")]
    train_examples_max: Annotated[
        Examples | None,
        about("Train on the first so many examples only; null takes all.", "examples"),
    ] = None
    test_examples_max: Annotated[
        Examples | None,
        about("Evaluate on the first so many held-out examples only; null takes all.", "examples"),
    ] = None
    evaluation_interval_epochs: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        about(
            "Evaluate on the held-out examples after every so many epochs, as a time to a target "
            "accuracy needs it; null evaluates after the training only.",
            "epochs",
        ),
    ] = None
    steps_per_execution: Annotated[
        int,
        Meta(ge=1, le=1_000_000_000),
        about(
            "Steps inside one call of the compiled training function. 1 keeps the time of every "
            "step; more saves a little time per step.",
            "steps",
        ),
    ] = 1
    precision: Annotated[
        Literal["float32", "mixed_bfloat16", "mixed_float16"],
        about("Keras dtype policy; mixed_float16 scales the loss so that small gradients survive."),
    ] = "float32"
    communication: Annotated[
        Literal["auto", "ring", "nccl"],
        about("Collective implementation of multi_worker_mirrored."),
    ] = "auto"
    parameter_servers: Annotated[
        int,
        Meta(ge=1, le=100_000),
        about("Number of parameter servers of the strategies that use them.", "tasks"),
    ] = 1

    @property
    def batch_scaling(self) -> Literal["strong", "weak"]:
        """`strong` if the global batch is fixed, else `weak`."""
        return "weak" if self.global_batch_size is None else "strong"


class Measured(Keys, frozen=True, kw_only=True):
    """What of a platform can change a measurement: part of a run's parameters."""

    launcher: Annotated[
        Name,
        about(
            "How the ranks are started, a name of jobs/launchers.py: srun starts them as a Slurm "
            "job step; local starts them as processes on one machine."
        ),
    ]
    devices: Annotated[
        Literal["physical", "logical"],
        about(
            "physical - gpus_per_node are GPUs; logical - the worker splits its CPU into that many "
            "logical devices, to exercise the multi-device path on a machine without GPUs."
        ),
    ] = "physical"
    gpu_type: Annotated[
        Line | None,
        about(
            "The GPU's model, such as v100, a100-80gb or nvidia_a100-sxm4-80gb. A run on physical "
            "GPUs of another model does not count; a size or form factor that cannot be compared "
            "is said in `unchecked`. null compares nothing."
        ),
    ] = None
    instance_type: Annotated[Line | None, about("The machine type, for the tables.")] = None
    cpus_per_node: Annotated[
        int,
        Meta(ge=1, le=100_000),
        about("CPUs asked for on each node, shared evenly by its tasks.", "CPUs"),
    ]
    setup: Annotated[
        tuple[NoZeroByte, ...],
        about("Shell lines run before the trainer on every rank, such as `module load cuda`."),
    ] = ()
    env: Annotated[
        dict[VariableName, NoZeroByte], about("Environment variables of the trainer.")
    ] = {}


class Platform(Measured, frozen=True, kw_only=True):
    """Where to run.

    Keys marked "measured" are part of a run's parameters - a change reruns the platform's runs; the
    others rerun nothing.
    """

    title: Annotated[
        Line | None, about("How tables and plots call the platform; null takes its name.")
    ] = None
    cloud: Annotated[
        Line | None,
        about("The cloud on which the platform runs; clouds are compared with each other."),
    ] = None
    published_as: Annotated[
        Line | None, about("The platform's name in the published results; null takes its own.")
    ] = None
    cluster: Annotated[
        Name | None,
        about(
            "The Slurm cluster on which the platform lives; `--config cluster=NAME` submits only "
            "that cluster's runs. It is also passed to sbatch as --clusters when multi_cluster is "
            "true."
        ),
    ] = None
    multi_cluster: Annotated[
        bool, about("Submit with --clusters (several clusters under one slurmdbd).")
    ] = False
    nodes_max: Annotated[
        NodeCount, about("Points with more nodes are excluded with this reason.", "nodes")
    ]
    gpus_per_node_max: Annotated[
        GpuCount,
        about("GPUs (or logical devices) that a node has; asking for more is an error.", "GPUs"),
    ] = 0
    gpus_max: Annotated[
        Annotated[int, Meta(ge=0, le=100_000_000)] | None,
        about(
            "Quota over all nodes of a run; points beyond it are excluded with this reason. null "
            "means no quota.",
            "GPUs",
        ),
    ] = None
    mem_mb: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000_000)] | None,
        about("Memory per node; 0 or null leaves it to Slurm's default.", "MB"),
    ] = None
    runtime_min: Annotated[
        int, Meta(ge=1, le=5_256_000), about("Slurm's time limit for one run.", "min")
    ] = 60
    stall_timeout_s: Annotated[
        int,
        Meta(ge=10, le=315_360_000),
        about(
            "Ranks that hang are ended as failed after this long - a rank that gives no sign of "
            "life, or all ranks if none makes progress or uses CPU time; ranks that use CPU time "
            "but make no progress after ten times as long.",
            "s",
        ),
    ] = 600
    latency_wait_s: Annotated[
        int,
        Meta(ge=0),
        about(
            "How long a shared file system may take to show the launcher what ranks on other nodes "
            "have written.",
            "s",
        ),
    ] = 60
    partition: Annotated[OptionValue | None, about("Slurm partition.")] = None
    account: Annotated[OptionValue | None, about("Slurm account.")] = None
    qos: Annotated[OptionValue | None, about("Slurm quality of service.")] = None
    constraint: Annotated[OptionValue | None, about("Slurm node features.")] = None
    reservation: Annotated[Reservation | None, about("Slurm reservation.")] = None
    exclusive: Annotated[bool, about("Ask for whole nodes (--exclusive).")] = False
    gpu_gres: Annotated[
        GpuResource | None,
        about(
            'The name of the GPU resource in --gres, "gpu" or typed as "gpu:v100"; null asks Slurm '
            "for no GPUs (logical devices need none)."
        ),
    ] = "gpu"
    extra: Annotated[
        Line | None,
        about(
            "Further sbatch options, as one string; those for which there is a key here, in the "
            "grid or in the profile are refused."
        ),
    ] = None
    usd_per_node_hour: Annotated[
        Usd | None,
        about(
            "Price of one node for one hour. A price needs price_date and price_source.",
            "US dollars",
        ),
    ] = None
    usd_per_gpu_hour: Annotated[
        Usd | None,
        about(
            "Price of one GPU for one hour where GPUs are added to the node's price; null if the "
            "node's price has them.",
            "US dollars",
        ),
    ] = None
    price_date: Annotated[
        Annotated[str, text(r"^\d{4}(-\d{2}){0,2}$")] | None,
        about("When the price was valid, YYYY, YYYY-MM or YYYY-MM-DD."),
    ] = None
    price_source: Annotated[Line | None, about("Where the price was read.")] = None

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
    """A local copy of a dataset."""

    path: Annotated[
        NotEmpty | None,
        about(
            "A folder with the dataset's files as published (IDX files may be gzipped), or an "
            "`.npz` with `x_train`, `y_train`, `x_test`, `y_test`; null fetches it."
        ),
    ] = None


class Budget(Keys, frozen=True, kw_only=True):
    """What the runs that are still to do may cost by their estimate."""

    usd: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        about(
            "A sweep whose runs still to do are estimated above it is refused before anything is "
            "submitted; every platform with runs to do needs a price then. null sets no budget.",
            "US dollars",
        ),
    ] = None
    node_hours: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        about("The same for nodes times hours. null sets no budget.", "node-hours"),
    ] = None


class AllReduceBenchmark(Keys, frozen=True, kw_only=True):
    """Time all-reduces alone at each point that trains by them."""

    enabled: Annotated[
        bool,
        about(
            "Whether to run it, one more job for each point with two or more replicas that trains "
            "by all-reduce."
        ),
    ] = False
    sizes_bytes: Annotated[
        tuple[Annotated[int, Meta(ge=4, le=17_179_869_184, multiple_of=4)], ...],
        _ONCE,
        about(
            "Sizes of one float32 tensor for latency and bandwidth, multiples of 4; the model's "
            "gradient is always timed as well.",
            "bytes",
        ),
    ] = (4, 64, 1024, 16384, 65536, 262144, 1048576, 4194304, 16777216)
    repetitions: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        about("How often each size is timed, after two untimed calls."),
    ] = 20


class Baseline(Keys, frozen=True, kw_only=True):
    """Values of axes; those left out are the point's own, or of the fewest replicas."""

    platform: Annotated[Name | UnsetType, about("A name from platforms.")] = UNSET
    model: Annotated[ModelName | UnsetType, about("The name of a model.")] = UNSET
    strategy: Annotated[Name | UnsetType, about("The name of a strategy.")] = UNSET
    recipe: Annotated[Name | UnsetType, about("A name from recipes.")] = UNSET
    nodes: Annotated[NodeCount | UnsetType, about("A number of nodes.")] = UNSET
    gpus_per_node: Annotated[GpuCount | UnsetType, about("GPUs on each node.")] = UNSET
    tasks_per_node: Annotated[TaskCount | UnsetType, about("Ranks on each node.")] = UNSET

    @property
    def axes(self) -> dict[str, str | int]:
        """The axes that are given, with their values."""
        given = {axis: getattr(self, axis) for axis in POINT_AXES}
        return {axis: value for axis, value in given.items() if value is not UNSET}


class Comparison(Keys, frozen=True, kw_only=True):
    """The comparison table."""

    title: Annotated[Line, about("Heading of comparison.md.")] = (
        "Comparison of distributed training runs"
    )
    columns: Annotated[
        tuple[str, ...], _ONCE, about("Metrics shown in the comparison, in this order.")
    ] = (
        "execution_time_s",
        "speedup",
        "scaling_efficiency",
        "throughput_examples_per_s",
        "loss",
        "accuracy",
        "test_accuracy",
        "cost_usd",
    )
    baseline: Annotated[
        Baseline,
        about(
            "The point that speed-up is relative to, by values of axes; axes left out are the "
            "point's own (platform, model, strategy, recipe) or those of the fewest replicas (the "
            "others) with the same kind of device."
        ),
    ] = Baseline()
    indifference: Annotated[
        float,
        Meta(ge=0, lt=1),
        about(
            "A point that is worse than the best by no more than this fraction is as good, so that "
            "cost decides. Nothing is called decided that is not shown to be so near."
        ),
    ] = 0.05
    target_accuracy: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        about(
            "Accuracy on held-out examples at which a run has reached the target; null compares "
            "none."
        ),
    ] = None


class Published(Keys, frozen=True, kw_only=True):
    """Published results, shown next to the measured ones."""

    path: Annotated[
        NotEmpty | None,
        about(
            "A CSV with the columns of resources/published_results.csv, relative to the folder in "
            "which snakemake runs; null shows none."
        ),
    ] = None
    tolerance: Annotated[
        float,
        Meta(ge=0, le=1),
        about(
            "Published loss and accuracy are within the measured range if they are in it after "
            "widening it by this fraction of the loss, or of the error 1 - accuracy."
        ),
    ] = 0.25


class PlotOptions(Keys, frozen=True, kw_only=True):
    """A plot to draw."""

    title: Annotated[Line | None, about("Title of the plot; null takes the default one.")] = None


class Config(Keys, frozen=True, kw_only=True):
    """The merged configuration: config/config.yaml, config/platforms.yaml and overlays."""

    study: Annotated[
        Name,
        about(
            "Name of the folder below results/ for the tables, plots and report made from this "
            "configuration."
        ),
    ] = "main"
    grid: Annotated[
        tuple[Block, ...],
        Meta(min_length=1),
        about("What to run - a list of blocks, each the product of its axes."),
    ]
    recipes: Annotated[dict[Name, Recipe], Meta(min_length=1), about("How to train, by name.")]
    platforms: Annotated[dict[Name, Platform], Meta(min_length=1), about("Where to run, by name.")]
    datasets: Annotated[
        dict[Name, DatasetCopy], about("Local copies of datasets, by the dataset's name.")
    ] = {}
    seed: Annotated[
        int,
        Meta(ge=0, le=4_294_967_295),
        about("Seed of repeat 1; repeat k trains with seed + k - 1."),
    ] = 1
    cluster: Annotated[
        NotEmpty | None,
        about("Run only the platforms of this cluster; null runs all. Tables show everything."),
    ] = None
    budget: Annotated[
        Budget,
        about(
            "What the runs that are still to do may cost by their estimate; a sweep beyond it is "
            "refused."
        ),
    ] = Budget()
    all_reduce_benchmark: Annotated[
        AllReduceBenchmark,
        about(
            "Time all-reduces alone at each point that trains by them, as a measure of its "
            "communication."
        ),
    ] = AllReduceBenchmark()
    comparison: Annotated[Comparison, about("The comparison table.")] = Comparison()
    published: Annotated[
        Published, about("Published results, shown next to the measured ones.")
    ] = Published()
    plots: Annotated[
        dict[str, PlotOptions], about("The plots to draw, by name, each with its title.")
    ] = {}

    def is_selected(self, platform: str) -> bool:
        """Whether the platform is on the cluster that was chosen with --config cluster=NAME."""
        return self.cluster in (None, self.platforms[platform].cluster)
