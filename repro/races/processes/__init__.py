"""Races of processes that share inductor's cache directory; see :mod:`repro.races`."""
