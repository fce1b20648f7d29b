"""The threads of threaded_inference, mended by the fixes isolate and side-by-side: warm calls do not wait.

    python -m repro audit threaded_inference_side_by_side:attention

Copy repro/fixes/isolate.py and repro/fixes/side_by_side.py beside your code and import them from there. ``mend()``
comes before any thread; what ``compile_attention`` gives stands where ``torch.compile`` stood, and around mask and
call stands ``guard_attention``.
"""

import threading

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from repro.fixes import isolate, side_by_side

isolate.mend()
compiled_flex_attention = side_by_side.compile_attention(flex_attention)


@side_by_side.guard_attention
def attention(query, key, value, mask_mod):
    block_mask = create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device=query.device)
    return compiled_flex_attention(query, key, value, block_mask=block_mask)


def causal(batch, head, query, key):
    return key <= query


def serve(context_lengths, drafts=1024):
    """Let a thread for each context draft once; returns what each drafted."""
    outputs = {}

    def draft(context):
        key, value = torch.randn(2, 1, 4, context + drafts, 32)
        with torch.no_grad():
            outputs[context] = attention(torch.randn(1, 4, drafts, 32), key, value, causal)

    threads = [threading.Thread(target=draft, args=(context,)) for context in context_lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outputs


if __name__ == "__main__":
    print({context: output.shape for context, output in serve([128, 256, 384]).items()})
