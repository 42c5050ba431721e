"""Records of others, and names in the configuration, are text wherever they are shown."""

from __future__ import annotations

import ast
import copy
import csv
import json
import os
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import (
    REPOSITORY,
    changed,
    manifest_of,
    raw_config,
    run_python,
    study_folder,
    valid_config,
    write_failure,
    write_record,
)
from plotted import point, tables_of
from report_inputs import Study, results
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.page import plot_figure
from tfscaling.page.html_page import render
from tfscaling.page.plot_registry import PLOTS
from tfscaling.record import run_record
from tfscaling.record.run_record import RunRecord
from tfscaling.stages import write_tables
from tfscaling.study import config_files, config_validation
from tfscaling.tables import comparison, display, runs_table, table_files
from tfscaling.tables.comparison import comparison_table

#: A page would run it, a spreadsheet would calculate it, matplotlib would set it as a formula.
HOSTILE = "=1+1 <img src=x onerror=alert(1)> </script><script>alert(2)</script> $\\frac{$ \"'`|"
#: Colours or clears a terminal, rings its bell, writes over a line, turns the text's direction.
HIDDEN = "\x1b[2J\x1b]0;title\x07 \r\x9b31m \u202egpj.exe \u2067 \x85"
HIDDEN_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2067]")
#: Elements of matplotlib's plots.
SVG = {
    *("svg", "metadata", "defs", "style", "g", "path", "use", "text", "tspan", "title"),
    *("clipPath", "rect", "image"),
}


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """One run whose record was made by somebody else, one that failed with a hostile message."""
    folder = tmp_path_factory.mktemp("runs")
    raw = raw_config((("platforms", "cluster", "title"), HOSTILE))
    raw["platforms"]["cluster"] |= {"instance_type": HOSTILE, "cloud": HOSTILE}
    planned, text = manifest_of(config_validation.convert_to_types(raw)), HOSTILE + HIDDEN
    with changed(write_record(folder, planned.runs[0])) as record:
        for rank in record["ranks"]:
            rank["host"] = text
            rank["host_facts"] |= {"cpu_model": text, "kernel": text, "modules": [text]}
        record["environment"] |= {"git_commit": text, "unchecked": [text]}
        record |= {"warnings": [text], "trained_by": text}
    write_failure(folder, planned.runs[1], message=f"{text}\n{text}")
    runs, _ = runs_table.run_tables(planned.runs, folder)
    assert list(runs["status"]) == ["ok", "failed"], list(runs["reason"])
    return Study(planned, runs, comparison_table(runs, planned))


def test_the_page_has_no_element_of_theirs(study: Study) -> None:
    page = render(results(study), HOSTILE, ["execution_time_s", "accuracy"])
    found = Elements(page).found
    assert [tag for tag, _ in found if tag in ("script", "img", "iframe", "object")] == [
        "script",
        "script",
    ]
    assert not [name for _, has in found for name in has if name.startswith("on")]
    assert not HIDDEN_CHARACTERS.search(page) and "\\x1b[2J" in page
    links = [str(has["href"]) for _, has in found if "href" in has]
    assert links and not [link for link in links if re.match(r"\s*[a-z]+:", link, re.IGNORECASE)]


def test_the_comparison_as_markdown_has_no_element_of_theirs(study: Study) -> None:
    shown = comparison.comparison_text_table(study.comparison, HOSTILE, ["execution_time_s"])
    cells = [line for line in display.to_markdown(shown).splitlines() if line.startswith("|")]
    assert not re.search(r"(?<!\\)<(img|/?script)", "\n".join(cells))
    assert not HIDDEN_CHARACTERS.search("\n".join(cells))
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in cells}
    assert len(cells) == 4 and len(bars) == 1  # head, line and two rows of as many cells


