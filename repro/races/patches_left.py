"""A first compiled call overlaps a ``symbolic_trace``: one of them fails, and ``nn.Module`` stays patched for good.

Run it:  python -m repro.races.patches_left

A compile traces with FX as well, and both replace methods of ``nn.Module`` for the whole process. Who is to undo what
is kept in one global: the compile, first to end, undoes the other's patches and says that nobody patches; the trace
finds that and fails, and the compile's own patches stay. On 2.9 the compile fails too, on a module of its own that
the trace takes for one of its. Against a library that traces and takes no lock a lock does not help.
"""

import torch

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.tracing_bystander import Traced
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "compiled": own(code.compiled("compiled")),
        "tracer": own(code.guarded(lambda: torch.fx.symbolic_trace(Traced()))),
    }


RACE = Race(
    threads=threads,
    schedule="compiled:fx.trace#3>tracer, tracer:in-forward#1>compiled",
    outcomes={
        "error": (Grade.REQUIRED, "one of the two finds its patches undone by the other"),
        "poisoned": (Grade.INTERESTING, "nobody failed, but methods of nn.Module stayed replaced"),
        "ok": (Grade.ACCEPTABLE, "what a trace replaces is replaced for its own thread only"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/168042",
        "https://github.com/pytorch/pytorch/pull/187589",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
