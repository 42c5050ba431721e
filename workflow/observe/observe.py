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
    """Return the present time in seconds since the epoch.

    Changes of the system clock since the start of the program have no effect.
    """
    return _ORIGIN_S + time.monotonic()


class Trace:
    """The events of this process and the totals in them, written to one file; threads may share it.

    Args:
        path: The file, to which lines are appended.
    """

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
        """Write the event `imported`: the imports of the program have ended.

        Args:
            time_s: When they ended, in seconds since the epoch; None: now.
        """
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
        """Add ended steps to the totals, and write the totals at intervals.

        Args:
            examples: Number of examples in these steps; None if `count` adds them later.
            steps: Number of steps.
            input_wait_s: Seconds of waiting for the input of these steps; None if not measured.
            time_s: When the last one ended, in seconds since the epoch; None: now.
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
        """Add the examples of the steps that were added without a number of examples.

        Args:
            examples: Number of examples in all these steps together.
        """
        with self._lock:
            self._examples += examples
            self._uncounted_steps, self._pending = 0, True

    def wait(self, input_wait_s: float) -> None:
        """Add a wait for input that was not followed by a step, because the data ended.

        Args:
            input_wait_s: The wait in seconds.
        """
        with self._lock:
            self._add_wait(input_wait_s)

    def epoch(self, metrics: Mapping[str, Any], time_s: float | None = None) -> None:
        """Write the event `epoch`: an epoch has ended.

        Args:
            metrics: Name → value; values on a device are fetched before the time is taken.
            time_s: Unix time of its end in seconds; None: now.

        Raises:
            TypeError: A value is no number.
        """
        values = to_json_numbers(metrics)
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
        """Write the event `evaluation`: an evaluation on held-out examples has ended.

        Args:
            metrics: Name → value.
            begin_s: When it began, in seconds since the epoch; None if unknown.
            time_s: When it ended, in seconds since the epoch; None: now.

        Raises:
            TypeError: A value is no number.
        """
        values = to_json_numbers(metrics)
        moment = now() if time_s is None else time_s
        with self._lock:
            self._flush(moment)
            begin = {} if begin_s is None else {"begin_s": round(begin_s, 6)}
            self._write("evaluation", moment, {"epoch": self._epochs, **begin, "metrics": values})

    def flush(self) -> None:
        """Write the totals if they have changed since the last line."""
        with self._lock:
            self._flush(now())

    def _add_wait(self, input_wait_s: float | None) -> None:
        """Add seconds of waiting for input to the totals; None adds nothing."""
        if input_wait_s is not None:
            self._wait_s = (self._wait_s or 0.0) + input_wait_s

    def _flush(self, moment: float) -> None:
        """Write the totals with the time `moment` if they have changed since the last line."""
        if self._pending:
            self._write_totals(moment)

    def _write_totals(self, moment: float) -> None:
        """Write the totals with the time `moment`; before the first ones, the end of imports."""
        if not self._imported and (time_s := _import_end_s()) is not None:
            self._write("imported", time_s, {})
        self._imported = True
        self._pending, self._next_line_s = False, moment + INTERVAL_S
        self._write("steps", moment, self._totals())

    def _totals(self) -> dict[str, Any]:
        """Return the totals as details of an event, without totals that are not known."""
        totals: dict[str, Any] = {"steps": self._steps}
        if not self._uncounted_steps:
            totals["examples"] = self._examples
        if self._wait_s is not None:
            totals["input_wait_s"] = round(self._wait_s, 6)
        return totals

    def _write(self, event: str, moment: float, details: dict[str, Any]) -> None:
        """Append an event to the file in one call, so that lines of two writers do not mix.

        Processes forked from this one write nothing. After an error, this process writes no more
        either.

        Args:
            event: Name of the event.
            moment: Its time in seconds since the epoch.
            details: Further keys of the line.
        """
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


class CountedDataset:
    """A data set whose batches are counted as steps, each when the loop requests the next batch.

    A batch that the loop leaves by `break` or by an exception is not counted. The length and all
    other attributes come from the data set.

    Args:
        dataset: The data set.
        examples: Number of examples in each batch, or a function of the batch; None: the length of
            the first array of the batch.
        trace: Counts the steps.
    """

    def __init__(
        self, dataset: Iterable[Any], examples: int | Callable[[Any], int] | None, trace: Trace
    ) -> None:
        self._dataset, self._examples, self._trace = dataset, examples, trace

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches; count each one, and the time until it was available."""
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
        """Return the length of the data set."""
        return len(self._dataset)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the data set; names that begin with `_` are not passed on."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def _count(self, batch: Any) -> int | None:
        """Return the number of examples in a batch; None if unknown."""
        if callable(self._examples):
            return int(self._examples(batch))
        return batch_size(batch) if self._examples is None else int(self._examples)


