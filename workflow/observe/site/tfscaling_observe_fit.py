"""`observe: fit`: what `Model.fit` and `Model.evaluate` do, as events; no line of code changes.

Works with Keras 3 and legacy Keras (`tf_keras`), with any form of data. The classes are patched
when Keras is imported. A callback, first in the list, takes what Keras tells it; it fetches nothing
from a device but at the end of an epoch, where Keras does so itself.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

_OBSERVE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "observe.py")
#: When the last of these is imported, the program's packages are.
_PACKAGES = ("tensorflow", "keras", "tf_keras", "torch", "jax")
_KERAS = ("keras", "tf_keras")
#: What Keras 3 says where it fails under several workers (keras-team/keras#20585).
_UNDISTRIBUTED = ("PerReplica", "Invalid reduction dimension")
_WAY_OUT = (
    "Keras 3 cannot distribute Model.fit over several workers (keras-team/keras#20585): train the "
    "model by this workflow (`model: package.module:function`), write a loop with strategy.run and "
    "observe it by events, or take legacy Keras (tf_keras and TF_USE_LEGACY_KERAS=1)"
)


class DistributionError(RuntimeError):
    """`fit` of Keras 3 failed under MultiWorkerMirroredStrategy."""


def install() -> None:
    """Have `fit` and `evaluate` of Keras observed, from the program's import of Keras on."""
    trace = _observe().Trace(os.environ[_observe().VARIABLE])
    sys.meta_path.insert(0, _Finder(_Observer(trace)))


