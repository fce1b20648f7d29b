"""Two threads that each compile in a fresh cache leave the process writing to a directory that is deleted.

Run it:  python -m repro.races.fresh_cache

``fresh_cache`` makes a temporary directory, names it in ``os.environ``, and puts back and deletes at its end. The
environment is the whole process's. The second thread remembers the first one's directory as what was there before;
the first leaves and deletes it; the second leaves and puts its name back. What is compiled from then on, here and in
processes started from here, is cached there, where the next clean-up of temporary files takes it away.
"""

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.torch_names import function
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    fresh_cache = function("fresh_cache")

    def measured(name: str, index: int) -> Thread:
        call = code.compiled(name, index)

        def body() -> None:
            with fresh_cache():
                point("in-fresh-cache")
                call()

        return own(code.guarded(body))

    return {"one": measured("one", 0), "two": measured("two", 1)}


RACE = Race(
    threads=threads,
    schedule="one:in-fresh-cache#1>two, two:in-fresh-cache#1>one",
    outcomes={
        "poisoned": (Grade.REQUIRED, "the environment names a directory that is gone"),
        "ok": (Grade.ACCEPTABLE, "where to cache is a setting of the thread, or the second waits"),
        "error": (Grade.INTERESTING, "a compile lost its directory on the way"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/178858",
        "https://github.com/pytorch/pytorch/issues/167725",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
