"""A module of the user's that holds compiled attention fails while another thread is inside ``symbolic_trace``.

Run it:  python -m repro.races.patcher_bystander

``symbolic_trace`` replaces ``nn.Module.__call__`` for the whole process. A module that another thread calls meanwhile
ends in that thread's tracer, which looks for it among the submodules of what it traces: a NameError about a submodule
that is not installed. Against a library that traces and takes no lock no present fix holds, on any release.
"""

import torch

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.tracing_bystander import Traced
from repro.user_code import Attention, UserCode


class Layer(torch.nn.Module):
    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.attention(*inputs)


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "tracer": own(code.guarded(lambda: torch.fx.symbolic_trace(Traced()))),
        "layer": own(code.compiled("layer", through=code.guarded(Layer(code.attention)))),
    }


RACE = Race(
    threads=threads,
    schedule="tracer:in-forward#1>layer",
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "error": (Grade.REQUIRED, "the module was taken for a part of what the other thread traces"),
        "ok": (Grade.ACCEPTABLE, "what a trace replaces is replaced for its own thread only"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/pull/187589",
        "https://github.com/pytorch/pytorch/issues/168042",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
