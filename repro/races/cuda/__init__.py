"""Races between threads that need a CUDA device."""
