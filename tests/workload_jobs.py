"""What ``test_workloads.py`` runs in a sandbox."""

from __future__ import annotations

from repro.workloads import Workload

# seconds that a job may take; only ever waited out by a test that fails
NET = 300.0


def dense_mask(workload: Workload) -> list[str]:
    return ["".join("x" if seen else "." for seen in row) for row in workload.dense_mask().tolist()]


def unseen_and_unchecked(workloads: list[Workload]) -> list[tuple[Workload, str]]:
    from repro.oracles.sparsity import canary

    faults = []
    for workload in workloads:
        if not workload.dense_mask().any(1).all():
            faults.append((workload, "a query sees no key"))
        if not canary(workload).checked.any():
            faults.append((workload, "every block is visited"))
    return faults


def tensors(workload: Workload) -> tuple[bool, int, list[tuple[int, ...]], list[str]]:
    first, again = workload.tensors(), workload.tensors()
    return (
        all(one.equal(other) for one, other in zip(first, again, strict=True)),
        len({tensor.untyped_storage().data_ptr() for tensor in first}),
        [tuple(tensor.shape) for tensor in first],
        [str(tensor.dtype) for tensor in first],
    )
