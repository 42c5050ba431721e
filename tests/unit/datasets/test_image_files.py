"""Generated image files: the same from any machine, each read by one worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tfscaling.datasets import image_files
from tfscaling.datasets.catalogue import PipelineContext


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight and four images in four files of each part."""
    monkeypatch.setattr(image_files, "FILES", 4)
    image_files.prepare(tmp_path, train_examples=8, test_examples=4)
    return tmp_path


def context(folder: Path, batch: int, workers: int = 1, worker: int = 0) -> PipelineContext:
    """What a worker with one replica gets; all replicas have this batch."""
    return PipelineContext(
        workers=workers,
        worker=worker,
        replicas=workers,
        per_replica_batch_size=batch,
        per_worker_batch_size=batch,
        global_batch_size=workers * batch,
        seed=1,
        folder=folder,
    )


def test_workers_share_out_the_images_of_all_files(folder: Path) -> None:
    assert len(list(folder.iterdir())) == 8
    labels: Counter[int] = Counter()
    for worker in (0, 1):
        train, test = image_files.data(context(folder, 3, workers=2, worker=worker))
        batches = list(train.as_numpy_iterator())
        assert [len(labels) for _, labels in batches] == [3, 1]
        for images, of_images in batches:
            assert (images.shape[1:], images.dtype) == ((224, 224, 3), np.float32)
            assert 0 <= images.min() < images.max() <= 1
            labels.update(of_images.tolist())
        assert sum(len(of_images) for _, of_images in test) == 2
    assert labels == Counter([0, 1, 1, 2, 2, 3, 3, 4])


def test_only_training_images_are_shuffled_anew_for_each_epoch(folder: Path) -> None:
    """The seed gives their orders; the pixels of test images are equal in each epoch."""
    train, test = image_files.data(context(folder, 8))
    orders = [[tuple(next(iter(part))[1].numpy()) for _ in range(5)] for part in (train, test)]
    assert len({*orders[0]}) > 1 == len({*orders[1]})
    again, _ = image_files.data(context(folder, 8))
    assert [tuple(next(iter(again))[1].numpy()) for _ in range(5)] == orders[0]
    assert len({next(iter(test))[0].numpy().tobytes() for _ in range(2)}) == 1


def test_no_image_of_the_training_is_in_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where both parts have equal numbers of images."""
    monkeypatch.setattr(image_files, "FILES", 1)
    image_files.prepare(tmp_path, train_examples=3, test_examples=3)
    parts = [(tmp_path / f"{part}-00.tfrecord").read_bytes() for part in ("train", "test")]
    assert parts[0] != parts[1]


def test_a_class_differs_more_from_others_than_from_itself() -> None:
    random = np.random.default_rng(0)
    colours = [image_files.draw_image(label, random).mean(axis=(0, 1)) for label in (0, 0, 5)]
    hues = [colour / colour.sum() for colour in colours]
    assert np.abs(hues[0] - hues[1]).max() < 0.2 * np.abs(hues[0] - hues[2]).max()
