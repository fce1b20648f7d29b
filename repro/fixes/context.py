"""Start each thread in a copy of the context of the thread that starts it.

Since 2.12 torch keeps settings in context variables, and a new ``threading.Thread`` has none of them: limits that the
program raised are back at their defaults there. ``asyncio.to_thread`` copies the context by itself, executors do not.
Helps against lost settings alone.
"""

import contextvars
from collections.abc import Callable
from typing import Any


def thread(body: Callable[[], Any]) -> Callable[[], Any]:
    context = contextvars.copy_context()
    return lambda: context.run(body)
