"""Photograph-like JPEG files of ImageNet's shape, generated once and read as a pipeline.

`resnet50` trains on them: reading, decoding, cropping and flipping are part of each step, as they
are with ImageNet. Each class has a different colour, direction and spacing of stripes, under noise
and changing light, so that a model can learn. A recipe's `parameters` may set the number of images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

#: Default numbers of images. Batches of 32 and 64 divide them for 1, 2, 3, 4, 6, 8, 12 and 24
#: replicas.
TRAIN_EXAMPLES, TEST_EXAMPLES = 1536, 192
#: Number of files for training, and for the test. Each worker reads every n-th file: numbers of
#: workers that divide FILES have equal parts, and more workers than FILES leave some without data.
FILES = 48
CLASSES = 10
_SIDE, _CROP = 256, 224


def prepare(
    folder: Path, train_examples: int = TRAIN_EXAMPLES, test_examples: int = TEST_EXAMPLES
) -> None:
    """Write TFRecord files of JPEG images and labels: about 45 MB, equal on every machine.

    Args:
        folder: The folder to write to.
        train_examples: Number of images for training.
        test_examples: Number of images for the test.
    """
    import tensorflow as tf

    for part, examples in (("train", train_examples), ("test", test_examples)):
        random = np.random.default_rng([int(part == "test"), examples])
        for number in range(FILES):
            with tf.io.TFRecordWriter(str(folder / f"{part}-{number:02}.tfrecord")) as writer:
                for place in range(number, examples, FILES):
                    label = (number + place // FILES) % CLASSES  # each file has examples of all
                    jpeg = tf.io.encode_jpeg(draw_image(label, random), quality=90).numpy()
                    writer.write(_serialize_example(jpeg, label))


def draw_image(label: int, random: np.random.Generator) -> np.ndarray:
    """Return a random image of a class: uint8 (256, 256, 3).

    Args:
        label: The class, from 0 to CLASSES - 1.
        random: Source of the noise.
    """
    rows, columns = np.mgrid[0:_SIDE, 0:_SIDE] / _SIDE
    angle = np.pi * label / CLASSES + random.normal(0, 0.05)
    along = rows * np.cos(angle) + columns * np.sin(angle)
    stripes = np.sin(2 * np.pi * (4 + label) * along + random.uniform(0, 2 * np.pi))
    colour = 0.5 + 0.5 * np.cos(2 * np.pi * (label / CLASSES + np.array([0, 1 / 3, 2 / 3])))
    light = random.uniform(0.6, 1.0) * (0.7 + 0.3 * rows)
    pixels = light[..., None] * (0.5 + 0.3 * stripes[..., None]) * (0.4 + 0.6 * colour)
    pixels = pixels + random.normal(0, 0.05, pixels.shape)
    return (255 * np.clip(pixels, 0, 1)).astype(np.uint8)


def data(
    context: Any,
    train_examples: int = TRAIN_EXAMPLES,
    test_examples: int = TEST_EXAMPLES,
) -> tuple[Any, Any]:
    """Return this worker's training and test pipelines, which yield batches (images, labels).

    Images are float32 (batch, 224, 224, 3), labels int32 (batch,).

    Args:
        context: The `PipelineContext` of this worker.
        train_examples: Unused; `prepare` has written this many images.
        test_examples: Unused, for the same reason.
    """
    import tensorflow as tf

    del train_examples, test_examples  # `prepare` has written this many

    def part(name: str) -> Any:
        """Return the pipeline over this worker's files of a part, `train` or `test`."""
        training = name == "train"
        files = tf.data.Dataset.list_files(str(context.folder / f"{name}-*"), shuffle=False)
        files = files.shard(context.workers, context.worker)
        records = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
        if training:
            records = records.shuffle(256, seed=context.seed)
        images = records.map(
            lambda record: _parse_record(record, training), num_parallel_calls=tf.data.AUTOTUNE
        )
        return images.batch(context.per_worker_batch_size)

    return part("train"), part("test")


def _serialize_example(jpeg: bytes, label: int) -> bytes:
    """Return the bytes of a TFRecord with an image and its label."""
    import tensorflow as tf

    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    written = tf.train.Example(features=tf.train.Features(feature=features))
    serialized: bytes = written.SerializeToString()
    return serialized


def _parse_record(record: Any, training: bool) -> tuple[Any, Any]:
    """Return (image, label) of a TFRecord; the image is float32 (224, 224, 3) in [0, 1].

    Args:
        record: The serialized example.
        training: Crop at random and flip at random; otherwise crop the centre.
    """
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    parsed = tf.io.parse_single_example(record, features)
    pixels = tf.io.decode_jpeg(parsed["image"], channels=3)
    if training:
        pixels = tf.image.random_flip_left_right(tf.image.random_crop(pixels, [_CROP, _CROP, 3]))
    else:
        pixels = tf.image.resize_with_crop_or_pad(pixels, _CROP, _CROP)
    pixels = tf.reshape(tf.cast(pixels, tf.float32) / 255.0, [_CROP, _CROP, 3])
    return pixels, tf.cast(parsed["label"], tf.int32)
