"""Fetching: checked against published checksums, written whole, never replaced in silence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import catalogue, mnist
from tfscaling.datasets.catalogue import DATASETS, Dataset, DatasetError

RANDOM = np.random.default_rng(1)
ARRAYS = {
    "x_train": RANDOM.integers(0, 256, (6, 28, 28), np.uint8),
    "y_train": RANDOM.integers(0, 10, 6, np.uint8),
    "x_test": RANDOM.integers(0, 256, (4, 28, 28), np.uint8),
    "y_test": RANDOM.integers(0, 10, 4, np.uint8),
}
PARTS = {part: mnist.encode_idx(ARRAYS[name]) for name, part in zip(ARRAYS, mnist.MD5, strict=True)}
LABELS = "train-labels-idx1-ubyte"
Source = Callable[[Path | None], dict[str, bytes]]


def genuine(_: Path | None) -> dict[str, bytes]:
    return PARTS


def corrupted(_: Path | None) -> dict[str, bytes]:
    return {**PARTS, LABELS: PARTS[LABELS][:-1] + b"\xff"}


def incomplete(_: Path | None) -> dict[str, bytes]:
    return {part: content for part, content in PARTS.items() if part != LABELS}


def closed(_: Path | None) -> dict[str, bytes]:
    raise OSError("network is unreachable")


@pytest.fixture
def fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`fetch(path, name=source, ...)` of a small dataset with checksums of its own."""

    def fetch_small(path: Path | None = None, **sources: Source) -> str:
        md5 = {part: hashlib.md5(content).hexdigest() for part, content in PARTS.items()}
        given = {"path": mnist.from_path, **sources}
        monkeypatch.setitem(DATASETS, "small", Dataset("", md5, given, mnist.decode))
        return catalogue.fetch("small", path, tmp_path / "small.npz", tmp_path / "small.json")

    return fetch_small


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("small"))


def local_copy(folder: Path, parts: Mapping[str, bytes] = PARTS) -> Path:
    copy = folder / "copy"
    copy.mkdir()
    for part, content in parts.items():
        (copy / part).write_bytes(content)
    return copy


def test_the_first_source_that_is_genuine_wins(fetch: Callable[..., str], tmp_path: Path) -> None:
    assert fetch(a=closed, b=corrupted, c=genuine, d=closed) == "c"
    with np.load(tmp_path / "small.npz") as stored:
        assert set(stored) == {*ARRAYS, "sha256"}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(stored[name], array)
    assert written(tmp_path) == ["small.json", "small.npz"]


