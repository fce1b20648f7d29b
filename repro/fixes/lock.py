"""One lock around building the mask, compiling and calling.

Holds between threads that all take the lock. Whoever does not take it, another library that traces or compiles, is
not held back by it. Costs: attention of all threads runs one after another, which is felt where each of them has a
core, or a device, for itself.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

LOCK = threading.RLock()


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with LOCK:
            return function(*args, **kwargs)

    return locked
