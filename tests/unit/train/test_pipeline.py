"""Training on a custom pipeline, and its batches fetched ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from strategy_rank import training_spec
from tfscaling.record.events import EventLog, EventName
from tfscaling.train.pipeline import (
    PREFETCHED,
    Datasets,
    PipelineError,
    PipelineTrainer,
    ReplicaBatch,
    StepIterator,
    check_datasets,
)

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def numbers(examples: int, size: int) -> Any:
    """Batches of 0, 1, 2, ... and of their squares."""
    every = tf.range(examples)
    return tf.data.Dataset.from_tensor_slices((every, every * every)).batch(size)


def steps_of(dataset: Any, batch: int, devices: int, count: int) -> list[list[ReplicaBatch]]:
    with closing(StepIterator(dataset, batch, [CPU] * devices)) as feed:
        return [next(feed) for _ in range(count)]


def real(part: ReplicaBatch) -> list[int]:
    """The examples that count."""
    return part.batch[0].numpy()[: int(part.examples)].tolist()


def test_each_example_is_once_on_one_of_the_devices() -> None:
    steps = steps_of(numbers(19, 8), 4, devices=2, count=3)
    assert [[real(part) for part in step] for step in steps] == [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[8, 9, 10, 11], [12, 13, 14, 15]],
        [[16, 17, 18], []],
    ]
    assert [[float(part.more) for part in step] for step in steps] == [[1, 1], [1, 1], [0, 0]]
    for part in (part for step in steps for part in step):
        x, y = part.batch
        assert x.shape == (4,)
        np.testing.assert_array_equal(y, x * x)  # padding is of real examples


def test_after_the_end_come_steps_that_weigh_nothing() -> None:
    _, last, *rest = steps_of(numbers(12, 8), 8, devices=1, count=4)
    assert float(last[0].examples) == 4
    assert [float(step[0].examples) for step in rest] == [0, 0]
    np.testing.assert_array_equal(rest[0][0].batch[0], last[0].batch[0])


def test_a_worker_without_examples_takes_part() -> None:
    (only,) = steps_of(numbers(0, 8), 8, devices=1, count=1)
    assert (only[0].batch[0].shape, float(only[0].examples), float(only[0].more)) == ((8,), 0, 0)


@pytest.mark.parametrize(("sizes", "like", "expected"), [
    ((None, None, 3), None, (1, 3)), ((None, None, 3), (8, 5, 3), (5, 3)),
    ((None, 4, None), (8, 5, 6), (4, 6)), ((None, None, 3), (8, 5), (1, 3)),
    ((None, None, None), (8, 0, 7), (1, 7)),
])  # fmt: skip
def test_examples_of_unknown_size_are_as_large_as_others_or_have_one_number(
    sizes: tuple[int | None, ...], like: tuple[int, ...] | None, expected: tuple[int, ...]
) -> None:
    signature = tf.TensorSpec(sizes, tf.float32)
    empty = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=signature)
    other = None if like is None else tf.ones(like)
    with closing(StepIterator(empty, 4, [CPU] * 2, other)) as feed:
        step = next(feed)
    assert [part.batch.shape for part in step] == [(4, *expected)] * 2
    assert not any(np.any(part.batch) or float(part.examples) for part in step)


def test_batches_without_examples_are_left_out() -> None:
    dataset = (
        numbers(16, 8)
        .concatenate(numbers(0, 8))
        .concatenate(
            tf.data.Dataset.from_tensors((tf.zeros([0], tf.int32), tf.zeros([0], tf.int32)))
        )
    )
    steps = steps_of(dataset, 8, devices=1, count=2)
    assert [float(step[0].more) for step in steps] == [1, 0]


@pytest.mark.parametrize(("size", "message"), [(9, "9 examples"), (7, "7 examples")])
def test_batches_of_another_size_are_refused(size: int, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        steps_of(numbers(30, size), 4, devices=2, count=1)


def test_parts_of_a_batch_have_the_same_examples() -> None:
    uneven = tf.data.Dataset.from_tensors((tf.range(4), tf.range(3)))
    with pytest.raises(PipelineError, match=r"have \[3, 4\] examples"):
        steps_of(uneven, 4, devices=1, count=1)


def test_what_a_pipeline_raises_is_raised_where_its_batch_is_asked_for() -> None:
    def broken() -> Iterator[Any]:
        yield tf.range(4)
        yield tf.range(4)
        raise OSError("disk is away")

    with closing(StepIterator(broken(), 4, [CPU])) as feed:
        next(feed)
        with pytest.raises(OSError, match="disk is away"):
            next(feed)


class SlowToEnd:
    """Batches whose iterator takes until `release` to be freed, as TensorFlow's may."""

    def __init__(self, batches: int, error: Exception | None = None) -> None:
        self.release, self.freed = threading.Event(), threading.Event()
        self._left, self._error = batches, error

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self)

    def next(self) -> Any:
        if not self._left:
            raise self._error or StopIteration
        self._left -= 1
        return tf.ones([2])


class _Batches(Iterator[Any]):
    def __init__(self, owner: SlowToEnd) -> None:
        self._owner = owner

    def __next__(self) -> Any:
        return self._owner.next()

    def __del__(self) -> None:
        self._owner.release.wait(60)
        self._owner.freed.set()


@pytest.mark.parametrize(("batches", "read"), [(3, 3), (50, 3)], ids=["whole", "in part"])
def test_nobody_waits_for_an_iterator_that_is_freed(batches: int, read: int) -> None:
    data = SlowToEnd(batches)
    with closing(StepIterator(data, 2, [CPU])) as feed:
        more = [float(next(feed)[0].more) for _ in range(read)]
    assert more[-1] == (0 if read == batches else 1)
    assert not data.freed.is_set()
    data.release.set()
    assert data.freed.wait(60)


