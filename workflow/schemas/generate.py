#!/usr/bin/env python3
"""Write the schemas in this folder and the tables of the reference from the types.

The tables are between the markers `<!-- table of NAME -->` and `<!-- end of table -->` of
config/README.md and docs/configuration (keys), docs/reference-tables.md (columns),
docs/reference-record.md (records) and docs/glossary.md (the words of the page).

`make schemas` runs it, and `make lint` runs it with --check.
"""

import argparse
import copy
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parents[1]
README = PROJECT / "config/README.md"
KEYS = (README, *sorted((PROJECT / "docs/configuration").glob("*.md")))
COLUMNS = PROJECT / "docs/reference-tables.md"
RECORD = PROJECT / "docs/reference-record.md"
WORDS = PROJECT / "docs/glossary.md"
STAGES = PROJECT / "docs/stages.svg"
sys.path[:0] = [str(FOLDER.parent / "scripts"), str(PROJECT / "docs")]

import stages  # noqa: E402
from tfscaling.datasets.catalogue import DATASETS  # noqa: E402
from tfscaling.files.descriptions import descriptions  # noqa: E402
from tfscaling.page.plot_registry import PLOTS, plot_titles  # noqa: E402
from tfscaling.page.words import GLOSSARY  # noqa: E402
from tfscaling.record.metrics import METRICS, describe_metrics  # noqa: E402
from tfscaling.record.run_record import RunRecord  # noqa: E402
from tfscaling.study import config_types, config_validation  # noqa: E402
from tfscaling.study.config_validation import Schema  # noqa: E402
from tfscaling.tables.row_types import (  # noqa: E402
    Column,
    EpochRow,
    PointRow,
    RunRow,
    field_columns,
    field_order,
)
from tfscaling.train.models import MODELS  # noqa: E402
from tfscaling.train.strategies import STRATEGIES  # noqa: E402

#: Schemas of the configuration. One refers to the files of the others.
CONFIGURATION: dict[str, type[msgspec.Struct]] = {
    "config": config_types.Config,
    "platform": config_types.Platform,
    "recipe": config_types.Recipe,
}
#: They only choose axes, which the table of `Block` explains.
WITHOUT_TABLE = (config_types.Exclusion, config_types.Baseline)
#: The keys that most configurations set. The table `NAME_advanced` has the other keys of a type.
BASIC: dict[type[msgspec.Struct], tuple[str, ...]] = {
    config_types.Config: ("study", "grid", "recipes", "platforms", "question", "search", "budget"),
    config_types.Block: (
        *("platform", "model", "strategy", "recipe", "nodes"),
        *("gpus_per_node", "tasks_per_node", "repeats"),
    ),
    config_types.Recipe: (
        *("per_replica_batch_size", "global_batch_size", "dataset", "optimizer", "learning_rate"),
        *("epochs", "precision", "quality", "program", "environment", "observe", "parameters"),
    ),
    config_types.Quality: ("metric", "direction"),
    config_types.Platform: (
        *("launcher", "partition", "account", "nodes_max", "cpus_per_node", "gpus_per_node_max"),
        *("gpu_type", "runtime_min", "setup", "usd_per_node_hour"),
    ),
    config_types.Question: ("goal", "limits"),
    config_types.Limit: ("at_most", "at_least"),
    config_types.Budget: ("usd", "node_hours"),
}
#: Ends of columns that belong to a metric: range and interval.
OF_METRIC = ("_min", "_max", "_low", "_high")
#: Ends of descriptions that docs/reference-tables.md states once for all columns.
_REPEATED = re.compile(
    r"(\.? Values that differ between ranks are separated by \"; \"; null without a record"
    r"|[.;] [Nn]ull (for an excluded (configuration|point)|without a record"
    r"|without (any|a) valid run|unless the run counts|where it is not used))+\.$"
)
#: A bound from here on protects the workflow; tables do not show it.
LARGE = 100_000
_TABLE = re.compile(r"(<!-- table of (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which files are outdated")
    args = parser.parse_args()
    files = {FOLDER / f"{name}.schema.yaml": text for name, text in schema_files().items()}
    for page, tables in tables_of_pages().items():
        files[page] = insert_tables(page, tables)
    files[STAGES] = stages.svg()
    outdated = {path: text for path, text in files.items() if path.read_text() != text}
    if args.check and outdated:
        names = ", ".join(path.name for path in outdated)
        sys.exit(f"not as the types in tfscaling say, run `make schemas`: {names}")
    for path, text in outdated.items():
        path.write_text(text)


def schema_files() -> dict[str, str]:
    """Name of each schema → the text of its file."""
    found = {name: _of_configuration(kind) for name, kind in CONFIGURATION.items()}
    found["overlay"] = of_overlay()
    found["run_record"] = of_record()
    found["comparison"] = {
        "title": "comparison",
        "description": " ".join(inspect.cleandoc(PointRow.__doc__ or "").split()),
        "type": "object",
        "additionalProperties": False,
        "required": list(points := described(PointRow)),
        "properties": {name: column.schema for name, column in points.items()},
    }
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        name: "# Written by `make schemas` from the types in workflow/scripts/tfscaling\n"
        + yaml.safe_dump({**dialect, **schema}, sort_keys=False, allow_unicode=True, width=100)
        for name, schema in found.items()
    }


