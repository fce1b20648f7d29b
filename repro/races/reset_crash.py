"""``torch._dynamo.reset()`` in one thread kills the process, if another is just looking for its compiled code.

Run it:  python -m repro.races.reset_crash

A warm compiled call walks the list of what was compiled for its code and asks the guards of each. Some guards run
Python: here the length of a list type of the user's own, which a mask captures; Python may switch threads there.
The reset frees the list, and the walk goes on in freed memory. ``reset`` takes the compile lock, but a look-up takes
none. No luck is needed, one switch is enough.
"""

from typing import Any

import torch
import torch._dynamo

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import Attention, UserCode


class Offsets(list[int]):
    """A list that counts its items in Python; a guard on it asks how many there are."""

    def __len__(self) -> int:
        if not torch.compiler.is_dynamo_compiling():
            point("in-guard")
        return super().__len__()


def with_offsets(code: UserCode) -> Attention:
    """Attention under a mask that captures an ``Offsets``, compiled already."""
    offsets = Offsets([0])

    def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key <= query + offsets[0]

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask_mod: Any) -> torch.Tensor:
        return code.attention(query, key, value, causal)

    code.compiled("warm", through=attention)()
    return attention


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "compiled": own(code.compiled("compiled", through=with_offsets(code))),
        "resetting": own(code.guarded(torch._dynamo.reset)),
    }


RACE = Race(
    threads=threads,
    schedule="compiled:in-guard#1>resetting",
    outcomes={
        "crash": (Grade.REQUIRED, "the look-up went on in memory that the reset had freed"),
        "ok": (Grade.ACCEPTABLE, "what a look-up still uses is kept"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/196394",
        "https://github.com/pytorch/pytorch/pull/193697",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
