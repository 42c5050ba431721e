"""Columns of tables: a column is a field of a row type, with its unit in its annotation.

The types in CSV and Parquet files, the JSON schema and the pages of the reference follow from the
fields.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Meta

from tfscaling.record.metrics import METRICS
from tfscaling.spec.configuration import Schema

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "pattern": "pattern"}


class Cells(Protocol):
    """A row whose cells are read by the names of its columns: a mapping, or a `TypedRow`."""

    def __getitem__(self, column: str, /) -> Any: ...

    def __contains__(self, column: object, /) -> bool: ...


class TypedRow:
    """Base of row types, so that a column that is known by its name only can be read."""

    __slots__ = ()

    def __getitem__(self, column: str, /) -> Any:
        return getattr(self, column)

    def __contains__(self, column: object, /) -> bool:
        return column in columns(type(self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Column:
    """Unit of a column ("" for pure numbers and texts) and what its values are.

    `rules` of the values follow from the type of the field. `format` of texts is from JSON Schema.
    `is_whole`: integers are written without a decimal point next to empty cells. `may_be_empty`:
    the empty text is a value. `description` is the text below the field, which `rows.described`
    reads.
    """

    unit: str = ""
    format: str = ""
    is_whole: bool = False
    may_be_empty: bool = False
    description: str = ""
    rules: Schema = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """string, integer, number or boolean."""
        if "enum" in self.rules:
            return "string"
        kinds = self.rules["type"]
        return str(kinds if isinstance(kinds, str) else kinds[0])

    @property
    def is_time(self) -> bool:
        """Whether the texts are times by ISO 8601."""
        return self.format == "date-time"

    @property
    def is_optional(self) -> bool:
        """Whether a cell may be empty."""
        is_null = None in self.rules.get("enum", ()) or "null" in self.rules.get("type", "")
        return self.may_be_empty or is_null

    @property
    def schema(self) -> Schema:
        """The JSON schema of a cell."""
        return {"description": self.description, "unit": self.unit, **self.rules}


@functools.cache
def columns(kind: type[msgspec.Struct]) -> dict[str, Column]:
    """The columns of a row type, in the order of its table.

    Inherited fields follow the field that the type names as `inherited_after`.
    """
    return {key: each for name in ordered(kind) for key, each in of_field(kind, name).items()}


@functools.cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def ordered(kind: type[msgspec.Struct]) -> list[str]:
    """The fields of a row type in the order of its table."""
    fields = list(kind.__struct_fields__)
    own = [name for name in fields if name in kind.__annotations__]
    after = own.index(kind.inherited_after) + 1 if hasattr(kind, "inherited_after") else 0
    return [*own[:after], *(name for name in fields if name not in own), *own[after:]]


@functools.cache
def of_field(kind: type[msgspec.Struct], name: str) -> dict[str, Column]:
    """The columns of a field: one, or the columns of a mapping, whose values are of one type.

    The annotation of a mapping is a mapping of its columns; a metric's unit is in METRICS.
    """
    hint = _hints(kind)[name]
    if typing.get_origin(hint) is not typing.Annotated:
        hint = typing.Annotated[hint, Column()]
    said = hint.__metadata__[-1]
    if isinstance(said, dict):
        value = _rules(typing.get_args(hint.__origin__)[1], ())
        return {key: replace(column, rules=column.rules or value) for key, column in said.items()}
    rules = _rules(hint.__origin__, hint.__metadata__)
    if hint.__origin__ is float:
        rules = _or_null(rules)
    if name in METRICS:
        said = Column(METRICS[name].unit)
    column = said if isinstance(said, Column) else Column()
    if column.format:
        rules = {**rules, "format": column.format}
    return {name: replace(column, rules=rules)}


def _rules(kind: Any, metadata: tuple[Any, ...]) -> Schema:
    """The JSON schema of a type, without its description."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (other,) = (part for part in typing.get_args(kind) if part is not types.NoneType)
        return _or_null(_rules(other, metadata))
    if typing.get_origin(kind) is typing.Annotated:
        return _rules(kind.__origin__, (*kind.__metadata__, *metadata))
    if typing.get_origin(kind) is Literal:
        return {"enum": list(typing.get_args(kind))}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [str(each) for each in kind]}
    bounds = {
        word: value
        for meta in metadata
        if isinstance(meta, Meta)
        for name, word in _BOUNDS.items()
        if (value := getattr(meta, name)) is not None
    }
    return {"type": _KINDS[kind], **bounds}


def _or_null(rules: Schema) -> Schema:
    if "enum" in rules:
        return {"enum": [*rules["enum"], None]}
    return {**rules, "type": [rules["type"], "null"]}


def enumeration(kind: type[msgspec.Struct], name: str) -> type[enum.Enum] | None:
    """The type of a field whose values are members of an enumeration."""
    hint = _hints(kind)[name]
    own = hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint
    return own if isinstance(own, type) and issubclass(own, enum.Enum) else None


def schema(title: str, description: str, columns: Mapping[str, Column]) -> Schema:
    """The JSON schema of a row, with a property for each column in the order of the table."""
    properties = {name: column.schema for name, column in columns.items()}
    return {
        "title": title,
        "description": " ".join(inspect.cleandoc(description).split()),
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }
