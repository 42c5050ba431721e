"""A user's program in a recipe: the words of its command, and what else the recipe may say.

Everything is checked before a job starts; `RunSpec.filled` fills in the placeholders on the rank.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tfscaling.spec import user_code
from tfscaling.spec.config import OWN_STRATEGY, Block, Platform, Recipe
from tfscaling.spec.configuration import known
from tfscaling.spec.run_spec import DATASET_PLACEHOLDER, PLACEHOLDERS

#: Keys of a recipe that only the workflow's own trainer reads.
TRAINER_KEYS = (
    *("loss", "optimizer", "learning_rate", "learning_rate_scaling", "momentum", "nesterov"),
    *("weight_decay", "warmup_epochs", "decay", "label_smoothing"),
    *("accumulate_steps", "average_every", "gradient_noise_scale"),
    *("train_examples_max", "test_examples_max", "validation_examples"),
    *("evaluation_interval_epochs", "checkpoint_every_epochs", "checkpoint_every_s"),
    *("stop_after_steps", "steps_per_epoch", "steps_per_execution", "attribution", "precision"),
    *("gradient_exchange", "communication", "parameter_servers"),
)
#: Keys that only mean something with a program.
PROGRAM_KEYS = ("environment", "observe", "train_examples", "patterns", "log_folder")
#: Ways to observe that tell no times of epochs.
WITHOUT_TIMES = ("nothing", "output")
_DEFAULTS = Recipe(epochs=1)
#: Key → the ways to observe that read it.
_READ_BY = {"patterns": ("output",), "log_folder": ("tensorboard", "mllog")}


#: A word that names a script: a path without placeholders.
_SCRIPT = re.compile(r"[^{}=]+\.(py|sh)")
#: Repetitions of a group, which may take exponential time; texts of this length show it.
_REPEATED, _LENGTH, _MATCH_S = re.compile(r"\)[*+{]"), 40, 5.0


class Problem(NamedTuple):
    """A value of a recipe that is not allowed: where it stands in the recipe, and what is."""

    path: tuple[str | int, ...]
    value: object
    allowed: str


def problems(recipe: Recipe) -> Iterator[Problem]:
    """What is wrong with the keys of a recipe that have to do with programs."""
    keys = TRAINER_KEYS if recipe.program else PROGRAM_KEYS
    for key in keys:
        if (value := getattr(recipe, key)) != getattr(_DEFAULTS, key):
            yield Problem((key,), value, _only_with(key, bool(recipe.program)))
    if recipe.program:
        yield from _wrong_words(recipe)
        yield from _wrong_dataset(recipe)
        yield from _wrong_environment(recipe)
        yield from _wrong_observation(recipe)


def block_problem(block: Block, with_program: Sequence[str]) -> Problem | None:
    """Why a block cannot have these recipes, of which `with_program` name a program."""
    recipes = block.values("recipe")
    if with_program and len(with_program) < len(recipes):
        others = ", ".join(name for name in recipes if name not in with_program)
        rule = f"{others} names no program; allowed: blocks of their own for recipes that name one"
        return Problem(("recipe",), list(recipes), rule)
    if with_program and block.values("strategy") != (OWN_STRATEGY,):
        rule = f"recipe {with_program[0]} names a program; allowed: {OWN_STRATEGY}"
        return Problem(("strategy",), block.strategy, rule)
    if not with_program and OWN_STRATEGY in block.values("strategy"):
        rule = f"recipe {recipes[0]} names no program; allowed: other strategies"
        return Problem(("strategy",), block.strategy, rule)
    if not with_program and block.model is None:
        rule = "allowed: a model; only a block whose recipes name a program may leave it out"
        return Problem(("model",), None, rule)
    return None


def missing_file(recipe: Recipe, platforms: Iterable[Platform]) -> Problem | None:
    """The program or the script of a recipe, if these platforms would not find it.

    A command without a slash may be of a platform that sets up its own environment.
    """
    command, *words = recipe.program
    if "{" not in command and shutil.which(command) is None:
        is_set_up = any(each.setup or "PATH" in each.env for each in platforms)
        if "/" in command or not (is_set_up or recipe.environment):
            reason = f"there is no such program, seen from {Path.cwd()}"
            return Problem(("program", 0), command, reason)
    script = next((word for word in words if not word.startswith("-")), "")
    if _SCRIPT.fullmatch(script) and not {"-m", "-c"} & set(words) and not Path(script).exists():
        reason = f"there is no such file, seen from {Path.cwd()}"
        return Problem(("program", words.index(script) + 1), script, reason)
    return None


def placeholders(recipe: Recipe) -> list[str]:
    """What the recipe's words may name in braces."""
    own = [DATASET_PLACEHOLDER] if recipe.dataset else []
    return [*PLACEHOLDERS, *own, *(f"parameters.{key}" for key in recipe.parameters)]


def word_problem(word: str, names: Sequence[str]) -> str | None:
    """What is wrong with a word that may name `names` in braces, or None."""
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError:
        return "a brace has no partner; allowed: {NAME}, and {{ or }} for a brace itself"
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion):
            return f"allowed: {{{name}}} alone, without a format"
        if name is not None and name not in names:
            unknown = f"unknown placeholder {{{name}}}"
            return f"{unknown}; {known(names, name)}; {{{{ and }}}} stand for braces"
    return None


