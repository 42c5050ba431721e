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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tfscaling.files.descriptions import descriptions
from tfscaling.files.program_errors import InputError
from tfscaling.study import config_types, value_hints
from tfscaling.study.config_types import PRIVATE_KEYS, Config

if TYPE_CHECKING:
    import yaml

#: A JSON schema, or a part of one.
Schema = dict[str, Any]
#: Keys and indices from the top of the configuration to a value.
Place = Sequence[str | int]
#: Content of a configuration file, not yet validated.
RawConfig = Mapping[str, object]
#: Where a value of the merged configuration was read: (file name, content), later ones win.
Sources = Sequence[tuple[str, RawConfig]]

#: Name of the source with the values of --config.
COMMAND_LINE = "--config"
#: Files in the folder in which snakemake runs: the study without --configfile, and the platforms of
#: all studies.
STUDY_FILE, PLATFORMS_FILE = "config/config.yaml", "config/platforms.yaml"
CONFIG_FILES = (STUDY_FILE, PLATFORMS_FILE)
#: Folders below results that all studies share; a study cannot have these names.
SHARED_FOLDERS = ("datasets", "logs", "runs")
#: Files that are read from the folder of the study `compare_with`.
REFERENCE_FILES = ("details/manifest.json", "comparison.csv", "runs.csv")
#: In a NotAllowed, the value of a missing key, and of a problem that concerns several values.
_MISSING, SEVERAL = object(), object()
_REFERENCE = "#/$defs/"
#: Replaces a value in a message that may be a secret.
_HIDDEN = "***"


class ConfigError(InputError):
    """The configuration is wrong; the message names file, key, value and what is allowed."""


class NotAllowed(ConfigError):
    """A value is not allowed at its place; `add_file_to_errors` adds the file to the message.

    Attributes:
        place: Keys and indices from the top of the configuration to the value.
        value: The rejected value.
        allowed: What is allowed there, in words.
    """

    def __init__(self, place: Place, value: object, allowed: str) -> None:
        super().__init__(format_problem(place, value, allowed))
        self.place, self.value, self.allowed = place, value, allowed

    def with_prefix(self, *place: str | int) -> NotAllowed:
        """Return the same error with `place` put before its own place."""
        return NotAllowed([*place, *self.place], self.value, self.allowed)


@contextlib.contextmanager
def add_file_to_errors(sources: Sources) -> Iterator[None]:
    """Return a context manager that turns a NotAllowed into a ConfigError with the file's name."""
    try:
        yield
    except NotAllowed as error:
        message = format_problem(error.place, error.value, error.allowed, sources)
        raise ConfigError(message) from None


def convert_to_types(raw: RawConfig, sources: Sources = ()) -> Config:
    """Convert a merged configuration to a Config with all defaults; check each value alone.

    Args:
        raw: The merged configuration.
        sources: The files from which it was merged, for messages.

    Raises:
        ConfigError: The types do not allow a value; the message is about the first one.
    """
    with add_file_to_errors(sources):
        try:
            found = msgspec.convert(raw, Config)
        except msgspec.ValidationError as error:
            raise _locate_msgspec_error(raw, str(error).rpartition(" - at ")[2], sources) from None
        _check_numbers_and_lists(raw, json_schema(Config, described=False), ())
    return found


