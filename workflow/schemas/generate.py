#!/usr/bin/env python3
"""Write the schemas in this folder and the tables of the reference from the types.

The tables are between the markers `<!-- table of NAME -->` and `<!-- end of table -->` of
config/README.md (keys), docs/reference-tables.md (columns), docs/reference-record.md (records) and
docs/glossary.md (the words of the page).

`make schemas` runs it, and `make lint` runs it with --check.
"""

import argparse
import copy
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
COLUMNS = PROJECT / "docs/reference-tables.md"
RECORD = PROJECT / "docs/reference-record.md"
WORDS = PROJECT / "docs/glossary.md"
STAGES = PROJECT / "docs/stages.svg"
sys.path[:0] = [str(FOLDER.parent / "scripts"), str(PROJECT / "docs")]

import stages  # noqa: E402
from tfscaling.datasets.catalogue import DATASETS  # noqa: E402
from tfscaling.page.plot_registry import PLOTS, titles  # noqa: E402
from tfscaling.page.sections import GLOSSARY  # noqa: E402
from tfscaling.record.benchmark_record import BenchmarkRecord  # noqa: E402
from tfscaling.record.metrics import METRICS  # noqa: E402
from tfscaling.record.run_record import RunRecord  # noqa: E402
from tfscaling.spec import config, configuration  # noqa: E402
from tfscaling.spec.configuration import Schema  # noqa: E402
from tfscaling.tables import columns as table_columns  # noqa: E402
from tfscaling.tables.columns import Column  # noqa: E402
from tfscaling.tables.rows import EpochRow, PointRow, RunRow, described  # noqa: E402
from tfscaling.train.models import MODELS  # noqa: E402
from tfscaling.train.strategies import STRATEGIES  # noqa: E402

#: Schemas of the configuration. One refers to the files of the others.
CONFIGURATION = {"config": config.Config, "platform": config.Platform, "recipe": config.Recipe}
#: They only choose axes, which the table of `Block` explains.
WITHOUT_TABLE = (config.Exclusion, config.Baseline)
_TABLE = re.compile(r"(<!-- table of (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which files are outdated")
    args = parser.parse_args()
    files = {FOLDER / f"{name}.schema.yaml": text for name, text in schema_files().items()}
    for page, tables in tables_of_pages().items():
        files[page] = with_tables(page, tables)
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
    found["run_record"] = configuration.of(RunRecord)
    found["benchmark_record"] = configuration.of(BenchmarkRecord)
    found["comparison"] = table_columns.schema(
        "comparison", PointRow.__doc__ or "", described(PointRow)
    )
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        name: "# Written by `make schemas` from the types in workflow/scripts/tfscaling\n"
        + yaml.safe_dump({**dialect, **schema}, sort_keys=False, allow_unicode=True, width=100)
        for name, schema in found.items()
    }


def of_overlay() -> Schema:
    """The schema of one file of the configuration, which others complete: it requires no key.

    Mappings of several files are merged, so none needs to be complete; a list comes from one file.
    """
    schema = copy.deepcopy(configuration.of(config.Config))
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
    schema = configuration.of(kind)
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
    """Each page with its tables by name; every type of configuration and record has one."""
    kinds = set(configuration.structs(config.Config)) - set(WITHOUT_TABLE)
    keys = {kind.__name__: table_of_keys(kind) for kind in kinds}
    keys |= {"METRICS": table_of_metrics(), "PLOTS": table_of_plots()}
    keys |= {"MODELS": table_of_models(), "DATASETS": table_of_datasets()}
    keys |= {"STRATEGIES": table_of_strategies()}
    records = {kind.__name__: table_of_record(kind) for kind in configuration.structs(RunRecord)}
    columns = {
        "COLUMNS": table_of_columns(described(PointRow)),
        "RUN_COLUMNS": table_of_columns(described(RunRow)),
        "EPOCH_COLUMNS": table_of_columns(described(EpochRow)),
    }
    words = {"GLOSSARY": table_of_words()}
    return {README: keys, COLUMNS: columns, RECORD: records, WORDS: words}


