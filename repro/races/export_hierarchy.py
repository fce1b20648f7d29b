"""Two threads export, each a module of its own, and the one that began first fails.

Run it:  python -m repro.races.export_hierarchy

``torch.export`` notes the names of the submodules in one global of the process, reads them back at the end, and
clears them. The second export overwrites the first one's note and, once done, clears it: the first one then fails
with "_EXPORT_MODULE_HIERARCHY must not be None". No seam is needed within the trace: any overlap will do.
"""

from repro.races import Grade, Race, Thread, run_alone
from repro.races.is_compiling_left import export
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"one": export(code), "two": export(code)}


RACE = Race(
    threads=threads,
    schedule="one:export.inputs#1>two",
    seams=("export.inputs", "export.entered", "export.exiting"),
    outcomes={
        "error": (Grade.REQUIRED, "the first export's note was cleared by the second"),
        "ok": (Grade.ACCEPTABLE, "what an export notes belongs to that export"),
        "poisoned": (Grade.INTERESTING, "nobody failed, but the overlap left its mark"),
    },
    # Thread safety as such; no report names this.
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
