"""Fixes for processes that share inductor's cache directory; see :mod:`repro.fixes`."""
