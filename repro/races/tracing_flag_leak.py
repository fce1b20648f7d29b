"""An uncompiled call that overlaps another thread's compile leaves every compiled call in the process failing.

Run it:  python -m repro.races.tracing_flag_leak

FX tracing marks "somebody traces" in one global of the process. Uncompiled flex_attention saves that mark, clears
it for its own use and puts it back at the end. If another thread is tracing when it saves, and has finished when it
puts back, the mark stays set, with nobody tracing. Every compiled call asks for it first, so from then on every
compiled call fails, in every thread, until the process ends.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "uncompiled": own(code.uncompiled("uncompiled")),
        "compiled": own(code.compiled("compiled", 1)),
    }


RACE = Race(
    threads=threads,
    schedule="uncompiled:start#1>compiled, compiled:fx.trace#1>uncompiled",
    outcomes={
        "poisoned": (
            Grade.REQUIRED,
            "a later, lone compiled call fails: the mark was put back after the trace ended",
        ),
        "ok": (Grade.ACCEPTABLE, "the mark belongs to the thread that traces"),
        "error": (Grade.INTERESTING, "a thread failed during the overlap already"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/126024",
        "https://github.com/pytorch/pytorch/issues/123916",
        "https://github.com/pytorch/pytorch/pull/168999",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
