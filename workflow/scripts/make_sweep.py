#!/usr/bin/env python3
"""Write the configuration of a sweep, show its plan, and run it if the answer is yes.

INPUTS   what to vary (--nodes, --gpus, --model, --platform, …), config/platforms.yaml
OUTPUTS  sweeps/<study>.yaml, an overlay of the configuration; then what `snakemake plan` and
         `snakemake` write

`make sweep NODES=1,2,4 GPUS=0,2` calls it. Snakemake reports errors of the configuration.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml
from tfscaling.files import atomic, program_errors
from tfscaling.spec import config_files, configuration, user_code

PROJECT = Path(__file__).resolve().parents[2]
PLATFORMS = Path("config/platforms.yaml")
SWEEPS = Path("sweeps")
#: How a file of this program begins: it may be written over.
HEAD = "# Written by `make sweep`, which writes over it: copy it to keep changes.\n"
#: Editors check and complete the keys by this schema.
SCHEMA = PROJECT / "workflow/schemas/overlay.schema.yaml"
#: A study's name, also the name of its file here and of its results folder.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: What trains a built-in model unless RECIPE is given; user-provided models bring their own.
OPTIMIZER = {"optimizer": "adam", "learning_rate": 0.003}
#: Variable in small letters → its value if it is not given.
DEFAULTS = {
    "nodes": "", "gpus": "0", "platform": "laptop", "model": "mnist_cnn", "dataset": "",
    "recipe": "", "epochs": "", "batch": "", "repeats": "6", "study": "sweep",
}  # fmt: skip


class SweepError(program_errors.InputError):
    """A variable is wrong: names it, the value and what is allowed."""

    def __init__(self, name: str, value: str, rule: str) -> None:
        super().__init__(f'{name.upper()}: "{value}" is not allowed; {rule}')


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sweep", description=__doc__.splitlines()[0])
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--yes", default="", help="anything: run it without a question")
    given = vars(parser.parse_args())
    overlay = overlay_of(given)
    launcher = launcher_of(given["platform"])
    path = write(given["study"], overlay)
    words = ["--profile", profile_of(launcher), "--configfile", str(path)]
    words += [] if Path("Snakefile").exists() else ["--snakefile", str(PROJECT / "Snakefile")]
    print(f"{path}:\n{path.read_text()}", flush=True)
    planned = subprocess.run(["snakemake", "plan", *words, "--quiet", "all"], check=False)
    if planned.returncode:
        sys.exit("Nothing was run.")
    if given["yes"] or is_wanted(f".venv/bin/snakemake {shlex.join(words)}"):
        sys.exit(subprocess.run(["snakemake", *words], check=False).returncode)


def overlay_of(given: Mapping[str, str]) -> dict[str, object]:
    """The overlay of these variables; raises SweepError for the first one that is wrong."""
    model, dataset, recipe = given["model"], given["dataset"], given["recipe"]
    is_custom = user_code.is_reference(model)
    if not NAME.fullmatch(given["study"]):
        rule = "allowed: letters, digits and . _ -, a letter or digit first"
        raise SweepError("study", given["study"], rule)
    for name in ("epochs", "batch", "dataset"):
        if recipe and given[name]:
            rule = f"the recipe {recipe} has its own; leave RECIPE or {name.upper()} out"
            raise SweepError(name, given[name], rule)
    if is_custom and not (recipe or dataset):
        rule = "a custom model needs DATASET=package.module:function, or a RECIPE that names one"
        raise SweepError("model", model, rule)
    content: dict[str, object] = {"study": given["study"]}
    block = {
        "platform": given["platform"],
        "model": model,
        "recipe": recipe,
        "nodes": numbers("nodes", given["nodes"], 1),
        "gpus_per_node": numbers("gpus", given["gpus"], 0),
        "repeats": number("repeats", given["repeats"], 1),
    }
    content["grid"] = [block]
    if not recipe:
        epochs = number("epochs", given["epochs"] or "2", 1)
        batch = number("batch", given["batch"] or "64", 1)
        # runs are shared by all studies: what is trained differently has another name
        data = f"{dataset.replace(':', '-')}-" if dataset else ""
        block["recipe"] = f"{data}epochs-{epochs}-batch-{batch}"
        trained = {"per_replica_batch_size": batch, "epochs": epochs}
        trained |= {"dataset": dataset} if dataset else {}
        content["recipes"] = {block["recipe"]: trained | ({} if is_custom else OPTIMIZER)}
    return {**content, "comparison": {"title": f"{model} on {given['platform']}"}}


def numbers(name: str, text: str, least: int) -> list[int]:
    """`1,2,4` as numbers in the order given."""
    return [number(name, each.strip(), least) for each in text.split(",")]


def number(name: str, text: str, least: int) -> int:
    """A whole number of at least `least`; the configuration has the rest of its rules."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise SweepError(name, text, f"allowed: whole numbers from {least}, such as 1,2,4")
    return int(text)


def launcher_of(platform: str) -> str:
    """How the platform of config/platforms.yaml starts runs; raises SweepError if it is not one."""
    platforms = config_files.read(str(PLATFORMS)).get("platforms")
    if not isinstance(platforms, dict) or platform not in platforms:
        known = configuration.known(platforms or (), platform)
        raise SweepError("platform", platform, f"{known} (in {PLATFORMS})")
    entry = platforms[platform]
    if not isinstance(entry, dict) or "launcher" not in entry:
        raise SweepError("platform", platform, f"it has no launcher in {PLATFORMS}")
    return str(entry["launcher"])


def profile_of(launcher: str) -> str:
    """The profile that submits the runs, as a path for this folder."""
    path = Path("profiles", "local" if launcher == "local" else "slurm")
    return str(path if path.exists() else PROJECT / path)


def write(study: str, overlay: Mapping[str, object]) -> Path:
    """Write the overlay; raises SweepError rather than write over the user's file."""
    path = SWEEPS / f"{study}.yaml"
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(HEAD.encode())):
        raise SweepError("study", study, f"{path} was not written by `make sweep`")
    path.parent.mkdir(exist_ok=True)
    schema = f"# yaml-language-server: $schema={os.path.relpath(SCHEMA, path.parent)}\n"
    text = yaml.safe_dump(overlay, sort_keys=False, default_flow_style=None, width=100)
    atomic.write_text(path, HEAD + schema + text)
    return path


def is_wanted(command: str) -> bool:
    """The user's answer; where nobody can answer, what to do instead, and exit status 1."""
    if not sys.stdin.isatty():
        sys.exit(f"Nothing was run, for no terminal can answer. Run it by YES=1, or: {command}")
    try:
        return input("Run it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


if __name__ == "__main__":
    program_errors.told(main)
