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
    """Error of `fit` in Keras 3, which cannot distribute over several workers."""


def install() -> None:
    """Observe `fit` and `evaluate` of Keras, as soon as the program imports Keras.

    The events go to the file that the environment variable `observe.VARIABLE` names.
    """
    trace = _load_observe().Trace(os.environ[_load_observe().VARIABLE])
    sys.meta_path.insert(0, _Finder(_Observer(trace)))


@functools.lru_cache(maxsize=None)
def _load_observe() -> Any:
    """Return the module `observe.py`, loaded under the name `tfscaling_observe`.

    The program may have a module `observe` itself.
    """
    spec = importlib.util.spec_from_file_location("tfscaling_observe", _OBSERVE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _Finder(importlib.abc.MetaPathFinder):
    """Finder of Python's import system that reports the import of training packages to an observer.

    It finds the same modules as Python's other finders.

    Args:
        observer: Gets the imported packages.
    """

    def __init__(self, observer: _Observer) -> None:
        self._observer, self._looking = observer, threading.local()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Return the specification of a training package, whose loader reports its import, or None.

        Args:
            name: Full name of the module.
            path: Not used.
            target: Not used.
        """
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
        """Let a loader report to the observer when it has executed a module.

        Args:
            loader: The loader of the module.
            name: Name of the module.
        """
        execute = loader.exec_module

        @functools.wraps(execute)
        def exec_module(module: Any) -> None:
            execute(module)
            self._observer.on_imported(name, module)

        loader.exec_module = exec_module


class _Observer:
    """Wraps `fit` and `evaluate` of Keras, and writes what they do as events to a trace.

    Args:
        trace: The `observe.Trace` of this process.
    """

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self._fits: list[_Fit] = []
        self._trained = _TrainingData()

    def on_imported(self, name: str, module: Any) -> None:
        """Report the end of imports, and wrap the methods of Keras if the package is Keras.

        Args:
            name: Name of the imported package.
            module: The package.
        """
        self.trace.imported()
        if name in _KERAS:
            self._patch(module)

    def _patch(self, keras: Any) -> None:
        """Replace `fit` and `evaluate` of `keras.Model` by methods that are observed."""
        model = keras.Model
        if getattr(model.fit, "observed", False):  # Keras was loaded again
            return
        callback = _callback_class(keras.callbacks.Callback)
        model.fit = self._wrap_fit(model.fit, callback)
        model.evaluate = self._wrap_evaluate(model.evaluate, callback)

    def _wrap_fit(self, fit: Any, callback: Any) -> Any:
        """Return `Model.fit` with an observing callback.

        Args:
            fit: The method of Keras.
            callback: The class of the callback, from `_callback_class`.
        """
        signature = inspect.signature(fit)

        @functools.wraps(fit)
        def observed(model: Any, *args: Any, **kwargs: Any) -> Any:
            # a program that this one starts is no rank, and has no trace
            os.environ.pop(_load_observe().VARIABLE, None)
            given = signature.bind(model, *args, **kwargs)
            work = _Fit(self, model, given.arguments)
            given.arguments["callbacks"] = _add_callback(
                callback(work), given.arguments.get("callbacks")
            )
            self._fits.append(work)
            self._trained.add(given.arguments.get("x"))
            try:
                return fit(*given.args, **given.kwargs)
            except Exception as error:
                if _is_distribution_error(model, error):
                    raise DistributionError(_WAY_OUT) from error
                raise
            finally:
                self._fits.remove(work)

        observed.observed = True  # type: ignore[attr-defined]
        return _hide_from_traceback(observed)

    def _wrap_evaluate(self, evaluate: Any, callback: Any) -> Any:
        """Return `Model.evaluate` with an observing callback.

        An evaluation is not observed if `fit` calls it, or if its data was training data.

        Args:
            evaluate: The method of Keras.
            callback: The class of the callback, from `_callback_class`.
        """
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
            given.arguments["callbacks"] = _add_callback(callback(_Evaluation(self)), callbacks)
            return evaluate(*given.args, **given.kwargs)

        return _hide_from_traceback(observed)


def _hide_from_traceback(function: Any) -> Any:
    """Return the function, marked so that tracebacks show no line of this file."""
    function.__code__ = function.__code__.replace(co_filename="<observe: fit>")
    return function


class _TrainingData:
    """Data on which `fit` has trained; weak references, which do not keep the data alive."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def add(self, data: Any) -> None:
        """Add the data of a call of `fit`."""
        for part in _arrays(data):
            try:
                self._known[id(part)] = part
            except TypeError:  # a plain value, as in a list of numbers
                return

    def has(self, data: Any) -> bool:
        """Return whether data was training data.

        That is, whether each of its arrays, or the data set, is the same object as in a call of
        `fit`.
        """
        return data is not None and all(self._known.get(id(p)) is p for p in _arrays(data))


def _arrays(data: Any) -> Iterator[Any]:
    """Yield the arrays in a nested mapping, list or tuple; yield other data unchanged."""
    if isinstance(data, Mapping):
        data = list(data.values())
    if not isinstance(data, (list, tuple)):
        yield data
        return
    for part in data:
        yield from _arrays(part)


class _Evaluation:
    """A call of `evaluate` outside `fit`, which the callback reports to a trace.

    Args:
        observer: The observer with the trace.
    """

    def __init__(self, observer: _Observer) -> None:
        self._trace = observer.trace
        self._begin_s = 0.0

    def test_begin(self) -> None:
        """Store when the evaluation begins."""
        self._begin_s = _load_observe().now()

    def test_end(self, logs: Any) -> None:
        """Write the event `evaluation`.

        Args:
            logs: Name → value of the metrics, from Keras.
        """
        self._trace.evaluation(_scalars(logs), self._begin_s)


class _Fit:
    """A call of `fit`, whose steps, epochs and evaluations the callback reports to a trace.

    Callbacks of batches may come from threads, in any order, and after the evaluation of an epoch
    has begun. All other callbacks come from the thread that trains.

    Args:
        observer: The observer with the trace.
        model: The model.
        arguments: The arguments of `fit`, by name.
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
        """Reset the counts of the epoch, and read the model's number of steps per call."""
        self._steps = self._written = 0
        self._counted = 0
        self._trained_s = self._examples = self._evaluated = None
        self._lost = False
        self._updates = self._count_updates()
        self._per_call = _to_int(getattr(self._model, "steps_per_execution", None))

    def batch_begin(self, batch: int) -> None:
        """Report the first steps of the program as soon as their number of examples is known.

        These are the steps of the first call of the compiled function; the number is read when the
        second call begins. To read it, the process waits until the device has finished these steps.

        Args:
            batch: Index of the step that begins, from 0.
        """
        if batch and not self._trace.has_steps:
            self._counted = self._count_examples(_examples_by_metrics(self._model), batch)
            with self._lock:
                self._written = batch
                self._trace.step(self._counted, batch)

    def batch_end(self, batch: int, steps_per_epoch: int | None) -> None:
        """Count the steps up to the end of one call of the compiled function.

        Args:
            batch: Index of the call's last step, from 0. It may be too high, because Keras adds
                `steps_per_execution` for each call, also if fewer steps remained.
            steps_per_epoch: Number of steps in the epoch; None if Keras does not know it.
        """
        with self._lock:
            steps = min(batch + 1, steps_per_epoch or batch + 1)
            self._steps = max(self._steps, steps)
            if self._trained_s is None and self._trace.has_steps:
                self._report_steps(steps if steps_per_epoch else steps - self._per_call + 1)

    def test_begin(self) -> None:
        """End the epoch's training, and store when its evaluation begins."""
        self._end_training()
        self._begin_s = _load_observe().now()

    def test_end(self, logs: Any) -> None:
        """Store the times and metrics of the evaluation; `epoch_end` reports them.

        Args:
            logs: Name → value of the metrics, from Keras.
        """
        self._evaluated = (self._begin_s, _load_observe().now(), _scalars(logs))

    def epoch_end(self, logs: Any) -> None:
        """Report the remaining steps, the examples and the end of the epoch, then its evaluation.

        Args:
            logs: Name → value of the metrics, from Keras; `val_…` are metrics of the evaluation.
        """
        self._end_training()
        with self._lock:
            self._correct_steps()
            self._report_steps(self._steps)
            self._report_examples()
        metrics = {k: v for k, v in _scalars(logs).items() if not k.startswith("val_")}
        self._trace.epoch(metrics, self._trained_s)
        if self._evaluated is not None:
            begin_s, end_s, values = self._evaluated
            self._trace.evaluation(values, begin_s, end_s)

    def mark_metrics_lost(self, model: Any) -> None:
        """Note that the program evaluates a model, which makes the epoch's examples unknown.

        When an evaluation begins, Keras resets the metrics of the model, which count the examples.
        An evaluation of another model, or after the training of the epoch, changes nothing.

        Args:
            model: The model that the program evaluates.
        """
        self._lost |= model is self._model and self._trained_s is None

    def _end_training(self) -> None:
        """Store the end of the epoch's training and its examples; later calls have no effect."""
        if self._trained_s is None:
            self._examples = None if self._lost else _examples_by_metrics(self._model)
            with self._lock:  # a thread may write a step at this moment
                self._trained_s = _load_observe().now()

    def _report_steps(self, steps: int) -> None:
        """Report the steps of the epoch that have not been reported yet.

        After the training of the epoch, they get the time of its end.

        Args:
            steps: Number of steps of the epoch so far.
        """
        if steps > self._written:
            more, self._written = steps - self._written, steps
            self._trace.step(None, more, time_s=self._trained_s)

    def _correct_steps(self) -> None:
        """Correct the number of steps by the optimizer's updates, if the last call had fewer.

        If a call runs several steps and the length of the epoch is unknown, Keras counts all calls
        as complete.
        """
        updates = self._count_updates() - self._updates
        if self._steps - self._per_call < updates < self._steps:
            self._steps = max(updates, self._written)

    def _count_updates(self) -> int:
        """Return the number of updates by the model's optimizer; 0 if unknown."""
        return _to_int(getattr(getattr(self._model, "optimizer", None), "iterations", None), 0)

    def _report_examples(self) -> None:
        """Report the examples of the epoch that are not reported yet, if their number is known."""
        examples = self._count_examples(self._examples, self._steps)
        if examples is not None:
            self._trace.count(examples - (self._counted or 0))

    def _count_examples(self, examples: int | None, steps: int) -> int | None:
        """Return the number of examples in the first steps of the epoch; None if unknown.

        Args:
            examples: Number according to the metrics; if it is None, the arguments of `fit`
                determine it.
            steps: Number of steps.
        """
        if examples is None and not _has_several_workers(self._model):
            return _examples_by_arguments(self._arguments, steps)
        return examples


def _to_int(variable: Any, default: int = 1) -> int:
    """Return the value of a Keras variable or number as int; `default` if it is neither."""
    try:
        return int(variable)
    except (TypeError, ValueError):
        return default


def _callback_class(base: Any) -> Any:
    """Return a callback class that passes the calls of Keras on to a `_Fit` or an `_Evaluation`.

    Args:
        base: The callback class of the installed Keras, from which it inherits.
    """

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


def _add_callback(callback: Any, callbacks: Any) -> Any:
    """Return the callbacks with one more in first place.

    So it sees the metrics of an epoch before other callbacks change them.

    Args:
        callback: The callback to add.
        callbacks: A callback, several, the list class of Keras, or None.
    """
    if hasattr(callbacks, "callbacks"):  # a list of Keras's own
        callbacks.callbacks.insert(0, callback)
        return callbacks
    if callbacks is None:
        return [callback]
    return [callback, *(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks])]


