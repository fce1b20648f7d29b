"""A lock around mask and compiled call that the uncompiled call does not take, nor other code that traces.

People write it because only compiled calls fail. They fail for what the others do.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

LOCK = threading.RLock()


def guard_attention(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with LOCK:
            return function(*args, **kwargs)

    return locked
