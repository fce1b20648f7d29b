"""A child that compiles for the first time, while a thread of its parent is in the middle of a compile.

Usage: start_methods.py METHOD, ``spawn`` or ``forkserver``; how that ends with ``fork`` is a race of its own. Says as
JSON what came of the child.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

import torch

from repro.races.processes.fork_while_compiling import start_a_compile_that_lasts
from repro.workloads import Workload
from tests.processes.one_start import start


def child(answer: Connection) -> None:
    torch.set_num_threads(1)
    answer.send(start(Workload(head_dim=16), "none"))


if __name__ == "__main__":
    start_a_compile_that_lasts()
    context = multiprocessing.get_context(sys.argv[1])
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    print(json.dumps(ours.recv()), flush=True)
    process.join()
    # The compile that lasts would keep the interpreter.
    os._exit(0)
