#!/usr/bin/env python3
"""Write the configuration of a sweep, show its plan, and run it if the answer is yes.

INPUTS   what to vary (--nodes, --gpus, --model, --platform, …), config/platforms.yaml
OUTPUTS  sweeps/<study>.yaml, an overlay of the configuration; then what `snakemake plan` and
         `snakemake` write

`make sweep NODES=1,2,4 GPUS=0,2` calls it. Errors of the configuration are those of Snakemake.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from tfscaling.files import atomic, program_errors
from tfscaling.spec import config_files, configuration, user_code

PROJECT = Path(__file__).resolve().parents[2]
PLATFORMS = Path("config/platforms.yaml")
SWEEPS = Path("sweeps")
#: How a file of this program begins: it may be written over.
HEAD = "# Written by `make sweep`, which writes over it: copy it to keep changes.\n"
#: By it editors check and complete the keys.
SCHEMA = PROJECT / "workflow/schemas/overlay.schema.yaml"
#: A study's name is that of its file here and of its folder of results.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: What trains a built-in model unless RECIPE is given; a model of the user's brings its own.
OPTIMIZER = {"optimizer": "adam", "learning_rate": 0.003}


class SweepError(program_errors.InputError):
    """A variable is wrong: names it, the value and what is allowed."""


@dataclass(frozen=True)
class Wanted:
    """What to vary. `recipe` is one of the configuration, or None for one of `epochs`, `batch`."""

    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    platform: str
    model: str
    dataset: str | None
    recipe: str | None
    epochs: int | None
    batch: int | None
    repeats: int
    study: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sweep", description=__doc__.splitlines()[0])
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--yes", default="", help="anything: run it without a question")
    args = parser.parse_args()
    wanted = read({name: getattr(args, name) for name in DEFAULTS})
    launcher = launcher_of(wanted.platform)
    overlay = write(wanted)
    words = ["--profile", profile_of(launcher), "--configfile", str(overlay)]
    words += [] if Path("Snakefile").exists() else ["--snakefile", str(PROJECT / "Snakefile")]
    print(f"{overlay}:\n{overlay.read_text()}", flush=True)
    planned = subprocess.run(["snakemake", "plan", *words, "--quiet", "all"], check=False)
    if planned.returncode:
        sys.exit("Nothing was run.")
    if args.yes or is_wanted(f".venv/bin/snakemake {shlex.join(words)}"):
        sys.exit(subprocess.run(["snakemake", *words], check=False).returncode)


#: Variable in small letters → what it is if it is not given.
DEFAULTS = {
    "nodes": "", "gpus": "0", "platform": "laptop", "model": "mnist_cnn", "dataset": "",
    "recipe": "", "epochs": "", "batch": "", "repeats": "6", "study": "sweep",
}  # fmt: skip


def read(given: dict[str, str]) -> Wanted:
    """The variables with their types; raises SweepError for the first that is wrong."""
    recipe = given["recipe"] or None
    if not NAME.fullmatch(given["study"]):
        rule = "allowed: letters, digits and . _ -, a letter or digit first"
        raise SweepError(problem("study", given["study"], rule))
    for name in ("epochs", "batch", "dataset"):
        if recipe and given[name]:
            rule = f"the recipe {recipe} says it; leave RECIPE or {name.upper()} out"
            raise SweepError(problem(name, given[name], rule))
    if user_code.is_reference(given["model"]) and not (recipe or given["dataset"]):
        rule = "a model of yours needs DATASET=package.module:function, or a RECIPE that names one"
        raise SweepError(problem("model", given["model"], rule))
    return Wanted(
        nodes=numbers("nodes", given["nodes"], 1),
        gpus=numbers("gpus", given["gpus"], 0),
        platform=given["platform"],
        model=given["model"],
        dataset=given["dataset"] or None,
        recipe=recipe,
        epochs=None if recipe else number("epochs", given["epochs"] or "2", 1),
        batch=None if recipe else number("batch", given["batch"] or "64", 1),
        repeats=number("repeats", given["repeats"], 1),
        study=given["study"],
    )


def numbers(name: str, text: str, least: int) -> tuple[int, ...]:
    """`1,2,4` as numbers in the order given."""
    if not text:
        raise SweepError(f"{name.upper()} is missing; allowed: whole numbers as in 1,2,4")
    return tuple(number(name, each.strip(), least) for each in text.split(","))


def number(name: str, text: str, least: int) -> int:
    """A whole number of at least `least`; the configuration has the rest of its rules."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise SweepError(problem(name, text, f"allowed: whole numbers from {least}"))
    return int(text)


