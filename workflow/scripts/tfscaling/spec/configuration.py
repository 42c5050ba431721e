"""Checking the configuration: closed schemas, defaults, and one clear error.

The types of `config` are the only list of keys, units, defaults and bounds. JSON schemas follow
from them.
"""

from __future__ import annotations

import copy
import datetime
import difflib
import functools
import json
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tfscaling.files.program_errors import InputError
from tfscaling.spec import config, user_code
from tfscaling.spec.config import Config
from tfscaling.spec.registries import Registries

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError


Schema = dict[str, Any]
_REFERENCE = "#/$defs/"


@functools.cache
def of(kind: type[msgspec.Struct]) -> Schema:
    """The schema of a type; the types inside it are its `$defs`.

    A value or null is one schema with a list of types, so that a message says both. Choices are in
    the order of the type.
    """
    _, found = msgspec.json.schema_components((kind,), ref_template=_REFERENCE + "{name}")
    parts = {name: _tidy(part, found) for name, part in found.items()}
    for struct in structs(kind):
        properties = parts[struct.__name__]["properties"]
        for field in msgspec.structs.fields(struct):
            choice = typing.get_args(field.type)[:1]
            if choice and typing.get_origin(choice[0]) is Literal:
                properties[field.encode_name]["enum"] = list(typing.get_args(choice[0]))
            if choice and typing.get_origin(choice[0]) is dict:
                # msgspec leaves out the rules of a key that has further words, such as a form
                names = msgspec.json.schema(typing.get_args(choice[0])[0])
                properties[field.encode_name]["propertyNames"] = names
    if config.Platform.__name__ in parts:
        for key in config.Measured.__struct_fields__:
            parts[config.Platform.__name__]["properties"][key]["measured"] = True
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else root


def of_overlay() -> Schema:
    """The schema of one file of the configuration, which others complete: it requires no key.

    Mappings of several files are merged, so that none need be whole; a list is that of one file.
    """
    schema = copy.deepcopy(of(config.Config))
    parts = schema["$defs"]
    ahead: list[Any] = [{key: part for key, part in schema.items() if key != "$defs"}]
    schema.pop("required", None)
    merged: set[str] = set()
    while ahead:
        part = ahead.pop()
        name = str(part.get("$ref", "")).removeprefix(_REFERENCE)
        if name and name not in merged:
            merged.add(name)
            parts[name].pop("required", None)
            ahead.append(parts[name])
        inner = [*part.get("properties", {}).values(), *part.get("anyOf", ())]
        ahead += [each for each in (*inner, part.get("additionalProperties")) if each]
    said = "One file of the configuration: Snakemake merges all that it is given."
    return {**schema, "title": "Overlay", "description": said}


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The types of mappings that a type is made of, itself among them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from structs(field.type)
    for part in typing.get_args(kind):
        yield from structs(part)


def _tidy(schema: Any, parts: dict[str, Schema]) -> Any:
    """The schema with "one of this and null" as a list of types."""
    if isinstance(schema, list | tuple):
        return [_tidy(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    null = {"type": "null"}
    if null in (options := schema.get("anyOf", [])) and len(options) == 2:
        other = next(option for option in options if option != null)
        if "$ref" in other:
            other = copy.deepcopy(parts[other["$ref"].removeprefix(_REFERENCE)])
        if isinstance(other.get("type"), str):
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            schema = {**other, **rest, "type": [other["type"], "null"]}
    return {key: _tidy(value, parts) for key, value in schema.items()}


#: A configuration as it stands in a file, before it is validated.
RawConfig = Mapping[str, object]
#: Where a value of the merged configuration was read: (file name, content), later ones win.
Sources = Sequence[tuple[str, RawConfig]]

#: The source of what was given with --config.
COMMAND_LINE = "--config"


class ConfigError(InputError):
    """The configuration is wrong: names the file, the key, the value and what is allowed."""


#: Keys of before → what they are called now.
RENAMED = {
    "yardstick": "all_reduce_benchmark",
    "comparison.target_accuracy": "comparison.targets, as in targets: {test_accuracy: 0.97},",
    "plots.accuracy_time": "quality_time",
    "plots.loss_accuracy": "loss_quality",
}
#: Folders below results that all studies share: no study has their name.
SHARED_FOLDERS = ("datasets", "logs", "runs", "all_reduce")
#: What is read of the study that `compare_with` names, below its folder.
REFERENCE_FILES = ("manifest.json", "tables/comparison.csv", "tables/runs.csv")
#: Where the workflow looks for its configuration, in the folder in which snakemake runs.
CONFIG_FILES = ("config/config.yaml", "config/platforms.yaml")


def strict_validator(schema: Schema) -> Draft202012Validator:
    """A validator that takes 2.0 for no integer, NaN for no number, and `$` for the end."""
    from jsonschema import Draft202012Validator, validators

    # JSON Schema takes 2.0 for an integer; a number of nodes is written without a point
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            # one beyond every float is no "number": no bound would be checked
            "integer": lambda _, value: isinstance(value, int) and is_finite(value),
            "number": lambda _, value: is_finite(value),
        }
    )
    extend: Any = validators.extend  # has no type hints
    strict = extend(Draft202012Validator, {"pattern": _pattern}, type_checker=types)
    checker: Draft202012Validator = strict(schema)
    return checker