def batch_size(batch: Any) -> int | None:
    """Return the length of the first array of a batch; None if it has none.

    If the batch has parts on several local replicas (PerReplica of `tf.distribute`), return the sum
    of their lengths.
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
        return _first_dimension(shape)
    local = getattr(batch, "values", None)
    if isinstance(local, tuple):
        sizes = [batch_size(part) for part in local]
        return None if None in sizes else sum(size or 0 for size in sizes)
    return None


def _first_dimension(shape: Any) -> int | None:
    """Return the first dimension of a shape; None if there is none, or if it is unknown."""
    try:
        size = shape[0]
        return None if size is None else int(size)
    except (IndexError, TypeError, ValueError):  # a scalar, or a shape that is not known
        return None


def to_json_numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return name → number for metrics, with None for NaN and infinity, which JSON lacks.

    Tensors are fetched from their device.

    Raises:
        TypeError: A value is no number.
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


def _import_end_s() -> float | None:
    """Return the end of imports, if it is known without a call of `imported`; else None.

    It is the time at which this module was imported, after a package such as torch.
    """
    return _LOADED_S if _PACKAGES_LOADED else None


_LOADED_S = now()
_PACKAGES_LOADED = any(name in sys.modules for name in _PACKAGES)
_TRACE = Trace(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def imported() -> None:
    """Report that the imports have ended.

    Call it if the program imports `observe` before its other packages. Otherwise it is not needed.
    """
    if _TRACE is not None:
        _TRACE.imported()


def steps(dataset: Any, examples: int | Callable[[Any], int] | None = None) -> Any:
    """Return the data set; when a loop iterates over it, each batch is counted as a step.

    A batch that is left by `break` is not counted. To end a loop early, take fewer batches:
    `dataset.take(n)`, `itertools.islice(loader, n)`.

    Args:
        dataset: The data set.
        examples: Number of examples in each batch on which this process trains, or a function of
            the batch; None: the length of the first array of the batch.
    """
    return dataset if _TRACE is None else CountedDataset(dataset, examples, _TRACE)


def step(examples: int | None = None, steps: int = 1) -> None:
    """Report ended steps, in a loop that does not iterate over the result of `steps`.

    Args:
        examples: Number of examples on which this process trained in these steps; None if unknown.
        steps: Number of the steps, usually one.
    """
    if _TRACE is not None:
        _TRACE.step(examples, steps)


def epoch(metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Report that a training epoch has ended.

    Args:
        metrics: Name → value, such as `{"loss": 0.5}`; NaN is allowed.
        **named: Further metrics, such as `loss=0.5`.

    Raises:
        TypeError: A value is no number.
    """
    if _TRACE is not None:
        _TRACE.epoch({**(metrics or {}), **named})


def eval(metrics: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Report that an evaluation on held-out examples has ended.

    Args:
        metrics: Name → value, such as `{"accuracy": 0.9}`; NaN is allowed.
        **named: Further metrics, such as `accuracy=0.9`.

    Raises:
        TypeError: A value is no number.
    """
    if _TRACE is not None:
        _TRACE.evaluation({**(metrics or {}), **named})
