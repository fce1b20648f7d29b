"""A lock for each function or module that is guarded. Two of them do not keep each other out.

People write it as ``self.lock`` of a layer. What is shared belongs to the process, and so must the lock.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.RLock()

    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return function(*args, **kwargs)

    return locked
