"""Shapes and masks: what one call of attention works on.

A :class:`Workload` is a value: print it, send it to another process, keep it as JSON. It is made in processes that
never import torch, so torch is imported only where tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

MASKS = ("causal", "sliding_window", "document", "dflash")
DTYPES = ("float32", "bfloat16", "float16")
# What create_block_mask divides lengths by, unless told otherwise; a kernel skips whole blocks of this many rows.
BLOCK = 128
# Captured tensors have room for this many tokens, or a multiple: the sizes of few of them ever differ.
CAPACITY = 8192


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The sizes of one attention call and its mask.

    ``queries`` and ``keys`` are lengths in tokens, multiples of nothing; there are at least as many keys.

    * ``causal``: query ``i`` sees the keys up to ``i``.
    * ``sliding_window``: of these the last ``window``.
    * ``document``: of these the ones in its own document; documents are ``document`` tokens long.
    * ``dflash``: the queries are a drafter's, in blocks of ``draft`` tokens, and the keys are a context followed by
      the queries. A draft block sees the context before its anchor (of that the last ``reach`` keys, all if that is
      ``None``), all of its own block, and no other block. The anchors are drawn by ``seed`` and ascend.

    Every query sees a key. With 256 queries or more some block of queries never visits some block of keys. Raises
    :class:`ValueError`, which says what to do, for sizes that do not fit together.
    """

    batch: int = 1
    heads: int = 2
    queries: int = 256
    keys: int = 256
    head_dim: int = 32
    dtype: str = "float32"
    mask: str = "causal"
    window: int = 128
    document: int = 100
    draft: int = 16
    reach: int | None = None
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("batch", "heads", "queries", "keys", "head_dim", "window", "document", "draft"):
            size = getattr(self, name)
            if type(size) is not int or size < 1:
                raise ValueError(f"{name} is {size!r}: give a whole number of at least 1")
        if self.reach is not None and (type(self.reach) is not int or self.reach < 1):
            raise ValueError(f"reach is {self.reach!r}: give a whole number of at least 1, or none")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed is {self.seed!r}: give a whole number of at least 0")
        _check_choice("mask", self.mask, MASKS)
        _check_choice("dtype", self.dtype, DTYPES)
        if self.keys < self.queries:
            raise ValueError(
                f"{self.queries} queries and {self.keys} keys: every query has a key of its own, "
                f"so give at least {self.queries} keys"
            )
        if self.mask == "dflash" and self.keys == self.queries:
            raise ValueError(
                f"a dflash mask with {self.queries} queries and as many keys has no context: the keys are the "
                f"context followed by the queries, so give more than {self.queries} keys"
            )
        if self.mask == "dflash" and BLOCK % self.draft:
            raise ValueError(f"draft is {self.draft}: give a divisor of {BLOCK}, such as 8, 16 or 32")

    def to_json(self) -> dict[str, Any]:
        """All fields as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """The inverse of :meth:`to_json`; fields left out take their defaults. Raises :class:`ValueError`."""
        known = [field.name for field in fields(cls)]
        for name in data:
            _check_choice("a workload's field", name, known)
        return cls(**data)

    @property
    def dense_bound(self) -> int:
        """Bytes of all scores in float32, which only a dense call ever holds."""
        return self.batch * self.heads * self.queries * self.keys * 4

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query ``[batch, heads, queries, head_dim]``, key and value ``[batch, heads, keys, head_dim]``.

        Normal numbers drawn by ``seed``, the same on every call; three tensors that share no memory.
        """
        import torch

        generator = torch.Generator(self.device).manual_seed(self.seed)

        def draw(length: int) -> Tensor:
            size = (self.batch, self.heads, length, self.head_dim)
            return torch.randn(size, generator=generator, device=self.device, dtype=self.torch_dtype)

        return draw(self.queries), draw(self.keys), draw(self.keys)

    def mask_mod(self) -> MaskMod:
        """The mask as flex_attention takes it: ``(batch, head, query, key)`` indices ``->`` is the key seen, bool.

        A new function on every call. ``document`` and ``dflash`` capture a tensor on ``device``; no mask captures a
        length, so that a new length alone is no new mask.
        """
        import torch

        window, draft, reach = self.window, self.draft, self.reach

        def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return key <= query

        def sliding_window(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (key > query - window)

        if self.mask == "causal":
            return causal
        if self.mask == "sliding_window":
            return sliding_window

        if self.mask == "document":
            documents = torch.arange(_round_up(self.keys, CAPACITY), device=self.device) // self.document
            _mark_static(documents)

            def document(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
                return (key <= query) & (documents[query] == documents[key])

            return document

        context = self.keys - self.queries
        generator = torch.Generator().manual_seed(self.seed)
        blocks = -(-self.queries // draft)
        # Of each draft block: the key at which its anchor stands, and the first key of the block itself.
        edges = torch.zeros(2, _round_up(self.queries, CAPACITY) // draft, dtype=torch.int64)
        edges[0, :blocks] = torch.randint(1, context + 1, (blocks,), generator=generator).sort().values
        edges[1, :blocks] = context + draft * torch.arange(blocks)
        edges = edges.to(self.device)
        _mark_static(edges)

        def dflash(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            block = query // draft
            before_anchor = key < edges[0, block]
            if reach is not None:
                before_anchor = before_anchor & (key >= edges[0, block] - reach)
            own_block = (key >= edges[1, block]) & (key < edges[1, block] + draft)
            return before_anchor | own_block

        return dflash

    def dense_mask(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """Which query sees which key, bool ``[queries, keys]``, by the mask alone; or only the ``rows`` asked for."""
        import torch

        query = torch.arange(self.queries, device=self.device)[rows, None]
        key = torch.arange(self.keys, device=self.device)[None, :]
        zero = torch.zeros((), dtype=torch.int64, device=self.device)
        return self.mask_mod()(zero, zero, query, key)


def _mark_static(captured: Tensor) -> None:
    """Keep the sizes of a captured tensor out of dynamic shapes.

    Inductor's C++ for the CPU replaces the names of some sizes as plain text, ``ks1`` in ``ks10`` too, so that with
    enough sizes in a kernel it does not compile (seen on 2.9.1, 2.13.0 and 2.14.1).
    """
    import torch._dynamo

    torch._dynamo.mark_static(captured)


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def _check_choice(what: str, given: object, choices: list[str] | tuple[str, ...]) -> None:
    if given not in choices:
        near = get_close_matches(str(given), choices, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(choices)}"
        raise ValueError(f"{what} cannot be {given!r}: {hint}")


# The drafter of the story, 40,000 tokens of context and 32,768 of drafts: all scores are 284.25 GiB. With a reach of
# 2,048 the block mask is 96.55 % sparse, which is what was measured there; with all of the context it is 71 %.
STORY = Workload(
    heads=32, head_dim=128, queries=32_768, keys=72_768, dtype="bfloat16", mask="dflash", reach=2_048, device="cuda"
)
