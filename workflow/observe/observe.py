"""Say what a training does, one JSON line an event, to the file that TFSCALING_EVENTS names.

Copy this file into your project; it needs nothing but Python >= 3.8. Without the variable it does
nothing. The format is in docs/programs.md, and a program in another language can write it as well.

    import observe                                    # after the imports of your packages

    for epoch in range(epochs):
        for x, y in observe.steps(dataset):           # counts steps, examples and waiting for input
            loss = train_step(x, y)
        observe.epoch(loss=loss)                      # fetches the values, then takes the time
        observe.eval(accuracy=evaluate(test_data))    # on held-out examples
"""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import threading
import time
from typing import Any, Callable, Iterable, Iterator, Mapping

__all__ = ["epoch", "eval", "imported", "step", "steps"]

#: The environment variable that names the file of this process's rank.
VARIABLE = "TFSCALING_EVENTS"
#: Shortest time between two lines of steps, in seconds, except the first and the last line.
INTERVAL_S = 0.1
#: Seconds since the epoch = this + the monotonic clock, which nobody can set.
_ORIGIN_S = time.time() - time.monotonic()
_PACKAGES = ("tensorflow", "keras", "tf_keras", "torch", "jax")


def now() -> float:
    """Return the present time in seconds since the epoch, whatever changes the clock meanwhile."""
    return _ORIGIN_S + time.monotonic()


class Trace:
    """The totals of this process and the file to which they go; threads may share it."""

    def __init__(self, path: str) -> None:
        self._path, self._file, self._process = path, -1, os.getpid()
        self._lock = threading.Lock()
        self._steps, self._epochs, self._examples = 0, 0, 0
        self._uncounted_steps = 0
        self._wait_s: float | None = None
        self._next_line_s, self._pending = 0.0, False
        self._imported = False
        atexit.register(self.flush)

    @property
    def has_steps(self) -> bool:
        """Whether a step has ended."""
        return self._steps > 0

    def imported(self, time_s: float | None = None) -> None:
        """Mark the end of imports, now or at `time_s`."""
        self._imported = True
        with self._lock:
            self._write("imported", now() if time_s is None else time_s, {})

    def step(
        self,
        examples: int | None,
        steps: int = 1,
        input_wait_s: float | None = None,
        time_s: float | None = None,
    ) -> None:
        """Count `steps` more ended steps with `examples` examples in all; None: not counted yet.

        That is now, or was at `time_s`.
        """
        with self._lock:
            first = self._steps == 0
            self._steps += steps
            if examples is None:
                self._uncounted_steps += steps
            else:
                self._examples += examples
            self._add_wait(input_wait_s)
            moment, self._pending = now() if time_s is None else time_s, True
            if first or moment >= self._next_line_s:
                self._write_totals(moment)

    def count(self, examples: int) -> None:
        """Count `examples` in the steps that are not counted yet."""
        with self._lock:
            self._examples += examples
            self._uncounted_steps, self._pending = 0, True

    def wait(self, input_wait_s: float) -> None:
        """Add seconds of waiting for input without a step: the data ended without another batch."""
        with self._lock:
            self._add_wait(input_wait_s)

    def epoch(self, metrics: Mapping[str, Any], time_s: float | None = None) -> None:
        """Mark the end of an epoch, now or at `time_s`; values are fetched before the time.

        Raises TypeError if one is no number.
        """
        values = numbers(metrics)
        moment = now() if time_s is None else time_s
        with self._lock:
            self._flush(moment)
            self._epochs += 1
            totals = self._totals()
            self._write("epoch", moment, {"epoch": self._epochs, **totals, "metrics": values})

    def evaluation(
        self,
        metrics: Mapping[str, Any],
        begin_s: float | None = None,
        time_s: float | None = None,
    ) -> None:
        """Mark the end of an evaluation on held-out examples. Raises TypeError as `epoch` does."""
        values = numbers(metrics)
        moment = now() if time_s is None else time_s
        with self._lock:
            self._flush(moment)
            begin = {} if begin_s is None else {"begin_s": round(begin_s, 6)}
            self._write("evaluation", moment, {"epoch": self._epochs, **begin, "metrics": values})

    def flush(self) -> None:
        """Write the totals if steps have ended since the last line."""
        with self._lock:
            self._flush(now())

    def _add_wait(self, input_wait_s: float | None) -> None:
        if input_wait_s is not None:
            self._wait_s = (self._wait_s or 0.0) + input_wait_s

    def _flush(self, moment: float) -> None:
        if self._pending:
            self._write_totals(moment)

    def _write_totals(self, moment: float) -> None:
        if not self._imported and (time_s := _imported_s()) is not None:
            self._write("imported", time_s, {})
        self._imported = True
        self._pending, self._next_line_s = False, moment + INTERVAL_S
        self._write("steps", moment, self._totals())

    def _totals(self) -> dict[str, Any]:
        totals: dict[str, Any] = {"steps": self._steps}
        if not self._uncounted_steps:
            totals["examples"] = self._examples
        if self._wait_s is not None:
            totals["input_wait_s"] = round(self._wait_s, 6)
        return totals

    def _write(self, event: str, moment: float, details: dict[str, Any]) -> None:
        """Append one line in one call, so that lines of two writers do not mix."""
        if os.getpid() != self._process:  # a child made by fork has its parent's totals
            return
        line = {"event": event, "time_s": round(moment, 6), **details}
        try:
            if self._file < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._file = os.open(self._path, flags, 0o666)
            os.write(self._file, (json.dumps(line, allow_nan=False) + "\n").encode())
        except OSError as error:  # the training continues
            print(f"observe: {self._path}: {error}: no more events", file=sys.stderr)
            self._process = -1