def test_nobody_waits_for_the_iterator_of_a_pipeline_that_fails() -> None:
    data = SlowToEnd(1, ValueError("no file"))
    with pytest.raises(ValueError, match="no file"), closing(StepIterator(data, 2, [CPU])) as feed:
        next(feed)
    assert not data.freed.is_set()
    data.release.set()
    assert data.freed.wait(60)


def test_no_more_is_read_than_is_soon_needed() -> None:
    """An endless pipeline: what a step has taken, a few batches ahead, and no more."""
    read: list[Any] = []
    waits = threading.Event()

    def endless() -> Iterator[Any]:
        while True:
            read.append(len(read))
            if len(read) > 3 + PREFETCHED + 1:
                waits.set()
            yield tf.range(4)

    with closing(StepIterator(endless(), 4, [CPU])) as feed:
        for _ in range(3):
            next(feed)
        assert waits.wait(60)
        # taken, ready, waiting for room with the one after it
        assert len(read) <= 3 + PREFETCHED + 2
    feed._thread.join(60)
    assert not feed._thread.is_alive()


class Batches(keras.utils.PyDataset):
    """What `fit` takes, too."""


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (numbers(4, 2), "returns .*, not"),
        ((numbers(4, 2), None), "test data of mine:data is a NoneType"),
        ((Batches(), numbers(4, 2)), "train data of mine:data is a Batches; .*from_generator"),
        ((numbers(4, 2).unbatch(), numbers(4, 2)), "train data of mine:data gives .*batch"),
        (
            (tf.data.Dataset.range(4).map(tf.range).ragged_batch(2), numbers(4, 2)),
            "ragged.*padded_batch",
        ),
        (
            (numbers(4, 2), numbers(4, 2).map(lambda x, y: tf.py_function(abs, [x], tf.int32))),
            "mine:data gives .*tf.ensure_shape",
        ),
    ],
)
def test_what_is_no_pipeline_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        check_datasets("mine:data", returned)


layers = keras.layers
EXAMPLES, BATCH = 40, 8


def sequences(examples: int = EXAMPLES) -> Any:
    """Batches of 10 or 12 to 20 steps of 4 numbers, and which of the numbers is the largest."""
    random = np.random.default_rng(0)
    x = random.normal(size=(examples, 20, 4)).astype(np.float32)
    y = random.integers(0, 4, examples)
    x[np.arange(examples), :, y] += 1
    lengths = 10 + 2 * random.integers(0, 6, examples)
    each = tf.data.Dataset.from_tensor_slices((x, lengths, y)).map(lambda x, n, y: (x[:n], y))
    return each.padded_batch(BATCH, ([None, 4], []))


def images() -> Any:
    given = [(np.ones((BATCH, n, n + 2, 1), np.float32), np.zeros(BATCH, int)) for n in (9, 12)]
    signature = (tf.TensorSpec((None, None, None, 1)), tf.TensorSpec((None,), tf.int64))
    return tf.data.Dataset.from_generator(lambda: iter(given), output_signature=signature)


def convolution(cls: Any = keras.Model) -> Any:
    given = keras.Input((None, 4))
    whole = layers.GlobalMaxPooling1D()(layers.Conv1D(8, 5)(given))
    return compiled(cls(given, layers.Dense(4)(whole)))


def pooling() -> Any:
    given = keras.Input((None, 4))
    whole = layers.GlobalAveragePooling1D()(layers.MaxPooling1D(2)(given))
    return compiled(keras.Model(given, layers.Dense(4)(whole)))


def of_images() -> Any:
    given = keras.Input((None, None, 1))
    whole = layers.GlobalAveragePooling2D()(layers.Conv2D(2, 5)(given))
    return compiled(keras.Model(given, layers.Dense(4)(whole)))


def compiled(model: Any) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def trainer_of(model: Callable[[], Any], data: Datasets) -> PipelineTrainer:
    settings: dict[str, Any] = {
        "optimizer": "model",
        "learning_rate": None,
        "momentum": None,
        "loss": "model",
    }
    spec = training_spec(BATCH, epochs=2, steps_per_execution=1, **settings)
    return PipelineTrainer(tf.distribute.OneDeviceStrategy("CPU:0"), model, data, spec)


@pytest.mark.parametrize(
    ("model", "data"), [(convolution, sequences), (pooling, sequences), (of_images, images)]
)
def test_sizes_may_differ_between_batches(
    model: Callable[[], Any], data: Callable[[], Any], tmp_path: Path
) -> None:
    trainer, log = trainer_of(model, Datasets(data(), data())), EventLog(tmp_path / "events", 0)
    result = trainer.train(log, print)
    trainer.evaluate(result, log, EventName.EVALUATED)
    assert result.epochs[-1].metrics["accuracy"] is not None


def test_a_worker_without_held_out_examples_takes_the_sizes_that_it_has_trained(
    tmp_path: Path,
) -> None:
    """`Conv1D` of 5 steps cannot take a batch of one step."""
    trainer = trainer_of(convolution, Datasets(sequences(), sequences().take(0)))
    trainer.train(EventLog(tmp_path / "events", 0), print)
    with trainer._open_steps(trainer.data.test) as batches:
        fed = next(batches)
    assert float(fed.examples) == 0
    assert fed.batch[0].shape[1:] == next(iter(sequences()))[0].shape[1:]
    trainer._evaluate_call(fed)
