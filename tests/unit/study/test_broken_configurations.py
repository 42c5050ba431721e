"""Broken configurations: the message names the file, the line and the key, and what to write.

Each case changes lines of a good study. The line that a message must name is found here, by
comparing the texts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from builders import REGISTRIES, raw_config, refused
from tfscaling.study import acceptance, config_files, config_validation

PLATFORMS = """\
platforms:
  cluster:
    launcher: srun
    partition: cpu
    nodes_max: 8
    cpus_per_node: 4
    runtime_min: 60
  laptop:
    launcher: local
    devices: logical
    nodes_max: 4
    cpus_per_node: 4
"""
STUDY = """\
study: broken
seed: 1
grid:
  - platform: cluster
    model: mnist_cnn
    recipe: short
    nodes: [1, 2]
    repeats: 2
recipes:
  short:
    per_replica_batch_size: 64
    epochs: 2
    optimizer: adam
    learning_rate: 0.003
  script:
    program: [python, -c, "print()"]
    per_replica_batch_size: 64
    epochs: 2
    observe: nothing
question:
  goal: execution_time_s
  limits:
    execution_time_s: {at_most: 600}
budget:
  node_hours: 100
"""


class Broken(NamedTuple):
    """A change of the study or of its platforms, and what the message has."""

    old: str
    new: str
    key: str
    hint: str
    file: str = "study.yaml"
    #: The line that the message names, 0 for none; by default the first line that is changed.
    line: int | None = None


CLOCK, PLATFORM = "write a plain number of minutes: 90 for 1 h 30 min", "platforms.yaml"
BROKEN = {
    # values that look right
    "yes": Broken("repeats: 2", "repeats: yes", "grid[0].repeats", "write a number"),
    "yes_of_a_truth_value": Broken("observe: nothing", "observe: nothing\n    compare_resumed: yes",
        "recipes.script.compare_resumed", "write true"),
    "off": Broken("observe: nothing", "observe: nothing\n    compare_resumed: off",
        "recipes.script.compare_resumed", "write false"),
    "on_of_a_platform": Broken("runtime_min: 60", "runtime_min: 60\n    exclusive: on",
        "platforms.cluster.exclusive", "write true", PLATFORM),
    "truth_in_quotes": Broken("runtime_min: 60", 'runtime_min: 60\n    exclusive: "true"',
        "platforms.cluster.exclusive", "write it without quotes", PLATFORM),
    "nan": Broken("0.003", ".nan", "recipes.short.learning_rate", "write a finite number"),
    "minus_infinity": Broken("at_most: 600", "at_most: -.inf",
        "question.limits.execution_time_s.at_most", "write a finite number"),
    "hours_and_minutes": Broken("runtime_min: 60", "runtime_min: 1:30",
        "platforms.cluster.runtime_min", CLOCK, PLATFORM),
    "times_of_slurm": Broken("runtime_min: 60", "runtime_min: 1-02:00:00",
        "platforms.cluster.runtime_min", "1560 for 26 h 0 min", PLATFORM),
    "seconds_of_a_clock": Broken("    optimizer: adam",
        "    checkpoint_every_s: 0:02:30\n    optimizer: adam",
        "recipes.short.checkpoint_every_s", "150 for 0 h 2 min 30 s"),
    "percent": Broken("0.003", "97%", "recipes.short.learning_rate", "write 0.97"),
    "percent_with_a_space": Broken("at_most: 600", "at_most: 2.5 %",
        "question.limits.execution_time_s.at_most", "write 0.025"),
    "unit": Broken("runtime_min: 60", "runtime_min: 6 hrs",
        "platforms.cluster.runtime_min", "write the number alone, in minutes", PLATFORM),
    "unit_without_a_space": Broken("runtime_min: 60", "runtime_min: 90m",
        "platforms.cluster.runtime_min", "write the number alone, in minutes", PLATFORM),
    "unit_of_a_count": Broken("node_hours: 100", "node_hours: 100h", "budget.node_hours",
        "write the number alone"),
    "number_in_quotes": Broken("0.003", '"0.003"', "recipes.short.learning_rate",
        "write it without quotes"),
    "exponent_without_a_point": Broken("0.003", '"3e-3"', "recipes.short.learning_rate",
        "write 3.0e-3 without quotes"),
    "numbers_in_quotes": Broken("[1, 2]", '["1", 2]', "grid[0].nodes[0]",
        "write it without quotes"),
    "list_as_text": Broken("[1, 2]", "1, 2, 4", "grid[0].nodes", "write a list: [1, 2, 4]"),
    "several_numbers_for_one": Broken("epochs: 2\n    opt", "epochs: 1, 2\n    opt",
        "recipes.short.epochs", "write one number"),
    "thousands": Broken("seed: 1", "seed: 1,000", "seed", "write 1000"),
    "word_for_a_number": Broken("[1, 2]", "two", "grid[0].nodes", "several values as [1, 2, 4]"),
    "underscore": Broken("seed: 1", "seed: 10_000", "seed", "write 10000"),
    "truth_for_a_mapping": Broken("budget:\n", "search: true\nbudget:\n", "search",
        "write {} for the defaults"),
    "text_for_a_list": Broken('[python, -c, "print()"]', "python train.py",
        "recipes.script.program", "write it as a list"),
    "one_item_for_all_words": Broken('[python, -c, "print()"]', '["python train.py"]',
        "recipes.script.program[0]", "a list of words"),
    "number_for_a_name": Broken("study: broken", "study: 2026", "study", "write a text in quotes"),
    "truth_for_a_name": Broken("partition: cpu", "partition: true",
        "platforms.cluster.partition", "write a text in quotes", PLATFORM),
    "mapping_for_a_list": Broken("  - platform: cluster\n", "    platform: cluster\n",
        "grid", "begin each item with a hyphen", line=3),
    "file_of_a_function": Broken("model: mnist_cnn", "model: own/training.py:model",
        "grid[0].model", "write own.training:model"),
    "function_without_a_colon": Broken("    optimizer",
        "    dataset: own.training.data\n    optimizer", "recipes.short.dataset",
        "write own.training:data"),
    "limit_without_a_side": Broken("{at_most: 600}", "600",
        "question.limits.execution_time_s", "values below it: at_most, at_least"),
    "budget_without_a_unit": Broken("budget:\n  node_hours: 100", "budget: 100", "budget",
        "values below it: usd, node_hours"),
    "list_of_a_recipe": Broken("epochs: 2\n    opt", "epochs: [2, 4]\n    opt",
        "recipes.short.epochs", "write a recipe for each"),
    "list_of_a_platform": Broken("partition: cpu", "partition: [cpu, gpu]",
        "platforms.cluster.partition", "write a platform for each", PLATFORM),
    "margin_as_percent": Broken("budget:", "proposal: {margin: 20}\nbudget:", "proposal.margin",
        "0 to 1"),
    "quality_without_a_direction": Broken("    optimizer",
        "    quality: {metric: f1}\n    optimizer", "recipes.short.quality", "set direction"),
    # values out of range
    "zero": Broken("[1, 2]", "[0, 2]", "grid[0].nodes[0]", "1 to"),
    "negative": Broken("epochs: 2\n    opt", "epochs: -2\n    opt", "recipes.short.epochs", "1 to"),
    "fraction": Broken("[1, 2]", "[1.5]", "grid[0].nodes[0]", "integer"),
    "too_many_nodes": Broken("[1, 2]", "16", "grid[0].nodes", "nodes_max"),
    "equal_values": Broken("[1, 2]", "[2, 2]", "grid[0].nodes", "each value once"),
    "empty_list": Broken("[1, 2]", "[]", "grid[0].nodes", "at least one value"),
    "slash": Broken("study: broken", "study: a/b", "study", "letters, digits"),
    "shared_folder": Broken("study: broken", "study: Runs", "study", "any name but"),
    "empty_recipe": Broken("  script:\n", "  empty:\n  script:\n", "recipes.empty", "mapping"),
    "gpus_without_gpus": Broken("repeats: 2", "repeats: 2\n    gpus_per_node: 2",
        "grid[0].gpus_per_node", "gpus_per_node_max"),
    # names
    "typo_in_a_key": Broken("repeats: 2", "repeat: 2", "grid[0].repeat", "did you mean 'repeats'?"),
    "typo_at_the_top": Broken("budget:", "budgets:", "budgets", "did you mean 'budget'?"),
    "typo_in_a_recipe": Broken("optimizer:", "optimiser:", "recipes.short.optimiser",
        "did you mean 'optimizer'?"),
    "typo_in_a_platform_key": Broken("runtime_min", "run_time_min",
        "platforms.cluster.run_time_min", "did you mean 'runtime_min'?", PLATFORM),
    "unknown_platform": Broken("platform: cluster", "platform: clustre", "grid[0].platform",
        "did you mean 'cluster'?"),
    "unknown_model": Broken("mnist_cnn", "mnist_cn", "grid[0].model", "did you mean 'mnist_cnn'?"),
    "unknown_recipe": Broken("recipe: short", "recipe: shrt", "grid[0].recipe",
        "did you mean 'short'?"),
    "unknown_goal": Broken("goal: execution_time_s", "goal: execution_time", "question.goal",
        "`execution_time_s`"),
    "unknown_launcher": Broken("launcher: srun", "launcher: slurm", "platforms.cluster.launcher",
        "allowed: local, srun", PLATFORM),
    "unknown_optimizer": Broken("adam", "adm", "recipes.short.optimizer", "`adam`"),
    "unknown_placeholder": Broken('"print()"', '"{epoch}"', "recipes.script.program[2]",
        "did you mean 'epochs'?"),
    "missing_environment": Broken("epochs: 2\n    opt",
        "epochs: 2\n    environment: .venv-no\n    opt",
        "recipes.short.environment", "a virtual or conda environment"),
    # what is missing
    "no_nodes": Broken("    nodes: [1, 2]\n", "", "grid[0].nodes", "missing", line=4),
    "no_batch_size": Broken("    per_replica_batch_size: 64\n    epochs: 2\n    optimizer",
        "    epochs: 2\n    optimizer", "recipes.short", "batch_size", line=10),
    "no_epochs": Broken("    epochs: 2\n    optimizer", "    optimizer", "recipes.short.epochs",
        "missing", line=10),
    "no_launcher": Broken("    launcher: srun\n", "", "platforms.cluster.launcher", "missing",
        PLATFORM, line=2),
    "price_without_a_date": Broken("runtime_min: 60", "runtime_min: 60\n    usd_per_node_hour: 2",
        "platforms.cluster", "price_date", PLATFORM, line=2),
    # what does not go together
    "program_without_own": Broken("recipe: short", "recipe: script", "grid[0]", "strategy", line=4),
    "two_batch_sizes": Broken("epochs: 2\n    opt", "epochs: 2\n    global_batch_size: 64\n    opt",
        "recipes.short", "global_batch_size", line=10),
    "block_twice": Broken("recipes:\n",
        "  - {platform: cluster, model: mnist_cnn, recipe: short, nodes: 2}\nrecipes:\n",
        "grid[1]", "grid[0]"),
    # what is no YAML
    "tabs": Broken("    epochs: 2\n    opt", "\tepochs: 2\n    opt", "not valid YAML",
        "indent with spaces"),
    "key_twice": Broken("epochs: 2\n    opt", "epochs: 2\n    epochs: 3\n    opt",
        "not valid YAML", "line 12 has it already"),
    "colon_in_a_value": Broken("study: broken", "study: broken: again", "not valid YAML",
        "in quotes"),
    "percent_sign_first": Broken("study: broken", "study: %x", "not valid YAML", "in quotes"),
    "alias": Broken("study: broken", "study: *", "not valid YAML", ""),
    "uneven_indentation": Broken("    epochs: 2\n    opt", "   epochs: 2\n    opt",
        "not valid YAML", "indent the keys"),
    "key_that_is_a_number": Broken("  script:", "  7:", "not valid YAML", "in quotes"),
    "thousands_in_braces": Broken("at_most: 600", "at_most: 6,000", "not valid YAML",
        "a number without commas"),
    "list": Broken(STUDY, "- 1\n", "the whole file", "keys with values", line=0),
    "empty": Broken(STUDY, "", "the file is empty", "keys with values", line=0),
    "comment": Broken(STUDY, "# later\n", "the file is empty", "keys with values", line=0),
    "latin_1": Broken("broken", "caf\udce9", "not UTF-8", "UTF-8"),
}  # fmt: skip


def message_of(folder: Path, texts: dict[str, str]) -> str:
    """Return the message about configuration files with these texts."""
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))

    def accept() -> None:
        sources = [(name, config_files.read_config_file(name)) for name in texts]
        acceptance.validate_and_plan(
            config_files.merge_configurations(sources), REGISTRIES, sources
        )

    return refused(accept)


def first_changed_line(old: str, new: str) -> int:
    """Return the first line, counted from 1, in which the texts differ."""
    pairs = zip(old.splitlines(), new.splitlines(), strict=False)
    return next(number for number, (one, other) in enumerate(pairs, 1) if one != other)


def test_the_unchanged_study_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pytest.fail.Exception):
        message_of(tmp_path, {"platforms.yaml": PLATFORMS, "study.yaml": STUDY})
    assert len(BROKEN) >= 60


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_the_message_names_file_line_key_and_remedy(
    broken: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"platforms.yaml": PLATFORMS, "study.yaml": STUDY}
    before = texts[broken.file]
    assert before.count(broken.old) >= 1
    texts[broken.file] = before.replace(broken.old, broken.new, 1)
    line = broken.line
    if line is None:
        line = first_changed_line(before, texts[broken.file])
    message = message_of(tmp_path, texts)
    assert message.startswith(f"{broken.file}: {f'line {line}: ' if line else ''}{broken.key}")
    assert broken.hint in message.partition(broken.key)[2]


def check(
    folder: Path, file: str, old: str, new: str, key: str, hint: str, line: int | None = None
) -> None:
    """Assert that the message about a changed line names file, line, key and remedy."""
    texts = {"platforms.yaml": PLATFORMS, "study.yaml": STUDY}
    before = texts[file]
    assert old in before
    texts[file] = before.replace(old, new, 1)
    message = message_of(folder, texts)
    line = line or first_changed_line(before, texts[file])
    assert re.match(rf"{re.escape(file)}: line {line}: {key}(?!\w)", message), message
    assert hint in message, message


#: Line with a number → its file, its key, the types of JSON that it allows.
NUMBERS = {
    "seed: 1": ("study.yaml", "seed", "integer"),
    "repeats: 2": ("study.yaml", "grid[0].repeats", "integer"),
    "epochs: 2": ("study.yaml", "recipes.short.epochs", "integer"),
    "learning_rate: 0.003": ("study.yaml", "recipes.short.learning_rate", "number"),
    "node_hours: 100": ("study.yaml", "budget.node_hours", "number"),
    "at_most: 600": ("study.yaml", "question.limits.execution_time_s.at_most", "duration"),
    "nodes_max: 8": ("platforms.yaml", "platforms.cluster.nodes_max", "integer"),
    "cpus_per_node: 4": ("platforms.yaml", "platforms.cluster.cpus_per_node", "integer"),
    "runtime_min: 60": ("platforms.yaml", "platforms.cluster.runtime_min", "minutes"),
}


def drawn_clock(kind: str) -> tuple[str, str]:
    hours, minutes = random.randint(1, 23), random.randint(10, 59)
    total = 60 * hours + minutes
    hints = {"duration": f"write {60 * total} s", "minutes": f"number of minutes: {total} for"}
    return f"{hours}:{minutes}", hints.get(kind, "write a plain number")


def drawn_percent(kind: str) -> tuple[str, str]:
    percent = random.randint(1, 99)
    is_whole = kind in ("integer", "minutes")
    return f"{percent}%", "write a whole number" if is_whole else f"write {percent / 100:g}"


def drawn_unit(kind: str) -> tuple[str, str]:
    words = {"hrs": "h", "hours": "h", "sec": "s", "minutes": "min", "days": "d"}
    number, (word, unit) = random.randint(2, 90), random.choice([*words.items()])
    text = f"{number}{random.choice(('', ' '))}{word}"
    return text, f"write {number} {unit}" if kind == "duration" else "write the number alone"


def drawn_thousands(kind: str) -> tuple[str, str]:
    number = random.randint(1, 99)
    # in the braces of a duration's limit a comma ends the value
    separator = random.choice(("_", " ") if kind == "duration" else (",", "_", " "))
    return f"{number}{separator}000", f"write {number}000"


#: Kind of mistake → how to draw a value and its hint, for a kind of key.
MISTAKES: dict[str, Callable[[str], tuple[str, str]]] = {
    "clock": drawn_clock,
    "percent": drawn_percent,
    "unit": drawn_unit,
    "thousands": drawn_thousands,
    "not finite": lambda _: (
        random.choice((".nan", ".NaN", ".inf", "-.inf", "+.INF")),
        "write a finite number",
    ),
    "truth": lambda _: (random.choice(("yes", "no", "on", "off", "y")), "write a number"),
    "quotes": lambda _: (f'"{random.randint(1, 99)}"', "write it without quotes"),
    "word": lambda _: (random.choice(("two", "all", "many")), "write a number"),
    "list": lambda _: (f"[{random.randint(1, 9)}, 9]", "write one value"),
    "mapping": lambda _: (f"{{from: {random.randint(1, 9)}}}", "write one value"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_number_written_as_something_else(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three keys of each kind of mistake, drawn."""
    monkeypatch.chdir(tmp_path)
    for line in random.sample([*NUMBERS], 3):
        file, key, kind = NUMBERS[line]
        value, hint = MISTAKES[mistake](kind)
        name = line.partition(":")[0]
        check(tmp_path, file, line, f"{name}: {value}", re.escape(key), hint)


