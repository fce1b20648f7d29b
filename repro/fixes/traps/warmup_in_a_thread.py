"""A warm-up in a thread of its own, where gradients are on whatever the caller said.

People write it to start up faster. ``no_grad`` holds for the thread that says it, and compiled code is used under the
grad mode of its compile only: what was warmed is another thing than what is called.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    def warm() -> None:
        for example in examples:
            attention(*example)

    thread = threading.Thread(target=warm)
    thread.start()
    thread.join()
