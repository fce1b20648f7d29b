"""What one run came to, and what one oracle saw.

A run ends in exactly one :class:`Outcome`. Oracles report :class:`Finding` s; an oracle that could not look says
so (``blind``) and the run is then inconclusive, never ok.
"""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


class Kind(str, Enum):
    """The nine ways in which a run can end."""

    OK = "ok"
    ERROR = "error"
    POISONED = "poisoned"
    DENSE = "dense"
    WASTEFUL = "wasteful"
    WRONG = "wrong"
    CRASH = "crash"
    HANG = "hang"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value

    @property
    def bare(self) -> str:
        """In a word, of a run without a fix: there is nothing to hold, the race stayed away."""
        return "clean" if self is Kind.OK else self.value


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    ``details`` is plain data that JSON can hold. By kind it has at least: ``error`` ``type``, ``message``,
    ``frame`` (the innermost torch frame, ``file.py:function``) and ``traceback``; ``crash`` ``signal``, or
    ``exit_code``; ``hang`` ``stacks``; ``dense`` and ``wrong`` the finding's data.
    """

    kind: Kind
    reason: str
    details: dict[str, Any] = field(default_factory=dict)


def error_outcome(error: BaseException) -> Outcome:
    """The ``error`` outcome of a run that raised ``error``.

    ``type`` is the class without its module, which moves between releases. ``frame`` is the innermost frame in
    the torch package, as in ``torch/_dynamo/guards.py:check``; without one, the innermost frame at all, as in
    ``file.py:function``; empty for an exception that was never raised.
    """
    # A compiler's message quotes the user's stack.
    kind, message = type(error).__qualname__, portably(str(error))
    first, *rest = message.strip().splitlines() or [""]
    # "... raised:" ends before it has said anything.
    summary = " ".join([first, *filter(None, map(str.strip, rest))][: 2 if first.endswith(":") else 1])
    details = {
        "type": kind,
        "message": message,
        "frame": _frame(error),
        "traceback": portably("".join(traceback.format_exception(type(error), error, error.__traceback__))),
    }
    return Outcome(Kind.ERROR, f"{kind}: {summary}" if summary else kind, details)


_FILE = re.compile(r'File "([^"]+)"')


def portably(text: str) -> str:
    """``text``, a traceback or the like, with the names of files as they are on any machine."""
    return _FILE.sub(lambda file: f'File "{_portable(file[1])}"', text)


def _portable(file: str) -> str:
    """A file's name as it is on any machine: from the installed package, or from this project, downwards."""
    for root in (*sys.path, str(Path(__file__).parent.parent)):
        if root and file.startswith(f"{root}/"):
            return file.removeprefix(f"{root}/")
    return file


def _frame(error: BaseException) -> str:
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    # a torch that was never imported has no frame here, so looking must not be what imports it
    torch_file = getattr(sys.modules.get("torch"), "__file__", None)
    if torch_file is not None:
        package = Path(torch_file).parent
        for frame in reversed(frames):
            file = Path(frame.filename)
            if package in file.parents:
                return f"{file.relative_to(package.parent).as_posix()}:{frame.name}"
    return f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""


class Sight(str, Enum):
    """What an oracle can say."""

    PASS = "pass"
    FAIL = "fail"
    BLIND = "blind"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One oracle's report on one call or one run; ``data`` is plain data that JSON can hold."""

    oracle: str
    sight: Sight
    message: str
    data: dict[str, Any] = field(default_factory=dict)
