"""Three first calls at once, each of a compiled flex_attention of its own: the two that come second fail.

Run it:  python -m repro.races.first_call_separate

One ``torch.compile(flex_attention)`` per layer, or per thread, is no way out of first_call: what is compiled is the
same function, the mark "somebody traces" is the process's, and so is the lock. On 2.13 the mark is masked while a
compile runs; there this race is a guard.
"""

from repro.races import Race, Thread, own, run_alone
from repro.races.first_call import RACE as ONE_CALLABLE
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        name: own(code.compiled(name, index, through=code.compiled_anew()))
        for index, name in enumerate(("first", "second", "third"))
    }


RACE = Race(
    threads=threads,
    schedule=ONE_CALLABLE.schedule,
    outcomes=ONE_CALLABLE.outcomes,
    upstream=ONE_CALLABLE.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
