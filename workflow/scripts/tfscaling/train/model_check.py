"""Whether a user's model can be built and trained, tried on this machine's CPU before any run.

As a rank does it up to its first step, with one replica and one batch of the data.
"""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import Any

from tfscaling.datasets.catalogue import Arrays
from tfscaling.record import crashes
from tfscaling.spec import user_code
from tfscaling.spec.run_spec import ModelToCheck, RunSpec
from tfscaling.train import models, own_step, rank, strategies
from tfscaling.train.all_reduce import Trainer
from tfscaling.train.all_reduce_loop import AllReduceLoop
from tfscaling.train.pipeline import Datasets, PipelineTrainer
from tfscaling.train.strategies import STRATEGIES, Exchange

#: Larger files of arrays are not read: the model alone is built.
_FILE_BYTES_MAX = 1 << 28
_FIRST_PORT = 20000


def problem(model: ModelToCheck, dataset_file: Path) -> str | None:
    """Why runs of this kind cannot begin, in one line with the line of the user's code, or None.

    `dataset_file` is the prepared data; where that is not there yet, or large, the model alone is
    built. The traceback is printed. The process computes on the CPU from then on.
    """
    import keras

    spec = model.spec
    keras.backend.clear_session()
    os.environ.update({**spec.measured.env, "TF_CONFIG": tf_config(spec)})
    try:
        strategies.set_precision(spec.recipe.precision)
        _build(spec, dataset_file, model.on_several_replicas)
    except Exception as error:
        traceback.print_exc()
        return crashes.sentence(error, Path.cwd())
    return None


def tf_config(spec: RunSpec) -> str:
    """TF_CONFIG of the first worker of such a run, which a user's function may read."""
    ports = iter(range(_FIRST_PORT, _FIRST_PORT + spec.geometry.tasks))
    cluster = {
        job: [f"127.0.0.1:{next(ports)}" for _ in range(number)]
        for job, number in spec.jobs.items()
    }
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})


def _build(spec: RunSpec, dataset_file: Path, on_several_replicas: bool) -> None:
    build = models.get(spec.point.model, spec.recipe.constants).build
    if not _is_readable(spec, dataset_file):
        build()
        return
    strategy = STRATEGIES["single"].build(["CPU:0"], Exchange())
    data, _ = rank.data_of(0, spec, dataset_file)
    trainer: AllReduceLoop
    if isinstance(data, Datasets):
        trainer = PipelineTrainer(strategy, build, data, spec)
    else:
        trainer = Trainer(strategy, build, data, spec)
    if trainer.own is None:
        _call_with(trainer.model, data)
    elif on_several_replicas:
        own_step.check_reductions(trainer.model)


def _call_with(model: Any, data: Arrays | Datasets) -> None:
    """Call the model symbolically with inputs of the data's shape. Raises what the model does."""
    import keras

    inputs = data.train.element_spec[0] if isinstance(data, Datasets) else data.x_train
    model.compute_output_spec(
        keras.tree.map_structure(
            lambda each: keras.KerasTensor((1, *each.shape[1:]), "float32"), inputs
        )
    )


def _is_readable(spec: RunSpec, dataset_file: Path) -> bool:
    """Whether the data is there, and small or made as it is read."""
    if spec.dataset is None:
        return False
    if user_code.is_pipeline(spec.dataset):
        return dataset_file.exists() or user_code.preparing(spec.dataset) is None
    return dataset_file.exists() and dataset_file.stat().st_size <= _FILE_BYTES_MAX