@functools.lru_cache(maxsize=None)
def _observe() -> Any:
    """`observe.py`, under a different name: the program may have an `observe`."""
    spec = importlib.util.spec_from_file_location("tfscaling_observe", _OBSERVE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the packages as Python does, and tells the observer when one is imported."""

    def __init__(self, observer: _Observer) -> None:
        self._observer, self._looking = observer, threading.local()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _PACKAGES or getattr(self._looking, "name", None) == name:
            return None
        self._looking.name = name
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.name = None
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader, name)
        return spec

    def _watch(self, loader: Any, name: str) -> None:
        execute = loader.exec_module

        @functools.wraps(execute)
        def exec_module(module: Any) -> None:
            execute(module)
            self._observer.imported(name, module)

        loader.exec_module = exec_module


class _Observer:
    """Turns what Keras does into events of one trace."""

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self._fits: list[_Fit] = []
        self._trained = _Trained()

    def imported(self, name: str, module: Any) -> None:
        self.trace.imported()
        if name in _KERAS:
            self._patch(module)

    def _patch(self, keras: Any) -> None:
        model = keras.Model
        if getattr(model.fit, "observed", False):  # Keras was loaded again
            return
        callback = _callback_class(keras.callbacks.Callback)
        model.fit = self._observed_fit(model.fit, callback)
        model.evaluate = self._observed_evaluate(model.evaluate, callback)

    def _observed_fit(self, fit: Any, callback: Any) -> Any:
        signature = inspect.signature(fit)

        @functools.wraps(fit)
        def observed(model: Any, *args: Any, **kwargs: Any) -> Any:
            # a program that this one starts is no rank, and has no trace
            os.environ.pop(_observe().VARIABLE, None)
            given = signature.bind(model, *args, **kwargs)
            work = _Fit(self, model, given.arguments)
            given.arguments["callbacks"] = _with(callback(work), given.arguments.get("callbacks"))
            self._fits.append(work)
            self._trained.add(given.arguments.get("x"))
            try:
                return fit(*given.args, **given.kwargs)
            except Exception as error:
                if _is_undistributed(model, error):
                    raise DistributionError(_WAY_OUT) from error
                raise
            finally:
                self._fits.remove(work)

        observed.observed = True  # type: ignore[attr-defined]
        return _unblamed(observed)

    def _observed_evaluate(self, evaluate: Any, callback: Any) -> Any:
        signature = inspect.signature(evaluate)

        @functools.wraps(evaluate)
        def observed(model: Any, *args: Any, **kwargs: Any) -> Any:
            given = signature.bind(model, *args, **kwargs)
            callbacks = given.arguments.get("callbacks")
            if any(isinstance(each, callback) for each in getattr(callbacks, "callbacks", ())):
                return evaluate(*given.args, **given.kwargs)  # of a fit, which sees it
            for work in self._fits:
                work.mark_metrics_lost(model)
            if self._trained.has(given.arguments.get("x")):
                return evaluate(*given.args, **given.kwargs)  # of no held-out examples
            given.arguments["callbacks"] = _with(callback(_Evaluate(self)), callbacks)
            return evaluate(*given.args, **given.kwargs)

        return _unblamed(observed)


def _unblamed(function: Any) -> Any:
    """Return the function, which tracebacks show without a file: errors are the program's."""
    function.__code__ = function.__code__.replace(co_filename="<observe: fit>")
    return function


class _Trained:
    """The data that calls of `fit` were given, which it does not keep alive."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def add(self, data: Any) -> None:
        for part in _parts(data):
            try:
                self._known[id(part)] = part
            except TypeError:  # a plain value, as in a list of numbers
                return

    def has(self, data: Any) -> bool:
        """Whether all arrays of the data, or the data set, are the very objects of a `fit`."""
        return data is not None and all(self._known.get(id(p)) is p for p in _parts(data))


def _parts(data: Any) -> Iterator[Any]:
    """Yield the arrays of several inputs; other data unchanged."""
    if isinstance(data, Mapping):
        data = list(data.values())
    if not isinstance(data, (list, tuple)):
        yield data
        return
    for part in data:
        yield from _parts(part)


class _Evaluate:
    """An evaluation outside `fit`."""

    def __init__(self, observer: _Observer) -> None:
        self._trace = observer.trace
        self._begin_s = 0.0

    def test_begin(self) -> None:
        self._begin_s = _observe().now()

    def test_end(self, logs: Any) -> None:
        self._trace.evaluation(_scalars(logs), self._begin_s)


class _Fit:
    """A call of `fit`: its steps, epochs, and evaluations between them.

    Callbacks of batches may come from threads, in any order and after the epoch's evaluation has
    begun; all others come from the thread that trains.
    """

    def __init__(self, observer: _Observer, model: Any, arguments: dict[str, Any]) -> None:
        self._trace = observer.trace
        self._model, self._arguments = model, arguments
        self._lock = threading.Lock()
        self._steps, self._written = 0, 0
        #: Examples of the epoch that are in the trace; None: unknown for its first steps.
        self._counted: int | None = 0
        self._trained_s: float | None = None
        self._examples: int | None = None
        self._lost = False
        self._updates, self._per_call = 0, 1
        self._begin_s = 0.0
        self._evaluated: tuple[float, float, dict[str, Any]] | None = None

    def epoch_begin(self) -> None:
        self._steps = self._written = 0
        self._counted = 0
        self._trained_s = self._examples = self._evaluated = None
        self._lost = False
        self._updates = self._updates_now()
        self._per_call = _number(getattr(self._model, "steps_per_execution", None))

    def batch_begin(self, batch: int) -> None:
        """Report the steps of the first call of the compiled function, when the second one begins.

        Their number of examples is fetched from the device, which ends the wait for these steps.

        Args:
            batch: Index of the step that begins, from 0.
        """
        if batch and not self._trace.has_steps:
            self._counted = self._or_given(_examples_counted(self._model), batch)
            with self._lock:
                self._written = batch
                self._trace.step(self._counted, batch)

    def batch_end(self, batch: int, steps_per_epoch: int | None) -> None:
        """Count the steps up to the end of one call of the compiled function.

        Args:
            batch: Index of the last step that the call may have had, from 0: Keras adds
                `steps_per_execution` each time, also where fewer steps were left.
            steps_per_epoch: Number of steps in the epoch; None if Keras does not know it.
        """
        with self._lock:
            steps = min(batch + 1, steps_per_epoch or batch + 1)
            self._steps = max(self._steps, steps)
            if self._trained_s is None and self._trace.has_steps:
                self._write_steps(steps if steps_per_epoch else steps - self._per_call + 1)

    def test_begin(self) -> None:
        self._close()
        self._begin_s = _observe().now()

    def test_end(self, logs: Any) -> None:
        self._evaluated = (self._begin_s, _observe().now(), _scalars(logs))

    def epoch_end(self, logs: Any) -> None:
        self._close()
        with self._lock:
            self._correct_steps()
            self._write_steps(self._steps)
            self._count()
        metrics = {k: v for k, v in _scalars(logs).items() if not k.startswith("val_")}
        self._trace.epoch(metrics, self._trained_s)
        if self._evaluated is not None:
            begin_s, end_s, values = self._evaluated
            self._trace.evaluation(values, begin_s, end_s)

    def mark_metrics_lost(self, model: Any) -> None:
        """Take the epoch's metrics as lost if the program evaluates the trained model within it.

        Keras resets the metrics of a model when an evaluation begins.
        """
        self._lost |= model is self._model and self._trained_s is None

    def _close(self) -> None:
        """End the epoch's training, before evaluation resets what counted its examples."""
        if self._trained_s is None:
            self._examples = None if self._lost else _examples_counted(self._model)
            with self._lock:  # a thread may write a step at this moment
                self._trained_s = _observe().now()

    def _write_steps(self, steps: int) -> None:
        """Report steps that Keras tells of after the epoch's training, at the time of its end.

        Args:
            steps: Number of all steps of the epoch so far.
        """
        if steps > self._written:
            more, self._written = steps - self._written, steps
            self._trace.step(None, more, time_s=self._trained_s)

    def _correct_steps(self) -> None:
        """Take the number of steps from the optimizer's updates, if the last call had fewer.

        With several steps in a call and an epoch of unknown length, Keras counts complete calls.
        """
        updates = self._updates_now() - self._updates
        if self._steps - self._per_call < updates < self._steps:
            self._steps = max(updates, self._written)

    def _updates_now(self) -> int:
        return _number(getattr(getattr(self._model, "optimizer", None), "iterations", None), 0)

    def _count(self) -> None:
        examples = self._or_given(self._examples, self._steps)
        if examples is not None:
            self._trace.count(examples - (self._counted or 0))

    def _or_given(self, examples: int | None, steps: int) -> int | None:
        """Examples of the epoch's first steps: as counted, or else by the arguments of `fit`."""
        if examples is None and not _of_several_workers(self._model):
            return _examples_given(self._arguments, steps)
        return examples


def _number(variable: Any, default: int = 1) -> int:
    """Return a number that Keras keeps as such or as a variable; `default` for anything else."""
    try:
        return int(variable)
    except (TypeError, ValueError):
        return default


def _callback_class(base: Any) -> Any:
    """Return the callback class for a Keras version, whose callback class is `base`."""

    class Observing(base):  # type: ignore[misc]
        """Passes on what a fit or an evaluation does."""

        #: Keras 3 may call it from its threads, which fetch the values of a batch as they come.
        async_safe = True

        def __init__(self, work: Any) -> None:
            super().__init__()
            self._work = work
            #: Legacy Keras fetches no values of a batch for it.
            self._supports_tf_logs = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._work.epoch_begin()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._work.batch_begin(batch)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._work.batch_end(batch, (self.params or {}).get("steps"))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._work.epoch_end(logs)

        def on_test_begin(self, logs: Any = None) -> None:
            self._work.test_begin()

        def on_test_end(self, logs: Any = None) -> None:
            self._work.test_end(logs)

    return Observing


def _with(callback: Any, callbacks: Any) -> Any:
    """Return the callbacks with ours first, which sees an epoch's end before others change it."""
    if hasattr(callbacks, "callbacks"):  # a list of Keras's own
        callbacks.callbacks.insert(0, callback)
        return callbacks
    if callbacks is None:
        return [callback]
    return [callback, *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks])]


