"""Types of what a configuration names, as planning needs them: models, strategies, datasets.

Other packages register them; they are passed as arguments, so that nothing is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfscaling.study import user_code
from tfscaling.study.config_types import Config, Recipe
from tfscaling.study.config_validation import NotAllowed, Place, list_allowed_names
from tfscaling.study.geometry import Geometry


class Dataset(Protocol):
    """Facts about a dataset that are known before it is read."""

    @property
    def train_examples(self) -> int | None:
        """Number of training examples; None if unknown."""

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(height, width) or (height, width, channels); None if unknown."""


@dataclass(frozen=True)
class Model:
    """A classifier that the configuration can name.

    Attributes:
        description: What it is, for the lists of models.
        dataset: Name of its default dataset, or of a function that makes it; None if each recipe
            must name a dataset.
        build: Returns a Keras model from images to logits.
        image_shape: (height, width) or (height, width, channels); None if it is not known.
    """

    description: str
    dataset: str | None
    build: Callable[[], Any]
    image_shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Strategy:
    """A distribution strategy that the configuration can name.

    Attributes:
        description: What it does, for the lists of strategies.
        build: Takes this rank's devices ("CPU:0", "GPU:1", ...) and the recipe's `communication`;
            returns a `tf.distribute.Strategy` over them. `TF_CONFIG` is set before.
        one_task_only: Whether it can run only in a single task.
        one_device_only: Whether each of its tasks can use only a single device.
        coordinated: Whether a coordinator drives parameter servers and workers; only workers train.
        synchronous: Whether each step has one update from the gradients of all workers; False if
            unknown.
        end: Function that every rank calls after its training, such as MPI's finalization.
    """

    description: str
    build: Callable[[Sequence[str], str], Any]
    one_task_only: bool = False
    one_device_only: bool = False
    coordinated: bool = False
    synchronous: bool = True
    end: Callable[[], None] = lambda: None

    def tasks_by_job(self, geometry: Geometry, parameter_servers: int) -> dict[str, int]:
        """Return job of TF_CONFIG → its number of tasks; ranks are assigned to jobs in this order.

        Args:
            geometry: Nodes, tasks and GPUs of the run.
            parameter_servers: Number of parameter servers, for a coordinated strategy.
        """
        if not self.coordinated:
            return {"worker": geometry.tasks}
        workers = geometry.tasks - 1 - parameter_servers
        return {"chief": 1, "ps": parameter_servers, "worker": workers}

    def count_replicas(self, geometry: Geometry, parameter_servers: int) -> int:
        """Return the number of replicas: each worker has one for each GPU, or one on its CPU."""
        return self.tasks_by_job(geometry, parameter_servers)["worker"] * max(
            1, geometry.gpus_per_task
        )

    def geometry_problem(self, geometry: Geometry, parameter_servers: int) -> str | None:
        """Return why the strategy cannot run on a geometry; None if it can."""
        if self.tasks_by_job(geometry, parameter_servers)["worker"] < 1:
            return (
                f"the strategy needs tasks for a coordinator, {parameter_servers} "
                f"parameter servers and a worker, not {geometry.tasks}"
            )
        if self.one_task_only and geometry.tasks > 1:
            return f"the strategy runs one task, not {geometry.tasks}"
        if self.one_device_only and geometry.gpus_per_task > 1:
            return f"the strategy uses one device, not {geometry.gpus_per_task}"
        return None


class Registries(NamedTuple):
    """The names that a configuration may use; models, strategies and datasets with their facts.

    Attributes:
        models: Name → built-in model.
        strategies: Name → distribution strategy.
        datasets: Name → built-in dataset.
        metrics: Names of the columns that the comparison may show.
        plots: Names of the plots.
        launchers: Names of the launchers.
    """

    models: Mapping[str, Model]
    strategies: Mapping[str, Strategy]
    datasets: Mapping[str, Dataset] = {}
    metrics: Collection[str] = ()
    plots: Collection[str] = ()
    launchers: Collection[str] = ()

    def dataset_name(self, model: str, recipe: Recipe) -> str:
        """Return the dataset on which a recipe trains a model: its own, or the model's default."""
        dataset = recipe.dataset or self.models[model].dataset
        assert dataset is not None, "recipes.check_block refuses a model without a dataset"
        return dataset

    def image_shape_problem(self, model: str, dataset: str) -> str | None:
        """Return why a dataset's images do not fit a model; None if they may fit.

        The text also has the names of datasets that fit.

        Args:
            model: Name of the model.
            dataset: Name of the dataset.
        """
        if model not in self.models or dataset not in self.datasets:
            return None
        wanted, given = self.models[model].image_shape, self.datasets[dataset].image_shape
        if None in (wanted, given) or wanted == given:
            return None
        fitting = [name for name, each in self.datasets.items() if each.image_shape == wanted]
        return (
            f"model {model} takes images of the shape {wanted}, these have {given}; "
            f"allowed: {', '.join(fitting)}, or another model"
        )

    def check_names(self, config: Config) -> None:
        """Check the configured names of plots, columns, datasets and launchers.

        Raises:
            NotAllowed: For the first unknown name, and for a local copy of a dataset that does not
                exist. A recipe's dataset may also be a custom function, which must exist.
        """
        for number, column in enumerate(config.comparison.columns):
            check_name(["comparison", "columns", number], column, self.metrics)
        for plot in config.plots:
            check_name(["plots", plot], plot, self.plots)
        for name, local in config.datasets.items():
            check_name(["datasets", name], name, self.datasets)
            if local.path is not None and not Path(local.path).exists():
                rule = f"there is no such file or folder, seen from {Path.cwd()}"
                raise NotAllowed(["datasets", name, "path"], local.path, rule)
        for name, platform in config.platforms.items():
            check_name(["platforms", name, "launcher"], platform.launcher, self.launchers)
        for name, recipe in config.recipes.items():
            if recipe.dataset is not None:
                check_name_or_function(["recipes", name, "dataset"], recipe.dataset, self.datasets)


def check_name(place: Place, name: str, registry: Collection[str]) -> None:
    """Raise NotAllowed unless the registry has the name.

    Args:
        place: Place of the name in the configuration, for the error.
        name: The name.
        registry: The names that exist.
    """
    if name not in registry:
        raise NotAllowed(place, name, list_allowed_names(registry, name))


def check_name_or_function(place: Place, name: str, registry: Iterable[str]) -> None:
    """Raise NotAllowed unless a name is in the registry or is an existing custom function.

    Args:
        place: Place of the name in the configuration, for the error.
        name: A name, or `package.module:function`.
        registry: The names that exist.
    """
    if user_code.is_reference(name):
        try:
            user_code.check_function(name)
        except user_code.UserCodeError as error:
            raise NotAllowed(place, name, str(error)) from None
    elif name not in registry:
        allowed = f"{list_allowed_names(registry, name)} or {user_code.REFERENCE_FORM}"
        module, dot, function = name.rpartition(".")
        hint = f"; to name a function, write {module}:{function}" if dot else ""
        raise NotAllowed(place, name, allowed + hint)