def test_source_checksums_and_sizes_are_written_beside_it(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    copy = local_copy(tmp_path)
    fetch(copy)
    facts = json.loads((tmp_path / "small.json").read_text())
    assert facts == {
        "dataset": "small",
        "source": "path",
        "path": str(copy),
        "md5": {part: hashlib.md5(content).hexdigest() for part, content in PARTS.items()},
        "sha256": catalogue.fingerprint(ARRAYS),
        "examples": {"x_train": 6, "y_train": 6, "x_test": 4, "y_test": 4},
    }


def test_every_source_that_failed_is_told_with_its_reason(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    with pytest.raises(DatasetError) as caught:
        fetch(keras=closed, npm=corrupted, mirror=incomplete)
    first, *others = str(caught.value).splitlines()
    assert first == "dataset small could not be had from any source:"
    wrong = f"ValueError: MD5 of {LABELS} is not that of the published files"
    assert [line.strip() for line in others] == [
        "keras: OSError: network is unreachable",
        f"npm: {wrong}",
        f"mirror: {wrong}",
    ]
    assert written(tmp_path) == []


def test_a_configured_copy_is_used_and_nothing_is_downloaded(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    asked: list[str] = []

    def download(_: Path | None) -> dict[str, bytes]:
        asked.append("download")
        return PARTS

    assert fetch(local_copy(tmp_path), download=download) == "path"
    assert asked == []


@pytest.mark.parametrize("change", [corrupted, incomplete])
def test_a_configured_copy_that_is_not_genuine_is_never_replaced_by_a_download(
    fetch: Callable[..., str], tmp_path: Path, change: Source
) -> None:
    copy = local_copy(tmp_path, change(None))
    with pytest.raises(DatasetError) as caught:
        fetch(copy, download=genuine)
    assert "path: " in str(caught.value)
    assert LABELS in str(caught.value)
    assert "download" not in str(caught.value)
    assert written(tmp_path) == []


def test_a_configured_path_that_does_not_exist_is_named(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match="nowhere"):
        fetch(tmp_path / "nowhere", download=genuine)


def test_without_a_configured_path_none_is_tried(fetch: Callable[..., str]) -> None:
    with pytest.raises(DatasetError) as caught:
        fetch(download=closed)
    assert "path" not in str(caught.value)


def test_a_failure_leaves_the_earlier_files_as_they_were(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    fetch(a=genuine)
    before = {name: (tmp_path / name).read_bytes() for name in written(tmp_path)}
    with pytest.raises(DatasetError):
        fetch(a=corrupted)
    assert {name: (tmp_path / name).read_bytes() for name in written(tmp_path)} == before


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
    fetch(a=genuine)
    wanted = {"train_examples_max": train, "test_examples_max": test}
    arrays = catalogue.load(tmp_path / "small.npz", wanted)
    assert (len(arrays.x_train), len(arrays.x_test)) == expected
    np.testing.assert_array_equal(arrays.y_train, ARRAYS["y_train"][: expected[0]])
    np.testing.assert_array_equal(arrays.x_test, ARRAYS["x_test"][: expected[1]])
    assert arrays.scale == pytest.approx(1 / 255)


def test_the_prepared_file_carries_the_checksum_of_its_whole_arrays(
    fetch: Callable[..., str], tmp_path: Path
) -> None:
    fetch(a=genuine)
    wanted = {"train_examples_max": 2, "test_examples_max": 2}
    arrays = catalogue.load(tmp_path / "small.npz", wanted)
    assert arrays.sha256 == json.loads((tmp_path / "small.json").read_text())["sha256"]
    np.savez(tmp_path / "old.npz", **ARRAYS)  # type: ignore[arg-type]
    assert catalogue.load(tmp_path / "old.npz", wanted).sha256 is None


def test_arrays_with_another_value_type_shape_or_name_have_another_checksum() -> None:
    first = {"x_train": np.arange(6, dtype=np.int32)}
    others = [
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


@pytest.mark.parametrize("bytes_part", ["x_train", "x_test"])
def test_parts_of_different_types_are_brought_to_one_range(bytes_part: str, tmp_path: Path) -> None:
    """Bytes are divided by 255 and other images are taken as they are, each part for itself."""
    pixels = np.array([[0, 51, 255]], np.uint8)
    arrays = {"y_train": np.zeros(1, np.int32), "y_test": np.zeros(1, np.int32)}
    for part in ("x_train", "x_test"):
        arrays[part] = pixels if part == bytes_part else pixels.astype(np.float64) / 255
    np.savez(tmp_path / "mixed.npz", **arrays)  # type: ignore[arg-type]
    everything = {"train_examples_max": None, "test_examples_max": None}
    loaded = catalogue.load(tmp_path / "mixed.npz", everything)
    for images in (loaded.x_train, loaded.x_test):
        np.testing.assert_allclose(images * loaded.scale, [[0.0, 0.2, 1.0]], rtol=1e-6)


def test_checksums_of_published_files_need_no_md5_for_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on hosts that follow FIPS 140."""
    genuine_md5 = hashlib.md5

    def guarded(content: bytes = b"", *, usedforsecurity: bool = True) -> object:
        if usedforsecurity:
            raise ValueError("disabled for FIPS")
        return genuine_md5(content, usedforsecurity=False)

    sums = {part: genuine_md5(content).hexdigest() for part, content in PARTS.items()}
    small = Dataset("", sums, {"a": genuine}, mnist.decode)
    monkeypatch.setattr(hashlib, "md5", guarded)
    monkeypatch.setattr(catalogue, "get", lambda _: small)
    assert catalogue.fetch("small", None, tmp_path / "a.npz", tmp_path / "a.json") == "a"


@pytest.mark.parametrize("name", DATASETS)
def test_each_dataset_takes_a_local_copy_and_has_checksums(name: str) -> None:
    dataset = DATASETS[name]
    assert "path" in dataset.sources
    assert dataset.parts
    assert dataset.description
