"""Validation of the configuration by the types of `config_types`; an error is one line.

The types are the only list of keys, units, defaults and bounds. JSON schemas follow from them.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import json
import math
import operator
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from tfscaling.files.descriptions import descriptions
from tfscaling.files.program_errors import InputError
from tfscaling.study import config_types, value_hints
from tfscaling.study.config_types import Config

Schema = dict[str, Any]
#: Keys and indices from the top of the configuration to a value.
Place = Sequence[str | int]
#: Content of a configuration file, not yet validated.
RawConfig = Mapping[str, object]
#: Where a value of the merged configuration was read: (file name, content), later ones win.
Sources = Sequence[tuple[str, RawConfig]]

#: The source of what was given with --config.
COMMAND_LINE = "--config"
#: The study without --configfile, and the platforms of all studies, in the folder in which
#: snakemake runs.
STUDY_FILE, PLATFORMS_FILE = "config/config.yaml", "config/platforms.yaml"
CONFIG_FILES = (STUDY_FILE, PLATFORMS_FILE)
#: Folders below results that all studies share: no study has their name.
SHARED_FOLDERS = ("datasets", "logs", "runs")
#: What is read of the study that `compare_with` names, below its folder.
REFERENCE_FILES = ("details/manifest.json", "comparison.csv", "runs.csv")
#: The value of a key that is missing, and of a problem that concerns several values.
_MISSING, SEVERAL = object(), object()
_REFERENCE = "#/$defs/"


class ConfigError(InputError):
    """The configuration is wrong; the message names file, key, value and what is allowed."""


class NotAllowed(ConfigError):
    """A value is not allowed at its place; `naming_files` adds the file to the message."""

    def __init__(self, place: Place, value: object, allowed: str) -> None:
        super().__init__(problem(place, value, allowed))
        self.place, self.value, self.allowed = place, value, allowed

    def with_prefix(self, *place: str | int) -> NotAllowed:
        """Return the same error with `place` put before its own place."""
        return NotAllowed([*place, *self.place], self.value, self.allowed)


@contextlib.contextmanager
def naming_files(sources: Sources) -> Iterator[None]:
    """Add the file to errors of the `with` block: a NotAllowed becomes a ConfigError."""
    try:
        yield
    except NotAllowed as error:
        message = problem(error.place, error.value, error.allowed, sources)
        raise ConfigError(message) from None


def validate(raw: RawConfig, sources: Sources = ()) -> Config:
    """Convert a configuration to types and return it with all defaults.

    Args:
        raw: The merged configuration.
        sources: The files from which it was merged, for messages.

    Raises:
        ConfigError: The types do not allow a value; the message is about the first one.
    """
    with naming_files(sources):
        try:
            found = msgspec.convert(raw, Config)
        except msgspec.ValidationError as error:
            raise _msgspec_error(raw, str(error).rpartition(" - at ")[2], sources) from None
        _check_values(raw, of(Config, described=False), ())
    return found


def _check_values(value: Any, schema: Schema, place: tuple[Any, ...]) -> None:
    """Check what msgspec does not: no NaN, no infinity, no equal values in some lists.

    Raises:
        NotAllowed: For the first such value.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise NotAllowed(place, value, f"allowed: {value_hints.FINITE}")
    is_list = isinstance(value, list | tuple)
    if is_list and any("uniqueItems" in each for each in _alternatives(schema)):
        kinds = [(isinstance(each, bool), each) for each in value]  # true and 1 are two values
        if len(set(kinds)) < len(kinds):
            raise NotAllowed(place, value, "allowed: each value once")
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if is_list else ()
    for step, inner in items:
        _check_values(inner, _item_schema(schema, step), (*place, step))