def test_no_text_of_theirs_is_a_formula_of_a_spreadsheet(study: Study, tmp_path: Path) -> None:
    for name, table in (("runs", study.runs), ("comparison", study.comparison)):
        table_files.write_csv(table, tmp_path / f"{name}.csv")
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert any("onerror" in cell for cell in cells)
        risky = [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]
        assert not risky
    read = table_files.read_table(tmp_path / "runs.csv")
    assert read["hosts"][0] == f"'{HOSTILE}" or HOSTILE in read["hosts"][0]


#: Where a record or a report of others may have any text.
Placed = Callable[[Path, Any], None]


def in_message(folder: Path, run: Any) -> None:
    write_failure(folder, run, message=f"a{HIDDEN}z", place={"file": f"f{HIDDEN}", "line": 3})


def in_host(folder: Path, run: Any) -> None:
    with changed(write_record(folder, run)) as record:
        for rank in record["ranks"]:
            rank["host"] = f"n{HIDDEN}1"
            rank["host_facts"] |= {"cpu_model": f"c{HIDDEN}", "kernel": HIDDEN}


def in_warnings(folder: Path, run: Any) -> None:
    with changed(write_record(folder, run)) as record:
        record |= {"warnings": [f"w{HIDDEN}"], "trained_by": HIDDEN}
        record["environment"]["unchecked"] = [f"u{HIDDEN}"]


def write_memory_message(folder: Path, run: Any, reason: str) -> None:
    """Write the record of a run that ran out of memory."""
    record = json.loads(write_record(folder, run).read_text())
    kept = {key: record[key] for key in ("axes", "parameters", "parameters_hash", "environment")}
    ending = {"schema_version": 3, "status": "does_not_fit", "attempt": 1, "reason": reason}
    (folder / run.spec.path / "run.json").write_text(json.dumps(kept | ending))


def in_memory_message(folder: Path, run: Any) -> None:
    write_memory_message(folder, run, f"out_of_memory: {HIDDEN}")


def in_key(folder: Path, run: Any) -> None:
    with changed(write_record(folder, run)) as record:
        record[f"key{HIDDEN}"] = 1


PLACES: list[Placed] = [in_message, in_host, in_warnings, in_memory_message, in_key]


@pytest.mark.parametrize("place", PLACES)
def test_no_control_or_direction_character_of_theirs_is_shown(
    place: Placed, tmp_path: Path
) -> None:
    planned = manifest_of(valid_config())
    place(tmp_path, planned.runs[0])
    write_record(tmp_path, planned.runs[1])
    runs, _ = runs_table.run_tables(planned.runs, tmp_path)
    table_files.write_csv(runs, tmp_path / "runs.csv")
    text = (tmp_path / "runs.csv").read_text()
    assert not HIDDEN_CHARACTERS.search(text)
    assert "\\x1b[2J" in text and "\\u202egpj.exe" in text
    assert not HIDDEN_CHARACTERS.search("\n".join(write_tables.summary_lines(runs)))


def test_no_control_character_of_another_studys_table_is_shown(tmp_path: Path) -> None:
    cells = {"reason": [f"a{HIDDEN}"], "nodes": [1], "hosts": ["one\r\ntwo"]}
    pd.DataFrame(cells).to_csv(tmp_path / "runs.csv", index=False, quoting=csv.QUOTE_ALL)
    (row,) = table_files.row_dicts(table_files.read_table(tmp_path / "runs.csv"))
    assert not any(HIDDEN_CHARACTERS.search(str(text)) for text in row.values())
    assert row["reason"].startswith("a\\x1b[2J") and row["nodes"] == 1


@pytest.mark.parametrize("char", ["\x1b", "\x9b", "\u202e", "\u2067", "\u200f"])
@pytest.mark.parametrize("key", ["title", "cloud", "instance_type"])
def test_a_configuration_has_no_such_character(char: str, key: str) -> None:
    raw = raw_config((("platforms", "cluster", key), f"a{char}b"))
    with pytest.raises(config_validation.ConfigError, match=f"{key}.*control characters"):
        config_validation.convert_to_types(raw)


