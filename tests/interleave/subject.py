"""A module with something to put seams into."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

log: list[str] = []
lock = threading.RLock()


def plain(value: int = 0) -> int:
    log.append("plain")
    return value + 1


def caller() -> int:
    return plain()


@contextmanager
def managed() -> Iterator[str]:
    log.append("enter")
    try:
        yield "value"
    finally:
        log.append("exit")


class Base:
    def inherited(self) -> str:
        return "inherited"


class Thing(Base):
    def method(self, value: str) -> str:
        return f"{self.inherited()} {value}"

    @staticmethod
    def static(value: str) -> str:
        return f"static {value}"

    @classmethod
    def of_class(cls, value: str) -> str:
        return f"{cls.__name__} {value}"
