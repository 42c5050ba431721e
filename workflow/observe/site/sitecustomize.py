"""Loads `observe: fit` into a program: Python runs this first where PYTHONPATH names its folder.

Then the `sitecustomize` of the environment runs, which this file precedes.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_next() -> None:
    """Run the `sitecustomize` that Python would have imported without this file, if any."""
    elsewhere = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)


if os.environ.get("TFSCALING_EVENTS"):
    import tfscaling_observe_fit

    tfscaling_observe_fit.install()
_run_next()