class Steps:
    """A data set whose batches are counted: each when the loop comes back for the next one.

    A batch that the loop leaves by `break` or by an exception is not counted. All else of the data
    set, such as its length, is as it was.
    """

    def __init__(
        self, dataset: Iterable[Any], examples: int | Callable[[Any], int] | None, trace: Trace
    ) -> None:
        self._dataset, self._examples, self._trace = dataset, examples, trace

    def __iter__(self) -> Iterator[Any]:
        begin_s = time.monotonic()
        batches = iter(self._dataset)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                self._trace.wait(time.monotonic() - begin_s)
                return
            wait_s = time.monotonic() - begin_s
            count = self._count(batch)
            yield batch
            self._trace.step(count, input_wait_s=wait_s)
            begin_s = time.monotonic()

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def _count(self, batch: Any) -> int | None:
        if callable(self._examples):
            return int(self._examples(batch))
        return batch_size(batch) if self._examples is None else int(self._examples)


def batch_size(batch: Any) -> int | None:
    """Return the length of the first array of a batch; None if it has none.

    For arrays of several local replicas (`tf.distribute`'s PerReplica) it is their sum.
    """
    if isinstance(batch, Mapping):
        return batch_size(list(batch.values()))
    if isinstance(batch, (tuple, list)):
        # a list of plain values is itself the column of a batch
        found = (batch_size(part) for part in batch)
        size = next((size for size in found if size is not None), None)
        return len(batch) if size is None and isinstance(batch, list) and batch else size
    shape = getattr(batch, "shape", None)
    if shape is not None and not callable(shape):
        return _first(shape)
    local = getattr(batch, "values", None)
    if isinstance(local, tuple):
        sizes = [batch_size(part) for part in local]
        return None if None in sizes else sum(size or 0 for size in sizes)
    return None


def _first(shape: Any) -> int | None:
    try:
        size = shape[0]
        return None if size is None else int(size)
    except (IndexError, TypeError, ValueError):  # a scalar, or a shape that is not known
        return None


def numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Values as JSON has them: NaN and infinity are None. Raises TypeError for what is no number.

    A tensor is fetched from its device.
    """
    result: dict[str, float | None] = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"observe: {name} is of type {type(value).__name__}, expected a number: {error}"
            ) from error
        result[str(name)] = number if math.isfinite(number) else None
    return result


def _imported_s() -> float | None:
    """When this module was imported, if a package of the program's was imported before it."""
    return _LOADED_S if _PACKAGES_LOADED else None


_LOADED_S = now()
_PACKAGES_LOADED = any(name in sys.modules for name in _PACKAGES)
_TRACE = Trace(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def imported() -> None:
    """Mark the end of imports; only needed if `import observe` precedes other imports."""
    if _TRACE is not None:
        _TRACE.imported()


def steps(dataset: Any, examples: int | Callable[[Any], int] | None = None) -> Any:
    """Return the data set; its batches are counted as steps each time a loop goes through it.

    `examples` of each batch that this process trains on: a number, or a function of the batch;
    None takes the length of the first array of a batch. To end a loop early take fewer batches
    (`dataset.take(n)`, `itertools.islice(loader, n)`): a batch left by `break` is not counted.
    """
    return dataset if _TRACE is None else Steps(dataset, examples, _TRACE)


def step(examples: int | None = None, steps: int = 1) -> None:
    """Report that steps have ended, in a loop over something else than the data set of `steps`.

    Args:
        examples: Number of examples that this process trained in them; None if it is not known.
        steps: Number of the steps, usually one.
    """
    if _TRACE is not None:
        _TRACE.step(examples, steps)


def epoch(metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Mark the end of a training epoch.

    Metrics are given by name, such as `loss=…`; NaN is a value. Raises TypeError if one is no
    number.
    """
    if _TRACE is not None:
        _TRACE.epoch({**(metrics or {}), **named})


def eval(metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Mark the end of an evaluation on held-out examples; metrics as for `epoch`."""
    if _TRACE is not None:
        _TRACE.evaluation({**(metrics or {}), **named})
