"""A cache directory for each process, named by its rank: nobody else writes, wipes or reads it.

Call it first in each process, before torch compiles. Costs: each process compiles for itself once; the next start
with the same rank finds its own, and what was damaged in there stays so. The directories are beside the shared one,
so that whoever deletes that does not delete these.
"""

import os
import tempfile


def in_each_process() -> None:
    shared = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "torchinductor")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{shared.rstrip('/')}-rank{os.environ['LOCAL_RANK']}"
