"""A lock for the first call of each shape, and none for those after it.

People write it to keep warm calls fast. But a warm call asks whether somebody traces, builds its mask, and compiles
for what is not in the key: another mask, another default dtype.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

LOCK = threading.RLock()
DONE: set[Any] = set()


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def locked_once(*args: Any, **kwargs: Any) -> Any:
        key = (function, *((arg.shape, arg.dtype) for arg in args if hasattr(arg, "shape")))
        if key in DONE:
            return function(*args, **kwargs)
        with LOCK:
            result = function(*args, **kwargs)
        DONE.add(key)
        return result

    return locked_once
