"""A worker's batches of a pipeline, split over its devices, where they are fetched ahead.

`tf.distribute` can feed datasets, too, but it asks all workers before each step whether they have a
batch, so that the wait for one worker's input would count as every worker's, and it compiles an
iterator at the start of each epoch.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

#: Batches of a worker that are on its devices before they are asked for.
PREFETCHED = 2
_POLL_S = 0.1


class PipelineError(ValueError):
    """The datasets cannot be trained on; names what, and the way out."""


class Fed(NamedTuple):
    """What a replica is given for a step: its part of the worker's batch.

    `batch` is padded to the replica's batch size; its first `examples` count. `more` is 1 if the
    worker has examples after this step, else 0. Both are float32, so that one all-reduce sums them.
    """

    batch: Any
    examples: Any
    more: Any


class Feed:
    """Iterator over the steps of a worker: a `Fed` for each of its `devices`; it never ends.

    Each replica gets `batch` examples of a step. After the end of `dataset` come copies of the last
    batch that weigh nothing: the worker takes part in the steps of those whose part is longer. If
    there is none they are zeros, in dimensions that may vary as large as `like`, a batch of other
    data. Raises PipelineError for a batch of more examples than the worker's replicas take
    together, and for a first one of fewer that is not the only one.
    """

    def __init__(self, dataset: Any, batch: int, devices: Sequence[str], like: Any = None) -> None:
        self._dataset, self._batch, self._devices = dataset, batch, devices
        self._size = batch * len(devices)
        self._like = like
        self._ready: queue.Queue[list[Fed] | Exception] = queue.Queue(PREFETCHED)
        self._closed, self._ended = threading.Event(), threading.Event()
        self._last: list[Fed] | None = None
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[list[Fed]]:
        return self

    def __next__(self) -> list[Fed]:
        if self._last is None:
            item = self._ready.get()
            if isinstance(item, Exception):
                raise item
            if not float(item[0].more):
                self._last = [self._fed(each.batch, 0, 0) for each in item]
            return item
        return self._last

    def close(self) -> None:
        """Fetch no more; returns when no batch is being made."""
        self._closed.set()
        self._ended.wait()

    def _fill(self) -> None:
        # TensorFlow 2.21 waits for up to a minute when an iterator is freed: a wake-up of its
        # autotuner gets lost. So this thread frees it, when all batches are fetched.
        iterator = None
        try:
            iterator = iter(self._dataset)
            for item in self._items(iterator):
                self._put(item)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they would keep the iterator
            self._put(error)
        self._ended.set()
        del iterator

    def _put(self, item: list[Fed] | Exception) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=_POLL_S)
                return

    def _items(self, batches: Iterator[Any]) -> Iterator[list[Fed]]:
        waiting: tuple[Any, int] | None = None
        is_first = True
        for batch in batches:
            if self._closed.is_set():
                return
            examples = self._examples(batch)
            if not examples:  # as after a filter of batches
                continue
            if waiting is not None:
                if is_first and waiting[1] < self._size:
                    raise PipelineError(
                        f"the pipeline's first batch has {waiting[1]} examples and not "
                        f"{self._size}; end it with batch(context.per_worker_batch_size)"
                    )
                is_first = False
                yield self._split(*waiting, more=1)
            waiting = batch, examples
        if waiting is None:
            waiting = self._nothing(), 0
        yield self._split(*waiting, more=0)

    def _nothing(self) -> Any:
        """A batch of zeros."""
        import tensorflow as tf

        parts = tf.nest.flatten(self._dataset.element_spec)
        shapes = [part.shape for part in parts]
        others = [] if self._like is None else [part.shape for part in tf.nest.flatten(self._like)]
        if [shape.rank for shape in others] != [shape.rank for shape in shapes]:
            others = shapes

        def zeros(part: Any, other: Any) -> Any:
            sizes = (n or m or 1 for n, m in zip(part.shape[1:], other[1:], strict=True))
            return tf.zeros([self._size, *sizes], part.dtype)

        return tf.nest.pack_sequence_as(self._dataset.element_spec, list(map(zeros, parts, others)))

    def _examples(self, batch: Any) -> int:
        import tensorflow as tf

        counts = {int(part.shape[0]) for part in tf.nest.flatten(batch)}
        if len(counts) > 1:
            raise PipelineError(f"the tensors of a batch have {sorted(counts)} examples")
        (examples,) = counts
        if examples > self._size:
            raise PipelineError(
                f"a batch of the pipeline has {examples} examples, more than {self._size}; end it "
                "with batch(context.per_worker_batch_size)"
            )
        return examples

    def _split(self, batch: Any, examples: int, more: int) -> list[Fed]:
        """The parts of a batch on the devices."""
        import tensorflow as tf

        size = self._batch
        if 0 < examples < self._size:
            # padding is computed as well: it is of real examples
            places = tf.minimum(tf.range(self._size), examples - 1)
            batch = tf.nest.map_structure(lambda part: tf.gather(part, places), batch)
        parts = []
        for number, device in enumerate(self._devices):
            with tf.device(device):
                own = tf.nest.map_structure(
                    lambda part, first=number * size: tf.identity(part[first : first + size]), batch
                )
                count = min(max(examples - number * size, 0), size)
                parts.append(self._fed(own, count, more))
        return parts

    def _fed(self, batch: Any, examples: int, more: int) -> Fed:
        import tensorflow as tf

        return Fed(batch, tf.constant(float(examples)), tf.constant(float(more)))
