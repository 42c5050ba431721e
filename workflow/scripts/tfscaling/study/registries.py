"""Interfaces of things with a name, as planning needs them: models, strategies, datasets.

Other packages register them; they are passed as arguments, so that nothing is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfscaling.study import user_code
from tfscaling.study.config_types import Config, Recipe
from tfscaling.study.config_validation import NotAllowed, Place, known
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
        build: Returns a Keras model from images to logits.
        dataset: Name of its usual dataset, or of a function that makes it; None leaves it to the
            recipe.
    """

    description: str
    dataset: str | None
    build: Callable[[], Any]
    #: (height, width) or (height, width, channels); None if it is not known.
    image_shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Strategy:
    """A distribution strategy that the configuration can name.

    `build(devices, communication)` returns the `tf.distribute.Strategy` over this rank's `devices`
    ("CPU:0", "GPU:1", ...), with the recipe's `communication`; `TF_CONFIG` is set before.
    """

    description: str
    build: Callable[[Sequence[str], str], Any]
    one_task_only: bool = False
    one_device_only: bool = False
    #: A coordinator drives parameter servers and workers; only workers train.
    coordinated: bool = False
    #: One update from the gradients of all workers, as far as is known.
    synchronous: bool = True
    #: What a rank calls after its work, when all others do.
    end: Callable[[], None] = lambda: None

    def jobs(self, geometry: Geometry, parameter_servers: int) -> dict[str, int]:
        """Return job of TF_CONFIG → its number of tasks; ranks are assigned in this order."""
        if not self.coordinated:
            return {"worker": geometry.tasks}
        workers = geometry.tasks - 1 - parameter_servers
        return {"chief": 1, "ps": parameter_servers, "worker": workers}

    def replicas(self, geometry: Geometry, parameter_servers: int) -> int:
        """Return the number of replicas: one for each GPU of a worker, or one on its CPU."""
        return self.jobs(geometry, parameter_servers)["worker"] * max(1, geometry.gpus_per_task)

    def refusal(self, geometry: Geometry, parameter_servers: int) -> str | None:
        """Return why the strategy cannot use a geometry; None if it can."""
        if self.jobs(geometry, parameter_servers)["worker"] < 1:
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
    """The names that a configuration may use, with what they mean."""

    models: Mapping[str, Model]
    strategies: Mapping[str, Strategy]
    datasets: Mapping[str, Dataset] = {}
    metrics: Collection[str] = ()
    plots: Collection[str] = ()
    launchers: Collection[str] = ()

    def dataset(self, model: str, recipe: Recipe) -> str:
        """Return the name of the dataset on which a recipe trains a model."""
        dataset = recipe.dataset or self.models[model].dataset
        assert dataset is not None, "recipes.check_block refuses a model without a dataset"
        return dataset

    def mismatch(self, model: str, dataset: str) -> str | None:
        """Return why a dataset's images do not fit a model, and what fits; None if they may."""
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
            NotAllowed: For the first unknown name. A dataset may also be a custom function, which
                must exist.
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
                check_function(["recipes", name, "dataset"], recipe.dataset, self.datasets)


def check_name(place: Place, name: str, registry: Collection[str]) -> None:
    """Raise NotAllowed unless the name is in the registry."""
    if name not in registry:
        raise NotAllowed(place, name, known(registry, name))


def check_function(place: Place, name: str, registry: Iterable[str]) -> None:
    """Raise NotAllowed unless the name is in the registry, or a custom function that exists."""
    if user_code.is_reference(name):
        try:
            user_code.check(name)
        except user_code.UserCodeError as error:
            raise NotAllowed(place, name, str(error)) from None
    elif name not in registry:
        raise NotAllowed(place, name, f"{known(registry, name)} or {user_code.FORM}")
