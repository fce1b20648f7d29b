"""An uncompiled flex_attention call lands in the graph that another thread exports at that moment.

Run it:  python -m repro.races.export_bystander

``torch.export`` keeps its mode on a stack of the whole process. An uncompiled flex_attention call takes the mode that
it finds there off for a moment and puts it back, and by that its own thread counts as one that is being exported: the
call is recorded, mask and all, in a graph that it has nothing to do with. The export then fails, on a node
``flex_attention`` that its module does not have, or on what came of it later.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.is_compiling_left import export
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"exporter": export(code), "uncompiled": own(code.uncompiled("uncompiled"))}


RACE = Race(
    threads=threads,
    schedule="exporter:fx.trace#1>uncompiled",
    outcomes={
        "error": (Grade.REQUIRED, "the export stumbled over a call of another thread in its graph"),
        "ok": (Grade.ACCEPTABLE, "the modes of an export belong to the thread that exports"),
        "poisoned": (Grade.INTERESTING, "nobody failed, but the overlap left its mark"),
    },
    # Thread safety as such; no report names this.
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
