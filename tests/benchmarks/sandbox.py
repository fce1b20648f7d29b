"""One schedule-like job in a fresh interpreter against the same job in a warm sandbox.

``python tests/benchmarks/sandbox.py [--runs N]``; exits 1 if the warm sandbox is not ten times as fast as a fresh
interpreter with an empty cache directory, which is what isolation costs without it. A fresh interpreter that is given
all kernels that the sandbox has built is timed too: what remains is the imports. The kinds take turns, so that other
load on the machine meets them all.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from repro.outcome import Kind
from repro.sandbox import Sandbox

BAR = 10.0


def nothing() -> None:
    pass


def schedule_like() -> float:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query >= key

    torch.manual_seed(0)
    with torch.no_grad():
        query, key, value = (torch.randn(1, 2, 256, 32) for _ in range(3))
        mask = create_block_mask(causal, None, None, 256, 256, device="cpu")
        return float(torch.compile(flex_attention)(query, key, value, block_mask=mask).sum())


def seconds(sandbox: Sandbox, job: str) -> float:
    started = time.perf_counter()
    ended = sandbox.run(f"{Path(__file__).stem}:{job}", timeout=300)
    if ended.outcome.kind is not Kind.OK:
        raise SystemExit(f"{ended.outcome}\n{ended.output}")
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each kind (default: %(default)s)")
    runs = parser.parse_args().runs
    empty, filled, warm, floor = [], [], [], []
    with contextlib.ExitStack() as stack:

        def sandbox(warm: str, start: Literal["fork", "spawn"], cache: str) -> Sandbox:
            env = {"TORCHINDUCTOR_CACHE_DIR": cache}
            return stack.enter_context(Sandbox(warm=f"repro.warm:{warm}", start=start, env=env))

        def directory() -> str:
            return stack.enter_context(tempfile.TemporaryDirectory())

        cache = directory()
        forking = sandbox("torch_and_one_compile", "fork", cache)
        spawning = sandbox("torch_settings", "spawn", cache)
        warming = seconds(forking, "nothing")
        for _ in range(runs):
            empty.append(seconds(sandbox("torch_settings", "spawn", directory()), "schedule_like"))
            filled.append(seconds(spawning, "schedule_like"))
            warm.append(seconds(forking, "schedule_like"))
            floor.append(seconds(forking, "nothing"))

    base = statistics.median(warm)
    print(f"{'median of ' + str(runs):34} {'seconds':>8}   {'from':>6} to {'':6}  against warm")
    for name, measured in [
        ("fresh interpreter, empty cache", empty),
        ("fresh interpreter, kernels cached", filled),
        ("warm sandbox", warm),
        ("warm sandbox, job that does nothing", floor),
    ]:
        median = statistics.median(measured)
        print(f"{name:35} {median:7.3f}   {min(measured):6.3f} to {max(measured):6.3f}  {median / base:6.2f}")
    print(f"{'warming up, once':35} {warming:7.3f}")
    ratio = statistics.median(empty) / base
    print(f"ratio {ratio:.1f}, at least {BAR:g}")
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
