"""A warm-up with shorter inputs than those that come. The first call of a new length compiles all the same.

People write it to warm up quickly. Two lengths make the compiled code dynamic, and a third is warm then; one does
not.
"""

from collections.abc import Callable, Iterable
from typing import Any


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    for *tensors, mask_mod in examples:
        attention(*(tensor[..., : tensor.shape[-2] // 2, :] for tensor in tensors), mask_mod)