def with_tables(page: Path, tables: Mapping[str, str]) -> str:
    """The page with each table between its markers; a table without markers is an error."""
    text = page.read_text()
    if missing := set(tables) - {name for _, name, _ in _TABLE.findall(text)}:
        sys.exit(f"{page}: no `<!-- table of NAME -->` for {', '.join(sorted(missing))}")
    return _TABLE.sub(lambda found: found[1] + tables[found[2]] + found[3], text)


def table_of_keys(kind: type[msgspec.Struct]) -> str:
    """The keys of a mapping of the configuration."""
    schema = configuration.of(kind)
    required = schema.get("required", [])
    rows = [_row(key, rules, key in required) for key, rules in schema["properties"].items()]
    return _table(("key", "type", "unit", "default", "allowed", "meaning"), rows)


def table_of_metrics() -> str:
    """The metrics that `comparison.columns` may name."""
    rows = [(f"`{name}`", m.title, m.unit, m.direction) for name, m in METRICS.items()]
    return _table(("metric", "title", "unit", "better"), rows)


def table_of_plots() -> str:
    """The plots that `plots` may name."""
    shown = titles(dict.fromkeys(PLOTS, config.PlotOptions()), (), is_searched=True)
    rows = [(f"`{name}`", title) for name, title in shown.items()]
    return _table(("plot", "title"), rows)


def table_of_models() -> str:
    """The models that a block may name."""
    rows = [(f"`{name}`", f"`{m.dataset}`", m.description) for name, m in MODELS.items()]
    return _table(("model", "trains on", "what it is"), rows)


def table_of_datasets() -> str:
    """The datasets that a recipe may name, with their sources in the order of the attempts."""
    rows = [
        (f"`{name}`", each.description, ", ".join([*each.sources, *(each.generated or ())[:1]]))
        for name, each in DATASETS.items()
    ]
    return _table(("dataset", "what it is", "from"), rows)


def table_of_strategies() -> str:
    """The strategies that a block may name."""
    rows = [(f"`{name}`", each.description) for name, each in STRATEGIES.items()]
    return _table(("strategy", "how replicas work together"), rows)


def table_of_columns(columns: Mapping[str, Column]) -> str:
    """The columns of a table."""
    rows = [
        (f"`{name}`", _kind(each.rules), each.unit, each.description)
        for name, each in columns.items()
    ]
    return _table(("column", "value", "unit", "meaning"), rows)


def table_of_words() -> str:
    """The words of the page, each meaning as a sentence."""
    rows = [(f"**{word}**", f"{text[0].upper()}{text[1:]}") for word, text in GLOSSARY.items()]
    return _table(("word", "meaning"), rows)


def table_of_record(kind: type[msgspec.Struct]) -> str:
    """The keys of a part of the run record."""
    properties = configuration.of(kind)["properties"].items()
    rows = [
        (f"`{key}`", _kind(rules), rules.get("unit", ""), rules.get("description", ""))
        for key, rules in properties
    ]
    return _table(("key", "value", "unit", "meaning"), rows)


def _kind(rules: Schema) -> str:
    """The type of a value, or its choices."""
    if "enum" in rules:
        return ", ".join("null" if value is None else f"`{value}`" for value in rules["enum"])
    if "$ref" in rules:
        return f"[{(name := rules['$ref'].rpartition('/')[2])}](#{name.lower()})"
    if "anyOf" in rules:
        return " or ".join(_kind(option) for option in rules["anyOf"])
    return configuration.words_of_type(rules)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in escaped)


def _row(key: str, rules: Schema, is_required: bool) -> list[str]:
    """The cells of a key; `is_required` says that it has no default."""
    default = "required" if is_required else "–"
    if "$ref" in rules and "default" in rules:
        default = "see its keys"
    elif "default" in rules:
        default = f"`{json.dumps(rules['default'], ensure_ascii=False)}`"
    return [
        f"`{key}` *" if rules.get("measured") else f"`{key}`",
        configuration.words_of_type(rules),
        rules.get("unit", ""),
        default,
        configuration.words_of_rules(rules),
        rules["description"],
    ]


if __name__ == "__main__":
    main()
