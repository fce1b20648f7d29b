"""Switch the error off: ``error_on_nested_fx_trace = False``. Does not help: the call then runs dense.

Kept to show what it does. Where the error was raised, the compiled function is bypassed without a word and the
uncompiled operator computes all scores.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch._dynamo


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    torch._dynamo.config.error_on_nested_fx_trace = False
