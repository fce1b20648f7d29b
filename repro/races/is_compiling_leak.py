"""Code that asks ``torch.compiler.is_compiling()`` is told yes because another thread compiles, and runs dense.

Run it:  python -m repro.races.is_compiling_leak

Libraries call plain flex_attention where somebody compiles around them, and a compiled one where nobody does. From
2.13 the answer is yes in every thread for as long as any thread compiles: the call then takes the plain path with
nobody there to compile it. Warnings are lost the same way: that flex_attention runs unfused is not said, and noted
as said. Against a library that compiles and takes no lock no present fix holds.
"""

import torch

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import Attention, UserCode


def compiled_unless_compiling(code: UserCode) -> Attention:
    def attention(*inputs: torch.Tensor) -> torch.Tensor:
        chosen = code.uncompiled_attention if torch.compiler.is_compiling() else code.attention
        return chosen(*inputs)

    return code.guarded(attention)


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "compiled": own(code.compiled("compiled")),
        "asking": own(code.compiled("asking", 1, through=compiled_unless_compiling(code))),
    }


RACE = Race(
    threads=threads,
    schedule="compiled:backend.call#1>asking",
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "the caller took the other thread's compile for one around itself"),
        "ok": (Grade.ACCEPTABLE, "the answer belongs to the thread that compiles"),
        "error": (Grade.INTERESTING, "the call overlapped the compile and failed"),
        "poisoned": (Grade.INTERESTING, "the overlap left its mark"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/184614",),
)

if __name__ == "__main__":
    run_alone(__file__)