@functools.cache
def _config_validator() -> Draft202012Validator:
    return strict_validator(of(Config))


def is_finite(value: Any) -> bool:
    """Whether it is a number that counts: not true or false, not NaN, no larger than a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _pattern(_: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    r"""JSON Schema's patterns: `$` is the end, not before a last newline, `\d` is ASCII."""
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and not _compiled(pattern).search(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    assert pattern.count("$") == pattern.endswith("$"), f"$ inside of {pattern}"
    return re.compile(pattern.replace("$", r"\Z").replace(r"\d", "[0-9]"))


def validate(config: RawConfig, sources: Sources = ()) -> Config:
    """The configuration with its types and every default filled in.

    `config` is the merged configuration, `sources` the files it was merged from (for messages).
    Raises ConfigError for the first key that the types do not allow.
    """
    raw = dict(config)
    errors = sorted(_config_validator().iter_errors(raw), key=_place)
    if errors:
        raise ConfigError(_describe(_innermost(errors[0]), sources))
    return msgspec.convert(raw, Config)


def _place(error: ValidationError) -> tuple[list[str], bool]:
    """Sorts errors by their key; an unknown key comes first, for it may be a missing one's typo."""
    return [str(step) for step in error.path], error.validator != "additionalProperties"


def check_study(config: Config, sources: Sources = ()) -> None:
    """The study's folder must be its own; raises ConfigError."""
    # in any case of letters: file systems may take upper and lower case as the same
    if config.study.lower() in SHARED_FOLDERS:
        names = ", ".join(SHARED_FOLDERS)
        allowed = f"allowed: any name but {names}, the folders that all studies share"
        raise ConfigError(problem(["study"], config.study, allowed, sources))


def reference_files(config: Config) -> list[str]:
    """The files of the study that `compare_with` names; none where it names none."""
    folder = config.compare_with
    return [f"{folder}/{name}" for name in REFERENCE_FILES] if folder else []


def check_reference(config: Config, sources: Sources = ()) -> None:
    """`compare_with` must be the folder of another study with its tables; raises ConfigError."""
    folder = config.compare_with
    missing = [file for file in reference_files(config) if not Path(file).is_file()]
    if missing:
        reason = f"there is no {missing[0]} in {Path.cwd()}: name a folder such as results/main"
        raise ConfigError(problem(["compare_with"], folder, reason, sources))
    if folder and Path(folder).resolve() == Path("results", config.study).resolve():
        reason = "this is the folder of this study: copy it before the sweep, and name the copy"
        raise ConfigError(problem(["compare_with"], folder, reason, sources))


def check_names(config: Config, registries: Registries, sources: Sources = ()) -> None:
    """Names that are looked up in a registry must be in it; raises ConfigError.

    A recipe's dataset may also be a function of the user's, which must be there.
    """
    named: list[tuple[list[str | int], str, Iterable[str]]] = [
        (["comparison", "columns", n], column, registries.metrics)
        for n, column in enumerate(config.comparison.columns)
    ]
    named += [(["plots", plot], plot, registries.plots) for plot in config.plots]
    datasets = registries.datasets
    named += [(["datasets", dataset], dataset, datasets) for dataset in config.datasets]
    named += [
        (["platforms", name, "launcher"], platform.launcher, registries.launchers)
        for name, platform in config.platforms.items()
    ]
    for path, name, registry in named:
        if name not in registry:
            new = RENAMED.get(key_of(path))
            allowed = f"the key is called {new} now" if new else known(registry, name)
            raise ConfigError(problem(path, name, allowed, sources))
    for name, local in config.datasets.items():
        if local.path is not None and not Path(local.path).exists():
            rule = f"there is no such file or folder, seen from {Path.cwd()}"
            raise ConfigError(problem(["datasets", name, "path"], local.path, rule, sources))
    for name, recipe in config.recipes.items():
        if recipe.dataset is not None:
            check_function(["recipes", name, "dataset"], recipe.dataset, datasets, sources)


def check_function(
    path: Sequence[str | int], name: str, registry: Iterable[str], sources: Sources
) -> None:
    """`name` must be in the registry or a function of the user's; raises ConfigError."""
    if user_code.is_reference(name):
        try:
            user_code.check(name)
        except user_code.UserCodeError as error:
            raise ConfigError(problem(path, name, str(error), sources)) from None
    elif name not in registry:
        allowed = f"{known(registry, name)} or {user_code.FORM}"
        raise ConfigError(problem(path, name, allowed, sources))


def known(names: Iterable[str], wanted: object) -> str:
    """The end of an error message about an unknown name: what is allowed, the nearest first."""
    names = list(names)
    near = difflib.get_close_matches(str(wanted), names, n=1)
    near = near or [name for name in names if name.startswith(f"{wanted}_")]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}allowed: {', '.join(sorted(names)) or 'none defined'}"


def problem(path: Sequence[str | int], value: Any, allowed: str, sources: Sources) -> str:
    """One line: file, key, value, what is allowed."""
    return f"{_origin(path, sources)}: {key_of(path)}: {_short(value)} is not allowed; {allowed}"


def _innermost(error: ValidationError) -> ValidationError:
    """The branch of an anyOf that the value was meant for: a list is not reported as a scalar."""
    while error.context:
        meant = [e for e in error.context if e.validator != "type" or e.relative_path]
        if not meant:
            return error
        error = min(meant, key=lambda e: (-len(e.relative_path), str(e.validator)))
    return error


def _describe(error: ValidationError, sources: Sources) -> str:
    path = list(error.absolute_path)
    schema: Any = error.schema
    value: Any = error.instance
    if error.validator == "additionalProperties":
        unknown = next(key for key in value if key not in schema.get("properties", {}))
        place = [*path, unknown]
        if (renamed := RENAMED.get(key_of(place))) is not None:
            return problem(place, value[unknown], f"the key is called {renamed} now", sources)
        keys = known(schema["properties"], unknown)
        return f"{_origin(place, sources)}: {key_of(place)}: unknown key; {keys}"
    if error.validator == "required":
        missing = next(key for key in schema["required"] if key not in value)
        absent = [name for name in CONFIG_FILES if not path and not Path(name).is_file()]
        looked = f"; not found in {Path.cwd()}: {', '.join(absent)}" if absent else ""
        key = key_of([*path, missing])
        return f"{_origin(path, sources)}: {key}: missing; it has no default{looked}"
    allowed: dict[str, Callable[[Any], str]] = {
        "enum": lambda v: "allowed: " + ", ".join(map(str, v)),
        "type": lambda v: f"allowed: a value of type {' or '.join(_types(v))}",
        "minimum": lambda v: f"allowed: {v} or more",
        "maximum": lambda v: f"allowed: {v} or less",
        "multipleOf": lambda v: f"allowed: multiples of {v}",
        "exclusiveMinimum": lambda v: f"allowed: more than {v}",
        "exclusiveMaximum": lambda v: f"allowed: less than {v}",
        "minItems": lambda v: f"allowed: a list of at least {v}",
        "minProperties": lambda v: f"allowed: at least {v} entry",
        "minLength": lambda v: f"allowed: a text of at least {v} character",
        "maxLength": lambda v: f"allowed: at most {v} characters, not {len(value)}",
        "uniqueItems": lambda v: "allowed: each value once",
        "pattern": lambda v: f"allowed: {schema['form']}",
        "anyOf": lambda v: (
            f"allowed: a value of type {_scalars(v)}" + ", or a list of them" * _may_be_list(v)
        ),
    }
    keyword = str(error.validator)
    rule = allowed[keyword](schema[keyword]) if keyword in allowed else error.message
    if keyword == "type":
        rule += _hint(value, _types(schema[keyword]), _origin(path, sources) == COMMAND_LINE)
    elif keyword == "anyOf":
        types = _branch_types(schema["anyOf"])
        rule += _hint(value, types, _origin(path, sources) == COMMAND_LINE)
    return problem(path, value, rule, sources)