def python_of(environment: str) -> Path:
    """The Python of an environment that a recipe names."""
    return Path(environment).absolute() / "bin/python"


def is_environment(environment: str) -> bool:
    """Whether it has a Python that this process may run."""
    return os.access(python_of(environment), os.X_OK)


def _only_with(key: str, has_program: bool) -> str:
    if not has_program:
        return "only a recipe with `program` has this key; allowed: leave it out"
    if key == "stop_after_steps":
        return (
            "a program ends when it wants to, and tells too little of its parts to project the "
            "whole; allowed: leave it out"
        )
    return f"the program is not told its {key}; allowed: leave it out, and say it in `program`"


def _hiding_option(words: Sequence[str]) -> str | None:
    """Python's option that lets it pass over PYTHONPATH or sitecustomize, or None."""
    if not words[0].rpartition("/")[2].startswith("python"):
        return None
    options = itertools.takewhile(lambda word: re.match("-[A-Za-z]", word), words[1:])
    before = itertools.takewhile(lambda word: word[:2] not in ("-m", "-c"), options)
    return next((word for word in before if set("EIS") & set(word)), None)


def _wrong_words(recipe: Recipe) -> Iterator[Problem]:
    names = placeholders(recipe)
    for number, word in enumerate(recipe.program):
        if wrong := word_problem(word, names):
            yield Problem(("program", number), word, wrong)
    first = recipe.program[0]
    if len(recipe.program) == 1 and len(words := shlex.split(first)) > 1:
        yield Problem(
            ("program", 0), first, f"no shell reads it; allowed: a list of words, {words}"
        )

    text = " ".join([*recipe.program, recipe.log_folder or ""])
    for key, value in recipe.parameters.items():
        if (named := f"{{parameters.{key}}}") not in text and not _takes(recipe.dataset, key):
            yield Problem(("parameters", key), value, f"no word of `program` names {named}")


def _takes(dataset: str | None, parameter: str) -> bool:
    """Whether the dataset is a function of the user's with such an argument."""
    if dataset is None or not user_code.is_reference(dataset):
        return False
    return parameter in user_code.taken(dataset, {parameter: None})


def _wrong_dataset(recipe: Recipe) -> Iterator[Problem]:
    dataset = recipe.dataset
    if dataset is None:
        return
    if (named := f"{{{DATASET_PLACEHOLDER}}}") not in " ".join(recipe.program):
        yield Problem(("dataset",), dataset, f"no word of `program` names {named}, its path")
    if user_code.is_pipeline(dataset) and user_code.preparing(dataset) is None:
        rule = f"a pipeline without `{user_code.PREPARE}({user_code.FOLDER})` has no files"
        yield Problem(("dataset",), dataset, f"{rule}; allowed: leave it out")


def _wrong_environment(recipe: Recipe) -> Iterator[Problem]:
    if recipe.environment is not None and not is_environment(recipe.environment):
        missing = f"there is no program {python_of(recipe.environment)}"
        allowed = f"{missing}; allowed: the folder of a virtual environment, which has bin/python"
        yield Problem(("environment",), recipe.environment, allowed)


def _ends_in_time(pattern: str) -> bool:
    """Whether the pattern is soon found or not in lines that repeat one of its characters."""
    if not _REPEATED.search(pattern):
        return True
    code = "import re, sys; [re.search(sys.argv[1], line) for line in sys.argv[2:]]"
    lines = [character * _LENGTH + "!" for character in sorted({*pattern, *"a0 "})]
    words = [sys.executable, "-I", "-S", "-c", code, pattern, *lines]
    try:
        subprocess.run(words, timeout=_MATCH_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return True


def _wrong_observation(recipe: Recipe) -> Iterator[Problem]:
    for key, ways in _READ_BY.items():
        if getattr(recipe, key) and recipe.observe not in ways:
            allowed = f"allowed: leave it out, or `observe: {' or '.join(ways)}`"
            yield Problem((key,), getattr(recipe, key), allowed)
    if recipe.observe == "output" and not recipe.patterns:
        yield Problem(
            ("patterns",), {}, "`observe: output` needs patterns, as {loss: 'loss: (.+)'}"
        )
    if recipe.observe == "tensorboard" and not recipe.log_folder:
        yield Problem(("log_folder",), None, "`observe: tensorboard` needs the folder of the logs")
    if recipe.observe == "fit" and (option := _hiding_option(recipe.program)):
        rule = "Python does not find the observer of `fit` with it; allowed: other options"
        yield Problem(("program",), option, rule)
    for name, pattern in recipe.patterns.items():
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            yield Problem(("patterns", name), pattern, f"no regular expression: {error}")
            continue
        if groups != 1:
            yield Problem(("patterns", name), pattern, "allowed: one group (…), around the number")
        if not _ends_in_time(pattern):
            reason = f"it takes longer than {_MATCH_S:g} s for a line of {_LENGTH} characters"
            yield Problem(("patterns", name), pattern, f"{reason}; allowed: no nested repetitions")
    if recipe.log_folder and (wrong := word_problem(recipe.log_folder, placeholders(recipe))):
        yield Problem(("log_folder",), recipe.log_folder, wrong)
