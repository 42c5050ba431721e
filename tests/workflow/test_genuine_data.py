"""Genuine data, fetched by the workflow's own rule."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from project import TINY, Project
from tfscaling.datasets.catalogue import cifar10

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
    "fashion_mnist": ((28, 28), 60_000, [0.28604059], [0.35302424]),
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
    *_, mean, deviation = GENUINE[name]
    images = arrays(fetched, name)["x_train"]
    channels = images.reshape(-1, len(mean))
    np.testing.assert_allclose(channels.mean(axis=0) / 255, mean, atol=1e-7)
    np.testing.assert_allclose(channels.std(axis=0) / 255, deviation, atol=1e-7)


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


def test_cifar10_is_byte_for_byte_what_another_project_downloads(fetched: Path) -> None:
    parts = cifar10.encode(arrays(fetched, "cifar10"))
    sums = {name: hashlib.sha1(content).hexdigest() for name, content in parts.items()}
    assert sums == CIFAR10_SHA1


def test_cifar10_cnn_and_mnist_cnn_learn_from_them(fetched: Path, project: Project) -> None:
    folder = project.folder / "results/datasets"
    for name in GENUINE:
        for file in fetched.glob(f"{name}.*"):
            (folder / file.name).hardlink_to(file)
    some = {**TINY, "train_examples_max": 6400}
    project.overlay(
        {
            "grid": [
                {"platform": "laptop", "model": "cifar10_cnn", "recipe": "some", "nodes": 1},
                {"platform": "laptop", "model": "mnist_cnn", "recipe": "clothes", "nodes": 1},
            ],
            "recipes": {"some": some, "clothes": {**some, "dataset": "fashion_mnist"}},
        }
    )
    project.snakemake()
    found = {row["model"]: (row["status"], float(row["test_accuracy"])) for row in project.table()}
    # chance is 0.1
    assert found["cifar10_cnn"][0] == found["mnist_cnn"][0] == "ok"
    assert found["cifar10_cnn"][1] > 0.25
    assert found["mnist_cnn"][1] > 0.7


def test_resnet50_trains_on_two_nodes_and_nothing_is_downloaded(project: Project) -> None:
    some = {
        "per_replica_batch_size": 4, "learning_rate": 0.01, "epochs": 1,
        "train_examples_max": 16, "test_examples_max": 6,
    }  # fmt: skip
    block = {"platform": "laptop", "model": "resnet50", "recipe": "some", "nodes": 2}
    project.overlay({"grid": [block], "recipes": {"some": some}})
    project.snakemake()
    (record,) = project.records()
    assert record["parameters"]["dataset"] == "synthetic_imagenet"
    assert record["ranks"][0]["model_parameters"] == 25_636_712
    provenance = project.folder / "results/datasets/synthetic_imagenet.json"
    assert json.loads(provenance.read_text())["source"] == "synthetic"