#: Keys of STUDY and PLATFORMS that a typo makes unknown.
KEYS = (
    *("seed", "grid", "platform", "recipe", "nodes", "repeats", "per_replica_batch_size", "epochs"),
    *("optimizer", "learning_rate", "program", "observe", "question", "goal", "limits", "at_most"),
    *("budget", "node_hours", "launcher", "partition", "nodes_max", "cpus_per_node", "devices"),
)


#: Key → text before which it is written, the place of the message, the place that the key has.
MISPLACED = {
    "repeats: 6": ("budget:", "repeats", "grid[…]"),
    "nodes: 4": ("recipes:", "nodes", "grid[…] and forecast"),
    "epochs: 3": ("grid:", "epochs", "recipes.<name>"),
    "runtime_min: 5": ("seed:", "runtime_min", "platforms.<name>"),
    "at_most: 5": ("seed:", "at_most", None),
    "    runtime_min: 5": ("    nodes:", "grid[0].runtime_min", "platforms.<name>"),
    "    gpu_type: a100": ("    optimizer:", "recipes.short.gpu_type", "platforms.<name>"),
    "  trainings: 3": ("  node_hours:", "budget.trainings", "question"),
    "  usd: 3": ("  goal:", "question.usd", "budget"),
    "    search: {}": ("    optimizer:", "recipes.short.search", "the top level and grid[…]"),
}


