"""Validation: defaults, and one clear line for everything that the schema does not allow."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from builders import REGISTRIES, raw_config, valid_config
from tfscaling.spec import configuration
from tfscaling.spec.config import Config, DatasetCopy, Platform, PlotOptions, Recipe
from tfscaling.spec.configuration import ConfigError

BLOCK: tuple[str | int, ...] = ("grid", 0)
RECIPE = ("recipes", "weak")
PLATFORM = ("platforms", "cluster")


def error_of(config: dict[str, Any], overlay: dict[str, Any] | None = None) -> str:
    sources = [("config.yaml", config)]
    if overlay is not None:
        sources.append(("overlay.yaml", overlay))
    with pytest.raises(ConfigError) as caught:
        configuration.validate(config, sources)
    return str(caught.value)


# what is changed, its new value; key, value and rule as the message must have them
MALFORMED: dict[str, tuple[Sequence[str | int], Any, str, str, str]] = {
    "empty_axis": ((*BLOCK, "nodes"), [], "grid[0].nodes", "[]", "a list of at least 1"),
    "zero_nodes": ((*BLOCK, "nodes"), 0, "grid[0].nodes", "0", "1 or more"),
    "zero_nodes_in_a_list": ((*BLOCK, "nodes"), [1, 0], "grid[0].nodes[1]", "0", "1 or more"),
    "negative_nodes": ((*BLOCK, "nodes"), -2, "grid[0].nodes", "-2", "1 or more"),
    "negative_gpus": ((*BLOCK, "gpus_per_node"), -1, "grid[0].gpus_per_node", "-1", "0 or more"),
    "same_value_twice": ((*BLOCK, "nodes"), [1, 1], "grid[0].nodes", "[1, 1]", "each value once"),
    "words_for_nodes": ((*BLOCK, "nodes"), "two", "grid[0].nodes", '"two"', "integer"),
    "word_in_a_list_of_nodes": (
        (*BLOCK, "nodes"), [1, "two"], "grid[0].nodes[1]", '"two"', "type integer"),
    "true_for_nodes": ((*BLOCK, "nodes"), True, "grid[0].nodes", "true", "integer"),
    "fraction_of_a_node": ((*BLOCK, "nodes"), 1.5, "grid[0].nodes", "1.5", "integer"),
    "decimal_point_in_nodes": ((*BLOCK, "nodes"), 2.0, "grid[0].nodes", "2.0", "integer"),
    "decimal_point_in_epochs": ((*RECIPE, "epochs"), 8.0, "recipes.weak.epochs", "8.0", "integer"),
    "zero_repeats": ((*BLOCK, "repeats"), 0, "grid[0].repeats", "0", "1 or more"),
    "text_for_epochs": ((*RECIPE, "epochs"), "8", "recipes.weak.epochs", '"8"', "type integer"),
    "rate_zero": ((*RECIPE, "learning_rate"), 0, "recipes.weak.learning_rate", "0", "more than 0"),
    "momentum_one": ((*RECIPE, "momentum"), 1, "recipes.weak.momentum", "1", "less than 1"),
    "unknown_optimizer": (
        (*RECIPE, "optimizer"), "adm", "recipes.weak.optimizer", '"adm"',
        "allowed: model, sgd, adam"),
    "price_date_in_words": (
        (*PLATFORM, "price_date"), "May 2022", "platforms.cluster.price_date", '"May 2022"',
        "allowed: YYYY, YYYY-MM or YYYY-MM-DD"),
    "name_with_a_slash": (
        ("platforms", "a/b"), {}, "platforms", '"a/b"', "allowed: letters, digits"),
    "no_blocks": (("grid",), [], "grid", "[]", "a list of at least 1"),
    "no_recipes": (("recipes",), {}, "recipes", "{}", "at least 1 entry"),
    "platform_without_content": (
        PLATFORM, None, "platforms.cluster", "null", "a value of type object"),
    "empty_exclude_rule": (
        (*BLOCK, "exclude"), [{}], "grid[0].exclude[0]", "{}", "at least 1 entry"),
    "baseline_of_several_nodes": (
        ("comparison",), {"baseline": {"nodes": [1, 2]}}, "comparison.baseline.nodes", "[1, 2]",
        "type integer"),
    "negative_tolerance": (
        ("published",), {"tolerance": -0.1}, "published.tolerance", "-0.1", "0 or more"),
    "negative_price_of_a_gpu": (
        (*PLATFORM, "usd_per_gpu_hour"), -1, "platforms.cluster.usd_per_gpu_hour", "-1",
        "0 or more"),
    "number_for_a_cloud": (
        (*PLATFORM, "cloud"), 1, "platforms.cluster.cloud", "1", "type string or null"),
    "environment_that_is_no_text": (
        (*PLATFORM, "env"), {"A": 1}, "platforms.cluster.env.A", "1", "a value of type string"),
    "rate_that_is_no_number": (
        (*RECIPE, "learning_rate"), math.nan, "recipes.weak.learning_rate", "NaN", "finite"),
    "infinite_rate": (
        (*RECIPE, "learning_rate"), math.inf, "recipes.weak.learning_rate", "Infinity", "finite"),
    "rate_larger_than_a_float": (
        (*RECIPE, "learning_rate"), 10**400, "recipes.weak.learning_rate", "1" + "0" * 198 + "…",
        "a value of type number"),
    "momentum_that_is_no_number": (
        (*RECIPE, "momentum"), math.nan, "recipes.weak.momentum", "NaN", "finite"),
    "price_that_is_no_number": (
        (*PLATFORM, "usd_per_node_hour"), math.nan, "platforms.cluster.usd_per_node_hour", "NaN",
        "finite"),
    "infinite_price": (
        (*PLATFORM, "usd_per_gpu_hour"), math.inf, "platforms.cluster.usd_per_gpu_hour",
        "Infinity", "finite"),
    "price_that_is_true": (
        (*PLATFORM, "usd_per_node_hour"), True, "platforms.cluster.usd_per_node_hour", "true",
        "type number or null"),
    "target_that_is_no_number": (
        ("comparison",), {"targets": {"test_accuracy": math.nan}},
        "comparison.targets.test_accuracy", "NaN", "finite"),
    "tolerance_that_is_no_number": (
        ("published",), {"tolerance": math.nan}, "published.tolerance", "NaN", "finite"),
    "tolerance_in_per_cent": (("published",), {"tolerance": 25}, "published.tolerance", "25",
        "1 or less"),
    "budget_that_is_no_number": (
        ("budget",), {"usd": math.nan}, "budget.usd", "NaN", "finite"),
    "infinite_budget": (
        ("budget",), {"node_hours": math.inf}, "budget.node_hours", "Infinity", "finite"),
    "interval_that_is_no_number": (
        (*BLOCK, "repeat_until"), {"relative_interval": math.nan},
        "grid[0].repeat_until.relative_interval", "NaN", "finite"),
    "interval_in_per_cent": (
        (*BLOCK, "repeat_until"), {"relative_interval": 5},
        "grid[0].repeat_until.relative_interval", "5", "1 or less"),
    "rate_that_yaml_reads_as_text": (
        (*RECIPE, "learning_rate"), "1e-3", "recipes.weak.learning_rate", '"1e-3"',
        "write 1.0e-3"),
    "rate_without_sign_of_the_exponent": (
        (*RECIPE, "learning_rate"), "-.5E3", "recipes.weak.learning_rate", '"-.5E3"',
        "write -0.5e+3"),
    "number_in_quotes": (
        (*BLOCK, "nodes"), ["1", "2"], "grid[0].nodes[0]", '"1"', "write 1, without quotes"),
    "truth_in_quotes": (
        (*PLATFORM, "exclusive"), "True", "platforms.cluster.exclusive", '"True"',
        "write true, without quotes"),
    "number_with_a_digit_of_another_script": (
        (*RECIPE, "epochs"), "\uff18", "recipes.weak.epochs", r'"\uff18"', "type integer"),
    "yes_for_a_partition": (
        (*PLATFORM, "partition"), True, "platforms.cluster.partition", "true",
        "YAML reads yes, no, on and off"),
    "on_for_a_platform": (
        (*BLOCK, "platform"), True, "grid[0].platform", "true", "YAML reads yes, no, on and off"),
    "number_for_a_recipe": (
        (*BLOCK, "recipe"), 7, "grid[0].recipe", "7", "write the text in quotes"),
    "number_for_a_partition": (
        (*PLATFORM, "partition"), 7, "platforms.cluster.partition", "7", "the text in quotes"),
    "year_without_quotes": (
        (*PLATFORM, "price_date"), 2022, "platforms.cluster.price_date", "2022",
        "the text in quotes"),
    "empty_partition": (
        (*PLATFORM, "partition"), "", "platforms.cluster.partition", '""', "one line of text"),
    "partition_that_is_an_option": (
        (*PLATFORM, "partition"), "--nodes=7", "platforms.cluster.partition",
        '"--nodes=7"', "not begin with a hyphen"),
    "reservation_of_two_words": (
        (*PLATFORM, "reservation"), "day one", "platforms.cluster.reservation", '"day one"',
        "letters, digits"),
    "resource_that_the_plugin_refuses": (
        (*PLATFORM, "gpu_gres"), "gpu:a100-sxm", "platforms.cluster.gpu_gres", '"gpu:a100-sxm"',
        "a name, or name:type"),
    "number_of_gpus_in_the_resource": (
        (*PLATFORM, "gpu_gres"), "gpu:v100:2", "platforms.cluster.gpu_gres", '"gpu:v100:2"',
        "a name, or name:type"),
    "title_of_two_lines": (
        (*PLATFORM, "title"), "a\nb", "platforms.cluster.title", r'"a\nb"', "one line of text"),
    "title_with_a_tab": (
        (*PLATFORM, "title"), "a\tb", "platforms.cluster.title", r'"a\tb"', "one line of text"),
    "empty_title": (
        ("comparison",), {"title": " "}, "comparison.title", '" "', "one line of text"),
    "empty_path": (("published",), {"path": ""}, "published.path", '""', "1 character"),
    "empty_cluster": (("cluster",), "", "cluster", '""', "1 character"),
    "nodes_beyond_every_float": (
        (*BLOCK, "nodes"), [10**400], "grid[0].nodes[0]", "1" + "0" * 198 + "…",
        "a number must be finite"),
    "title_of_white_space": (
        (*PLATFORM, "title"), "\u2028", "platforms.cluster.title", r'"\u2028"', "not empty"),
    "list_where_none_is_allowed": (
        ("comparison",), {"baseline": {"tasks_per_node": ["1"]}},
        "comparison.baseline.tasks_per_node", '["1"]', "a value of type integer or string"),
    "name_with_a_newline": (
        ("recipes", "weak\n"), {}, "recipes", r'"weak\n"', "allowed: letters, digits"),
    "platform_with_a_newline": (
        (*BLOCK, "platform"), "cluster\n", "grid[0].platform", r'"cluster\n"', "letters, digits"),
    "uneven_tasks_with_a_newline": (
        (*BLOCK, "tasks_per_node"), "2+1\n", "grid[0].tasks_per_node", r'"2+1\n"',
        "a number for each node"),
    "uneven_tasks_in_digits_of_another_script": (
        (*BLOCK, "tasks_per_node"), "2+\uff11", "grid[0].tasks_per_node", r'"2+\uff11"',
        "a number for each node"),
    "name_with_a_letter_of_another_script": (
        ("recipes", "w\u0435ak"), {}, "recipes", r'"w\u0435ak"', "letters, digits"),
    "name_of_two_dots": (("recipes", ".."), {}, "recipes", '".."', "letters, digits"),
    "name_that_is_a_path": (("recipes", "/etc"), {}, "recipes", '"/etc"', "letters, digits"),
    "empty_name": (("recipes", ""), {}, "recipes", '""', "letters, digits"),
    "name_of_300_letters": (
        ("recipes", "a" * 300), {}, "recipes", '"' + "a" * 198 + "…", "100 characters, not 300"),
    "more_nodes_than_any_cluster": (
        (*BLOCK, "nodes"), 99999999999, "grid[0].nodes", "99999999999", "100000 or less"),
    "more_nodes_than_any_cluster_in_a_list": (
        (*BLOCK, "nodes"), [1, 10**20], "grid[0].nodes[1]", str(10**20), "100000 or less"),
    "platform_larger_than_any_cluster": (
        (*PLATFORM, "nodes_max"), 10**20, "platforms.cluster.nodes_max", str(10**20),
        "100000 or less"),
    "more_repeats_than_anyone_can_wait_for": (
        (*BLOCK, "repeats"), 10**9, "grid[0].repeats", str(10**9), "10000 or less"),
    "seed_of_30_digits": (("seed",), 10**29, "seed", str(10**29), "4294967295 or less"),
    "seed_that_is_true": (("seed",), True, "seed", "true", "type integer"),
    "list_of_mixed_types": (
        (*BLOCK, "nodes"), [1, True], "grid[0].nodes[1]", "true", "type integer"),
    "list_of_names_and_numbers": (
        (*BLOCK, "platform"), ["cluster", 1], "grid[0].platform[1]", "1", "the text in quotes"),
    "variable_with_an_equals_sign": (
        (*PLATFORM, "env"), {"A=B": "x"}, "platforms.cluster.env", '"A=B"',
        "names of environment variables"),
    "variable_that_begins_with_a_digit": (
        (*PLATFORM, "env"), {"1A": "x"}, "platforms.cluster.env", '"1A"',
        "names of environment variables"),
    "variable_with_a_zero_byte": (
        (*PLATFORM, "env"), {"A": "x\0"}, "platforms.cluster.env.A", r'"x\u0000"',
        "without a zero byte"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "key", "shown", "allowed"), MALFORMED.values(), ids=MALFORMED
)
def test_one_line_names_file_key_value_and_what_is_allowed(
    path: Sequence[str | int], value: Any, key: str, shown: str, allowed: str
) -> None:
    message = error_of(raw_config((path, value)))
    assert "\n" not in message
    where, _, rule = message.partition(" is not allowed; ")
    assert where.startswith(f"config.yaml: {key}")
    assert where.endswith(f": {shown}")
    assert allowed in rule


#: name → (what is changed, the key as the message must have it, what follows)
UNKNOWN_KEYS: dict[str, tuple[Sequence[str | int], str, str]] = {
    "of_a_block": ((*BLOCK, "nodez"), "grid[0].nodez", "did you mean 'nodes'?"),
    "that_begins_another": ((*BLOCK, "gpus"), "grid[0].gpus", "did you mean 'gpus_per_node'?"),
    "at_the_top": (("recipe",), "recipe", "did you mean 'recipes'?"),
    "of_a_platform": (
        (*PLATFORM, "partitions"), "platforms.cluster.partitions", "did you mean 'partition'?"),
    "far_from_all": ((*RECIPE, "zzz"), "recipes.weak.zzz", "allowed: accumulate_steps, "),
    "that_is_a_number": ((*PLATFORM, 3), "platforms.cluster[3]", "allowed: "),
    "axis_that_is_none": (
        ("comparison",), "comparison.baseline.node", "did you mean 'nodes'?"),
    "of_published": (("published", "file"), "published.file", "allowed: path, tolerance"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "key", "rule"), UNKNOWN_KEYS.values(), ids=UNKNOWN_KEYS)
def test_an_unknown_key_is_called_that(path: Sequence[str | int], key: str, rule: str) -> None:
    value: Any = {"baseline": {"node": 1}} if path == ("comparison",) else 1
    raw = raw_config((("published",), {}), (path, value))
    message = error_of(raw)
    assert message.startswith(f"config.yaml: {key}: unknown key; {rule}")
    assert "\n" not in message


def test_a_missing_key_with_a_typo_is_an_unknown_one() -> None:
    message = error_of(raw_config((PLATFORM, {"node_max": 4})))
    assert message.startswith("config.yaml: platforms.cluster.node_max: unknown key; did you mean")


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
    assert message.endswith(f"{missing}: missing; it has no default")


def test_a_date_that_yaml_reads_as_a_date_is_not_called_a_wrong_text() -> None:
    # price_date: 2022-05-01 without quotes
    message = error_of(raw_config(((*PLATFORM, "price_date"), datetime.date(2022, 5, 1))))
    assert "quote" in message


def test_the_file_named_is_the_overlay_if_the_overlay_sets_the_key() -> None:
    overlay = {"platforms": {"cluster": {"nodes_max": 0}}}
    merged = raw_config(((*PLATFORM, "nodes_max"), 0))
    assert error_of(merged, overlay).startswith("overlay.yaml: platforms.cluster.nodes_max: 0 ")


def test_the_file_named_is_the_base_if_the_overlay_sets_other_keys() -> None:
    overlay = {"platforms": {"cluster": {"partition": "p"}}}
    merged = raw_config(((*PLATFORM, "nodes_max"), 0), ((*PLATFORM, "partition"), "p"))
    assert error_of(merged, overlay).startswith("config.yaml: platforms.cluster.nodes_max: 0 ")


def test_nested_values_of_the_command_line_are_texts_and_the_message_says_so() -> None:
    raw = raw_config((("budget",), {"usd": "5"}))
    with pytest.raises(ConfigError) as caught:
        configuration.validate(
            raw, [("config.yaml", raw_config()), ("--config", {"budget": {"usd": "5"}})]
        )
    message = str(caught.value)
    assert message.startswith('--config: budget.usd: "5" is not allowed; ')
    assert "--configfile" in message
    assert "quotes" not in message


NAMES_AND_NUMBERS = ["1e-3", "1E5", "-2e+7", "5.", ".5", "1.5e3", "+3e2", "007.5e1"]


@pytest.mark.parametrize("text", NAMES_AND_NUMBERS)
def test_the_number_that_a_message_proposes_is_the_one_that_was_meant(text: str) -> None:
    message = error_of(raw_config(((*RECIPE, "learning_rate"), text)))
    proposed = message.split("write ")[1]
    assert yaml.safe_load(proposed) == float(text)
    assert isinstance(yaml.safe_load(proposed), float)


def test_an_error_in_a_later_place_does_not_hide_the_first() -> None:
    config = raw_config(((*BLOCK, "nodes"), 0), ((*RECIPE, "epochs"), 0))
    assert "grid[0].nodes" in error_of(config)


def test_long_values_are_cut_and_stay_on_one_line() -> None:
    message = error_of(raw_config(((*RECIPE, "epochs"), "a\nb" * 1000)))
    assert "\n" not in message
    assert len(message) < 500


DEFAULTS = [
    (("seed",), 1),
    (("cluster",), None),
    (("datasets",), {}),
    (("plots",), {}),
    (("comparison", "title"), "Comparison of distributed training runs"),
    (("comparison", "baseline"), {}),
    (("published",), {"path": None, "tolerance": 0.25}),
    (("grid", 0, "strategy"), "multi_worker_mirrored"),
    (("grid", 0, "gpus_per_node"), 0),
    (("grid", 0, "tasks_per_node"), 1),
    (("grid", 0, "repeats"), 1),
    (("grid", 0, "exclude"), ()),
    (("recipes", "weak", "optimizer"), "model"),
    (("recipes", "weak", "global_batch_size"), None),
    (("recipes", "weak", "steps_per_execution"), 1),
    (("platforms", "cluster", "devices"), "physical"),
    (("platforms", "cluster", "env"), {}),
    (("platforms", "cluster", "cloud"), None),
    (("platforms", "cluster", "published_as"), None),
    (("platforms", "cluster", "usd_per_gpu_hour"), None),
    (("platforms", "laptop", "runtime_min"), 60),
]


@pytest.mark.parametrize(("path", "value"), DEFAULTS)
def test_defaults_are_filled_in_at_every_depth(path: Sequence[str | int], value: Any) -> None:
    place: Any = msgspec.to_builtins(valid_config())
    for step in path:
        place = place[step]
    assert place == value


def test_defaults_of_entries_behind_names_are_filled_in() -> None:
    config = valid_config((("plots",), {"speedup": {}}), (("datasets",), {"mnist": {}}))
    assert config.plots == {"speedup": PlotOptions(title=None)}
    assert config.datasets == {"mnist": DatasetCopy(path=None)}


def test_given_values_win_over_defaults_and_the_input_stays_as_it_was() -> None:
    raw = raw_config((("seed",), 7), ((*PLATFORM, "env"), {"A": "1"}))
    config = configuration.validate(raw)
    assert config.seed == 7
    assert config.platforms["cluster"].env == {"A": "1"}
    assert "strategy" not in raw["grid"][0]


def test_two_configurations_do_not_share_a_default() -> None:
    first, second = valid_config(), valid_config()
    first.platforms["cluster"].env["A"] = "1"
    assert second.platforms["cluster"].env == {}


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
    config, sources = configuration.validate(raw), [("config.yaml", raw)]
    with pytest.raises(ConfigError) as caught:
        configuration.check_names(config, REGISTRIES, sources)
    start = f"config.yaml: {key}: {shown} is not allowed; did you mean {near}? allowed: "
    assert str(caught.value).startswith(start)


def test_known_names_pass() -> None:
    config = valid_config((("plots",), {"speedup": {}}), (("recipes", "weak", "dataset"), "mnist"))
    assert configuration.check_names(config, REGISTRIES) is None


KINDS = [Config, Platform, Recipe]


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_satisfy_their_own_rules(kind: type[msgspec.Struct]) -> None:
    schema = configuration.of(kind)
    checker = configuration.strict_validator(schema)
    for key in schema["properties"].values():
        if "default" in key:
            assert checker.evolve(schema={**key, "$defs": schema.get("$defs", {})}).is_valid(
                key["default"]
            )


def test_a_renamed_key_is_told_its_new_name() -> None:
    message = error_of(raw_config((("yardstick",), {"enabled": True})))
    assert message.startswith('config.yaml: yardstick: {"enabled": true} is not allowed; ')
    assert message.endswith("all_reduce_benchmark now")
    message = error_of(raw_config((("comparison",), {"target_accuracy": 0.9})))
    assert message.startswith("config.yaml: comparison.target_accuracy: 0.9 is not allowed; ")
    assert "comparison.targets" in message


def test_without_the_files_of_the_configuration_the_message_says_where_they_were_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = raw_config()
    del raw["platforms"]
    message = error_of(raw)
    assert "platforms: missing" in message
    assert f"{tmp_path}: config/config.yaml, config/platforms.yaml" in message