def problem(name: str, value: str, rule: str) -> str:
    """As errors of the configuration are: what, its value, what is allowed."""
    return f'{name.upper()}: "{value}" is not allowed; {rule}'


def launcher_of(platform: str) -> str:
    """How the platform of config/platforms.yaml starts runs; raises SweepError if it is not one."""
    platforms = config_files.read(str(PLATFORMS)).get("platforms")
    if not isinstance(platforms, dict) or platform not in platforms:
        known = configuration.known(platforms or (), platform)
        raise SweepError(problem("platform", platform, f"{known} (in {PLATFORMS})"))
    entry = platforms[platform]
    if not isinstance(entry, dict) or "launcher" not in entry:
        raise SweepError(problem("platform", platform, f"it has no launcher in {PLATFORMS}"))
    return str(entry["launcher"])


def profile_of(launcher: str) -> str:
    """The profile that submits the runs, as a path for this folder."""
    path = Path("profiles", "local" if launcher == "local" else "slurm")
    return str(path if path.exists() else PROJECT / path)


def write(wanted: Wanted) -> Path:
    """Write the overlay; raises SweepError rather than write over a file of the user's."""
    path = SWEEPS / f"{wanted.study}.yaml"
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(HEAD.encode())):
        raise SweepError(problem("study", wanted.study, f"{path} is a file of yours"))
    path.parent.mkdir(exist_ok=True)
    schema = f"# yaml-language-server: $schema={os.path.relpath(SCHEMA, path.parent)}\n"
    atomic.write_text(path, HEAD + schema + text_of(wanted))
    return path


def text_of(wanted: Wanted) -> str:
    """The overlay as YAML."""
    # runs are shared by all studies: what is trained differently has another name
    data = f"{wanted.dataset.replace(':', '-')}-" if wanted.dataset else ""
    recipe = wanted.recipe or f"{data}epochs-{wanted.epochs}-batch-{wanted.batch}"
    block = {
        "platform": wanted.platform,
        "model": wanted.model,
        "recipe": recipe,
        "nodes": list(wanted.nodes),
        "gpus_per_node": list(wanted.gpus),
        "repeats": wanted.repeats,
    }
    content: dict[str, object] = {"study": wanted.study, "grid": [block]}
    if wanted.recipe is None:
        trained = {"per_replica_batch_size": wanted.batch, "epochs": wanted.epochs}
        trained |= {"dataset": wanted.dataset} if wanted.dataset else {}
        own = user_code.is_reference(wanted.model)
        content["recipes"] = {recipe: {**trained, **({} if own else OPTIMIZER)}}
    content["comparison"] = {"title": f"{wanted.model} on {wanted.platform}"}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)


def is_wanted(command: str) -> bool:
    """The user's answer; where nobody can answer, what to do instead, and exit status 1."""
    if not sys.stdin.isatty():
        sys.exit(f"Nothing was run, for no terminal can answer. Run it by YES=1, or: {command}")
    try:
        return answer(input("Run it? [y/N] "))
    except EOFError:
        return False


def answer(text: str) -> bool:
    return text.strip().lower() in ("y", "yes")


if __name__ == "__main__":
    program_errors.told(main)
