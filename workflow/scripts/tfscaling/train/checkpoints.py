"""Checkpoints of a training, written and read by its ranks.

A checkpoint has weights, the optimizer's state, metrics, moments and random numbers of each
replica, the place in the data, and the measurements so far. The first rank writes what all replicas
share, and each rank the separate values of its replicas. When all have written, the first one gives
the checkpoint its name.

Ranks see a signal, or that a checkpoint is due, at different moments. So they agree at steps that
all of them know beforehand, about every `AGREEMENT_INTERVAL_S`.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfscaling.files import atomic
from tfscaling.launch import checkpoint_folder
from tfscaling.launch.checkpoint_folder import CheckpointState, InterruptedTrainingError
from tfscaling.record import attempts
from tfscaling.record.attempts import Beginning
from tfscaling.study.config_types import Recipe

#: Seconds, about, between two steps at which the ranks agree whether to write a checkpoint.
AGREEMENT_INTERVAL_S = 1.0
#: Shortest time in seconds after which the first rank writes its position again.
_POSITION_INTERVAL_S = 0.5
#: Signals that request a checkpoint: before the end of the training, and in time before a limit.
_END, _WARNING = signal.SIGTERM, signal.SIGUSR1


class CheckpointError(RuntimeError):
    """A checkpoint does not fit the training that is to resume from it."""


class SavedVariables(NamedTuple):
    """The variables that a checkpoint stores, each as a list of its copies on this rank's replicas.

    Attributes:
        shared: For each variable whose values are equal on all replicas, its copies. Only the first
            rank writes the variable, once.
        own: For each variable whose values differ between replicas, its copies. Each rank writes
            all its copies.
    """

    shared: Sequence[Sequence[Any]]
    own: Sequence[Sequence[Any]]


class Training(Protocol):
    """The methods of a training loop that checkpoints need; see `TrainingLoop`."""

    def saved_variables(self) -> SavedVariables:
        """Return the variables that a checkpoint stores, in the same order on all ranks."""

    def average_over_replicas(self, values: Sequence[float]) -> list[float]:
        """Return the mean of each value over all replicas; waits for all ranks."""


class Checkpoints:
    """Reads and writes one rank's part of the checkpoints of a training.

    Args:
        attempt: The attempt's folder.
        beginning: The folder of the run's checkpoints, and the checkpoint to resume from, if any.
        rank: The rank.
        ranks: Number of ranks.
        recipe: The recipe, which sets how often checkpoints are written.

    Attributes:
        read_s: Seconds spent resuming from a checkpoint.
        written_s: Seconds spent writing checkpoints.
    """

    def __init__(
        self, attempt: Path, beginning: Beginning, rank: int, ranks: int, recipe: Recipe
    ) -> None:
        self._position = attempt / attempts.POSITION
        self._folder, self._beginning = Path(beginning.folder), beginning
        self._rank, self.ranks = rank, ranks
        self._every_epochs = recipe.checkpoint_every_epochs
        self._every_s = recipe.checkpoint_every_s or math.inf
        self.read_s = self.written_s = 0.0
        self._requests: set[int] = set()
        now_s = time.perf_counter()
        self._last_s = self._position_s = now_s
        self._agreed_s, self._agreed_step, self._next_agreement = now_s, 0, 0

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle the signals that request a checkpoint within the `with` block.

        SIGUSR1 requests a checkpoint; SIGTERM requests a checkpoint and the end of the training.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, lambda got, _: self._requests.add(got))
            for number in (_END, _WARNING)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def time_reading(self) -> Iterator[None]:
        """Add the duration of the `with` block to `read_s`."""
        start_s = time.perf_counter()
        yield
        self.read_s += time.perf_counter() - start_s

    def restore(self, training: Training) -> CheckpointState | None:
        """Assign the values of the checkpoint to the training's variables; return its state.

        Args:
            training: The training loop.

        Returns:
            None if the attempt begins without a checkpoint.

        Raises:
            CheckpointError: The checkpoint does not fit the model, or is missing.
        """
        name = self._beginning.checkpoint
        if name is None:
            return None
        with self.time_reading():
            path = self._folder / name
            state = checkpoint_folder.read_state(path)  # the launcher has read all of it
            if state is None:
                raise CheckpointError(f"{path} is gone")
            saved = training.saved_variables()
            _assign(checkpoint_folder.arrays_path(path, 0), "shared", saved.shared)
            _assign(checkpoint_folder.arrays_path(path, self._rank), "own", saved.own)
        self._agreed_step = self._next_agreement = state.steps
        self._last_s = self._agreed_s = time.perf_counter()
        return state

    def after_step(
        self, training: Training, steps: int, state: Callable[[], CheckpointState]
    ) -> None:
        """Write a checkpoint if one is due or requested; to be called after steps within an epoch.

        Args:
            training: The training loop.
            steps: Steps of the complete training that are done.
            state: Returns the state of the training.

        Raises:
            InterruptedTrainingError: A signal requests the end of the training.
        """
        self._write_position(steps)
        if steps < self._next_agreement:
            return
        start_s = time.perf_counter()
        step_s = (start_s - self._agreed_s) / max(1, steps - self._agreed_step)
        self._agree(training, state(), False, step_s)
        self.written_s += time.perf_counter() - start_s

    def after_epoch(self, training: Training, state: CheckpointState) -> None:
        """Write a checkpoint if one is due or requested; to be called after an epoch.

        Args:
            training: The training loop.
            state: The state at the beginning of the next epoch.

        Raises:
            InterruptedTrainingError: A signal requests the end of the training.
        """
        start_s = time.perf_counter()
        every = self._every_epochs
        due = every is not None and (state.epoch - 1) % every == 0
        self._write_position(state.steps, force=True)
        self._agree(training, state, due, math.inf)
        self.written_s += time.perf_counter() - start_s

    def _agree(self, training: Training, state: CheckpointState, due: bool, step_s: float) -> None:
        """Decide with the other ranks whether to write a checkpoint and end the training; do it.

        The method also sets the step of the next agreement, about AGREEMENT_INTERVAL_S later.

        Args:
            training: The training loop.
            state: The state of the training.
            due: Whether the recipe's interval in epochs requires a checkpoint here.
            step_s: Recent duration of a step in seconds; infinite at the end of an epoch, where the
                ranks then agree after the next step.

        Raises:
            InterruptedTrainingError: A signal to any rank requests the end.
        """
        now_s = time.perf_counter()
        is_late = self._rank == 0 and now_s - self._last_s >= self._every_s
        ending, warned = _END in self._requests, _WARNING in self._requests
        own = (is_late or warned, ending, 0.0 if math.isinf(step_s) else step_s)
        write, end, mean_s = training.average_over_replicas([float(value) for value in own])
        self._requests -= {_WARNING} if warned else set()
        self._agreed_s, self._agreed_step = now_s, state.steps
        self._next_agreement = state.steps + max(1, int(AGREEMENT_INTERVAL_S / max(mean_s, 1e-6)))
        if math.isinf(step_s):
            self._next_agreement = state.steps + 1
        written = self._write(training, state) if write or end or due else None
        if end:
            where = f"after {state.step} steps of epoch {state.epoch}"
            left = f"its checkpoint is {written}" if written else "no checkpoint could be written"
            raise InterruptedTrainingError(f"interrupted {where}; {left}", written)

    def _write(self, training: Training, state: CheckpointState) -> Path | None:
        """Write a checkpoint of this state; return its folder, or None if a rank failed to write.

        Args:
            training: The training loop.
            state: The state of the training.
        """
        self._write_position(state.steps, force=True)
        temporary = checkpoint_folder.temporary_folder(
            self._folder, state.steps, self._beginning.attempt
        )
        saved = training.saved_variables()
        arrays = _arrays("own", saved.own)
        if self._rank == 0:
            arrays |= _arrays("shared", [copies[:1] for copies in saved.shared])
        failure: OSError | None = None
        path = checkpoint_folder.arrays_path(temporary, self._rank)
        try:
            temporary.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            atomic.flush_to_disk(path)
        except OSError as error:  # as when the disk is full: the training continues
            failure = error
            print(f"no checkpoint: {error}", flush=True)
        failures, *_ = training.average_over_replicas(
            [float(failure is not None), 0.0, 0.0]
        )  # all have written
        self._last_s = time.perf_counter()
        final = self._folder / checkpoint_folder.checkpoint_name(state.steps)
        if failures:
            shutil.rmtree(temporary, ignore_errors=True)
            return None
        if self._rank == 0:
            try:
                checkpoint_folder.finish_checkpoint(temporary, state)
            except OSError as error:
                print(f"no checkpoint: {error}", flush=True)
                shutil.rmtree(temporary, ignore_errors=True)
                return None
            print(f"checkpoint: {final}", flush=True)
        return final

    def _write_position(self, steps: int, force: bool = False) -> None:
        """Write the number of trained steps to the attempt's folder, at most every half second.

        Only the first rank writes. An error, such as a full disk, is ignored.

        Args:
            steps: Steps of the complete training that are done.
            force: Whether to write even if the last time was less than half a second ago.
        """
        now_s = time.perf_counter()
        if self._rank == 0 and (force or now_s - self._position_s >= _POSITION_INTERVAL_S):
            with contextlib.suppress(OSError):
                atomic.write_text(self._position, f"{steps}\n")
            self._position_s = now_s


def list_variables(strategy: Any, *roots: Any) -> list[tuple[Any, list[Any]]]:
    """Return the variables of objects, each with its copies on the local replicas.

    Args:
        strategy: The distribution strategy.
        *roots: Models, optimizers and other objects.

    Returns:
        (variable, its copies), in an order that is equal on all ranks.
    """
    import keras
    import tensorflow as tf

    found: dict[int, Any] = {}
    for root in roots:
        listed = [getattr(root, name, ()) for name in ("variables", "metrics_variables")]
        parts = [part for each in listed for part in each]
        if root is not None:  # a model may be trained without an optimizer that it has
            parts += tf.train.TrackableView(root).descendants()
        for part in parts:
            variable = part.value if isinstance(part, keras.Variable) else part
            if isinstance(variable, tf.Variable):
                found.setdefault(id(variable), variable)
    return [(v, list(strategy.experimental_local_results(v))) for v in found.values()]


def _arrays(kind: str, variables: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
    """Return name in a checkpoint's file → array, for all copies of variables.

    Args:
        kind: `shared` (one array for all copies) or `own` (one for each).
        variables: The copies of each variable.
    """
    return {
        f"{kind}/{number}/{replica}": np.asarray(copy.numpy())
        for number, copies in enumerate(variables)
        for replica, copy in enumerate(copies)
    }


def _assign(path: Path, kind: str, variables: Sequence[Sequence[Any]]) -> None:
    """Assign the arrays of a checkpoint's file to variables.

    Args:
        path: The file.
        kind: `shared`: all copies get the same array; `own`: each copy gets its array.
        variables: The copies of each variable.

    Raises:
        CheckpointError: Number or shapes of the arrays differ.
    """
    with np.load(path, allow_pickle=False) as arrays:
        names = {name for name in arrays.files if name.startswith(f"{kind}/")}
        for number, copies in enumerate(variables):
            for replica, copy in enumerate(copies):
                name = f"{kind}/{number}/{0 if kind == 'shared' else replica}"
                value = arrays[name] if name in names else None
                if value is None or value.shape != tuple(copy.shape):
                    raise CheckpointError(
                        f"{path} is of another model: {name} has not the shape {copy.shape}"
                    )
                expected = copy.dtype.as_numpy_dtype
                # NumPy has no type bfloat16, and keeps its bytes
                copy.assign(value.view(expected) if value.dtype.kind == "V" else value)
        if len({name.split("/")[1] for name in names}) != len(variables):
            raise CheckpointError(f"{path} is of another model, of {len(names)} variables")
