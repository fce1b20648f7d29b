"""What one call allocates above its inputs on the CPU, block-sparse and dense, over sequence lengths.

``python tests/benchmarks/memory.py --json FILE``; a minute of work. The report draws it when it is recorded as
``fixtures/results/memory-torch-VERSION.json``. Exits 1 if a block-sparse call held all scores, or a dense one did
not: then the curves show something else than they say.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from repro.laboratory import Laboratory
from repro.oracles.memory import AllocationMeter
from repro.outcome import Kind
from repro.report import document
from repro.workloads import Workload

LENGTHS = (512, 1024, 2048, 4096, 8192)
WORKLOAD = Workload(mask="sliding_window", window=256)


def peaks(workload: Workload) -> dict[str, int | None]:
    """Of a compiled and of an uncompiled call, each on its second time."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tensors = workload.tensors()
    mask = create_block_mask(workload.mask_mod(), None, None, workload.queries, workload.keys, device="cpu")
    found = {}
    for name, attention in (("sparse", torch.compile(flex_attention)), ("dense", flex_attention)):
        with torch.no_grad():
            attention(*tensors, block_mask=mask)
            with AllocationMeter() as meter:
                attention(*tensors, block_mask=mask)
        found[name] = meter.peak
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, metavar="FILE", help="where to write")
    target = parser.parse_args().json
    document.check_target(target)
    rows = []
    with Laboratory() as laboratory:
        for length in LENGTHS:
            workload = replace(WORKLOAD, queries=length, keys=length)
            ended = laboratory.run(f"{Path(__file__).stem}:peaks", workload, timeout=300)
            if ended.outcome.kind is not Kind.OK or None in ended.value.values():
                raise SystemExit(f"nothing was measured at {length}: {ended.outcome.reason} {ended.output}")
            rows.append({"length": length, "bound": workload.dense_bound, **ended.value})
            print(rows[-1], file=sys.stderr, flush=True)
    given = {
        key: value for key, value in WORKLOAD.to_json().items() if key in ("heads", "head_dim", "dtype", "window")
    }
    content = {"workload": {"mask": WORKLOAD.mask, **given}, "rows": rows}
    document.write(document.envelope("benchmark-memory", laboratory.torch, content, seeds=[WORKLOAD.seed]), target)
    return 0 if all(row["sparse"] < row["bound"] <= row["dense"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
