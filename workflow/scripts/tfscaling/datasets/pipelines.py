"""A user's pipelines: what their functions are told, and the files that they read.

A dataset's function with the argument `context` is called on each rank and returns that worker's
part of the data; here it is not called. What it reads may be made once, by a function
`prepare(folder)` of the same module.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tfscaling.record import prepared_data
from tfscaling.record.prepared_data import DatasetFacts
from tfscaling.spec import user_code
from tfscaling.spec.user_code import Given


@dataclass(frozen=True)
class PipelineContext:
    """What a dataset's function gets as `context`: the training, and this worker's place in it.

    Batch sizes are in examples; a worker's batch is split over its replicas. `folder` has the files
    that `prepare` made; it is not there if the module has no such function.
    """

    workers: int
    worker: int
    replicas: int
    per_replica_batch_size: int
    per_worker_batch_size: int
    global_batch_size: int
    seed: int
    folder: Path


def prepare(function: str, name: str, output: Path, parameters: Given) -> DatasetFacts:
    """Let the module make the files of a pipeline next to `output`, completely or not at all.

    `name` identifies the prepared data. Whatever the module's function raises is passed on.
    """
    preparing = user_code.preparing(function)
    folder = prepared_data.files_folder(output)
    source = f"pipeline {function}"
    if preparing is not None:
        new = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        user_code.call(preparing, {**parameters, user_code.FOLDER: new})
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
        source += f", files by {preparing}"
    return DatasetFacts(
        dataset=name,
        source=source,
        sha256=prepared_data.pipeline_sha256(function, folder),
        examples=None,
        pipeline=function,
    )