def _msgspec_error(raw: RawConfig, path: str, sources: Sources) -> NotAllowed:
    """Return the error that msgspec found, with its place and value.

    msgspec's message has the place, but neither the value nor the names of entries. Only complete
    configurations are converted: msgspec 0.21 frees memory twice when it discards other types that
    are unions with patterns.

    Args:
        raw: The merged configuration.
        path: The place as msgspec writes it, such as `$.recipes[...].epochs`.
        sources: The files from which it was merged.
    """
    place: tuple[Any, ...] = ()
    value: Any = raw
    schema = of(Config, described=False)
    for name, number in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        unnamed = number == "..."
        step = name or (_refused_entry(raw, place, path) if unnamed else int(number))
        place, value, schema = (*place, step), value[step], _item_schema(schema, step)
    for option in _alternatives(schema) if isinstance(value, Mapping) else ():
        fields = option.get("properties", {})
        for key in (key for key in value if fields and key not in fields):
            return NotAllowed([*place, key], value[key], f"unknown key; {known(fields, key)}")
        for key in (key for key in option.get("required", ()) if key not in value):
            looked = "" if place else _files_without_key(sources)
            return NotAllowed([*place, key], _MISSING, f"it has no default{looked}")
        if path.startswith("`key`"):
            value, schema = _refused_entry(raw, place, path), option.get("propertyNames", {})
    hint = value_hints.hint(
        value, kinds_of(schema), place, _find_source(place, sources) == COMMAND_LINE
    )
    return NotAllowed(place, value, f"allowed: {words(schema, value)}{f'; {hint}' if hint else ''}")


def _files_without_key(sources: Sources) -> str:
    """Return which files were read without finding a missing top-level key, after a semicolon."""
    if any(name not in (*CONFIG_FILES, COMMAND_LINE) for name, _ in sources):
        return (
            f"; a study given by --configfile takes nothing from {STUDY_FILE}: to add to that "
            f"file, name it first, --configfile {STUDY_FILE} FILE"
        )
    absent = [name for name in CONFIG_FILES if not Path(name).is_file()]
    return f"; not found in {Path.cwd()}: {', '.join(absent)}" if absent else ""


def _refused_entry(raw: RawConfig, place: tuple[Any, ...], path: str) -> Any:
    """Return the key of the entry below `place` that causes msgspec's error."""
    for key in functools.reduce(operator.getitem, place, typing.cast(Any, raw)):
        alone = copy.deepcopy(raw)
        entries: dict[str, Any] = functools.reduce(operator.getitem, place, typing.cast(Any, alone))
        for other in entries.keys() - {key}:
            del entries[other]
        try:
            msgspec.convert(alone, Config)
        except msgspec.ValidationError as error:
            if str(error).rpartition(" - at ")[2] == path:
                return key
    raise AssertionError(f"no entry of {key_of(place)} is refused")


def _alternatives(schema: Schema) -> list[Schema]:
    """Return the alternative schemas that a schema allows."""
    if "$ref" in schema:
        schema = of(Config, described=False)["$defs"][schema["$ref"].removeprefix(_REFERENCE)]
    options = schema.get("anyOf")
    return [each for option in options for each in _alternatives(option)] if options else [schema]


def _item_schema(schema: Schema, step: str | int) -> Schema:
    """Return the schema of an item of a mapping or list: `step` is its key or index."""
    for option in _alternatives(schema):
        found = option.get("properties", {}).get(step, option.get("additionalProperties"))
        if isinstance(step, int):
            found = option.get("items")
        if found:
            return typing.cast(Schema, found)
    raise KeyError(step)


def check_folders(config: Config) -> None:
    """Check that `study` is a new folder's name, and that `compare_with` names another study.

    Raises:
        NotAllowed: If not.
    """
    # in any case of letters: file systems may take upper and lower case as the same
    if config.study.lower() in SHARED_FOLDERS:
        names = ", ".join(SHARED_FOLDERS)
        rule = f"allowed: any name but {names}, the folders that all studies share"
        raise NotAllowed(["study"], config.study, rule)
    folder = config.compare_with
    missing = [file for file in reference_files(config) if not Path(file).is_file()]
    if missing:
        rule = f"there is no {missing[0]} in {Path.cwd()}: name a folder such as results/main"
        raise NotAllowed(["compare_with"], folder, rule)
    if folder and Path(folder).resolve() == Path("results", config.study).resolve():
        rule = "this is the folder of this study: copy it before the sweep, and name the copy"
        raise NotAllowed(["compare_with"], folder, rule)


def reference_files(config: Config) -> list[str]:
    """Return the files of the study that `compare_with` names; [] without the key."""
    folder = config.compare_with
    return [f"{folder}/{name}" for name in REFERENCE_FILES] if folder else []


