"""Two threads export, one of them fails and tries again, and from then on ``torch.compile`` compiles nothing.

Run it:  python -m repro.races.export_left

An export sets two marks of the process, "somebody compiles" and "somebody exports", and puts back at its end what it
found. The second one finds the marks of the first, and puts them back after the first has gone. That one of the two
exports fails besides (export_hierarchy) is mended by another try; the marks stay. ``torch.compile`` looks at the
second and, within an export, returns the function as it is: what is compiled from then on, by whichever thread, runs
dense. This is is_compiling_left without a compile, and so without the compile lock.
"""

import torch

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.is_compiling_left import Exported
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    def export() -> None:
        """As a program does that cannot do without: once more if it fails."""
        exporting = code.guarded(lambda: torch.export.export(Exported(), (torch.ones(4),)))
        try:
            exporting()
        except Exception:
            exporting()

    def export_and_attend() -> None:
        export()
        code.compiled("two", through=code.compiled_anew())()

    return {"one": own(export), "two": own(export_and_attend)}


RACE = Race(
    threads=threads,
    schedule="one:export.entered#1>two, two:export.entered#1>one",
    seams=("export.entered", "export.exiting"),
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (
            Grade.REQUIRED,
            "the mark of an export that had ended was put back, and torch.compile obeyed",
        ),
        "ok": (Grade.ACCEPTABLE, "the marks of an export belong to its thread"),
        "poisoned": (
            Grade.REQUIRED,
            "the marks and settings of an export stayed, and torch.compile did not care (2.9)",
        ),
        "error": (Grade.INTERESTING, "the second try failed too"),
    },
    # Thread safety as such; no report names this.
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