def _scalars(logs: Any) -> dict[str, Any]:
    """Numbers among the values; a metric of several values is none."""
    found: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
    return found


def _examples_counted(model: Any) -> int | None:
    """Examples that this process has trained since the metrics were reset; None if unknown.

    Keras weighs the loss of each batch by its examples, so the mean's weights are their number,
    also of an incomplete batch. A step of the program's own may count otherwise.
    """
    step = getattr(type(model), "train_step", None)
    if getattr(step, "__module__", "").split(".")[0] not in _KERAS:
        return None
    loss = next((m for m in model.metrics if m.name == "loss" and hasattr(m, "count")), None)
    sync = getattr(model, "jax_state_sync", None)
    try:
        if sync is not None:  # with JAX the loop has the values until it is asked for them
            sync()
        # with JAX it is of the batches of all processes, which have equal shares
        examples = None if loss is None else round(_local_sum(loss.count) / _processes_of_jax())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    return examples or None


def _local_sum(variable: Any) -> float:
    """Return a variable's value; with a copy on each replica, the sum of this process's copies."""
    held = getattr(variable, "value", variable)
    held = variable if callable(held) else held
    copies = getattr(held, "values", None)
    return sum(map(float, copies)) if isinstance(copies, tuple) else float(held)


def _examples_given(arguments: dict[str, Any], steps: int) -> int | None:
    """Examples of an epoch with `steps` steps, from the arguments of `fit`; None if unknown."""
    data = arguments.get("x")
    spec = getattr(data, "element_spec", None)
    if spec is not None:
        size = _observe().batch_size(spec)
        return None if size is None else steps * size
    examples = _observe().batch_size(data)
    if examples is None or arguments.get("steps_per_epoch") is not None:
        return None
    trained = int(examples * (1.0 - arguments.get("validation_split", 0.0)))
    return min(steps * int(arguments.get("batch_size") or 32), trained)


def _processes_of_jax() -> int:
    """How many processes train one model by `keras.distribution`; 1 with another backend."""
    keras, jax = sys.modules.get("keras"), sys.modules.get("jax")
    backend = getattr(getattr(keras, "config", None), "backend", None)
    if jax is None or backend is None or backend() != "jax":
        return 1
    return int(jax.process_count())


def _of_several_workers(model: Any) -> bool:
    if _processes_of_jax() > 1:
        return True
    strategy = getattr(model, "distribute_strategy", None)
    several = getattr(getattr(strategy, "extended", None), "_in_multi_worker_mode", None)
    return several is not None and bool(several())


def _is_undistributed(model: Any, error: Exception) -> bool:
    keras = sys.modules.get("keras")
    return (
        keras is not None
        and str(getattr(keras, "__version__", "")).startswith("3.")
        and isinstance(model, keras.Model)
        and _processes_of_jax() == 1
        and _of_several_workers(model)
        and any(text in str(error) for text in _UNDISTRIBUTED)
    )