def _scalars(logs: Any) -> dict[str, Any]:
    """Return name → number, without metrics that have several values."""
    found: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError, RuntimeError):
            continue
    return found


def _examples_by_metrics(model: Any) -> int | None:
    """Return the examples on which this process trained since the metrics were reset.

    Keras weights the loss of each batch by its number of examples. So the sum of weights in the
    mean loss is the number of examples, also with incomplete batches.

    Returns:
        None if unknown, as with a custom `train_step`, which may weight the loss in another way.
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
        examples = None if loss is None else round(_local_sum(loss.count) / _count_jax_processes())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    return examples or None


def _local_sum(variable: Any) -> float:
    """Return a variable's value, or the sum of its copies on the replicas of this process."""
    held = getattr(variable, "value", variable)
    held = variable if callable(held) else held
    copies = getattr(held, "values", None)
    return sum(map(float, copies)) if isinstance(copies, tuple) else float(held)


def _examples_by_arguments(arguments: dict[str, Any], steps: int) -> int | None:
    """Return the examples in the first steps of an epoch, from the arguments of `fit`.

    Args:
        arguments: The arguments, by name.
        steps: Number of steps.

    Returns:
        None if the arguments do not determine it.
    """
    data = arguments.get("x")
    spec = getattr(data, "element_spec", None)
    if spec is not None:
        size = _load_observe().batch_size(spec)
        return None if size is None else steps * size
    examples = _load_observe().batch_size(data)
    if examples is None or arguments.get("steps_per_epoch") is not None:
        return None
    trained = int(examples * (1.0 - arguments.get("validation_split", 0.0)))
    return min(steps * int(arguments.get("batch_size") or 32), trained)


def _count_jax_processes() -> int:
    """Return the number of JAX processes that train one model; 1 with another backend."""
    keras, jax = sys.modules.get("keras"), sys.modules.get("jax")
    backend = getattr(getattr(keras, "config", None), "backend", None)
    if jax is None or backend is None or backend() != "jax":
        return 1
    return int(jax.process_count())


def _has_several_workers(model: Any) -> bool:
    """Return whether several processes train the model together."""
    if _count_jax_processes() > 1:
        return True
    strategy = getattr(model, "distribute_strategy", None)
    several = getattr(getattr(strategy, "extended", None), "_in_multi_worker_mode", None)
    return several is not None and bool(several())


def _is_distribution_error(model: Any, error: Exception) -> bool:
    """Return whether `fit` failed because Keras 3 cannot distribute over several workers.

    Args:
        model: The model.
        error: The exception of `fit`.
    """
    keras = sys.modules.get("keras")
    return (
        keras is not None
        and str(getattr(keras, "__version__", "")).startswith("3.")
        and isinstance(model, keras.Model)
        and _count_jax_processes() == 1
        and _has_several_workers(model)
        and any(text in str(error) for text in _UNDISTRIBUTED)
    )
