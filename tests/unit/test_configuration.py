"""Validation: defaults, and one clear line for everything that the schema does not allow."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest
from builders import raw_config, valid_config
from tfscaling import configuration
from tfscaling.configuration import ConfigError
from tfscaling.datasets import DATASETS
from tfscaling.metrics import METRICS
from tfscaling.plots import PLOTS

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
    "unknown_key_of_a_block": (
        (*BLOCK, "nodez"), [1], "grid[0].nodez", "[1]", "did you mean 'nodes'?"),
    "unknown_key_at_the_top": (("recipe",), {}, "recipe", "{}", "did you mean 'recipes'?"),
    "unknown_key_of_a_platform": (
        (*PLATFORM, "partitions"), "a", "platforms.cluster.partitions", '"a"',
        "did you mean 'partition'?"),
    "unknown_key_of_a_recipe_far_from_all": (
        (*RECIPE, "zzz"), 1, "recipes.weak.zzz", "1", "allowed: communication, dataset, epochs"),
    "unknown_key_that_is_a_number": ((*PLATFORM, 3), 1, "platforms.cluster", "1", "allowed: "),
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
        (*RECIPE, "optimizer"), "adm", "recipes.weak.optimizer", '"adm"', "allowed: sgd, adam"),
    "unknown_launcher": (
        (*PLATFORM, "launcher"), "mpirun", "platforms.cluster.launcher", '"mpirun"',
        "allowed: srun, local"),
    "price_date_in_words": (
        (*PLATFORM, "price_date"), "May 2022", "platforms.cluster.price_date", '"May 2022"',
        "allowed: text of the form"),
    "name_with_a_slash": (
        ("platforms", "a/b"), {}, "platforms", '"a/b"', "allowed: text of the form"),
    "no_blocks": (("grid",), [], "grid", "[]", "a list of at least 1"),
    "no_recipes": (("recipes",), {}, "recipes", "{}", "at least 1 entry"),
    "platform_without_content": (
        PLATFORM, None, "platforms.cluster", "null", "a value of type object"),
    "empty_exclude_rule": (
        (*BLOCK, "exclude"), [{}], "grid[0].exclude[0]", "{}", "at least 1 entry"),
    "baseline_of_an_axis_that_is_none": (
        ("comparison",), {"baseline": {"node": 1}}, "comparison.baseline.node", "1",
        "did you mean 'nodes'?"),
    "baseline_of_a_repeat": (
        ("comparison",), {"baseline": {"repeat": 1}}, "comparison.baseline.repeat", "1",
        "allowed: gpus_per_node, model, nodes"),
    "baseline_of_several_nodes": (
        ("comparison",), {"baseline": {"nodes": [1, 2]}}, "comparison.baseline.nodes", "[1, 2]",
        "type integer"),
    "negative_tolerance": (
        ("published",), {"tolerance": -0.1}, "published.tolerance", "-0.1", "0 or more"),
    "unknown_key_of_published": (
        ("published",), {"file": "a.csv"}, "published.file", '"a.csv"', "allowed: path, tolerance"),
    "negative_price_of_a_gpu": (
        (*PLATFORM, "usd_per_gpu_hour"), -1, "platforms.cluster.usd_per_gpu_hour", "-1",
        "0 or more"),
    "number_for_a_cloud": (
        (*PLATFORM, "cloud"), 1, "platforms.cluster.cloud", "1", "type string or null"),
    "environment_that_is_no_text": (
        (*PLATFORM, "env"), {"A": 1}, "platforms.cluster.env.A", "1", "a value of type string"),
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


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        ((), "grid"),
        ((), "platforms"),
        (("grid", 0), "model"),
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
    (("grid", 0, "exclude"), []),
    (("recipes", "weak", "optimizer"), "sgd"),
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
    place: Any = valid_config()
    for step in path:
        place = place[step]
    assert place == value


def test_defaults_of_entries_behind_names_are_filled_in() -> None:
    config = valid_config((("plots",), {"speedup": {}}), (("datasets",), {"mnist": {}}))
    assert config["plots"] == {"speedup": {"title": None}}
    assert config["datasets"] == {"mnist": {"path": None}}


def test_given_values_win_over_defaults_and_the_input_stays_as_it_was() -> None:
    raw = raw_config((("seed",), 7), ((*PLATFORM, "env"), {"A": "1"}))
    config = configuration.validate(raw)
    assert config["seed"] == 7
    assert config["platforms"]["cluster"]["env"] == {"A": "1"}
    assert "strategy" not in raw["grid"][0]


def test_two_configurations_do_not_share_a_default() -> None:
    first, second = valid_config(), valid_config()
    first["platforms"]["cluster"]["env"]["A"] = "1"
    first["comparison"]["columns"].clear()
    assert second["platforms"]["cluster"]["env"] == {}
    assert "execution_time_s" in valid_config()["comparison"]["columns"]


UNKNOWN_NAMES: list[tuple[tuple[str | int, ...], Any, str, str, str]] = [
    (("comparison",), {"columns": ["loss", "los"]}, "comparison.columns[1]", '"los"', "'loss'"),
    (("plots",), {"speed": {}}, "plots.speed", '"speed"', "'speedup'"),
    (("datasets",), {"mnsit": {}}, "datasets.mnsit", '"mnsit"', "'mnist'"),
    (("recipes", "weak", "dataset"), "mnis", "recipes.weak.dataset", '"mnis"', "'mnist'"),
]


@pytest.mark.parametrize(("path", "value", "key", "shown", "near"), UNKNOWN_NAMES)
def test_unknown_metrics_plots_and_datasets_are_refused(
    path: Sequence[str | int], value: Any, key: str, shown: str, near: str
) -> None:
    raw = raw_config((path, value))
    config, sources = configuration.validate(raw), [("config.yaml", raw)]
    with pytest.raises(ConfigError) as caught:
        configuration.check_names(config, METRICS, PLOTS, DATASETS, sources)
    start = f"config.yaml: {key}: {shown} is not allowed; did you mean {near}? allowed: "
    assert str(caught.value).startswith(start)


def test_known_names_pass() -> None:
    config = valid_config((("plots",), {"speedup": {}}), (("recipes", "weak", "dataset"), "mnist"))
    assert configuration.check_names(config, METRICS, PLOTS, DATASETS) is None


SCHEMAS = ["config", "platform", "recipe", "run_record", "yardstick_record", "comparison"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid_and_closed(name: str) -> None:
    schema = configuration.load_schema(name)
    configuration.validator(name).check_schema(schema)
    assert schema["additionalProperties"] is False


def keys_without_a_value(schema: Any) -> list[str]:
    """What is left of a text with a comma that stands unquoted in a flow mapping."""
    if isinstance(schema, list):
        return [key for item in schema for key in keys_without_a_value(item)]
    if not isinstance(schema, dict):
        return []
    own = [
        key for key, value in schema.items() if value is None and key not in ("default", "const")
    ]
    return own + keys_without_a_value(list(schema.values()))


@pytest.mark.parametrize("name", SCHEMAS)
def test_descriptions_are_not_cut_off_at_a_comma(name: str) -> None:
    assert keys_without_a_value(configuration.load_schema(name)) == []


@pytest.mark.parametrize("name", ["config", "platform", "recipe"])
def test_every_key_of_the_configuration_is_described(name: str) -> None:
    described = {key: sub.get("description", "") for key, sub in properties_of(name).items()}
    assert [key for key, text in described.items() if not text] == []


@pytest.mark.parametrize("name", ["platform", "recipe"])
def test_defaults_in_the_schemas_satisfy_their_own_rules(name: str) -> None:
    validator = configuration.validator(name)
    wrong = [
        key
        for key, sub in properties_of(name).items()
        if "default" in sub and not validator.evolve(schema=sub).is_valid(sub["default"])
    ]
    assert wrong == []


def properties_of(name: str) -> dict[str, dict[str, Any]]:
    return configuration.properties(name)
