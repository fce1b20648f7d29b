"""Three first calls of one compiled flex_attention at once: the two that come second fail.

Run it:  python -m repro.races.first_call

The first caller compiles and, on its way, traces with FX; that is marked for the whole process. The other two ask
for the mark before they would wait for the compile lock, and are refused. On 2.13 the mark is masked, not mended:
another process-wide flag says "somebody compiles" for the length of a compile, and the question then answers no.
There this race is a guard.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.compiled(name, index)) for index, name in enumerate(("first", "second", "third"))}


RACE = Race(
    threads=threads,
    schedule="first:fx.trace#1>second, second:end#1>third",
    outcomes={
        "error": (Grade.REQUIRED, "a caller takes the first one's trace for its own and is refused"),
        "ok": (Grade.ACCEPTABLE, "the mark is masked while a compile runs, or belongs to a thread"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/126024",
        "https://github.com/pytorch/pytorch/issues/118387",
        "https://github.com/pytorch/pytorch/pull/184614",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
