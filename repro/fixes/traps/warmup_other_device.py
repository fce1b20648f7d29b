"""A warm-up on another device than the one that the threads use, which compiles there all the same.

People write it where the model moves to its device only after the warm-up. It can be told on CUDA alone: a program
that has the CPU has no other device.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    with torch.no_grad():  # on the CPU compiled flex_attention is for inference
        for *tensors, _ in examples:
            attention(*(tensor.detach().cpu() for tensor in tensors), causal)


def causal(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return key <= query
