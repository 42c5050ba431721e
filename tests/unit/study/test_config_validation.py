"""Validation: defaults, and one clear line for everything that the schema does not allow."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import REGISTRIES, raw_config, refused
from jsonschema import Draft202012Validator
from tfscaling.study import acceptance, config_validation
from tfscaling.study.config_types import Config, Limit, Platform, Question, Recipe

BLOCK: tuple[str | int, ...] = ("grid", 0)
RECIPE = ("recipes", "weak")
PLATFORM = ("platforms", "cluster")


def error_of(config: dict[str, Any], overlay: dict[str, Any] | None = None) -> str:
    sources = [("config.yaml", config)]
    if overlay is not None:
        sources.append(("overlay.yaml", overlay))
    return refused(config_validation.convert_to_types, config, sources)


def path_of(key: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in key.split(".")]


B, R, P = "grid.0.", "recipes.weak.", "platforms.cluster."
#: The key that is changed, its new value, the place below it that is wrong, its value as shown.
MALFORMED: list[tuple[str, Any, str, str]] = [
    (B + "nodes", [], "", "[]"), (B + "nodes", 0, "", "0"), (B + "nodes", [1, 0], "[1]", "0"),
    (B + "nodes", [1, 1], "", "[1, 1]"), (B + "nodes", "two", "", '"two"'),
    (B + "nodes", True, "", "true"), (B + "nodes", 2.0, "", "2.0"), (B + "nodes", 1.5, "", "1.5"),
    (B + "nodes", [1, 10**20], "[1]", str(10**20)),
    (B + "nodes", [10**400], "[0]", "1" + "0" * 198 + "…"),
    (B + "tasks_per_node", "2+1\n", "", r'"2+1\n"'),
    (B + "tasks_per_node", "2+\uff11", "", r'"2+\uff11"'),
    (B + "platform", "cluster\n", "", r'"cluster\n"'),
    (R + "learning_rate", 0, "", "0"), (R + "momentum", 1, "", "1"),
    (R + "learning_rate", math.nan, "", "NaN"), (R + "learning_rate", math.inf, "", "Infinity"),
    (R + "optimizer", "adm", "", '"adm"'), (R + "epochs", "\uff18", "", r'"\uff18"'),
    (P + "price_date", "May 2022", "", '"May 2022"'), (P + "usd_per_gpu_hour", -1, "", "-1"),
    (P + "usd_per_node_hour", True, "", "true"), (P + "usd_per_node_hour", math.nan, "", "NaN"),
    (P + "partition", "cpu; ls", "", '"cpu; ls"'), (P + "partition", "", "", '""'),
    (P + "partition", "--nodes=7", "", '"--nodes=7"'),
    (P + "reservation", "day one", "", '"day one"'),
    (P + "gpu_gres", "gpu:a100 sxm", "", '"gpu:a100 sxm"'),
    (P + "gpu_gres", "gpu:a100,nvme", "", '"gpu:a100,nvme"'),
    (P + "gpu_gres", "gpu:a100;ls", "", '"gpu:a100;ls"'),
    (P + "title", "a\nb", "", r'"a\nb"'), (P + "title", "\u2028", "", r'"\u2028"'),
    (P + "env", {"A": 1}, ".A", "***"), (P + "env", {"A": "x\0"}, ".A", "***"),
    (P + "env", {"A=B": "x"}, "", '"A=***"'), (P + "env", {"1A": "x"}, "", '"1A"'),
    (P + "env", {"A": "1", "B": 1, "C": 1}, ".B", "***"),
    ("platforms.cluster", None, "", "null"), ("grid", [], "", "[]"), ("recipes", {}, "", "{}"),
    ("study", "a/b", "", '"a/b"'), ("study", "", "", '""'), ("study", "..", "", '".."'),
    ("study", None, "", "null"), ("study", 3, "", "3"),
    ("seed", True, "", "true"), ("seed", 10**29, "", str(10**29)), ("cluster", "", "", '""'),
    ("comparison", {"title": " "}, ".title", '" "'), ("published", {"path": ""}, ".path", '""'),
    ("comparison", {"baseline": {"nodes": [1, 2]}}, ".baseline.nodes", "[1, 2]"),
    ("question", {"limits": {"loss": {"at_most": math.nan}}}, ".limits.loss.at_most", "NaN"),
    ("published", {"tolerance": -0.1}, ".tolerance", "-0.1"),
    ("budget", {"usd": math.nan}, ".usd", "NaN"),
    ("question", {"goal": ["cost_usd"]}, ".goal", '["cost_usd"]'),
]  # fmt: skip


@pytest.mark.parametrize(("at", "value", "below", "shown"), MALFORMED)
def test_one_line_names_file_key_value_and_what_is_allowed(
    at: str, value: Any, below: str, shown: str
) -> None:
    key = config_validation.format_place(path_of(at)) + below
    message = error_of(raw_config((path_of(at), value)))
    assert message.startswith(f"config.yaml: {key}: {shown} is not allowed; allowed: ")


#: Where a secret is, what is forgotten there, and what the message shows.
SECRETS: list[tuple[str, Any, str]] = [
    (P + "env", {"TOKEN": 12345678}, "platforms.cluster.env.TOKEN: ***"),
    (P + "env", {"TOKEN": ["12345678"]}, "platforms.cluster.env.TOKEN: ***"),
    (P + "env", "TOKEN=12345678", 'platforms.cluster.env: "TOKEN=***"'),
    (P + "setup", "export TOKEN=12345678", "platforms.cluster.setup: ***"),
    (P + "setup", [{"echo TOKEN": 12345678}], "platforms.cluster.setup[0]: ***"),
    (R + "program", "train --token=12345678", 'recipes.weak.program: "train ***"'),
    (R + "program", ["train", 12345678], "recipes.weak.program[1]: ***"),
    (R + "program", ["--token=12345678\0"], 'recipes.weak.program[0]: "--token=***"'),
    ("platforms", [{"name": "x", "env": {"TOKEN": "12345678"}}], "platforms: "),
    ("recipes.weak", [{"program": ["12345678"], "epochs": 3}], '"program": "***", "epochs": 3'),
]  # fmt: skip


@pytest.mark.parametrize(("at", "value", "shown"), SECRETS)
def test_no_message_has_a_value_that_may_be_a_secret(at: str, value: Any, shown: str) -> None:
    """It is on the console and in the logs of jobs, which read the configuration, too."""
    message = error_of(raw_config((path_of(at), value)))
    assert shown in message and "12345678" not in message


@pytest.mark.parametrize("name", ["a/b", "weak\n", "w\u0435ak", "..", "", "a" * 300])
def test_a_name_that_is_not_allowed_is_named(name: str) -> None:
    message = error_of(raw_config((("recipes", name), {})))
    assert message.startswith('config.yaml: recipes: "')
    assert "; allowed: string, letters, digits" in message
    assert ("not 300" in message) == (len(name) == 300)


#: What has to be changed → the key and its value of a wrong type.
PROPOSED: dict[str, list[tuple[str, Any]]] = {
    "has quotes": [
        (R + "learning_rate", "0.001"), (B + "nodes", ["1", "2"]), (P + "exclusive", "true"),
    ],
    "lacks quotes": [
        (P + "partition", True), (B + "recipe", 7), (B + "platform", ["cluster", 1]),
        (P + "price_date", datetime.date(2022, 5, 1)),
    ],
    "is no list": [(R + "program", "python train.py")],
}  # fmt: skip


def test_a_value_of_a_wrong_type_has_a_proposal_by_what_is_wrong() -> None:
    """It follows the key with the value, and the allowed values."""
    proposals = {
        kind: {
            error_of(raw_config((path_of(at), value))).split("; ")[2:][0] for at, value in values
        }
        for kind, values in PROPOSED.items()
    }
    assert [len(each) for each in proposals.values()] == [1, 1, 1]
    assert len(set.union(*proposals.values())) == len(PROPOSED)


#: name → (what is changed, the key as the message must have it, what follows)
UNKNOWN_KEYS: dict[str, tuple[Sequence[str | int], str, str]] = {
    "of_a_block": ((*BLOCK, "nodez"), "grid[0].nodez", "did you mean 'nodes'?"),
    "that_begins_another": ((*BLOCK, "gpus"), "grid[0].gpus", "did you mean 'gpus_per_node'?"),
    "at_the_top": (("recipe",), "recipe", "a key of grid[…]; did you mean 'recipes'?"),
    "of_a_platform": (
        (*PLATFORM, "partitions"), "platforms.cluster.partitions", "did you mean 'partition'?"),
    "far_from_all": ((*RECIPE, "zzz"), "recipes.weak.zzz", "allowed: checkpoint_every_epochs, "),
    "that_is_a_number": ((*PLATFORM, 3), "platforms.cluster[3]", "allowed: "),
    "axis_that_is_none": (
        ("comparison",), "comparison.baseline.node", "did you mean 'nodes'?"),
    "in_place_of_a_missing_key": (
        (*PLATFORM, "node_max"), "platforms.cluster.node_max", "did you mean 'nodes_max'?"),
    "of_published": (("published", "file"), "published.file", "allowed: path, tolerance"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "key", "rule"), UNKNOWN_KEYS.values(), ids=UNKNOWN_KEYS)
def test_an_unknown_key_is_called_that(path: Sequence[str | int], key: str, rule: str) -> None:
    value: Any = {"baseline": {"node": 1}} if path == ("comparison",) else 1
    raw = raw_config((("published",), {}), (path, value))
    if path[-1] == "node_max":
        del raw["platforms"]["cluster"]["nodes_max"]
    message = error_of(raw)
    assert message.startswith(f"config.yaml: {key}: 1 ")
    assert f"; unknown key; {rule}" in message


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ((), "grid"),
        ((), "platforms"),
        (("grid", 0), "recipe"),
        (RECIPE, "epochs"),
        (PLATFORM, "launcher"),
    ],
)
def test_a_missing_key_is_named(path: tuple[str | int, ...], missing: str) -> None:
    config: Any = raw_config()
    place = config
    for step in path:
        place = place[step]
    del place[missing]
    message = error_of(config)
    assert message.startswith("config.yaml: ")
    assert f"{missing}: missing; " in message


@pytest.mark.parametrize(
    ("changed", "named"), [({"nodes_max": 0}, "overlay.yaml"), ({"partition": "p"}, "config.yaml")]
)
def test_the_file_named_is_the_one_that_sets_the_key(changed: dict[str, Any], named: str) -> None:
    merged = raw_config(((*PLATFORM, "nodes_max"), 0), ((*PLATFORM, "partition"), "p"))
    message = error_of(merged, {"platforms": {"cluster": changed}})
    assert message.startswith(f"{named}: platforms.cluster.nodes_max: 0 ")


def test_a_value_of_the_command_line_is_named() -> None:
    sources = [("config.yaml", raw_config()), ("--config", {"budget": "{usd: 5}"})]
    message = refused(
        config_validation.convert_to_types, raw_config((("budget",), "{usd: 5}")), sources
    )
    assert message.startswith('--config: budget: "{usd: 5}" ')


def test_long_values_are_cut_and_stay_on_one_line() -> None:
    message = error_of(raw_config(((*RECIPE, "epochs"), "a\nb" * 1000)))
    assert len(message) < 500


#: What is given, and values that follow from it; test_generated_texts.py compares all defaults.
DEFAULTS: list[tuple[Sequence[str | int], Any, dict[str, Any]]] = [
    (("budget",), {}, {
        "seed": 1, "plots": {}, "comparison.baseline": {}, "grid.0.exclude": (),
        "published": {"path": None, "tolerance": 0.25}, "recipes.weak.optimizer": "model",
        "platforms.laptop.runtime_min": 60}),
    (("plots",), {"speedup": {}}, {"plots.speedup": {"title": None}}),
    (("datasets",), {"mnist": {}}, {"datasets.mnist": {"path": None}}),
    (("seed",), 7, {"seed": 7}),
    ((*PLATFORM, "env"), {"A": "1"}, {"platforms.cluster.env": {"A": "1"}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "given", "values"), DEFAULTS)
def test_defaults_are_filled_in_at_every_depth_and_given_values_win(
    path: Sequence[str | int], given: Any, values: dict[str, Any]
) -> None:
    raw = raw_config((path, given))
    content = msgspec.to_builtins(config_validation.convert_to_types(raw))
    for key, value in values.items():
        place: Any = content
        for step in path_of(key):
            place = place[step]
        assert place == value
    assert raw == raw_config((path, given))


UNKNOWN_NAMES: list[tuple[tuple[str | int, ...], Any, str, str, str]] = [
    (("comparison",), {"columns": ["loss", "los"]}, "comparison.columns[1]", '"los"', "'loss'"),
    (("plots",), {"speed": {}}, "plots.speed", '"speed"', "'speedup'"),
    (("datasets",), {"mnsit": {}}, "datasets.mnsit", '"mnsit"', "'mnist'"),
    (("recipes", "weak", "dataset"), "mnis", "recipes.weak.dataset", '"mnis"', "'mnist'"),
    ((*PLATFORM, "launcher"), "sruns", "platforms.cluster.launcher", '"sruns"', "'srun'"),
]


@pytest.mark.parametrize(("path", "value", "key", "shown", "near"), UNKNOWN_NAMES)
def test_names_that_no_registry_has_are_refused(
    path: Sequence[str | int], value: Any, key: str, shown: str, near: str
) -> None:
    raw = raw_config((path, value))
    start = f"config.yaml: {key}: {shown} is not allowed; did you mean {near}? allowed: "
    assert refused(
        acceptance.validate_and_plan, raw, REGISTRIES, [("config.yaml", raw)]
    ).startswith(start)


@pytest.mark.parametrize("kind", [Config, Platform, Recipe])
def test_defaults_satisfy_their_own_rules(kind: type[msgspec.Struct]) -> None:
    schema = config_validation.json_schema(kind)
    checker = Draft202012Validator(schema)
    for key in schema["properties"].values():
        if "default" in key:
            assert checker.evolve(schema={**key, "$defs": schema.get("$defs", {})}).is_valid(
                key["default"]
            )


def test_without_the_files_of_the_configuration_the_message_says_where_they_were_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = raw_config()
    del raw["platforms"]
    message = refused(config_validation.convert_to_types, raw, [("--config", raw)])
    assert "platforms: missing" in message
    assert f"{tmp_path}: config/config.yaml, config/platforms.yaml" in message


def test_a_study_without_a_grid_is_named_with_the_way_to_add_to_another_study() -> None:
    raw = raw_config()
    del raw["grid"]
    sources = [("config/platforms.yaml", {}), ("mine.yaml", raw), ("--config", {"seed": 2})]
    message = refused(config_validation.convert_to_types, raw, sources)
    assert message.startswith("mine.yaml: grid: missing; ")
    assert "--configfile config/config.yaml FILE" in message


@pytest.mark.parametrize("known", range(1, 6))
def test_an_error_names_the_last_file_that_sets_the_longest_part_of_its_key(known: int) -> None:
    place = ["a", "b", "c", "d", "e"]

    def nested(length: int) -> dict[str, Any]:
        return functools.reduce(lambda inner, key: {key: inner}, reversed(place[:length]), {})

    sources = [("first.yaml", nested(known)), ("last.yaml", nested(known - 1))]
    for files in (sources, sources[::-1], [("other.yaml", nested(known)), *sources[::-1]]):
        message = config_validation.format_problem(place, 1, "allowed: none", files)
        assert message.partition(":")[0] == "first.yaml"


@pytest.mark.parametrize("existing", [[], [0], [1]])
def test_a_missing_table_names_the_files_that_were_not_found(
    existing: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    for number in existing:
        Path(config_validation.CONFIG_FILES[number]).write_text("{}")
    absent = {n for i, n in enumerate(config_validation.CONFIG_FILES) if i not in existing}
    raw = {key: value for key, value in raw_config().items() if key != "grid"}
    line = refused(config_validation.convert_to_types, raw)
    assert {name for name in config_validation.CONFIG_FILES if name in line} == absent
    # a key of a recipe is not sought in files
    raw = raw_config()
    del raw["recipes"]["weak"]["epochs"]
    line = refused(config_validation.convert_to_types, raw)
    assert not any(name in line for name in config_validation.CONFIG_FILES)


def test_limits_are_for_the_quality_of_the_configurations() -> None:
    deadline, accuracy = Limit(at_most=90), Limit(at_least=0.9)
    question = Question(limits={"execution_time_s": deadline, "test_accuracy": accuracy})
    time = {"execution_time_s": deadline}
    assert question.limits_for("cost_usd", "test_accuracy") == {**time, "quality": accuracy}
    assert question.limits_for("cost_usd", "test_loss") == time
    # the limit of the quality is the target
    assert question.limits_for("time_to_target_s", "test_accuracy") == time
    assert question.limits_for("cost_to_target_usd", None) == time
    assert Question(limits={"test_accuracy": None}).limits_for("cost_usd", "test_accuracy") == {}
