"""An operator next to compiled attention is left uncompiled, because another thread was building a block mask.

Run it:  python -m repro.races.mask_metadata_slow

The note of mask_metadata_tags, taken over by an operator that has an eager kernel: here a sine. Nothing fails and the
numbers are right; the compiled layer calls the eager operator in place of code of its own, on every call, for good.
The profiler sees it in a warm call.
"""

from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from repro.oracles import kernels
from repro.outcome import Finding, Sight
from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.mask_metadata_error import RACE as ERROR
from repro.races.mask_metadata_error import build_mask
from repro.user_code import UserCode
from repro.workloads import Workload


def layer(code: UserCode) -> Callable[[], None]:
    """Compile a layer with a sine before its attention, and look at a warm call of it."""
    workload = Workload()
    inputs = workload.tensors()
    mask = create_block_mask(workload.mask_mod(), None, None, workload.queries, workload.keys, device=workload.device)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return flex_attention(torch.sin(query), key, value, block_mask=mask)

    compiled = torch.compile(attend)

    def body() -> None:
        with torch.no_grad():
            compiled(*inputs)
            ops = kernels.profile(lambda: compiled(*inputs))
        ran = kernels.judge(ops, workload)
        if eager := [op.name for op in ops if op.name == "aten::sin"]:
            ran = Finding("fallbacks", Sight.FAIL, f"a compiled layer calls {eager[0]}")
        code.findings.append(ran)

    return body


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiled": own(code.guarded(layer(code))), "masks": build_mask(code)}


RACE = Race(
    threads=threads,
    schedule="compiled:fx.node#1>masks, masks:mask.sort#1>compiled, compiled:fx.noded#1>masks",
    seams=("mask.sort", "fx.node", "fx.noded"),
    outcomes={
        "wasteful": (Grade.REQUIRED, "the sine was noted as 'fall back to eager', and Inductor obeyed"),
        "ok": (Grade.ACCEPTABLE, "building a mask leaves the metadata of traces alone, or it belongs to a thread"),
        "error": (Grade.INTERESTING, "the mask's thread or the compile failed over the note"),
        "poisoned": (Grade.INTERESTING, "the mask's note stays behind"),
    },
    upstream=ERROR.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
