"""One start of the user's program in an interpreter of its own; says as JSON what came of it.

Usage: one_start.py WORKLOAD FIX, the first as JSON. The cache directory is in the environment, and so are torch's
other settings.
"""

from __future__ import annotations

import json
import sys

import torch

from repro import races
from repro.experiment import Experiment
from repro.oracles import cache_hits
from repro.outcome import Kind, Outcome, Sight, error_outcome
from repro.perform import Scene
from repro.workloads import Workload


def start(workload: Workload, fix: str) -> dict[str, object]:
    """Compile and call attention, as the first of the processes of cold-start does."""
    before = cache_hits.counts()
    scene = Scene(Experiment(race="cold-start", fix=fix, workloads=(workload,)), races.load("cold-start"))
    scene.code.fix.in_each_process()
    try:
        scene.bodies["first"]()
    except Exception as error:
        outcome = error_outcome(error)
    else:
        _, findings, _ = scene.judge({})
        # The first compile of an interpreter fills caches and registries of torch for good; that is no leak.
        judged = [finding for finding in findings if finding.oracle != "state"]
        failed = [finding.message for finding in judged if finding.sight is not Sight.PASS]
        outcome = Outcome(Kind.ERROR if failed or not judged else Kind.OK, "; ".join(failed))
    counted = cache_hits.finding("start", before, cache_hits.counts()).data
    return {"torch": torch.__version__, "outcome": outcome.kind.value, "reason": outcome.reason, "counts": counted}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(start(Workload.from_json(json.loads(sys.argv[1])), sys.argv[2])))