def of_record() -> Schema:
    """Return the schema of a record: a rank omits values that equal the rank's before it."""
    schema = copy.deepcopy(config_validation.json_schema(RunRecord))
    parts = schema["$defs"]
    parts["Rank"]["required"] = ["rank", "host"]
    for part in (parts["HostFacts"], parts["Rank"]["properties"]["use"]):
        del part["required"]
    return schema


def of_overlay() -> Schema:
    """Return the schema of one configuration file, which others complete: no key is required.

    Mappings of several files are merged, so none needs to be complete; a list comes from one file.
    """
    schema = copy.deepcopy(config_validation.json_schema(config_types.Config))
    parts = schema["$defs"]
    ahead: list[Any] = [{key: part for key, part in schema.items() if key != "$defs"}]
    schema.pop("required", None)
    merged: set[str] = set()
    while ahead:
        part = ahead.pop()
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name and name not in merged:
            merged.add(name)
            parts[name].pop("required", None)
            ahead.append(parts[name])
        inner = [*part.get("properties", {}).values(), *part.get("anyOf", ())]
        ahead += [each for each in (*inner, part.get("additionalProperties")) if each]
    description = "One file of the configuration: Snakemake merges all that it is given."
    return {**schema, "title": "Overlay", "description": description}


def _of_configuration(kind: type[msgspec.Struct]) -> Schema:
    schema = config_validation.json_schema(kind)
    text = json.dumps(schema)
    for name, other in CONFIGURATION.items():
        text = text.replace(f'"#/$defs/{other.__name__}"', f'"{name}.schema.yaml"')
    used = {
        name: part
        for name, part in json.loads(text).get("$defs", {}).items()
        if f'"#/$defs/{name}"' in text
    }
    root = {key: value for key, value in json.loads(text).items() if key != "$defs"}
    return {**root, "$defs": used} if used else root


def tables_of_pages() -> dict[Path, dict[str, str]]:
    """Each page with its tables by name; every key and every column has one.

    The record's page has the tables that it names: the schema describes the other types.
    """
    keys: dict[str, str] = {}
    for kind in set(config_validation.nested_structs(config_types.Config)) - set(WITHOUT_TABLE):
        keys |= tables_of_keys(kind)
    keys |= {"PLOTS": table_of_plots(), "MODELS": table_of_models()}
    keys |= {"DATASETS": table_of_datasets(), "STRATEGIES": table_of_strategies()}
    places = {name: [page for page in KEYS if _marker(name) in page.read_text()] for name in keys}
    if wrong := [name for name, pages in places.items() if len(pages) != 1]:
        sys.exit(f"not exactly one `{_marker('NAME')}` in the pages of keys: {', '.join(wrong)}")
    found = {page: {name: keys[name] for name in keys if places[name] == [page]} for page in KEYS}
    points, runs, epochs = described(PointRow), described(RunRow), described(EpochRow)
    columns = {
        "COLUMNS": table_of_columns(
            {name: each for name, each in points.items() if not name.endswith(OF_METRIC)}
        ),
        "RUN_COLUMNS": table_of_columns(
            {name: each for name, each in runs.items() if name not in points or name == "status"}
        ),
        "EPOCH_COLUMNS": table_of_columns(
            {
                name: each
                for name, each in epochs.items()
                if name not in (*config_types.AXES, "status")
            }
        ),
    }
    named = [name for _, name, _ in _TABLE.findall(RECORD.read_text())]
    types = {kind.__name__: kind for kind in config_validation.nested_structs(RunRecord)}
    records = {name: table_of_record(types[name], named) for name in named}
    words = {f"{origin}_terms": table_of_terms(texts) for origin, texts in GLOSSARY.items()}
    return {**found, COLUMNS: columns, RECORD: records, WORDS: words}


def described(kind: type[msgspec.Struct]) -> dict[str, Column]:
    """Return the columns of a row type with their descriptions.

    A column without a text in its table has the text of the table of runs, or of the metric.
    """
    texts = {**describe_metrics(), **descriptions(kind, RunRow)}
    found = {}
    for key in field_order(kind):
        for name, column in field_columns(kind, key).items():
            text = column.description or texts[key].format(column=name)
            of_record = kind is RunRow and key in METRICS and METRICS[key].value
            text += " Null unless the run counts." if of_record else ""
            found[name] = dataclasses.replace(column, description=text)
    return found


def _marker(name: str) -> str:
    return f"<!-- table of {name} -->"


def insert_tables(page: Path, tables: Mapping[str, str]) -> str:
    """Return the page with each table between its markers; a table without markers is an error."""
    text = page.read_text()
    if missing := set(tables) - {name for _, name, _ in _TABLE.findall(text)}:
        sys.exit(f"{page}: no `<!-- table of NAME -->` for {', '.join(sorted(missing))}")
    return _TABLE.sub(lambda found: found[1] + tables[found[2]] + found[3], text)


