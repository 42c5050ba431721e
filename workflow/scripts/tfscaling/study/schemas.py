"""JSON Schemas of the configuration, made from its types.

They are for messages (`configuration.validate`), for editors (`workflow/schemas`) and for the
tables of `config/README.md`; the latter two are written by `make schemas`.
"""

from __future__ import annotations

import copy
import functools
import typing
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from tfscaling.study import config

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
