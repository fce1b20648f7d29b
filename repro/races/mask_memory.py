"""Attention is compiled and block-sparse, and building its block mask takes memory for every query and key.

Run it:  python -m repro.races.mask_memory

``create_block_mask``, called as it is, asks the mask function about every pair of a query and a key, and keeps the
answers: ten bytes a pair at its peak, 92 GB for 96,000 tokens, however sparse the mask. Each thread that builds one
at the same moment takes as much again. No order of the threads is needed, and no lock helps;
``torch.compile(create_block_mask)`` does, which holds a number for each pair of blocks. That is one more compile,
though, open to every race of a first call.
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

from repro.oracles import memory
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    inputs = code.inputs[0]
    workload = inputs.workload
    mask_mod = workload.mask_mod()
    attention = code.fix.compile_attention(flex_attention)

    def step() -> None:
        with torch.no_grad(), memory.AllocationMeter(workload.device) as meter:
            mask = code.build_mask(mask_mod, None, None, workload.queries, workload.keys, device=workload.device)
            attention(inputs.query, inputs.key, inputs.value, block_mask=mask)
        code.findings.append(memory.judge_mask(meter, workload))

    return {"builder": own(code.guarded(step))}


RACE = Race(
    threads=threads,
    schedule="-",
    workload={"queries": 2048, "keys": 2048},
    outcomes={
        "wasteful": (Grade.REQUIRED, "the mask was there as a whole, for each pair of query and key"),
        "ok": (Grade.ACCEPTABLE, "a block mask is built block by block"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/134756",),
)

if __name__ == "__main__":
    run_alone(__file__)