def _check_numbers_and_lists(value: Any, schema: Schema, place: tuple[Any, ...]) -> None:
    """Check what msgspec does not check: numbers are finite, and values of lists distinct.

    Args:
        value: A part of the configuration.
        schema: The JSON schema of this part.
        place: Keys and indices from the top of the configuration to this part.

    Raises:
        NotAllowed: For the first NaN, infinity, or repeated value in a list of distinct values.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise NotAllowed(place, value, f"allowed: {value_hints.FINITE}")
    is_list = isinstance(value, list | tuple)
    if is_list and any("uniqueItems" in each for each in _alternative_schemas(schema)):
        kinds = [(isinstance(each, bool), each) for each in value]  # true and 1 are two values
        if len(set(kinds)) < len(kinds):
            raise NotAllowed(place, value, "allowed: each value once")
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if is_list else ()
    for step, inner in items:
        _check_numbers_and_lists(inner, _item_schema(schema, step), (*place, step))


def _locate_msgspec_error(raw: RawConfig, path: str, sources: Sources) -> NotAllowed:
    """Return msgspec's validation error as NotAllowed, with the place and the value.

    msgspec's message has the place, but neither the value nor the names of entries. To find an
    entry, copies of the complete configuration are converted, and no other types: msgspec 0.21
    frees memory twice when it discards other types that are unions with patterns.

    Args:
        raw: The merged configuration.
        path: The place as msgspec writes it, such as `$.recipes[...].epochs`.
        sources: The files from which it was merged.
    """
    place: tuple[Any, ...] = ()
    value: Any = raw
    schema = json_schema(Config, described=False)
    for name, number in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        unnamed = number == "..."
        step = name or (_find_invalid_entry(raw, place, path) if unnamed else int(number))
        place, value, schema = (*place, step), value[step], _item_schema(schema, step)
    for option in _alternative_schemas(schema) if isinstance(value, Mapping) else ():
        fields = option.get("properties", {})
        for key in (key for key in value if fields and key not in fields):
            owners = _places_of_key(key)
            known = f"a key of {' and '.join(owners)}; " if owners else ""
            return NotAllowed(
                [*place, key],
                value[key],
                f"unknown key; {known}{list_allowed_names(fields, key, 0.8 if owners else 0.6)}",
            )
        for key in (key for key in option.get("required", ()) if key not in value):
            looked = "" if place else _hint_for_missing_key(sources)
            return NotAllowed([*place, key], _MISSING, f"it has no default{looked}")
        if path.startswith("`key`"):
            value, schema = _find_invalid_entry(raw, place, path), option.get("propertyNames", {})
    keys = [key for each in _alternative_schemas(schema) for key in each.get("properties", {})]
    is_option = _find_source(place, sources) == COMMAND_LINE
    hint = value_hints.hint_for_value(value, json_types(schema), place, is_option, keys)
    return NotAllowed(
        place, value, f"allowed: {describe_schema(schema, value)}{f'; {hint}' if hint else ''}"
    )


def _places_of_key(key: str) -> list[str]:
    """Return up to three places at which a key is allowed, such as `recipes.<name>`, `question`."""
    top = json_schema(Config, described=False)
    found = ["the top level"] if key in top["properties"] else []
    for name, schema in top["properties"].items():
        for each in _alternative_schemas(schema):
            entries = each.get("additionalProperties") or each.get("items")
            inner = _alternative_schemas(entries) if isinstance(entries, dict) else ()
            mark = f"{name}[…]" if "items" in each else f"{name}.<name>"
            found += [mark] if any(key in part.get("properties", {}) for part in inner) else []
            found += [name] if key in each.get("properties", {}) else []
    return list(dict.fromkeys(found))[:3]


def _hint_for_missing_key(sources: Sources) -> str:
    """Return why a top-level key may be missing, as the end of a message; "" if unknown.

    Either --configfile names files in place of the default, or a default file does not exist.
    """
    if any(name not in (*CONFIG_FILES, COMMAND_LINE) for name, _ in sources):
        return (
            f"; a study given by --configfile takes nothing from {STUDY_FILE}: to add to that "
            f"file, name it first, --configfile {STUDY_FILE} FILE"
        )
    absent = [name for name in CONFIG_FILES if not Path(name).is_file()]
    return f"; not found in {Path.cwd()}: {', '.join(absent)}" if absent else ""


def _find_invalid_entry(raw: RawConfig, place: tuple[Any, ...], path: str) -> Any:
    """Return the key of the entry that causes msgspec's error, which names entries only as `...`.

    Args:
        raw: The merged configuration.
        place: Keys and indices from the top of the configuration to the mapping with the entry.
        path: The place as msgspec writes it, such as `$.recipes[...].epochs`.
    """
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
    raise AssertionError(f"no entry of {format_place(place)} is refused")


def _alternative_schemas(schema: Schema) -> list[Schema]:
    """Return the options of a schema's `anyOf`, references replaced; else the schema itself."""
    if "$ref" in schema:
        schema = json_schema(Config, described=False)["$defs"][
            schema["$ref"].removeprefix(_REFERENCE)
        ]
    options = schema.get("anyOf")
    return (
        [each for option in options for each in _alternative_schemas(option)]
        if options
        else [schema]
    )


def _item_schema(schema: Schema, step: str | int) -> Schema:
    """Return the schema of one item of a mapping or list; `step` is the item's key or index.

    Raises:
        KeyError: If the schema has no such item.
    """
    for option in _alternative_schemas(schema):
        found = option.get("properties", {}).get(step, option.get("additionalProperties"))
        if isinstance(step, int):
            found = option.get("items")
        if found:
            return typing.cast(Schema, found)
    raise KeyError(step)


