"""Gradients that replicas exchange in 16 bits: bfloat16, which has the range of float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfscaling.training.fused_updates import before_cast


def exchange_rounded(optimizer: Any) -> None:
    """Let it round its gradients of float32 before they are summed over the replicas."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    exchange = inner._all_reduce_sum_gradients

    def of_rounded(gradients_and_variables: Any) -> list[Any]:
        gradients, variables = zip(*gradients_and_variables, strict=True)

        def sums(rounded: list[Any]) -> list[Any]:
            return [total for total, _ in exchange(list(zip(rounded, variables, strict=True)))]

        return list(zip(summed(gradients, sums), variables, strict=True))

    inner._all_reduce_sum_gradients = of_rounded


def summed(gradients: Sequence[Any], exchange: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """What `exchange` makes of the gradients, rounded, in the type that each had.

    None, sparse gradients and those of other types are exchanged as they are.
    """
    import tensorflow as tf

    def rounded(gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices) or gradient is None:
            return gradient
        if gradient.dtype != tf.float32:
            return gradient
        made = before_cast(gradient)
        return tf.cast(gradient, tf.bfloat16) if made is None else made

    given = [rounded(gradient) for gradient in gradients]
    return [
        total if total is None or total.dtype == gradient.dtype else tf.cast(total, gradient.dtype)
        for total, gradient in zip(exchange(given), gradients, strict=True)
    ]
