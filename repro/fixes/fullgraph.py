"""Compile with ``fullgraph=True``: a compile that cannot be has to fail, and is tried again by the next call.

Without it Dynamo gives up code that it could not compile, once and for all, and runs it as it is: after one call with
a wrong argument everything is dense. With it the mistake stays with the call that made it. Where the limit of
recompiles is reached this turns a dense call into an error, which does not help, but is seen.
"""

from collections.abc import Callable
from typing import Any

import torch


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(flex_attention, fullgraph=True)
