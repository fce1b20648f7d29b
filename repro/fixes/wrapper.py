"""Compile a function of one's own around the operator. Does not help: it is a compiled call like any other."""

from collections.abc import Callable
from typing import Any

import torch


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    def attend(query: Any, key: Any, value: Any, block_mask: Any) -> Any:
        return flex_attention(query, key, value, block_mask=block_mask)

    return torch.compile(attend)
