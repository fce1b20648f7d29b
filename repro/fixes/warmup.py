"""Call the compiled attention once for every shape, and go backward if you train, before the threads start.

Then nothing compiles while the threads run, as long as no new shape comes. A warm call still asks whether somebody
else is tracing, so this does not help against a tracer in another thread.
"""

from collections.abc import Callable, Iterable
from typing import Any


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    for example in examples:
        output = attention(*example)
        if output.requires_grad:  # the backward compiles when it is first asked for
            output.sum().backward()
