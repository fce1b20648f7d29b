"""What a GitHub job shows: an annotation for each red cell, and the job summary."""

from __future__ import annotations

import os
from pathlib import Path

from repro.gate import Gate
from repro.report import markdown
from repro.report.terminal import counted, place
from repro.verdict import Standing


def here() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def errors(answer: Gate) -> list[str]:
    """Workflow commands. Where all is well there is none."""
    lines = [
        f"::error title={_property(f'{change.word}: {place(change)}')}::{_data(change.text)}" for change in answer.red
    ]
    if answer.standing is Standing.INCONCLUSIVE and not lines:
        lines.append(f"::error title=gate::{_data(counted(answer))}")
    return lines


def summary(answer: Gate) -> None:
    """Add the answer to the summary of the job, where the job has one."""
    file = os.environ.get("GITHUB_STEP_SUMMARY")
    if file:
        with Path(file).open("a", encoding="utf-8") as summary:
            summary.write(markdown.gate(answer))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
