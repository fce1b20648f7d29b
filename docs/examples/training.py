"""Training in threads on one device, with a lock around mask and forward and a first step of each kind inside it.

    python -m repro audit training:attention --train --device cuda

The lock alone would not do. A first backward compiles in autograd's own thread, which takes no lock of yours: it
waits for the compile that another thread's forward is in, while that thread waits for autograd. So what was not
called yet, by its shapes and its mask function, is called and gone back from on copies before the lock is let go.
"""

import threading

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, DRAFTS, HEAD_DIM = 8, 512, 32
CONTEXTS = (128, 256)
ATTENTION_LOCK = threading.Lock()
WARM = set()
compiled_flex_attention = torch.compile(flex_attention)


def attention(query, key, value, mask_mod):
    kind = (query.shape, key.shape, query.dtype, query.device, mask_mod)
    with ATTENTION_LOCK:
        block_mask = create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device=query.device)
        if kind not in WARM:
            copies = [tensor.detach().clone().requires_grad_() for tensor in (query, key, value)]
            compiled_flex_attention(*copies, block_mask=block_mask).sum().backward()
            WARM.add(kind)
        return compiled_flex_attention(query, key, value, block_mask=block_mask)


def causal(batch, head, query, key):
    return key <= query


def step(context):
    """Forward and backward on drafts after one context; returns the gradient of the queries."""

    def tensor(length):
        return torch.randn(1, HEADS, length, HEAD_DIM, device="cuda", requires_grad=True)

    query = tensor(DRAFTS)
    attention(query, tensor(context + DRAFTS), tensor(context + DRAFTS), causal).sum().backward()
    return query.grad


def train(steps=8):
    """Let a thread for each context take its steps; returns the last gradients."""
    gradients = {}

    def work(context):
        for _ in range(steps):
            gradients[context] = step(context)

    threads = [threading.Thread(target=work, args=(context,)) for context in CONTEXTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return gradients


if __name__ == "__main__":
    print({context: gradient.shape for context, gradient in train().items()})
