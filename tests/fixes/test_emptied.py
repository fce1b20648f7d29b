"""Every fix has a run that goes red when the fix is emptied."""

from __future__ import annotations

from pathlib import Path

from repro.fixes import FOLDER

# Of each fix, what it is emptied to, and a race that then ends differently.
EMPTIED = {
    "lock": ("with LOCK:", "if True:", "tracing-flag-leak"),
    "warmup": ("attention(*example)", "pass", "tracing-flag-leak"),
    "suppress": ("error_on_nested_fx_trace = False", "error_on_nested_fx_trace = True", "tracing-flag-leak"),
}


def emptied(fix: str, folder: Path) -> str:
    kept, replaced, _ = EMPTIED[fix]
    source = (FOLDER / f"{fix}.py").read_text(encoding="utf-8")
    assert source.count(kept) == 1
    path = folder / f"{fix}.py"
    path.write_text(source.replace(kept, replaced), encoding="utf-8")
    return str(path)
