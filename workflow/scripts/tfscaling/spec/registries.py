"""What planning asks of things with a name: models, strategies, datasets.

The packages above hold them; they are arguments here, so that nothing above is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from tfscaling.spec.config import Recipe
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

    @property
    def sums_in_32_bits(self) -> bool:
        """Whether it sums in 32 bits what it exchanges in 16; true if it exchanges nothing."""

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
        assert dataset is not None, "recipe_checks refuses a model without a dataset"
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
