"""A compile overlaps an export; both are done, and ``torch.compiler.is_compiling()`` says yes for good.

Run it:  python -m repro.races.is_compiling_left

Since 2.13 a compile sets the mark "somebody compiles" and puts back at its end what it found; ``torch.export`` has
long done the same, and takes no lock. Whoever comes second finds the other's mark, and puts that back after the other
has gone. From then on code that asks takes the path for compiled code with nobody there to compile it: it runs dense,
does not warn, and where a trace should be refused it is not.
"""

import torch

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


class Exported(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        point("in-forward")
        return x + 1


def export(code: UserCode) -> Thread:
    """A thread of the user's that exports a module of its own."""
    module = Exported()
    return own(code.guarded(lambda: torch.export.export(module, (torch.ones(4),))))


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiled": own(code.compiled("compiled")), "exporter": export(code)}


RACE = Race(
    threads=threads,
    schedule="compiled:backend.call#1>exporter, exporter:export.entered#1>compiled",
    seams=("export.entered", "export.exiting"),
    outcomes={
        "poisoned": (Grade.REQUIRED, "the compile's mark was put back after the compile had ended"),
        "ok": (Grade.ACCEPTABLE, "a compile sets no mark, or the mark belongs to a thread"),
        "error": (Grade.INTERESTING, "a thread failed during the overlap already"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/184614",),
)

if __name__ == "__main__":
    run_alone(__file__)
