"""Warm up on the first device alone: what people with a drafter per device would like to be enough."""

from collections.abc import Callable, Iterable
from typing import Any


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    device = None
    for query, *rest in examples:
        device = device or query.device
        if query.device == device:
            output = attention(query, *rest)
            if output.requires_grad:
                output.sum().backward()
