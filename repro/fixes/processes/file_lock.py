"""A lock file around the first call, which compiles: one process at a time; who deletes the cache takes it too.

Holds between processes that all take the lock. It is put around any first call, so a new shape that compiles later is
outside of it. The file is beside the cache directory, not in it: a lock file that is deleted locks nobody out. It
stays where it is; the kernel frees the lock when its process ends, in whatever way.
"""

import fcntl
import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    called = False

    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        nonlocal called
        if called:
            return function(*args, **kwargs)
        cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "torchinductor")
        with open(f"{cache.rstrip('/')}.lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                result = function(*args, **kwargs)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
        called = True
        return result

    return locked
