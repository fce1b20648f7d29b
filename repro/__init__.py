"""Reproduces the races of concurrent ``torch.compile(flex_attention)`` and proves which fix holds."""

__version__ = "0.1.0"
