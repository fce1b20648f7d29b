"""One call with a wrong argument fails, and from then on every compiled call in the process runs dense.

Run it:  python -m repro.races.dense_after_error

A compiled flex_attention that raises while it is being compiled is given up for good: Dynamo marks its code as "run
it as it is". The mark is on the operator's own code, so it holds in every thread, for every mask and for every
``torch.compile(flex_attention)`` made later, until ``torch._dynamo.reset()``. A service that answers one bad request
with an error, and goes on, goes on dense. No order of the threads is needed but "the mistake first".
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode
from repro.workloads import Workload


def one_bad_request(code: UserCode) -> Thread:
    """A thread whose keys have fewer heads than its queries; it notes the error and goes on."""
    workload = Workload(queries=1024, keys=1024)
    query, key, value = workload.tensors()
    mask_mod = workload.mask_mod()

    def request() -> None:
        try:
            code.attention(query, key[:, :1], value[:, :1], mask_mod)
        except Exception:
            return
        raise AssertionError("two heads of queries and one of keys were accepted")

    return own(request)


def threads(code: UserCode) -> dict[str, Thread]:
    return {"mistaken": one_bad_request(code), "compiled": own(code.compiled("compiled"))}


RACE = Race(
    threads=threads,
    schedule="-",
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "the operator's code was given up because of another thread's mistake"),
        "ok": (Grade.ACCEPTABLE, "a mistake is the problem of the call that makes it"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/144820",
        "https://github.com/pytorch/pytorch/issues/132923",
        "https://github.com/pytorch/pytorch/issues/190286",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
