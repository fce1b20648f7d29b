"""What one run came to, and what one oracle saw.

A run ends in exactly one :class:`Outcome`. Oracles report :class:`Finding` s; an oracle that could not look says
so (``blind``) and the run is then inconclusive, never ok.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Kind(str, Enum):
    """The eight ways in which a run can end."""

    OK = "ok"
    ERROR = "error"
    POISONED = "poisoned"
    DENSE = "dense"
    WRONG = "wrong"
    CRASH = "crash"
    HANG = "hang"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


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
