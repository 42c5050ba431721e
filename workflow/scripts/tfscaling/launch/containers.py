"""Command lines and environments of ranks in containers, and checksums of their images.

For Apptainer, Singularity, Charliecloud and pyxis; `launchers` uses it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tfscaling.study.config_types import Container

#: The checkout with the programs of the ranks.
_PROJECT = Path(__file__).resolve().parents[4]
#: The driver of AMD's GPUs, on nodes that have some.
_AMD_DRIVER = Path("/dev/kfd")


def wrap_command(container: Container | None, command: Sequence[str], on_gpus: bool) -> list[str]:
    """Return the command line that runs `command` in the container.

    With pyxis the image is an option of srun (`srun_options`); the command stays as it is.

    Args:
        container: The container; None leaves the command unchanged.
        command: Words of the command; the first one is Python.
        on_gpus: Whether the command uses GPUs.
    """
    if container is None:
        return list(command)
    binds = [word for place in _bound_folders(container, command) for word in ("--bind", place)]
    match container.engine:
        case "apptainer" | "singularity":  # the same options by two names
            gpus = ["--rocm" if _AMD_DRIVER.exists() else "--nv"] if on_gpus else []
            folder = ["--pwd", str(Path.cwd())]
            start = [container.engine, "exec", *gpus, *binds, *folder, container.image]
        case "charliecloud":
            start = ["ch-run", *binds, "--cd", str(Path.cwd()), container.image, "--"]
        case _:
            start = []
    return [*start, *command]


def container_environment(container: Container | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with the variables that pass values into an Apptainer or Singularity image.

    For each variable, such as NAME, a copy with the engine's prefix is added: APPTAINERENV_NAME.
    Without the copy, the image's own value takes precedence. Search paths and the launcher's
    internal variables are not copied. For other engines, or without a container, `env` is returned
    unchanged.

    Args:
        container: The container, if any.
        env: Variables for the ranks.
    """
    prefixes = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}
    prefix = prefixes.get(container.engine) if container else None
    kept = {f"{prefix}{name}": env[name] for name in _protected_variables(env)} if prefix else {}
    return {**env, **kept}


def srun_options(
    container: Container | None, command: Sequence[str], variables: Iterable[str]
) -> list[str]:
    """Return the options with which srun starts ranks in a pyxis container; [] for other engines.

    Args:
        container: The container, if any.
        command: Words of the command of a rank; the first one is Python.
        variables: Names of variables whose values the image must not replace.
    """
    if container is None or container.engine != "pyxis":
        return []
    folders = _bound_folders(container, command)
    pairs = [place if ":" in place else f"{place}:{place}" for place in folders]
    return [
        f"--container-image={container.image}",
        f"--container-mounts={','.join(pairs)}",
        f"--container-workdir={Path.cwd()}",
        *(
            [f"--container-env={','.join(names)}"]
            if (names := _protected_variables(variables))
            else []
        ),
    ]


def _protected_variables(variables: Iterable[str]) -> list[str]:
    """Return the names of the variables whose values an image must not replace, sorted.

    Search paths are left to the image. Variables of the launcher, such as the connection's secret,
    are left out: they would stay in the environment of a user's program.

    Args:
        variables: Names of all variables that the launcher sets.
    """
    names = {name for name in variables if not name.startswith("TFSCALING_")}
    return sorted(names - {"PATH", "LD_LIBRARY_PATH", "HOME"})


def _bound_folders(container: Container, command: Sequence[str]) -> list[str]:
    """Return the folders to bind into the container: project, workflow, Python, and its `binds`.

    Args:
        container: The container.
        command: Words of the command; a Python that is not the workflow's own is in the image.
    """
    own = [str(Path.cwd()), str(_PROJECT)]
    if command[0] == sys.executable:
        own += [sys.prefix, sys.base_prefix]
    return [*dict.fromkeys([*own, *container.binds])]


def image_sha256(container: Container | None) -> str | None:
    """Return the SHA-256 of the container's image, in hexadecimal digits.

    For an image that is a folder, names, sizes and modification times of its files are hashed.

    Returns:
        None without a container, or if the image is no path on this host, such as a registry's URL.
    """
    if container is None or not (image := Path(container.image)).exists():
        return None
    found = hashlib.sha256()
    if image.is_file():
        with image.open("rb") as file:
            while part := file.read(1 << 20):
                found.update(part)
        return found.hexdigest()
    for folder, names, files in os.walk(image):
        names.sort()
        for name in sorted([*names, *files]):
            path = Path(folder, name)
            status = path.lstat()
            is_folder = path.is_dir() and not path.is_symlink()
            facts = () if is_folder else (status.st_size, status.st_mtime_ns)
            found.update(f"{path.relative_to(image)}\0{facts}\n".encode(errors="surrogateescape"))
    return found.hexdigest()
