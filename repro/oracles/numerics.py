"""The numbers of a call, against attention written out in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.outcome import Finding, Sight
from repro.workloads import Workload

if TYPE_CHECKING:
    from torch import Tensor

    from repro.oracles.sparsity import Canary

# Largest |output - reference| allowed, for outputs of about one: a few dozen units in the last place of the type in
# which weights and outputs are rounded. One key too many or too few in a row moves its output by far more.
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}

# Rows that are compared; of more, so many that lie evenly spread among them.
SAMPLE = 2048
_ROWS = 256  # at a time: all scores in float64 at once would be as large as what the memory oracle forbids


def reference(workload: Workload, query: Tensor, key: Tensor, value: Tensor, rows: Tensor | None = None) -> Tensor:
    """Softmax attention in float64, ``[batch, heads, queries, head_dim]``, or of the query ``rows`` asked for.

    A key that a query does not see contributes exactly nothing, whatever is in its rows; a query that sees a key or
    value with NaN or infinity has a row of NaN.
    """
    import torch

    if rows is None:
        rows = torch.arange(workload.queries, device=query.device)
    query, key, value = query[:, :, rows].double(), key.double(), value.double()
    unusable = ~(key.isfinite().all(-1) & value.isfinite().all(-1))
    usable_value = value.where(value.isfinite(), 0.0)
    parts = []
    for chosen, some in zip(torch.split(rows, _ROWS), torch.split(query, _ROWS, dim=2), strict=True):
        mask = workload.dense_mask(chosen)
        scores = some @ key.mT / workload.head_dim**0.5
        part = scores.where(mask, -torch.inf).softmax(-1) @ usable_value
        part[(mask & unusable[:, :, None]).any(-1)] = torch.nan
        parts.append(part)
    return torch.cat(parts, dim=2)


def judge(output: Tensor | None, inputs: Canary) -> Finding:
    """``fail`` if a checked row of ``output`` is further from the reference than :data:`TOLERANCE`, or is NaN.

    ``output`` is ``[batch, heads, queries, head_dim]``, ``None`` if the call had none. ``blind`` without an output or
    without a checked row.
    """
    if output is None:
        return Finding("numerics", Sight.BLIND, "the call has no output to look at")
    rows = inputs.checked.nonzero()[:, 0]
    rows = rows[:: max(1, len(rows) // SAMPLE)]
    if not len(rows):
        return Finding("numerics", Sight.BLIND, "no row to check: every block of queries visits every block of keys")
    workload = inputs.workload
    if output.shape != inputs.query.shape:
        message = f"the output has shape {[*output.shape]} instead of {[*inputs.query.shape]}"
        return Finding("numerics", Sight.FAIL, message, {"shape": [*output.shape]})
    expected = reference(workload, inputs.query, inputs.key, inputs.value, rows)
    error = (output[:, :, rows].double() - expected).abs()
    allowed = TOLERANCE[workload.dtype]
    # NaN compares as not within
    wrong = int((~(error <= allowed)).any((0, 1, 3)).sum())
    data = {"checked rows": len(rows), "largest error": str(float(error.max())), "allowed": allowed}
    if wrong:
        message = (
            f"{wrong} of {len(rows)} rows are wrong by up to {float(error.max()):.3g}, where {allowed:g} is allowed"
        )
        return Finding("numerics", Sight.FAIL, message, {**data, "wrong rows": wrong})
    return Finding("numerics", Sight.PASS, f"{len(rows)} rows within {allowed:g} of float64", data)
