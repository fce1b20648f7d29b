"""The canary: was the call block-sparse?

A block-sparse kernel never reads the key blocks that a query block's mask leaves out. So NaN is put into such key and
value rows: a sparse call does not notice, while a dense one multiplies them by a weight of zero, and 0 x NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.outcome import Finding, Sight
from repro.workloads import BLOCK, Workload

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Canary:
    """The inputs of one call: ``query`` ``[batch, heads, queries, head_dim]``, ``key`` and ``value``
    ``[batch, heads, keys, head_dim]``, the latter two with rows of NaN.

    ``checked``, bool ``[queries]``, are the rows of the query blocks that visit none of these.
    """

    workload: Workload
    query: Tensor
    key: Tensor
    value: Tensor
    checked: Tensor


def canary(workload: Workload) -> Canary:
    """Inputs with NaN in as many key blocks as can be, with as many query rows left to check as can be.

    Which blocks visit which is worked out from the dense mask, not from torch's BlockMask. Where every key block is
    visited by every query block no row is ``checked``.
    """
    import torch

    visits = _visits(workload)
    block_rows = torch.arange(workload.queries, device=workload.device) // BLOCK
    # a further key block can only take checked rows away, so the best single one decides which rows are checked
    spared = (~visits)[block_rows].sum(0).argmax()
    checked_blocks = ~visits[:, spared]
    poisoned = ~visits[checked_blocks].any(0)
    if not checked_blocks.any():
        poisoned[:] = False
    query, key, value = workload.tensors()
    rows = poisoned[torch.arange(workload.keys, device=workload.device) // BLOCK]
    key[:, :, rows] = value[:, :, rows] = torch.nan
    return Canary(workload, query, key, value, checked_blocks[block_rows])


def judge(canary: Canary, output: Tensor | None, clean: Tensor | None = None) -> Finding:
    """``fail`` if a checked row of ``output`` is not finite, or differs from ``clean`` in any bit.

    ``output`` is ``[batch, heads, queries, head_dim]``, ``None`` if the call had none; ``clean`` the output of the
    same code on the workload's own tensors, without NaN. ``blind`` without an output or without a row to check.
    """
    if output is None:
        return Finding("sparsity", Sight.BLIND, "the call has no output to look at")
    rows = int(canary.checked.sum())
    data = {"checked rows": rows, "queries": canary.workload.queries}
    if not rows:
        message = "every block of queries visits every block of keys: there is nothing to skip; use longer lengths"
        return Finding("sparsity", Sight.BLIND, message, data)
    seen = output[:, :, canary.checked]
    touched = int((~seen.isfinite()).any((0, 1, 3)).sum())
    if touched:
        message = f"dense: {touched} of {rows} rows read keys that their mask leaves out"
        return Finding("sparsity", Sight.FAIL, message, {**data, "touched rows": touched})
    if clean is not None:
        changed = int((seen != clean[:, :, canary.checked]).any((0, 1, 3)).sum())
        if changed:
            message = f"{changed} of {rows} rows change with keys that their mask leaves out"
            return Finding("sparsity", Sight.FAIL, message, {**data, "changed rows": changed})
    return Finding("sparsity", Sight.PASS, f"block-sparse: {rows} rows never read the keys left out", data)


def judge_gradients(canary: Canary, gradients: Sequence[Tensor | None]) -> Finding:
    """``fail`` if a gradient says that the backward read what the mask leaves out; ``gradients`` are those of query,
    key and value, for a cotangent without NaN.

    In a block-sparse backward NaN reaches the queries that visit it and the keys which those visit, no others; and a
    key that no query visits has a gradient of exactly zero. In a dense one everything is NaN.
    """
    import torch

    query, key, value = gradients
    rows = int(canary.checked.sum())
    if query is None or key is None or value is None or not rows:
        return Finding("gradients", Sight.BLIND, "there is no gradient to look at")
    visits = _visits(canary.workload)
    block = torch.arange(canary.workload.keys, device=canary.workload.device) // BLOCK
    checked_blocks = canary.checked[::BLOCK]
    clean = (~visits[~checked_blocks].any(0))[block]
    unseen = (~visits.any(0))[block]
    touched = int((~query[:, :, canary.checked].isfinite()).any((0, 1, 3)).sum())
    stained = sum(int((~gradient[:, :, clean].isfinite()).any((0, 1, 3)).sum()) for gradient in (key, value))
    left = sum(int((gradient[:, :, unseen] != 0).any((0, 1, 3)).sum()) for gradient in (key, value))
    data = {"checked rows": rows, "clean keys": int(clean.sum()), "unseen keys": int(unseen.sum())}
    if touched or stained or left:
        message = (
            f"dense backward: {touched} of {rows} queries and {stained} keys have NaN from keys that their mask "
            f"leaves out, {left} keys that nobody sees have a gradient"
        )
        return Finding("gradients", Sight.FAIL, message, {**data, "touched rows": touched + stained + left})
    message = (
        f"block-sparse backward: {rows} queries never read the keys left out, the gradient of {data['unseen keys']} "
        "keys that nobody sees is zero"
    )
    return Finding("gradients", Sight.PASS, message, data)


def _visits(workload: Workload) -> Tensor:
    """Whether any query of a block sees any key of a block, bool ``[query blocks, key blocks]``."""
    import torch

    visits = []
    for start in range(0, workload.queries, BLOCK):
        seen = workload.dense_mask(slice(start, start + BLOCK)).any(0)
        padded = torch.nn.functional.pad(seen, (0, -len(seen) % BLOCK))
        visits.append(padded.view(-1, BLOCK).any(1))
    return torch.stack(visits)
