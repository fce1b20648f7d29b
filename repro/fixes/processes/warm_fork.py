"""Call the compiled attention once for every shape in the parent, and fork the processes after that.

They start with the compiled code in memory and never look at the cache, as long as no new shape comes. Not for CUDA,
which does not survive a fork, nor for a parent that runs threads.
"""

from collections.abc import Callable, Iterable
from typing import Any


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    for example in examples:
        attention(*example)
