"""Cannot be imported."""

RATIO = 1 / 0
