"""A process is killed while it holds the lock file of a kernel that it compiles: the next one is right.

Run it:  python -m repro.races.processes.writer_killed_compiling

It is writer_killed one step further. The lock is the kernel's, and free when its holder is gone; the file that it is
on stays, and means nothing. This race is a guard.
"""

from repro.races import Race, run_alone
from repro.races.processes.writer_killed import RACE as WRITING

RACE = Race(
    threads=WRITING.threads,
    schedule="writer:cache.compile#1>killer",
    cache="empty",
    workload=WRITING.workload,
    outcomes=WRITING.outcomes,
    upstream=WRITING.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