@pytest.mark.parametrize("place", ["message", "host", "log", "file", "reason", "warning"])
def test_a_long_text_is_cut_and_says_where_all_of_it_is(
    place: str, tmp_path: Path, dice: random.Random
) -> None:
    """Python's reader of CSV files refuses cells beyond 131,072 characters."""
    long, planned = "x" * dice.randint(131_073, 400_000), manifest_of(valid_config())
    match place:
        case "reason":
            write_memory_message(tmp_path, planned.runs[0], long)
        case "warning":
            with changed(write_record(tmp_path, planned.runs[0])) as record:
                record["warnings"] = [long, "a short one"]
        case "file":
            write_failure(tmp_path, planned.runs[0], place={"file": long, "line": 3})
        case _:
            write_failure(tmp_path, planned.runs[0], **{place: long})
    runs, _ = runs_table.run_tables(planned.runs, tmp_path)
    table_files.write_csv(runs, tmp_path / "runs.csv")
    rows = list(csv.DictReader((tmp_path / "runs.csv").open(newline="")))
    shown = rows[0]["warnings" if place == "warning" else "reason"]
    file = "run.json" if place in ("reason", "warning") else "failure.json"
    assert 1000 < len(shown) < 5000 and re.search(rf"[\d,]+ characters in \S*{file}", shown)
    assert place != "warning" or shown.endswith("; a short one")


