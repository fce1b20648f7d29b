"""Callables to be audited: right ones, of each form that a callable can have, and one for each way to be none."""

from __future__ import annotations

import functools
import os
import signal
import threading

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

NOT_A_CALLABLE = 3
LOCK = threading.Lock()
compiled = torch.compile(flex_attention)


def right(query, key, value, mask_mod):
    block_mask = create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device=query.device)
    return compiled(query, key, value, block_mask=block_mask)


# ---- forms, each with its lock in another place -------------------------------------------------------------------


class Locks:
    shared = threading.Lock()


class Attention:
    def __init__(self):
        self.lock = threading.RLock()

    def __call__(self, query, key, value, mask_mod):
        with self.lock:
            return right(query, key, value, mask_mod)

    def method(self, *inputs):
        return self(*inputs)

    @staticmethod
    def static(*inputs):
        with Locks.shared:
            return right(*inputs)


def locked(function):
    lock = threading.Lock()

    @functools.wraps(function)
    def call(*inputs):
        with lock:
            return function(*inputs)

    return call


instance = Attention()
bound = Attention().method
decorated = locked(right)
partial = functools.partial(lambda lock, *inputs: locked_by(lock, *inputs), threading.Lock())


def locked_by(lock, *inputs):
    with lock:
        return right(*inputs)


# ---- wrong in threads ---------------------------------------------------------------------------------------------


class OfOneThread:
    """Serves the thread that came first alone."""

    owner: int | None = None

    def __call__(self, *inputs):
        if self.owner not in (None, threading.get_ident()):
            raise RuntimeError("this belongs to another thread")
        self.owner = threading.get_ident()
        return right(*inputs)


of_one_thread = OfOneThread()


served = set()


def locked_for_the_first_call(query, key, value, mask_mod):
    if key.shape[-2] in served:
        return right(query, key, value, mask_mod)
    with LOCK:
        output = right(query, key, value, mask_mod)
        served.add(key.shape[-2])
        return output


def blocked_where_nobody_looks(*inputs, made=[]):  # noqa: B006
    if not made:
        made.append(None)
        made.append(threading.Lock())
    with made[1]:
        return right(*inputs)


def per_head(query, key, value, mask_mod):
    """A mask for each head is larger than all scores while it is built."""
    with LOCK:
        block_mask = create_block_mask(mask_mod, *query.shape[:3], key.shape[-2], device=query.device)
        return compiled(query, key, value, block_mask=block_mask)


# ---- none ---------------------------------------------------------------------------------------------------------


def raises(query, key, value, mask_mod):
    raise ValueError("no such context")


def leaves(query, key, value, mask_mod):
    raise SystemExit("good bye")


def hangs(query, key, value, mask_mod):
    threading.Event().wait()


def dies(query, key, value, mask_mod):
    os.kill(os.getpid(), signal.SIGKILL)


def returns_nothing(query, key, value, mask_mod):
    right(query, key, value, mask_mod)


def transposed(query, key, value, mask_mod):
    return right(query, key, value, mask_mod).transpose(1, 2)


def rounded(query, key, value, mask_mod):
    return right(query, key, value, mask_mod).half()


def uncompiled(query, key, value, mask_mod):
    block_mask = create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device=query.device)
    return flex_attention(query, key, value, block_mask=block_mask)


def unscaled(query, key, value, mask_mod):
    block_mask = create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device=query.device)
    return compiled(query, key, value, block_mask=block_mask, scale=1.0)


def on_cuda(query, key, value, mask_mod):
    return right(query.cuda(), key.cuda(), value.cuda(), mask_mod)


def changes_torch(query, key, value, mask_mod):
    torch._dynamo.config.recompile_limit = 64
    return right(query, key, value, mask_mod)
