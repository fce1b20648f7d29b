"""Reproducers for upstream: a recorded schedule becomes one script that needs torch alone, and an issue to file.

A race's *form* (``forms/RACE.py.j2``) is its script with places where threads may hand over: in code that users
write, a ``forward`` or a backend, inside the window that a seam of torch marks. The recording says at which of the
places they do. A hand-over for which the form has no place goes into a wrapped function of torch, and the script says
so.
"""
