"""Traps: what looks like a fix of races between threads, is often written, and does not hold."""