def check_folders(config: Config) -> None:
    """Check that `study` can name a folder of results, and that `compare_with` names another study.

    Raises:
        NotAllowed: If `study` is the name of a shared folder, or `compare_with` is this study or a
            folder without the files of a study.
    """
    # in any case of letters: file systems may take upper and lower case as the same
    if config.study.lower() in SHARED_FOLDERS:
        names = ", ".join(SHARED_FOLDERS)
        rule = f"allowed: any name but {names}, the folders that all studies share"
        raise NotAllowed(["study"], config.study, rule)
    folder = config.compare_with
    missing = [file for file in reference_study_files(config) if not Path(file).is_file()]
    if missing:
        rule = f"there is no {missing[0]} in {Path.cwd()}: name a folder such as results/main"
        raise NotAllowed(["compare_with"], folder, rule)
    if folder and Path(folder).resolve() == Path("results", config.study).resolve():
        rule = "this is the folder of this study: copy it before the sweep, and name the copy"
        raise NotAllowed(["compare_with"], folder, rule)


def reference_study_files(config: Config) -> list[str]:
    """Return the paths of the files to read from the study `compare_with`; [] without the key."""
    folder = config.compare_with
    return [f"{folder}/{name}" for name in REFERENCE_FILES] if folder else []


def list_allowed_names(names: Iterable[str], wanted: object, similarity: float = 0.6) -> str:
    """Return the end of a message about an unknown name: a similar name if any, then all names.

    Args:
        names: The names that are allowed.
        wanted: The unknown name.
        similarity: Lowest similarity, from 0 to 1, of the name that the message suggests.
    """
    names = list(names)
    near = difflib.get_close_matches(str(wanted), names, n=1, cutoff=similarity)
    near = near or [name for name in names if name.startswith(f"{wanted}_")]
    words = sorted(str(wanted).split("_"))
    near = near or [name for name in names if sorted(name.split("_")) == words]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}allowed: {', '.join(sorted(names)) or 'none defined'}"


def format_problem(place: Place, value: object, allowed: str, sources: Sources = ()) -> str:
    """Return an error message of one line: file with line, key, rejected value, what is allowed.

    Args:
        place: Keys and indices from the top of the configuration to the value.
        value: The rejected value; SEVERAL if the problem is about several values.
        allowed: What is allowed, in words.
        sources: The files of the configuration: the last one that sets the place is named.
    """
    name = _find_source(place, sources)
    line = _find_line(name, place)
    where = f"{name}: {f'line {line}: ' if line else ''}{format_place(place)}"
    if value is SEVERAL:
        return f"{where}: not allowed; {allowed}"
    wrong = "missing" if value is _MISSING else f"{_show_value(place, value)} is not allowed"
    return f"{where}: {wrong}; {allowed}"


def _show_value(place: Place, value: object) -> str:
    """Return a value of the configuration as short JSON text, without what may be a secret.

    Messages are on the console and in logs. Names of variables, options and programs are shown.

    Args:
        place: Keys and indices from the top of the configuration to the value.
        value: The value.
    """
    if PRIVATE_KEYS.isdisjoint(place[2:3]):  # of a platform or recipe
        return _to_short_json(_hide_secrets(value))
    if place[-1] == "env" and isinstance(value, Mapping):
        return _to_short_json(dict.fromkeys(map(str, value), _HIDDEN))
    if isinstance(value, str) and (place[-1] == "env" or place[2] == "program"):
        name = re.match(r"[^=\s{}\0]+(?=([=\s])|$)", value)  # of NAME=VALUE, or alone
        shown = _HIDDEN if name is None else name[0] + (name[1] + _HIDDEN if name[1] else "")
        return _to_short_json(shown)
    return _HIDDEN


def _hide_secrets(value: object) -> object:
    """Return a value of the configuration, for messages, without parts that may be secrets."""
    if isinstance(value, Mapping):
        return {
            key: _HIDDEN if key in PRIVATE_KEYS else _hide_secrets(inner)
            for key, inner in value.items()
        }
    return [*map(_hide_secrets, value)] if isinstance(value, list | tuple) else value


