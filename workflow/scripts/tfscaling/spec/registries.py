"""What planning asks of things with a name: models, strategies, datasets.

The packages above hold them; they are arguments here, so that nothing above is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from tfscaling.spec import user_code
from tfscaling.spec.config import Config, Recipe
from tfscaling.spec.configuration import NotAllowed, Place, known
from tfscaling.spec.geometry import Geometry


class Shaped(Protocol):
    """A model or a dataset of images."""

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(height, width) or (height, width, channels); None if it is not known."""


class Model(Shaped, Protocol):
    """What planning asks of a model."""

    @property
    def dataset(self) -> str | None:
        """The dataset that it trains on unless the recipe says another."""


class Strategy(Protocol):
    """What planning asks of a distribution strategy."""

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator and parameter servers take the place of all-reduce."""

    @property
    def synchronous(self) -> bool:
        """Whether one update comes from the gradients of all workers."""

    def jobs(self, geometry: Geometry, parameter_servers: int) -> dict[str, int]:
        """Job of the cluster → number of its tasks."""

    def replicas(self, geometry: Geometry, parameter_servers: int) -> int:
        """Number of replicas that train, at least 1."""

    def refusal(self, geometry: Geometry, parameter_servers: int) -> str | None:
        """Why the strategy cannot run with this geometry, or None."""


class Registries(NamedTuple):
    """What is known by name."""

    models: Mapping[str, Model]
    strategies: Mapping[str, Strategy]
    #: Dataset → number of its training examples, where that is known.
    train_examples: Mapping[str, int] = {}
    datasets: Mapping[str, Shaped] = {}
    metrics: Collection[str] = ()
    plots: Collection[str] = ()
    launchers: Collection[str] = ()

    def dataset(self, model: str, recipe: Recipe) -> str:
        """What a model is trained on by this recipe."""
        dataset = recipe.dataset or self.models[model].dataset
        assert dataset is not None, "recipes.check_block refuses a model without a dataset"
        return dataset

    def mismatch(self, model: str, dataset: str) -> str | None:
        """Why the images of a dataset do not fit the model, and what fits; None if unknown."""
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
        """Raise NotAllowed for the first name of plots, columns, data, launchers that is unknown.

        A recipe's dataset may also be a custom function, which must exist.
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
