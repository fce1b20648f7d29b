"""Seams: points in named torch functions where a thread may hand over. Which ones: ``torch_names.toml``.

A seam stands ``before`` or ``after`` a function, or around a context manager: ``entering`` and ``entered``,
``exiting`` and ``exited``. A seam ``inside`` a function is written as one before a function that it calls, with
``within`` naming the caller. An entry of ``where = "lock"`` is a lock to be modelled, one of ``where = "engine"`` the
function through which autograd's device threads are given work (see ``engine.py``).

A required seam that this release has lost is never fewer schedules in silence: :class:`LostSeam`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from repro.interleave import engine
from repro.interleave.locks import Models
from repro.interleave.patches import Patches
from repro.interleave.scheduler import point

WHERE = ("before", "after", "entering", "entered", "exiting", "exited", "lock", "engine")


class LostSeam(RuntimeError):
    """A required seam is not where this release should have it; the run is inconclusive."""


@dataclass(frozen=True)
class Seam:
    """``target`` is ``module:attribute.path``; ``where`` is one of :data:`WHERE`."""

    name: str
    target: str
    where: str
    required: bool = True
    within: str | None = None

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise ValueError(f"seam {self.name}: where must be one of {', '.join(WHERE)}, not {self.where!r}")
        if ":" not in self.target:
            raise ValueError(f"seam {self.name}: target must be module:attribute, not {self.target!r}")


class Seams:
    """A context manager: while it lasts, the seams stand and the locks of ``code`` are modelled.

    ``unseen`` says that the code around a seam is not run but read, as by a compiler; there is nobody to hand over.

    ``lost`` names optional seams that this release does not have; a required one raises :class:`LostSeam`.
    ``standing`` names all others, and the modelled locks.
    """

    def __init__(
        self, seams: Iterable[Seam], *, code: Iterable[Any] = (), unseen: Callable[[], bool] | None = None
    ) -> None:
        self._seams = list(seams)
        self._unseen = unseen or _nobody_compiles
        self._code = list(code)
        self._patches = Patches()
        self._callers: dict[str, _Inside] = {}
        self.lost: list[str] = []
        self.visits: Counter[str] = Counter()
        self.locks: list[str] = []

    def __enter__(self) -> Seams:
        models = Models(self._patches)
        try:
            for seam in self._seams:
                try:
                    owner, name, found = _resolve(seam.target)
                    new = None if seam.where == "lock" else self._wrap(seam, found)
                except (ImportError, AttributeError) as error:
                    if seam.required:
                        raise LostSeam(f"seam lost: {seam.name} ({seam.target}): {error}") from error
                    self.lost.append(seam.name)
                    continue
                if seam.where == "lock":
                    models.attribute(owner, name, seam.name)
                else:
                    self._replace(owner, name, new)
            for code in self._code:
                models.search(code)
            self.locks = models.names
        except BaseException:
            self._patches.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patches.__exit__(kind, error, trace)

    @property
    def standing(self) -> list[str]:
        seams = [seam.name for seam in self._seams if seam.where != "lock" and seam.name not in self.lost]
        return [*seams, *self.locks]

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        old = inspect.getattr_static(owner, name)
        own = name in vars(owner)

        def put(value: Any) -> None:
            # What was inherited is inherited again, not a copy of it left behind.
            if value is old and not own:
                delattr(owner, name)
            else:
                setattr(owner, name, value)

        self._patches.put(
            f"{getattr(owner, '__name__', owner)}.{name}", lambda: inspect.getattr_static(owner, name), put, new
        )

    def _wrap(self, seam: Seam, found: Any) -> Any:
        function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        if seam.where == "engine":
            return engine.modelled(function, seam.name)
        visit = self._visitor(seam)

        if seam.where in ("before", "after"):

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                if seam.where == "before":
                    visit()
                result = function(*args, **kwargs)
                if seam.where == "after":
                    visit()
                return result

        else:

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return _Around(function(*args, **kwargs), seam.where, visit)

        return type(found)(call) if isinstance(found, (staticmethod, classmethod)) else call

    def _visitor(self, seam: Seam) -> Callable[[], None]:
        inside = self._inside(seam.within) if seam.within else None
        unseen = self._unseen

        def visit() -> None:
            if unseen():
                return
            if inside is None or inside.depth:
                self.visits[seam.name] += 1
                point(seam.name)

        return visit

    def _inside(self, target: str) -> _Inside:
        """Whether the calling thread is inside ``target`` just now."""
        if target not in self._callers:
            inside = self._callers[target] = _Inside()
            owner, name, found = _resolve(target)
            unseen = self._unseen

            @functools.wraps(found)
            def call(*args: Any, **kwargs: Any) -> Any:
                if unseen():
                    return found(*args, **kwargs)
                inside.depth += 1
                try:
                    return found(*args, **kwargs)
                finally:
                    inside.depth -= 1

            self._replace(owner, name, call)
        return self._callers[target]


def _nobody_compiles() -> bool:
    return False


class _Inside(threading.local):
    depth = 0


class _Around(AbstractContextManager[Any]):
    def __init__(self, real: AbstractContextManager[Any], where: str, visit: Callable[[], None]) -> None:
        self._real = real
        self._where = where
        self._visit = visit

    def __enter__(self) -> Any:
        if self._where == "entering":
            self._visit()
        value = self._real.__enter__()
        if self._where == "entered":
            try:
                self._visit()
            except BaseException:
                # Who is left inside is never asked to leave: __exit__ follows only on an __enter__ that returned.
                self._real.__exit__(*sys.exc_info())
                raise
        return value

    def __exit__(self, *exception: Any) -> bool | None:
        if self._where == "exiting":
            try:
                self._visit()
            except BaseException:
                self._real.__exit__(*sys.exc_info())
                raise
        swallowed = self._real.__exit__(*exception)
        if self._where == "exited":
            self._visit()
        return swallowed


def _resolve(target: str) -> tuple[Any, str, Any]:
    """``module:a.b`` as (owner, last name, what is there now, unbound)."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    getattr(owner, name)
    return owner, name, inspect.getattr_static(owner, name)