def tables_of_keys(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the tables of a mapping's keys by name: the basic keys and the advanced ones."""
    schema = config_validation.json_schema(kind)
    properties, required = schema["properties"], schema.get("required", [])
    basic = BASIC.get(kind, tuple(properties))
    if unknown := set(basic) - set(properties):
        sys.exit(f"BASIC has no keys of {kind.__name__}: {', '.join(sorted(unknown))}")
    parts = {
        kind.__name__: basic,
        f"{kind.__name__}_advanced": [key for key in properties if key not in basic],
    }
    head = ("key", "value", "default", "meaning")
    return {
        name: _table(head, [_row(key, properties[key], key in required) for key in keys])
        for name, keys in parts.items()
        if keys
    }


def table_of_plots() -> str:
    """Return the table of the plots that `plots` may name."""
    shown = plot_titles(dict.fromkeys(PLOTS, config_types.PlotOptions()), ())
    rows = [(f"`{name}`", title) for name, title in shown.items()]
    return _table(("plot", "title"), rows)


def table_of_models() -> str:
    """Return the table of the models that a block may name."""
    rows = [(f"`{name}`", f"`{m.dataset}`", m.description) for name, m in MODELS.items()]
    return _table(("model", "trains on", "what it is"), rows)


def table_of_datasets() -> str:
    """Return the table of the datasets that a recipe may name, with their sources in order."""
    rows = [
        (f"`{name}`", each.description, ", ".join(each.sources)) for name, each in DATASETS.items()
    ]
    return _table(("dataset", "what it is", "from"), rows)


def table_of_strategies() -> str:
    """Return the table of the strategies that a block may name."""
    rows = [(f"`{name}`", each.description) for name, each in STRATEGIES.items()]
    return _table(("strategy", "how replicas work together"), rows)


def table_of_columns(columns: Mapping[str, Column]) -> str:
    """Return the table of columns; an asterisk marks columns that `comparison.columns` may name."""
    rows = [
        (
            f"`{name}`" + " *" * (name in METRICS),
            re.sub("^(string|number)$", "", _of_unit(_kind(each.rules), each.unit)),
            _REPEATED.sub(".", each.description),
        )
        for name, each in columns.items()
    ]
    return _table(("column", "unit or choices", "meaning"), rows)


def table_of_terms(texts: Mapping[str, str]) -> str:
    """Return the table of terms of the glossary, each meaning as a sentence."""
    rows = [(f"**{term}**", f"{text[0].upper()}{text[1:]}") for term, text in texts.items()]
    return _table(("term", "meaning"), rows)


def table_of_record(kind: type[msgspec.Struct], named: Sequence[str]) -> str:
    """Return the table of a record part's described keys; `named` parts have a table themselves."""
    rows = [
        (
            f"`{key}`",
            _of_unit(_kind(rules, named), rules.get("unit", "")),
            rules["description"],
        )
        for key, rules in config_validation.json_schema(kind)["properties"].items()
        if "description" in rules
    ]
    return _table(("key", "value", "meaning"), rows)


def _kind(rules: Schema, named: Sequence[str] = ()) -> str:
    """Return the type of a value, or its choices, without null."""
    if "enum" in rules:
        return ", ".join(f"`{value}`" for value in rules["enum"] if value is not None)
    if "$ref" in rules:
        name = rules["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in named else name
    if "anyOf" in rules:
        options = (option for option in rules["anyOf"] if option != {"type": "null"})
        return " or ".join(_kind(option, named) for option in options)
    return _plain(config_validation.describe_type(rules))


def _plain(words: str) -> str:
    """Return the words of a type without null, which the default or the meaning names."""
    return " or ".join(word for word in re.split(", | or ", words) if word != "null")


def _of_unit(words: str, unit: str) -> str:
    """Return a type with its unit; a number with a unit is only its unit."""
    return unit if unit and words in ("integer", "number") else words


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in escaped)


def _row(key: str, rules: Schema, is_required: bool) -> list[str]:
    """Return the cells of a key; `is_required` means that it has no default."""
    default = "required" if is_required else "–"
    if "$ref" in rules and "default" in rules:
        default = "–"
    elif "default" in rules:
        default = f"`{json.dumps(rules['default'], ensure_ascii=False)}`"
    name = f"`{key}` *" if rules.get("measured") else f"`{key}`"
    return [name, _value(rules), default, rules["description"]]


def _value(rules: Schema) -> str:
    """Return the choices of a key, or its type with unit and bounds that matter to a reader."""
    if any("enum" in option for option in rules.get("anyOf", [rules])):
        return _kind(rules)
    bounds: Schema = {
        key: rules[key]
        for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
        if key in rules and rules[key] < LARGE
    }
    if bounds in ({"minimum": 0}, {"minimum": 1}, {"exclusiveMinimum": 0}):
        bounds = {}
    words = [_of_unit(_plain(config_validation.describe_type(rules)), rules.get("unit", ""))]
    words += [config_validation.describe_rules(bounds)] if bounds else []
    return ", ".join(words)


if __name__ == "__main__":
    main()