def known(names: Iterable[str], wanted: object) -> str:
    """Return the end of a message about an unknown name: the allowed names, most similar first."""
    names = list(names)
    near = difflib.get_close_matches(str(wanted), names, n=1)
    near = near or [name for name in names if name.startswith(f"{wanted}_")]
    words = sorted(str(wanted).split("_"))
    near = near or [name for name in names if sorted(name.split("_")) == words]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}allowed: {', '.join(sorted(names)) or 'none defined'}"


def problem(place: Place, value: object, allowed: str, sources: Sources = ()) -> str:
    """Return an error as one line: file, key, value, what is allowed."""
    name = _find_source(place, sources)
    line = _line_of(name, place)
    where = f"{name}: {f'line {line}: ' if line else ''}{key_of(place)}"
    if value is SEVERAL:
        return f"{where}: not allowed; {allowed}"
    wrong = "missing" if value is _MISSING else f"{_shorten(value)} is not allowed"
    return f"{where}: {wrong}; {allowed}"


def _line_of(name: str, place: Place) -> int | None:
    """Return the line of the deepest key or item on the way to a place.

    Args:
        name: The file. It is read again: only errors need the lines of its keys.
        place: Keys and indices from the top of the file to a value, which may be missing.

    Returns:
        The line, counted from 1; None if there is no such file, or if it has no key on the way.
    """
    try:
        node = yaml.compose(Path(name).read_bytes(), Loader=yaml.SafeLoader)
    except (OSError, yaml.YAMLError):
        return None
    line = None
    for step in place:
        found = _yaml_entry(node, step)
        if found is None:
            break
        key, node = found
        line = key.start_mark.line + 1
    return line


