"""A lock around the compiled call alone, without ``create_block_mask``.

People write it because the call is what compiles. From 2.13 on building a mask writes into metadata that a compile
reads, and up to 2.13 whatever else traces, the uncompiled operator too, is seen by the call.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch

LOCK = threading.RLock()


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    compiled = torch.compile(flex_attention)

    def attention(*args: Any, **kwargs: Any) -> Any:
        with LOCK:
            return compiled(*args, **kwargs)

    return attention
