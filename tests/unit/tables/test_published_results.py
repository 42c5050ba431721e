"""Files of published results: what is read, and what is refused with file, line and column."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from builders import refused
from rows import published_result, published_row
from tfscaling.study.config_validation import ConfigError
from tfscaling.tables.published_results import COLUMNS, check_file, read_published


def write(path: Path, *rows: dict[str, Any], columns: Any = COLUMNS, mark: str = "") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(mark)
        table = csv.DictWriter(file, columns, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    return path


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_each_line_is_a_result(mark: str, tmp_path: Path) -> None:
    rows = [published_row(), published_row(nodes=2, execution_time_s=41.5, loss=-1.0)]
    path = write(tmp_path / "p.csv", *rows, columns=("remark", *COLUMNS[::-1]), mark=mark)
    assert read_published(path) == [published_result(**row) for row in rows]
    check_file(str(path))


@pytest.mark.parametrize("path", [None, ""])
def test_without_a_file_there_are_no_results(path: str | None) -> None:
    assert read_published(path) == []
    check_file(None)


@pytest.mark.parametrize("lacking", [COLUMNS[:1], COLUMNS[-2:], COLUMNS])
def test_missing_columns_are_named(lacking: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    if lacking == COLUMNS:
        path.touch()
    else:
        write(path, columns=[name for name in COLUMNS if name not in lacking])
    with pytest.raises(ConfigError, match=f"p.csv: columns {', '.join(lacking)} are missing"):
        read_published(path)


@pytest.mark.parametrize(
    ("column", "value", "is_allowed"),
    [
        ("execution_time_s", "0", False), ("execution_time_s", "1e-300", True),
        ("execution_time_s", "inf", False), ("execution_time_s", "", False),
        ("loss", "0", True), ("loss", "-1e308", True), ("loss", "nan", False),
        ("loss", "-inf", False), ("accuracy", "90 %", False), ("nodes", "1.5", False),
        ("epochs", "many", False), ("gpus_per_node", "0", True), ("tasks_per_node", "2+1", True),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_named_with_its_line(
    column: str, value: str, is_allowed: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "p.csv", published_row(nodes=3), published_row(**{column: value}))
    if is_allowed:
        row = published_row(**{column: type(published_row()[column])(value)})
        assert read_published(path)[1] == published_result(**row)
        return
    with pytest.raises(ConfigError) as caught:
        read_published(path)
    assert f"p.csv: line 3: {column}: {value!r} is not allowed" in str(caught.value)
    assert ("above 0" in str(caught.value)) is (column == "execution_time_s")


@pytest.mark.parametrize("is_same", [True, False])
def test_two_lines_of_one_configuration_are_refused(is_same: bool, tmp_path: Path) -> None:
    other = published_row(loss=0.5) if is_same else published_row(tasks_per_node="2")
    path = write(tmp_path / "p.csv", published_row(), other)
    if is_same:
        with pytest.raises(ConfigError, match="p.csv: line 3: .*nodes 1, .* already"):
            read_published(path)
    else:
        assert len(read_published(path)) == 2


@pytest.mark.parametrize("kind", ["folder", "nothing", "bytes"])
def test_a_file_that_cannot_be_read_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(b"platform\xff\xfe\n")
    with pytest.raises(ConfigError, match="p.csv"):
        read_published(path)
    with pytest.raises(ConfigError, match=r"no such file in" if kind == "nothing" else r"p\.csv"):
        check_file(str(path))


def test_a_missing_file_is_named_with_the_configuration_that_names_it(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.csv")
    sources = [("config.yaml", {}), ("overlay.yaml", {"published": {"path": path}})]
    message = refused(check_file, path, sources)
    assert message.startswith(f'overlay.yaml: published.path: "{path}" ')
    assert refused(read_published, path).startswith(f"{path}: ")


def test_a_file_is_sought_in_the_current_folder_and_a_folder_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    missing = refused(check_file, "folder")
    monkeypatch.chdir(tmp_path)
    folder = refused(check_file, "folder")
    assert str(elsewhere) in missing and str(tmp_path) not in folder