def _yaml_entry(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of the key and of its value, or of an item twice; None without such one."""
    if isinstance(node, yaml.MappingNode):
        return next((entry for entry in node.value if entry[0].value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _find_source(place: Place, sources: Sources) -> str:
    """Return the last source that sets a place, or else its deepest existing parent.

    A list replaces the lists of earlier sources: only the last one is considered.
    """
    origin, inside = "", [(name, typing.cast(Any, content)) for name, content in sources]
    for step in place:
        inner = []
        for name, content in inside:
            with contextlib.suppress(KeyError, IndexError, TypeError):
                inner.append((name, content[step]))
        if not inner:
            break
        origin = inner[-1][0]
        inside = inner if isinstance(inner[-1][1], Mapping) else inner[-1:]
    studies = (name for name, _ in sources if name not in (PLATFORMS_FILE, COMMAND_LINE))
    return origin or next(studies, sources[0][0] if sources else "configuration")


def key_of(place: Place) -> str:
    """Return a place as users write it: `grid[0].nodes`."""
    key = ""
    for step in place:
        key += (
            f"[{step}]"
            if isinstance(step, int)
            else f".{quote_for_message(step)}"
            if key
            else quote_for_message(step)
        )
    return key or "the whole file"


def quote_for_message(text: str, width: int = 100) -> str:
    """Return a text for a one-line message: quoted if it has special characters, cut if long."""
    return text if text.isprintable() and len(text) <= width else _shorten(text, width)


def _shorten(value: object, width: int = 200) -> str:
    """Return a value as JSON, cut to `width` characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= width else text[: width - 1] + "…"


def kinds_of(schema: Schema) -> set[str]:
    """Return the JSON types that a schema allows."""
    return {kind for each in schema.get("anyOf", [schema]) for kind in _kinds(each)}


@functools.cache
def of(kind: type[msgspec.Struct], described: bool = True) -> Schema:
    """Return the JSON schema of a type, with inner types as its `$defs`.

    "A value or null" becomes one schema with a list of types, so that a table shows both. Choices
    are in the order of the type.
    """
    _, found = msgspec.json.schema_components((kind,), ref_template=_REFERENCE + "{name}")
    for struct in structs(kind):
        properties = found[struct.__name__]["properties"]
        for field in msgspec.structs.fields(struct):
            option, rules = properties[field.encode_name], typing.get_args(field.type)
            if described and (text := descriptions(struct).get(field.name)):
                option["description"] = text
            is_annotated = typing.get_origin(field.type) is Annotated
            plain_type = rules[0] if is_annotated else field.type
            if typing.get_origin(plain_type) is Literal:
                option["enum"] = list(typing.get_args(plain_type))
            elif typing.get_origin(plain_type) is dict:
                # msgspec leaves out the rules of a key that has further words, such as a form
                names = msgspec.json.schema(typing.get_args(plain_type)[0])
                option |= {"propertyNames": names} if "form" in names else {}
    parts = {name: _simplify_schema(part, found) for name, part in found.items()}
    if config_types.Platform.__name__ in parts:
        for key in config_types.Measured.__struct_fields__:
            parts[config_types.Platform.__name__]["properties"][key]["measured"] = True
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else root


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the mapping types that a type contains, itself included."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from structs(field.type)
    for part in typing.get_args(kind):
        yield from structs(part)


def _simplify_schema(schema: Any, definitions: dict[str, Schema]) -> Any:
    """Return a schema in JSON Schema's short form, with the schemas in it changed alike.

    "A value or null" becomes one schema with a list of types; patterns end in `$`, not in `\\Z`.

    Args:
        schema: A schema or a part of one.
        definitions: Name → schema to which `$ref` refers.
    """
    if isinstance(schema, list | tuple):
        return [_simplify_schema(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    null = {"type": "null"}
    if null in (options := schema.get("anyOf", [])) and len(options) == 2:
        other = next(option for option in options if option != null)
        if "$ref" in other:
            other = copy.deepcopy(definitions[other["$ref"].rpartition("/")[2]])
        if isinstance(other.get("type"), str):
            rest = {key: value for key, value in schema.items() if key != "anyOf"}
            schema = {**other, **rest, "type": [other["type"], "null"]}
    tidy = {key: _simplify_schema(value, definitions) for key, value in schema.items()}
    if isinstance(pattern := tidy.get("pattern"), str):
        tidy["pattern"] = pattern.replace(r"\Z", "$")
    return tidy


def words(schema: Schema, value: object = None) -> str:
    """Return in words what a schema allows; `value` is the rejected value."""
    found = ["" if "enum" in schema else words_of_type(schema), words_of_rules(schema)]
    longest = max(each.get("maxLength", 0) for each in schema.get("anyOf", [schema]))
    if isinstance(value, str) and 0 < longest < len(value):
        found.append(f"at most {longest} characters, not {len(value)}")
    found += ["at least one value"] if value == [] else []
    return ", ".join(each for each in found if each)


def words_of_type(schema: Schema) -> str:
    """Return the types of a schema in words: `integer, string or list of integers`."""
    if "anyOf" in schema:
        kinds = [words_of_type(option).split(" of ")[0] for option in schema["anyOf"]]
        return f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    if "enum" in schema:
        return "string"
    if "$ref" in schema:
        return "mapping"
    names = [{"object": "mapping", "array": "list"}.get(each, each) for each in _kinds(schema)]
    return f"list of {words_of_type(schema['items'])}s" if names == ["list"] else " or ".join(names)


def _kinds(schema: Schema) -> Collection[str]:
    """Return the JSON types of a schema without alternatives; a reference is an object."""
    kinds = schema.get("type", "object" if "$ref" in schema else "string")
    return [kinds] if isinstance(kinds, str) else kinds


def words_of_rules(schema: Schema) -> str:
    """Return the bounds, choices or pattern of a schema in words; for a list its items' rules."""
    if "anyOf" in schema:
        options = (option for option in schema["anyOf"] if option.get("type") != "array")
        return "; or ".join(filter(None, map(words_of_rules, options)))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    found = [words_of_rules(schema["items"])] if schema.get("type") == "array" else []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        found.append(f"{low:,} to {high:,}")
    else:
        signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
        found += [f"{sign} {schema[key]:,}" for key, sign in signs.items() if key in schema]
    found += [schema["form"]] if "form" in schema else []
    keys = schema.get("propertyNames", {})
    found += [f"keys: {keys['form']}"] if "form" in keys else []
    sizes = ("minLength", "minItems", *(["minProperties"] if "type" in schema else []))
    found += ["not empty"] if any(map(schema.get, sizes)) else []
    found += ["each value once"] if schema.get("uniqueItems") else []
    return ", ".join(word for word in found if word)
