"""What a sandbox reads beforehand changes nothing of what its jobs compile."""

from __future__ import annotations

import os
from pathlib import Path

from repro.laboratory import Laboratory


def written(cache: str) -> tuple[int, int]:
    """How many files of C++ a compile leaves with what was read beforehand, and how many more one without leaves.

    Runs in the sandbox. A kernel's file is named by what is in it.
    """
    import jinja2
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache

    def sources() -> set[Path]:
        return set(Path(cache).rglob("*.cpp"))

    def compile() -> set[Path]:
        torch._dynamo.reset()
        before = sources()
        query, key, value = (torch.zeros(1, 2, 256, 32) for _ in range(3))
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 256, 256, device="cpu")
        with torch.no_grad():
            torch.compile(flex_attention)(query, key, value, block_mask=mask)
        return sources() - before

    first = compile()
    jinja2.Environment.compile = jinja2.Environment.compile.__wrapped__
    return len(first), len(compile())


def test_templates_that_were_read_before_give_the_same_code(laboratory: Laboratory, tmp_path: Path) -> None:
    ended = laboratory.run("tests.test_warm:written", str(tmp_path), timeout=120)

    assert ended.value is not None, (ended.outcome, ended.output)
    first, more = ended.value
    assert first > 0
    assert more == 0
