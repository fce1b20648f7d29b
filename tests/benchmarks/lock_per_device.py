"""A lock for each device: what people with a drafter per device would like. What is shared knows no device."""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

LOCKS: defaultdict[str, Any] = defaultdict(threading.RLock)


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        device = next((str(arg.device) for arg in args if isinstance(arg, torch.Tensor)), "none")
        with LOCKS[device]:
            return function(*args, **kwargs)

    return locked
