"""The environment that a recipe names for its program: variables, and what is installed in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping

import msgspec

from tfscaling.launch.rank_process import WorkFailedError
from tfscaling.record.rank_report import PROGRAM_PACKAGES, HostFacts
from tfscaling.spec import recipes

#: For the environment's Python, 3.8 or later: prints its version, and those of its arguments.
_VERSIONS = """
import importlib.metadata, json, platform, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps([platform.python_version(), {name: version(name) for name in sys.argv[1:]}]))
"""
_TIMEOUT_S = 60.0


def variables(environment: str, environ: Mapping[str, str], host: str) -> dict[str, str]:
    """What activating the environment sets.

    Raises WorkFailedError if this host does not have it: another Python would run instead.
    """
    python = recipes.python_of(environment)
    if not recipes.is_environment(environment):
        text = f"environment {environment}: {host} has no program {python}"
        raise WorkFailedError("EnvironmentError", text, 127)
    path = environ.get("PATH", os.defpath)
    return {
        "VIRTUAL_ENV": str(python.parents[1]),
        "PATH": os.pathsep.join((str(python.parent), path)),
    }


def with_versions(facts: HostFacts, environment: str) -> HostFacts:
    """The facts with the versions of the environment; none where its Python does not tell."""
    command = [str(recipes.python_of(environment)), "-c", _VERSIONS, *PROGRAM_PACKAGES]
    try:
        shown = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        )
        python, packages = json.loads(shown.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        python, packages = None, {}
    installed = {name: version for name, version in packages.items() if version is not None}
    return msgspec.structs.replace(facts, python=python, packages=installed)