@pytest.mark.parametrize("key", MISPLACED)
def test_a_key_at_a_wrong_place_names_its_place(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before, place, owner = MISPLACED[key]
    hint = f"unknown key; a key of {owner}; " if owner else "unknown key; allowed: "
    check(tmp_path, "study.yaml", before, f"{key}\n{before}", re.escape(place), hint)


def misspell(word: str) -> str:
    """Return the word with a letter missing, doubled, or in the place of its neighbour."""
    at = random.randrange(1, len(word) - 1)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    found = random.choice((word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:], swapped))
    return found if found != word else word + word[-1]


def test_an_unknown_key_names_the_key_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in random.sample(KEYS, 6):
        file = "study.yaml" if re.search(rf"\b{word}: ?", STUDY) else "platforms.yaml"
        text = {"study.yaml": STUDY, "platforms.yaml": PLATFORMS}[file]
        old = re.search(rf"\b{word}:", text)
        assert old
        wrong = misspell(word)
        check(tmp_path, file, old[0], f"{wrong}:", rf"(\S+\.)?{wrong}", f"did you mean '{word}'?")


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("budget", "100", "write keys with values below it"),
        ("budget", "[100]", "without hyphens"),
        ("question", "cost_usd", "write keys with values below it"),
        ("question", "[cost_usd]", "without hyphens"),
        ("recipes", "short", "write keys with values below it"),
        ("recipes", "[short]", "without hyphens"),
        ("grid", "{platform: cluster}", "begin each item with a hyphen"),
        ("grid", "cluster", "write it as a list"),
        ("platforms", "cluster", "write keys with values below it"),
        ("platforms", "[cluster]", "without hyphens"),
    ],
)
def test_wrong_nesting(
    key: str, value: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = "platforms.yaml" if key == "platforms" else "study.yaml"
    text = PLATFORMS if key == "platforms" else STUDY
    part = re.search(rf"^{key}:\n(?: .*\n)+", text, re.MULTILINE)
    assert part
    check(tmp_path, file, part[0], f"{key}: {value}\n", key, hint)


def test_lines_that_are_no_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tab, a duplicate key and a byte of another encoding, each on three drawn lines."""
    monkeypatch.chdir(tmp_path)
    lines = STUDY.splitlines(keepends=True)
    deep = [n for n, line in enumerate(lines) if re.match(r" {4}\w+: [^\[{]+$", line)]
    for n in random.sample(deep, 3):
        for new, key, hint, at in (
            ("\t" + lines[n].lstrip(), "not valid YAML", "indent with spaces", n + 1),
            (lines[n] * 2, "not valid YAML", f"line {n + 1} has it already", n + 2),
            (lines[n].replace("\n", "\udce9\n"), "not UTF-8", "UTF-8", n + 1),
        ):
            text = "".join([*lines[:n], new, *lines[n + 1 :]])
            message = message_of(tmp_path, {"platforms.yaml": PLATFORMS, "study.yaml": text})
            assert message.startswith(f"study.yaml: line {at}: {key}") and hint in message, message


@pytest.mark.parametrize("name", ["missing.yaml", "studies/missing.yaml", "study.yml"])
def test_a_missing_file_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(config_files.read_config_file, name)
    assert message.startswith(f"{name}: cannot be read: ")


def test_a_list_of_an_earlier_file_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its block has the key that the block of the later file lacks."""
    monkeypatch.chdir(tmp_path)
    later = STUDY.replace("    nodes: [1, 2]\n", "")
    texts = {"platforms.yaml": PLATFORMS, "study.yaml": STUDY, "later.yaml": later}
    assert message_of(tmp_path, texts).startswith("later.yaml: line 4: grid[0].nodes: missing; ")


def test_a_value_of_the_command_line_names_no_line() -> None:
    sources = [("--config", {"budget": "5"})]
    message = refused(config_validation.convert_to_types, raw_config((("budget",), "5")), sources)
    assert message.startswith('--config: budget: "5" ')
    assert message.endswith("; write it in a file and not with --config")
