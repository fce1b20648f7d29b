"""Lengths marked as dynamic. As with ``dynamic=True``: fewer compiles, no race less.

People write it because new lengths bring new compiles. The first compile is as open as before. ``mark_dynamic``
itself refuses to compile where there are as many keys as queries; ``maybe_mark_dynamic`` does not insist.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch._dynamo


def guard_attention(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def marked(query: Any, key: Any, value: Any, *rest: Any) -> Any:
        for tensor in (query, key, value):
            torch._dynamo.maybe_mark_dynamic(tensor, 2)
        return function(query, key, value, *rest)

    return marked
