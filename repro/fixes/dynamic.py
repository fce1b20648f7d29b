"""Compile with dynamic shapes, so that a new length does not compile again.

Fewer compiles, fewer windows; the first compile is as open as before.
"""

from collections.abc import Callable
from typing import Any

import torch


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True)
