"""A compiled function with a code object of its own for each mask, thrown away when a call fails.

Dynamo keeps what it compiled, how often, and what it has given up, with the code object; that of flex_attention is
everybody's. A copy for each mask's code has a recompile limit of its own, and what goes wrong in it stays there.
Costs: one compile for each mask function that is written anew, and nothing is ever let go, so generate few of them.
Does not help against what belongs to the process: traces, stances, metadata.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    # By identity, as Dynamo tells code apart; two functions written alike have equal code objects.
    compiled: dict[int, tuple[Any, Callable[..., Any]]] = {}

    def attention(query: Any, key: Any, value: Any, *, block_mask: Any) -> Any:
        code = getattr(block_mask.mask_mod, "__code__", block_mask.mask_mod)
        _, function = compiled.setdefault(id(code), (code, torch.compile(copy_of(flex_attention))))
        try:
            return function(query, key, value, block_mask=block_mask)
        except BaseException:
            compiled.pop(id(code), None)
            raise

    return attention


def copy_of(function: Any) -> Any:
    """The same function with another code object."""
    copy = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
