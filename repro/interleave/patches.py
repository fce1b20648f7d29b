"""Patches to named attributes, all undone, and the undoing checked."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any


class NotRestored(RuntimeError):
    """Somebody else changed a patched place meanwhile; what it holds now is in the message."""


class Patches:
    """A context manager that keeps what it replaced and puts it back, last first."""

    def __init__(self) -> None:
        self._undo: list[tuple[str, Callable[[], Any], Callable[[Any], None], Any, Any]] = []

    def put(self, place: str, get: Callable[[], Any], put: Callable[[Any], None], new: Any) -> None:
        """Replace what ``get`` returns by ``new``, through ``put``; ``place`` names it in messages."""
        old = get()
        put(new)
        self._undo.append((place, get, put, old, new))

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        foreign = []
        while self._undo:
            place, get, put, old, new = self._undo.pop()
            if get() is not new:
                foreign.append(f"{place} held {get()!r}")
            put(old)
            if get() is not old:
                foreign.append(f"{place} could not be put back")
        if foreign and error is None:
            raise NotRestored("; ".join(foreign))
