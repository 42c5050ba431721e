"""Parameters of the user's functions: checked by the source, and lists that are axes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import MINIMAL, REGISTRIES, raw_config, refused, valid_config
from tfscaling.study import acceptance, question_checks, run_spec, user_code, variants
from tfscaling.study.config_validation import ConfigError
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import RunSpec

Change = tuple[Sequence[str | int], Any]
RECIPE = ("recipes", "weak")
SOURCE = """
raise RuntimeError("imported")
def model(depth=1, width=2): ...
def data(context, size=10): ...
def needs(name): ...
def keywords(**given): ...
def by_place(depth, /): ...
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project folder with a module of the user's, in which we are."""
    (tmp_path / "own.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)


def changes(parameters: Any, model: str = "own:model", dataset: str = "own:data") -> list[Change]:
    return [
        (("grid", 0, "model"), model),
        ((*RECIPE, "dataset"), dataset),
        ((*RECIPE, "parameters"), parameters),
    ]


def expand(*given: Change) -> Manifest:
    raw = raw_config(*given)
    sources = [("config.yaml", raw)]
    return acceptance.validate_and_plan(raw, REGISTRIES, sources)[1]


def specs(*given: Change) -> list[RunSpec]:
    return [run.spec for run in expand(*given).runs if run.spec.point.nodes == 1]


WRONG = {
    "no function of the user's": (
        changes({"depth": 1}, "mnist_cnn", "mnist"), "", "neither model mnist_cnn nor dataset mnist"
    ),
    "unknown": (changes({"dept": 1}), ".dept: 1", "did you mean 'depth'? allowed: depth, size,"),
    "of the workflow": (changes({"context": 1}), ".context: 1", "allowed: depth, size, width"),
    "missing": (changes({}, "own:needs"), ": {}", "argument name of own:needs has no default"),
    "by place": (changes({"depth": 1}, "own:by_place", "mnist"), ".depth: 1", "no argument of own"),
    "no name": (changes({"a-b": 1}), "", "as in names of arguments"),
    "a mapping": (changes({"depth": {"a": 1}}), ".depth", "integer"),
    "no finite number": (changes({"depth": float("nan")}), ".depth: NaN", "allowed"),
    "empty": (changes({"depth": []}), ".depth: []", "at least one"),
    "twice": (changes({"depth": [1, 1]}), ".depth: [1, 1]", "each value once"),
    "twice in names": (changes({"depth": [1, "1"]}), '.depth: [1, "1"]', "as it is written"),
    "not a name": (changes({"depth": [1, "a/b"]}), '.depth: "a/b"', "letters, digits and . _ + -"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "key", "allowed"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_one_line_and_nothing_is_imported(
    given: list[Change], key: str, allowed: str
) -> None:
    message = refused(expand, *given)
    assert message.startswith(f"config.yaml: recipes.weak.parameters{key}")
    assert allowed in message


@pytest.mark.parametrize(
    "given",
    [
        changes({"depth": 18, "width": 0.5, "size": 3}),
        changes({"depth": 2**70}),
        changes({"anything": None}, "own:keywords"),
        changes({"name": "x"}, "own:needs"),
        changes({"whatever": True}, "gc:collect", "mnist"),  # compiled: no source tells
    ],
    ids=str,
)
def test_what_a_function_takes_is_accepted(given: list[Change]) -> None:
    assert expand(*given).runs


def test_parameters_are_part_of_the_runs_identity() -> None:
    without, *given = (
        specs(*changes(parameters))[0]
        for parameters in ({}, {"depth": 1}, {"depth": 2}, {"depth": 2, "size": 1})
    )
    assert "parameters" not in without.parameters
    assert [spec.parameters["parameters"] for spec in given] == [
        {"depth": 1}, {"depth": 2}, {"depth": 2, "size": 1},
    ]  # fmt: skip
    assert len({spec.parameters_hash for spec in (without, *given)}) == 4
    assert {spec.point.path for spec in given} == {without.point.path}
    assert len({spec.path for spec in (without, *given)}) == 4
    assert run_spec.describe_changes(given[1].parameters, given[0].parameters) == [
        "parameters.depth: 1, now 2"
    ]


def test_their_order_in_the_file_changes_nothing() -> None:
    one, other = (
        specs(*changes(dict(pairs)))
        for pairs in ([("depth", [1, 2]), ("width", [3])], [("width", [3]), ("depth", [1, 2])])
    )
    assert one == other
    assert [run_spec.encode_spec(s) for s in one] == [run_spec.encode_spec(s) for s in other]


def test_lists_make_one_recipe_for_each_combination() -> None:
    found = specs(*changes({"depth": [18, 50], "size": [0.5, 1e-05, None, True, "x"], "width": 7}))
    assert {spec.point.recipe: spec.recipe.parameters for spec in found} == {
        f"weak+depth={depth}+size={size}": {"depth": depth, "size": value, "width": 7}
        for depth in (18, 50)
        for size, value in {
            "0.5": 0.5, "1e-05": 1e-05, "null": None, "true": True, "x": "x",
        }.items()
    }  # fmt: skip
    assert len({spec.parameters_hash for spec in found}) == len(found) == 10


def chosen(*given: Change) -> list[str]:
    return [spec.point.recipe for spec in specs(*changes({"depth": [18, 50]}), *given)]


def test_a_recipes_name_stands_for_its_variants() -> None:
    eighteen, fifty = "weak+depth=18", "weak+depth=50"
    exclude = ("grid", 0, "exclude")
    assert chosen() == [eighteen, fifty]
    assert chosen((("grid", 0, "recipe"), fifty)) == [fifty]
    assert chosen((("grid", 0, "recipe"), ["weak", fifty])) == [eighteen, fifty]
    assert chosen((exclude, [{"recipe": fifty}])) == [eighteen]
    left = expand(*changes({"depth": [18, 50]}), (exclude, [{"recipe": "weak", "nodes": 2}]))
    assert {excluded.point.recipe for excluded in left.excluded} == {eighteen, fifty}
    with pytest.raises(ConfigError, match=re.escape("allowed: weak, weak+depth=18")):
        chosen((("grid", 0, "recipe"), "weak+depth=19"))


def check_baseline(recipe: str, *given: Change) -> None:
    baseline = (("comparison",), {"baseline": {"recipe": recipe, "nodes": 1}})
    config = valid_config(*changes({"depth": [18, 50]}), baseline, *given)
    question_checks.check_baseline(config, acceptance.plan_grid(config, REGISTRIES))


def test_a_baseline_names_a_variant_where_other_recipes_are_compared_with_it() -> None:
    check_baseline("weak")
    check_baseline("weak+depth=18")
    block = {"platform": "laptop", "model": "mnist_cnn", "recipe": "more", "nodes": 1}
    more = [
        (("recipes", "more"), MINIMAL["recipes"]["weak"]),
        (("grid",), [{**MINIMAL["grid"][0], "model": "own:model"}, block]),
    ]
    check_baseline("weak+depth=18", *more)
    with pytest.raises(ConfigError, match=r"baseline\.recipe: .* weak\+depth=18"):
        check_baseline("weak", *more)


def test_prepared_data_is_named_by_what_its_function_takes() -> None:
    named = {
        variants.data_name(spec.dataset, spec.recipe)
        for spec in specs(*changes({"depth": [1, 2], "size": [5, 6]}))
    }
    assert named == {"own:data+size=5", "own:data+size=6"}
    for value in ("a/b", "x" * 300):
        (spec,) = specs(*changes({"size": value}))
        assert re.fullmatch(
            r"own:data\+[0-9a-f]{16}", variants.data_name(spec.dataset, spec.recipe)
        )
    (spec,) = specs(*changes({"depth": 1}, dataset="mnist"))
    assert variants.data_name(spec.dataset, spec.recipe) == "mnist"


def test_model_and_data_get_their_parameters() -> None:
    config = valid_config(*changes({"depth": 18, "size": 2**70}))
    manifest = acceptance.plan_grid(config, REGISTRIES)
    manifest.write(path := Path("manifest.json"))
    read = Manifest.read(path)
    assert read == manifest
    assert json.loads(run_spec.encode_spec(read.runs[0].spec))["recipe"]["parameters"] == {
        "depth": 18, "size": 2**70,
    }  # fmt: skip
    given = read.runs[0].spec.recipe.single_parameters
    assert user_code.select_arguments("own:model", given) == {"depth": 18}
    assert user_code.select_arguments("own:data", given) == {"size": 2**70}
