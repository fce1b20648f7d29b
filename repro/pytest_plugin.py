"""The pytest plugin: ``flex_audit``, which is ``python -m repro audit`` as an assertion.

Loaded by itself where this package is installed, else by ``-p repro.pytest_plugin``::

    def test_attention_holds(flex_audit):
        flex_audit("my_app.attention:attend")

Torch does not run in the process of the tests: naming the callable by a string keeps it from being imported, too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from repro.audit import Audited
    from repro.laboratory import Laboratory


class FlexAudit(Protocol):
    """Audits a callable, ``"MODULE:CALLABLE"`` or itself; the options are those of :func:`repro.audit.audit`.

    Returns what was found where it holds. Raises :class:`AssertionError` with the report where a schedule breaks it,
    and where nothing can be said; :class:`repro.audit.BadTarget` where it cannot be audited.
    """

    def __call__(self, target: str | Callable[..., Any], **options: Any) -> Audited: ...


@pytest.fixture(scope="session")
def _flex_laboratories() -> Iterator[Callable[[str], Laboratory]]:
    """A laboratory for each device, warm for the whole session."""
    from repro.laboratory import Laboratory

    # The workers of pytest-xdist are side by side already.
    lanes = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
    with ExitStack() as stack:
        yield functools.cache(lambda device: stack.enter_context(Laboratory(lanes=lanes, devices=(device,))))


@pytest.fixture
def flex_audit(_flex_laboratories: Callable[[str], Laboratory]) -> FlexAudit:
    """Audit an attention callable under concurrent threads: fails with the schedule that breaks it.

    ``flex_audit(target, **options)`` takes ``MODULE:CALLABLE``, or what stands at the top of a module, and the
    options of :func:`repro.audit.audit`, which says of what shapes the calls are.
    """
    from repro.audit import audit
    from repro.report import terminal
    from repro.verdict import Verdict

    def flex_audit(target: str | Callable[..., Any], **options: Any) -> Audited:
        __tracebackhide__ = True
        name = target if isinstance(target, str) else _named(target)
        found = audit(_flex_laboratories(options.get("device", "cpu")), name, **options)
        if found.verdict is not Verdict.HOLDS:
            raise AssertionError(terminal.audited_text(found))
        return found

    return flex_audit


def _named(function: Callable[..., Any]) -> str:
    """The name under which a fresh process finds ``function``. Raises :class:`repro.audit.BadTarget`."""
    from repro.audit import BadTarget

    module, path = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    bound = getattr(function, "__self__", None) is not None
    if not module or not path or "<" in path or bound:
        raise BadTarget(
            f"{function!r} has no name that a fresh process could import it by; give a string, MODULE:CALLABLE, of "
            "something at the top of a module"
        )
    return f"{module}:{path}"