def test_whole_numbers_beside_missing_values_stay_whole(tmp_path: Path) -> None:
    table = pd.DataFrame({"hours": [1, None, 0.5, "-x"], "text": "a"}, dtype=object)
    table_files.write_csv(table, tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == "hours,text\n1,a\n,a\n0.5,a\n'-x,a\n"


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_shows_their_texts_as_they_are(name: str) -> None:
    tables = tables_of(point(1, platform=HOSTILE), point(2, platform=HOSTILE))
    svg = plot_figure.to_svg(PLOTS[name].draw(tables, HOSTILE))
    elements = [*ET.fromstring(svg).iter()]
    assert {element.tag.rpartition("}")[2] for element in elements} <= SVG
    assert not [key for element in elements for key in element.attrib if key.startswith("on")]
    shown = "".join("".join(element.itertext()) for element in elements)
    assert "frac{" in shown and "mathdefault" not in shown


def calls_of(path: Path) -> Iterator[str]:
    """Every name that a file calls or imports, and its texts."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)
            yield from (ast.unparse(word) for word in node.keywords)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield repr(node.value[:5])


#: What would run data as code, or name a file that others of the machine can foresee.
FORBIDDEN = re.compile(
    r"pickle|marshal|shelve|dill|joblib\.load|eval|exec|os\.system|os\.popen|yaml\.(unsafe_)?load"
    r"|shell=True|allow_pickle=True|tempfile\.mktemp|'/tmp/?'|'/tmp/.*|'/dev/.*shm"
)
#: The published CIFAR-10 files are pickles: read by checksum, and nothing but arrays.
ALLOWED = {"formats.py": {"pickle", "pickle.UnpicklingError"}}


def test_no_data_is_run_as_code_and_no_file_is_in_a_folder_of_all_users() -> None:
    for path in (REPOSITORY / "workflow").rglob("*.py"):
        found = {name for name in calls_of(path) if FORBIDDEN.fullmatch(name)}
        assert found <= ALLOWED.get(path.name, set()), path


#: Makes tables and page, and prints how many files were opened, or folders read, and how many of
#: them begin with a text.
OPENED = """
import sys
_, study, begin = sys.argv
opened = []
sys.addaudithook(
    lambda event, words: opened.append(str(words[0]))
    if event in ("open", "os.listdir", "os.scandir") else None
)
from tfscaling import cli
sys.argv = ["tfscaling", "partial", "--study", study]
cli.main()
print(len(opened), sum(name.startswith(begin) for name in opened))
"""


def _rebuild_with_item(rebuild: Callable[[Any], Any], parts: Any, key: Any, new: Any) -> Any:
    """What `rebuild` makes of a copy of a dictionary or list with this item."""
    copied = copy.copy(parts)
    copied[key] = new
    return rebuild(copied)


def with_paths(record: Any, path: str) -> tuple[Any, int]:
    """A record whose texts are a path wherever it may have any text, and how many these are."""
    number = 0

    def replaced(part: Any, rebuild: Callable[[Any], Any]) -> Any:
        nonlocal number
        if isinstance(part, dict):
            for key, value in part.items():
                part[key] = replaced(value, partial(_rebuild_with_item, rebuild, part, key))
        elif isinstance(part, list):
            for n, value in enumerate(part):
                part[n] = replaced(value, partial(_rebuild_with_item, rebuild, part, n))
        elif isinstance(part, str):
            try:
                run_record.parse_record(json.dumps(rebuild(path)).encode(), "", RunRecord)
            except run_record.RecordError:
                return part
            number += 1
            return path
        return part

    return replaced(record, lambda new: new), number


def test_no_path_of_a_record_is_opened(tmp_path: Path) -> None:
    """A record may be another user's, and name files of the one who tabulates it."""
    plots = dict.fromkeys(PLOTS.keys() - {"execution_time"})  # all others: seconds
    config, path = valid_config((("plots",), plots)), str(tmp_path / "yours/secret")
    (tmp_path / "yours").mkdir()
    Path(path).write_text("secret")
    study = study_folder(tmp_path / "results/main/made", config)
    for run in manifest_of(config).runs:
        file = write_record(tmp_path / "results/runs", run)
        record = json.loads(file.read_text())
        kept = {key: record[key] for key in ("axes", "parameters", "parameters_hash")}
        record, number = with_paths(record, path)
        record["environment"]["user_code"] = {path: "0" * 64}
        assert number >= 10
        file.write_text(json.dumps({**record, **kept}))
        assert run_record.read_outcome(file) is not None
    done = run_python(OPENED, str(study.folder), str(tmp_path / "yours"))
    assert done.returncode == 0, done.stderr
    opened, of_yours = map(int, done.stdout.split()[-2:])
    assert opened > 100 and of_yours == 0
    rows = list(csv.DictReader((study.folder / "runs.csv").open()))
    assert {row["status"] for row in rows} == {"ok"}


def test_a_launcher_listens_at_the_address_that_it_is_given_and_at_no_other(tmp_path: Path) -> None:
    with RankMessageServer(tmp_path).serve("127.0.0.1", 1) as address:
        port = f"{int(address.split()[0].rpartition(':')[2]):04X}"
        assert listening_addresses(port) == [f"0100007F:{port}"]


def listening_addresses(port: str) -> list[str]:
    """Return the addresses at which this process listens on a port, in hexadecimal digits."""
    sockets = {os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}
    tables = [path for path in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists()]
    lines = [line.split() for path in tables for line in path.read_text().splitlines()[1:]]
    return [
        line[1]
        for line in lines
        if line[1].endswith(f":{port}") and line[3] == "0A" and f"socket:[{line[9]}]" in sockets
    ]


def test_a_configuration_file_makes_no_object_of_python(tmp_path: Path) -> None:
    """The loader of configuration files is made directly, so FORBIDDEN does not see its kind."""
    (tmp_path / "made").mkdir()
    text = f'study: !!python/object/apply:os.rmdir ["{tmp_path}/made"]\n'
    (tmp_path / "hostile.yaml").write_text(text)
    with pytest.raises(config_validation.ConfigError, match="hostile.yaml"):
        config_files.read_config_file(str(tmp_path / "hostile.yaml"))
    assert (tmp_path / "made").is_dir()
