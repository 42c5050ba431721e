"""Network files: a Keras model and its PyTorch twin, which `make peers` trains.

`make peers NETWORK=own/lstm.py` takes a file of the project folder. It defines:

    BATCH_SIZE                   examples per worker and step
    TRAINABLE_PARAMETERS         number of trainable parameters, equal in all frameworks
    data(examples)               (x, y), (x_test, y_test): NumPy arrays, `examples` rows in x and y
    keras_model()                a compiled Keras 3 model, whose loss is a mean over the examples
    torch_module()               the same network as a PyTorch module, which takes batches of x
    torch_optimizer(parameters)  the same optimizer
    torch_loss(outputs, labels)  the same loss, of a batch

    products()                   optional: the matrix products of a forward pass on a batch, as
                                 (rows, inner size, columns, whether layers below need a gradient);
                                 floor.py then measures them

The functions import their framework themselves, because no environment has all of them. For the
workflow's trainer, `keras_model` and `data` are custom functions (docs/configuration/own-model.md).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

NAMES = (
    "BATCH_SIZE",
    "TRAINABLE_PARAMETERS",
    "data",
    "keras_model",
    "torch_module",
    "torch_optimizer",
    "torch_loss",
)


class NetworkFileError(ValueError):
    """A network file lacks a name, or its models differ; the message says which."""


def load(path: str) -> ModuleType:
    """Import a network file.

    Raises:
        NetworkFileError: The file does not exist or lacks a name.
    """
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise NetworkFileError(f"{path}: not a Python file")
    network = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(network)
    missing = [name for name in NAMES if not hasattr(network, name)]
    if missing:
        raise NetworkFileError(f"{path} lacks {', '.join(missing)}; see {__file__}")
    return network


def check_parameters(network: ModuleType, function: str, trainable: int) -> None:
    """Check the number of trainable parameters that a function of the file built.

    Args:
        network: The network file.
        function: Name of the function, for the message.
        trainable: Number of trainable parameters.

    Raises:
        NetworkFileError: The file states a different number, so the frameworks' work would differ.
    """
    if trainable != network.TRAINABLE_PARAMETERS:
        raise NetworkFileError(
            f"{network.__file__}: {function}() has {trainable:,} trainable parameters, "
            f"TRAINABLE_PARAMETERS is {network.TRAINABLE_PARAMETERS:,}"
        )