def _find_line(name: str, place: Place) -> int | None:
    """Return the line of a value in a file, or of the last existing key on the way to it.

    Args:
        name: The file. It is read again, because lines are needed only after an error.
        place: Keys and indices from the top of the file to the value, which may be missing.

    Returns:
        The line, counted from 1; None if the file is unreadable, or has no key on the way.
    """
    import yaml  # ranks load this module in a Python that may lack PyYAML

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
    """Return (key node, value node) of a mapping's entry, or the node of a list's item twice.

    Args:
        node: The mapping or list.
        step: The key or index.

    Returns:
        None if the node has no such key or index.
    """
    import yaml

    if isinstance(node, yaml.MappingNode):
        return next((entry for entry in node.value if entry[0].value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _find_source(place: Place, sources: Sources) -> str:
    """Return the file or option that sets the value at a place of the configuration.

    Later sources override earlier ones; a list replaces an earlier list completely. If no source
    has the place, return the source of the innermost mapping or list around it.

    Args:
        place: Keys and indices from the top of the configuration.
        sources: (name, content) of each file and of --config, in the order of reading.
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


def format_place(place: Place) -> str:
    """Return a place as users write it, such as `grid[0].nodes`."""
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
    return text if text.isprintable() and len(text) <= width else _to_short_json(text, width)


def _to_short_json(value: object, width: int = 200) -> str:
    """Return a value as JSON text, cut to `width` characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= width else text[: width - 1] + "…"


def json_types(schema: Schema) -> set[str]:
    """Return the names of the JSON types that a schema allows, such as {"integer", "null"}."""
    return {kind for each in schema.get("anyOf", [schema]) for kind in _plain_json_types(each)}


@functools.cache
def json_schema(kind: type[msgspec.Struct], described: bool = True) -> Schema:
    """Return the JSON schema of a configuration or record type, with inner types as its `$defs`.

    "A value or null" becomes one schema with a list of types, so that a table shows both. Choices
    are in the order of the type.

    Args:
        kind: The type.
        described: Whether each key gets a `description`: the text below its field.
    """
    _, found = msgspec.json.schema_components((kind,), ref_template=_REFERENCE + "{name}")
    for struct in nested_structs(kind):
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
        for key in config_types.MeasuredKeys.__struct_fields__:
            parts[config_types.Platform.__name__]["properties"][key]["measured"] = True
    root = parts.pop(kind.__name__)
    return {**root, "$defs": parts} if parts else root


def nested_structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield all struct types in a type annotation, also in the fields of these types."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from nested_structs(field.type)
    for part in typing.get_args(kind):
        yield from nested_structs(part)


def _simplify_schema(schema: Any, definitions: dict[str, Schema]) -> Any:
    """Return a schema in JSON Schema's short form; nested schemas are shortened, too.

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


def describe_schema(schema: Schema, value: object = None) -> str:
    """Return in words what a schema allows: its types, then its rules.

    Args:
        schema: The schema.
        value: The rejected value. If it is a text that is too long, or an empty list, the result
            also has the limit that it violates.
    """
    found = ["" if "enum" in schema else describe_type(schema), describe_rules(schema)]
    longest = max(each.get("maxLength", 0) for each in schema.get("anyOf", [schema]))
    if isinstance(value, str) and 0 < longest < len(value):
        found.append(f"at most {longest} characters, not {len(value)}")
    found += ["at least one value"] if value == [] else []
    return ", ".join(each for each in found if each)


def describe_type(schema: Schema) -> str:
    """Return the types of a schema in words: `integer, string or list of integers`."""
    if "anyOf" in schema:
        kinds = [describe_type(option).split(" of ")[0] for option in schema["anyOf"]]
        return f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    if "enum" in schema:
        return "string"
    if "$ref" in schema:
        return "mapping"
    names = [
        {"object": "mapping", "array": "list"}.get(each, each) for each in _plain_json_types(schema)
    ]
    return f"list of {describe_type(schema['items'])}s" if names == ["list"] else " or ".join(names)


def _plain_json_types(schema: Schema) -> Collection[str]:
    """Return the JSON types of a schema without `anyOf`; `$ref` counts as an object."""
    kinds = schema.get("type", "object" if "$ref" in schema else "string")
    return [kinds] if isinstance(kinds, str) else kinds


def describe_rules(schema: Schema) -> str:
    """Return bounds, choices or form of a schema in words; for a list also the items' rules."""
    if "anyOf" in schema:
        options = (option for option in schema["anyOf"] if option.get("type") != "array")
        return "; or ".join(filter(None, map(describe_rules, options)))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    found = [describe_rules(schema["items"])] if schema.get("type") == "array" else []
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
