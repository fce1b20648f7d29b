"""Build block masks by ``torch.compile(create_block_mask)``: a number for each block is held, not one for each pair.

``create_block_mask`` as it is holds ten bytes for each pair of a query and a key while it works, however sparse the
mask. Compiled it is one more compile, open to every race of a first call: put a lock around it as around attention.
With dynamic shapes it compiles for each mask function, not for each length, and runs as it is, with its memory, once
``recompile_limit`` of them are there.
"""

from collections.abc import Callable
from typing import Any

import torch


def compile_mask(create_block_mask: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(create_block_mask, dynamic=True)
