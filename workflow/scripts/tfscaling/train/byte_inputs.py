"""Inputs of bytes (uint8): which of them are scaled to [0, 1], and what a model makes of these.

Bytes of arrays are images, unless the model says otherwise: an integer `keras.Input` takes them as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tfscaling.datasets.catalogue import Nest
from tfscaling.train.user_model import ModelError

#: Layers for numbers that are not in [0, 1].
_FOR_BYTES = ("Rescaling", "Normalization")
_FOR_NUMBERS = "Embedding"
#: Layers that give the numbers that they get.
_KEEPING = ("InputLayer", "Flatten", "Reshape", "Permute", "RepeatVector", "Identity")


class _Part(NamedTuple):
    """One of a model's inputs, with the name that it has in the data."""

    name: str
    data: Any
    #: The model's symbolic input; None if the model, a subclass of keras.Model, does not say it.
    symbol: Any

    @property
    def is_scaled(self) -> bool:
        is_floating = self.symbol is None or "float" in self.symbol.dtype
        return bool(self.data.dtype.name == "uint8" and is_floating)


def scaled(model: Any, x: Any, scale: Callable[[Any], Any]) -> Any:
    """The inputs `x`, tensors or arrays, with `scale` of those that the model takes as images."""
    found = [scale(part.data) if part.is_scaled else part.data for part in _parts(model, x)]
    if isinstance(x, dict):
        return dict(zip(x, found, strict=True))
    return tuple(found) if isinstance(x, tuple) else found[0]


def check(model: Any, x: Nest) -> None:
    """Raise ModelError if the model looks up in a table what is scaled to [0, 1].

    Not if a layer in between may scale it back.
    """
    for part in _parts(model, x):
        if part.is_scaled and part.symbol is not None:
            for layer in _reached(model, part.symbol, _keeps_numbers):
                if type(layer).__name__ == _FOR_NUMBERS:
                    raise ModelError(
                        f"{part.name} has bytes, which are scaled to 0 … 1 for an input of "
                        f"floating point, and goes to layer {layer.name} (Embedding), which takes "
                        'whole numbers: give its keras.Input dtype="uint8"'
                    )


def warnings(model: Any, x: Nest) -> list[str]:
    """What the model's layers make of inputs that are scaled already; for the run's record."""
    found = []
    for part in _parts(model, x):
        if part.is_scaled:
            is_graph = part.symbol is not None  # of a subclass it cannot be said what goes where
            layers = (
                _reached(model, part.symbol, _is_not_trained)
                if is_graph
                else model._flatten_layers()
            )
            kinds = _FOR_BYTES if is_graph else (*_FOR_BYTES, _FOR_NUMBERS)
            kinds_of = ((each.name, type(each).__name__) for each in layers)
            if named := [f"{name} ({kind})" for name, kind in kinds_of if kind in kinds]:
                found.append(
                    f"the bytes of {part.name} are scaled to 0 … 1, and the model has layers for "
                    f"other numbers: {', '.join(named)}. If they are for bytes, give keras.Input "
                    'dtype="uint8", or return float32'
                )
    return found


def _parts(model: Any, x: Any) -> list[_Part]:
    inputs: Sequence[Any] = getattr(model, "inputs", None) or ()
    if isinstance(x, dict):
        by_name = {each.name: each for each in inputs}  # Keras wants these names for the keys
        return [_Part(f"x.{name}", data, by_name.get(name)) for name, data in x.items()]
    if isinstance(x, tuple):
        symbols = inputs if len(inputs) == len(x) else [None] * len(x)
        pairs = enumerate(zip(x, symbols, strict=True))
        return [_Part(f"x[{place}]", data, symbol) for place, (data, symbol) in pairs]
    return [_Part("x", x, inputs[0] if len(inputs) == 1 else None)]


def _is_not_trained(layer: Any) -> bool:
    return not getattr(layer, "trainable_variables", None)


def _keeps_numbers(layer: Any) -> bool:
    return type(layer).__name__ in _KEEPING


def _reached(model: Any, symbol: Any, goes_on: Callable[[Any], bool]) -> Iterator[Any]:
    """The layers that an input of a model of layers goes to, and from one where it `goes_on`."""
    graph = getattr(model, "_functional", None) or model
    reached = {id(symbol)}
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        for node in graph._nodes_by_depth[depth]:
            places = [p for p, each in enumerate(node.input_tensors) if id(each) in reached]
            if not places:
                continue
            layer, inner = node.operation, getattr(node.operation, "inputs", None)
            if inner and len(inner) == len(node.input_tensors):
                for place in places:
                    yield from _reached(layer, inner[place], goes_on)
            else:
                yield layer
            if goes_on(layer):
                reached |= {id(each) for each in node.output_tensors}