def _branch_types(branches: Sequence[Schema]) -> list[str]:
    return [kind for branch in branches for kind in _types(branch.get("type", "string"))]


def _scalars(branches: Sequence[Schema]) -> str:
    """`integer or string`: the types of an anyOf but for the list."""
    return " or ".join(kind for kind in _branch_types(branches) if kind != "array")


def _may_be_list(branches: Sequence[Schema]) -> bool:
    return "array" in _branch_types(branches)


def _types(types: str | Sequence[str]) -> Sequence[str]:
    return [types] if isinstance(types, str) else types


def _hint(value: Any, types: Collection[str], on_command_line: bool) -> str:
    """How a value of the wrong type was probably meant, or an empty text."""
    if isinstance(value, str) and list(types) == ["array"] and not on_command_line:
        return f"; write a list: {json.dumps(value.split())}"
    if isinstance(value, str) and {"integer", "number", "boolean", "null"} & set(types):
        if on_command_line:
            return "; --config takes nested values as texts: give them in a file to --configfile"
        if "number" in types and (number := _number(value)) is not None:
            return f"; YAML reads text here, write {number}"
        if "integer" in types and value.lstrip("+-").isdecimal() and value.isascii():
            return f"; write {int(value)}, without quotes"
        if "boolean" in types and value.lower() in ("true", "false"):
            return f"; write {value.lower()}, without quotes"
        return ""
    if "string" not in types:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_asked = {"integer", "number"} & set(types)
        return (
            "; a number must be finite" if is_number and is_asked and not is_finite(value) else ""
        )
    if isinstance(value, bool):
        return "; YAML reads yes, no, on and off as true and false: write the text in quotes"
    if isinstance(value, datetime.date):
        return "; YAML reads a date here: write the text in quotes"
    if isinstance(value, int | float):
        return "; YAML reads a number here: write the text in quotes"
    return ""


def _number(text: str) -> str | None:
    """A number as YAML 1.1 reads it, such as 1.0e-3 for 1e-3, or None if it is none."""
    found = re.fullmatch(r"([-+]?)(\d*)\.?(\d*)(?:[eE]([-+]?)(\d+))?", text, re.ASCII)
    if found is None or not (found[2] or found[3]) or not is_finite(float(text)):
        return None
    exponent = f"e{found[4] or '+'}{found[5]}" if found[5] else ""
    sign = found[1].replace("+", "")
    return f"{sign}{found[2].lstrip('0') or '0'}.{found[3] or '0'}{exponent}"


def _origin(path: Sequence[str | int], sources: Sources) -> str:
    """The last source that sets the longest known part of `path`; the command line has no file."""
    for end in range(len(path), 0, -1):
        for name, content in reversed(sources):
            if _contains(content, path[:end]):
                return name
    return sources[0][0] if sources else "configuration"


def _contains(content: Any, path: Sequence[str | int]) -> bool:
    for step in path:
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def key_of(path: Sequence[str | int]) -> str:
    """`grid[0].nodes`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{plain(step)}" if text else plain(step)
    return text or "the whole file"


def plain(text: str, width: int = 100) -> str:
    """The text for a message of one line: in quotes if it has other characters, cut if long."""
    return text if text.isprintable() and len(text) <= width else _short(text, width)


def _short(value: Any, width: int = 200) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= width else text[: width - 1] + "…"
