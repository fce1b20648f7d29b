"""A first call of a compiled flex_attention fails while another thread is inside ``torch.export``.

Run it:  python -m repro.races.export_modes

``torch.export`` traces before dispatch, and keeps the mode that does so on a stack that the whole process shares; the
modes of a compile are a thread's own. A compile that looks for its modes meanwhile finds one on either stack, takes
both for its own and fails: "Can't have active infra mode on both pre and post dispatch mode stack". Had it found the
other's alone, it would have taken that away, and the export would fail.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.is_compiling_left import export
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiled": own(code.compiled("compiled")), "exporter": export(code)}


RACE = Race(
    threads=threads,
    schedule="compiled:fx.trace#1>exporter, exporter:in-forward#1>compiled",
    outcomes={
        "error": (Grade.REQUIRED, "the compile took the export's mode for its own"),
        "ok": (Grade.ACCEPTABLE, "the modes of an export belong to the thread that exports"),
        "poisoned": (Grade.INTERESTING, "nobody failed, but the overlap left its mark"),
    },
    # Thread safety as such; no report names this.
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
