"""One ``config.patch`` object, used by two threads at once, refuses the second of them.

Run it:  python -m repro.races.config_patch

A patch of settings is often made once, as a decorator or as a module's global, and then entered by whichever thread
comes along. Up to 2.11 the object itself remembers what to put back: a second thread finds it in use. From 2.12 it
remembers for each context, and this race is a guard.
"""

import torch._dynamo

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    patch = torch._dynamo.config.patch(recompile_limit=64)

    def patched(name: str, index: int) -> Thread:
        call = code.compiled(name, index)

        def body() -> None:
            with patch:
                point("in-patch")
                call()

        return own(code.guarded(body))

    return {"one": patched("one", 0), "two": patched("two", 1)}


RACE = Race(
    threads=threads,
    schedule="one:in-patch#1>two",
    outcomes={
        "error": (Grade.REQUIRED, "the patch was in use by the other thread"),
        "ok": (Grade.ACCEPTABLE, "what to put back is remembered for each thread"),
        "poisoned": (Grade.INTERESTING, "the patched value stayed for good"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/pull/179345",
        "https://github.com/pytorch/pytorch/issues/111150",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
