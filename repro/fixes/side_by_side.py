"""Warm calls side by side, mask builds one at a time, and whatever compiles or traces alone.

Put ``guard_attention`` around your attention (build the mask, then call what ``compile_attention`` gave you) and
``guard`` around all else of yours that compiles, traces, exports, resets or sets a stance. A lock is right too, but
lets one thread at a time attend; here threads wait only for mask builds (each writes into metadata that the whole
process shares, from 2.13 on) and, rarely, for a compile.

Nothing is predicted. A call is first made in Dynamo's run-only mode, which uses what is compiled and compiles
nothing; where there is nothing for it, the code below is run as it is written, and says so before anything is done.
Then the call is made again, alone. So it is never dense in silence, and what Dynamo gives up, or refuses at its limit
of recompiles, is compiled as new code.

Limits: holds between threads that all take it, as a lock does. A backward that compiles is outside of it, so warm up
with a backward if you train. What has once been compiled is kept.
"""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.exc import FailOnRecompileLimitHit

WARM, BUILDS, ALONE = "warm", "builds", "alone"
# What nobody else may hold at the same time.
APART = {WARM: (ALONE,), BUILDS: (BUILDS, ALONE), ALONE: (WARM, BUILDS, ALONE)}


class ThreeModes:
    """A lock that is held in one of three modes; ``entries`` counts how often in each.

    Databases call them shared, update and exclusive.
    """

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self.entries: Counter[str] = Counter()
        self._wanted_alone = 0
        self.turn = threading.Condition()
        self._mine = threading.local()

    @property
    def mine(self) -> str | None:
        """How the calling thread holds it."""
        return getattr(self._mine, "mode", None)

    @contextmanager
    def held_as(self, mode: str) -> Iterator[None]:
        """Hold it in this mode, and afterwards as before; who is alone stays so."""
        before = self.mine
        if before in (mode, ALONE):
            yield
            return
        self._turn(mode)
        try:
            yield
        finally:
            self._turn(before)

    def _turn(self, mode: str | None) -> None:
        # Whoever waits holds nothing, so that two never wait for each other.
        with self.turn:
            if self.mine is not None:
                self.held[self.mine] -= 1
                self._mine.mode = None
                self.turn.notify_all()
            if mode is None:
                return
            self._wanted_alone += mode == ALONE
            try:
                self.turn.wait_for(lambda: self._may_enter(mode))
            finally:
                self._wanted_alone -= mode == ALONE
                self.turn.notify_all()
            self.held[mode] += 1
            self.entries[mode] += 1
            self._mine.mode = mode

    def _may_enter(self, mode: str) -> bool:
        # Every call begins with its mask: a thread that wants to be alone is not kept out by calls that come later.
        waits = mode == BUILDS and self._wanted_alone
        return not waits and not any(self.held[other] for other in APART[mode])


LOCK = ThreeModes()


def guard(function: Callable[..., Any]) -> Callable[..., Any]:
    return _as(ALONE, function)


def guard_attention(function: Callable[..., Any]) -> Callable[..., Any]:
    return _as(BUILDS, function)


def _as(mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with LOCK.held_as(mode):
            return function(*args, **kwargs)

    return guarded


class NotCompiled(RuntimeError):
    """Nothing compiled fits the call."""


def compile_attention(flex_attention: Callable[..., Any]) -> Callable[..., Any]:
    ways: list[tuple[Callable[..., Any], Callable[..., Any]]] = []

    def another() -> tuple[Callable[..., Any], Callable[..., Any]]:
        def attend(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_dynamo_compiling():
                raise NotCompiled("flex_attention would run uncompiled: is a stance set, or does somebody trace?")
            return flex_attention(*args, **kwargs)

        # Dynamo keeps what it compiled, how often, and what it has given up, with the code object.
        attend.__code__ = attend.__code__.replace()
        return torch._dynamo.run(attend), torch.compile(attend, fullgraph=True)

    def attention(*args: Any, **kwargs: Any) -> Any:
        if LOCK.mine != ALONE:
            with LOCK.held_as(WARM):
                for warm, _ in ways:
                    try:
                        return warm(*args, **kwargs)
                    except NotCompiled:
                        continue
        with LOCK.held_as(ALONE):
            for _, compiled in ways:
                try:
                    return compiled(*args, **kwargs)
                except (NotCompiled, FailOnRecompileLimitHit):
                    continue
            way = another()
            result = way[1](*args, **kwargs)
            ways.append(way)
            return result

    return attention
