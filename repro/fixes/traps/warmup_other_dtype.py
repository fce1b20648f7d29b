"""A warm-up in another dtype than the one that comes, which compiles all the same.

People write it where weights are converted only after the warm-up, or under autocast.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    for *tensors, mask_mod in examples:
        other = torch.float32 if tensors[0].dtype is torch.bfloat16 else torch.bfloat16
        attention(*(tensor.to(other) for tensor in tensors), mask_mod)
