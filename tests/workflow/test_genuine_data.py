"""Genuine data, fetched by the workflow's own rule."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from project import TINY, Project
from published_files import cifar10_files, idx_files

pytestmark = pytest.mark.full

#: MD5 sums of the uncompressed IDX files, of LeCun, Cortes and Burges.
IDX_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
#: SHA-1 sums of the binary version, as in MXNet's gluon.data.vision.CIFAR10.
CIFAR10_SHA1 = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}
#: Image shape, training examples, mean and standard deviation of each channel (1 is white).
GENUINE: dict[str, tuple[tuple[int, ...], int, list[float], list[float]]] = {
    "cifar10": (
        (32, 32, 3), 50_000,
        [0.49139968, 0.48215841, 0.44653091], [0.24703223, 0.24348513, 0.26158784],
    ),
}  # fmt: skip


def arrays(folder: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{name}.npz") as stored:
        return dict(stored)


@pytest.mark.parametrize("name", GENUINE)
def test_every_class_is_there_equally_often(fetched: Path, name: str) -> None:
    shape, examples, *_ = GENUINE[name]
    found = arrays(fetched, name)
    for part, count in (("train", examples), ("test", 10_000)):
        assert found[f"x_{part}"].shape == (count, *shape)
        assert found[f"x_{part}"].dtype == found[f"y_{part}"].dtype == np.uint8
        assert np.bincount(found[f"y_{part}"]).tolist() == [count // 10] * 10


@pytest.mark.parametrize("name", GENUINE)
def test_brightness_is_that_of_the_published_images(fetched: Path, name: str) -> None:
    """From how often each of the 256 values is there: ten times faster than from the images."""
    *_, means, deviations = GENUINE[name]
    channels = arrays(fetched, name)["x_train"].reshape(-1, len(means)).T
    values = np.arange(256) / 255
    for channel, mean, deviation in zip(channels, means, deviations, strict=True):
        shares = np.bincount(channel, minlength=256) / channel.size
        found = shares @ values
        spread = np.sqrt(shares @ (values - found) ** 2)
        assert (found, spread) == pytest.approx((mean, deviation), rel=0, abs=1e-7)


@pytest.mark.parametrize("name", GENUINE)
def test_provenance_is_written(fetched: Path, name: str) -> None:
    facts: dict[str, Any] = json.loads((fetched / f"{name}.json").read_text())
    assert facts["dataset"] == name
    assert facts["source"] != "path"
    assert facts["path"] is None
    assert facts["examples"] == {
        "x_train": GENUINE[name][1],
        "y_train": GENUINE[name][1],
        "x_test": 10_000,
        "y_test": 10_000,
    }


def test_arrays_are_byte_for_byte_those_of_the_published_files(fetched: Path, mnist: Path) -> None:
    parts = cifar10_files(arrays(fetched, "cifar10"))
    assert {
        name: hashlib.sha1(content).hexdigest() for name, content in parts.items()
    } == CIFAR10_SHA1
    parts = idx_files(arrays(mnist, "mnist"))
    assert {name: hashlib.md5(content).hexdigest() for name, content in parts.items()} == IDX_MD5


def test_cifar10_cnn_learns_from_them(fetched: Path, project: Project) -> None:
    project.link_datasets(fetched)
    project.overlay(
        {
            "grid": [{"platform": "laptop", "model": "cifar10_cnn", "recipe": "some", "nodes": 1}],
            "recipes": {"some": {**TINY, "train_examples_max": 9600, "epochs": 2}},
        }
    )
    project.snakemake()
    (row,) = project.table()
    assert row["status"] == "ok"
    assert float(row["test_accuracy"]) > 0.25  # chance is 0.1


SMALL = """
def model():
    import keras

    return keras.Sequential(
        [
            keras.Input((224, 224, 3)),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
"""
FILES = "tfscaling.datasets.image_files:data"


def test_two_workers_read_the_image_files_of_resnet50(project: Project) -> None:
    """Made before the first run and read in steps: the prepared file itself has no images."""
    (project.folder / "images.py").write_text(SMALL)
    some = {
        "dataset": FILES, "per_replica_batch_size": 1, "learning_rate": 0.01, "epochs": 1,
        "parameters": {"train_examples": 4, "test_examples": 2},
    }  # fmt: skip
    project.overlay(
        {
            "grid": [{"platform": "laptop", "model": "images:model", "recipe": "some", "nodes": 2}],
            "recipes": {"some": some},
        }
    )
    project.snakemake()
    (record,) = project.records()
    assert record["parameters"]["dataset"] == FILES
    data = record["environment"]["dataset"]
    assert (data["train_examples"], data["test_examples"]) == (4, 2)
    assert data["name"] == f"{FILES}+test_examples=2+train_examples=4"
    assert record["metrics"]["input_wait_s"] > 0
    assert len(record["ranks"]) == 2
    assert all(rank["input_wait_s"] > 0 for rank in record["ranks"])
    (file,) = (project.folder / "results/datasets").glob(f"{FILES}*.npz")
    with np.load(file) as stored:
        assert stored.files == ["sha256"] and str(stored["sha256"]) == data["sha256"]
    images = sum(path.stat().st_size for path in file.with_suffix(".files").iterdir())
    assert images > 6 * 10_000
