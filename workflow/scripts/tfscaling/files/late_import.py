"""Modules that are imported when one of their functions is called.

A registry is asked for its names at each start of the workflow, by every job too, and for what its
entries do only by few programs: pandas and SciPy would take most of the time of a start.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


class LateModule:
    """Stands for the module `name`, of which only functions can be used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function.startswith("_"):
            raise AttributeError(function)

        def call(*arguments: Any) -> Any:
            return getattr(importlib.import_module(self._name), function)(*arguments)

        return call
