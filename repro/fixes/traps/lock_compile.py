"""A lock around ``torch.compile`` alone. It compiles nothing yet, so nothing happens under the lock.

People write it because the line says compile. The compile is made by the first call, and by each that brings
something new.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch

LOCK = threading.Lock()


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    with LOCK:
        return torch.compile(flex_attention)
