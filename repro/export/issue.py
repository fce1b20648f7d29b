"""The issue to file with a script: what it shows here, run for real, in the fields of PyTorch's form."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import jinja2

from repro import races, results
from repro.export.script import Script
from repro.export.scrub import scrub
from repro.export.trial import Trial, native_stacks, run
from repro.fixes import NONE
from repro.gate import Span, bisect
from repro.outcome import Kind
from repro.recording import Recording

_DEFAULT: dict[str, str] = {}
_SETTINGS = [
    {"BACKEND": "eager"},
    {"BACKEND": "aot_eager"},
    {"BACKEND": "inductor"},
    {"BACKEND": "inductor", "DYNAMIC": "True"},
    {"BACKEND": "inductor", "DYNAMIC": "False"},
]
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def trials(script: Script, times: int, on_run: Callable[[], None]) -> list[Trial]:
    """Run it ``times`` times as it is; ``on_run`` is told of each."""
    return [_one(script, _DEFAULT, on_run) for _ in range(times)]


def write(
    recording: Recording,
    script: Script,
    seen: list[Trial],
    torch: str,
    on_run: Callable[[], None],
    *,
    native: bool = False,
) -> str:
    """The issue, in Markdown. Runs the script under other backends, as often as it was run as it is.

    With ``native`` a script that died is run under gdb too.
    """
    times = len(seen)
    ablation = [
        {
            "backend": settings["BACKEND"],
            "dynamic": settings.get("DYNAMIC", "None"),
            "said": _together([_one(script, settings, on_run) for _ in range(times)]),
        }
        for settings in _SETTINGS
    ]
    loudest = next((trial for trial in seen if trial.shown), seen[0])
    text = _TEMPLATES.get_template("issue.md.j2").render(
        title=script.title,
        story=script.story,
        torch=torch,
        shown=sum(trial.shown for trial in seen),
        times=times,
        file=script.file,
        script=script.text,
        wrapped=script.wrapped,
        columns=columns(recording, script.numbers),
        ablation=ablation,
        unreached=any("only these were reached" in row["said"] for row in ablation),
        releases=_releases(recording.race),
        device=results.kind_of(recording.devices) if races.is_audit(recording.race) else _device(recording.race),
        since=clean_since(recording.race),
        upstream=_upstream(recording),
        log=loudest.output.strip(),
        native=native_stacks(script.text, file=script.file, attempts=times) if native and loudest.code < 0 else "",
        versions=_versions(),
    )
    return scrub(text)


def _upstream(recording: Recording) -> list[str]:
    known = [race for race in recording.known if race in races.names()]
    known = known if races.is_audit(recording.race) else [recording.race]
    return list(dict.fromkeys(link for race in known for link in races.load(race).upstream))


def runs(times: int) -> int:
    """How many runs of the script an issue takes."""
    return times * (1 + len(_SETTINGS))


def columns(recording: Recording, numbers: Mapping[str, int]) -> str:
    """Where each thread began, handed over and ended: a column per thread, empty where there is one thread only.

    ``numbers`` are those of the script's hand-overs, by place.
    """
    names = list(dict.fromkeys(step.partition(":")[0] for step in recording.trace))
    rows = [names]
    for step in recording.trace:
        thread, _, rest = step.partition(":")
        place, _, to = rest.partition(">")
        number = numbers.get(step.partition(">")[0])
        place = place.removesuffix("#1") if number is None else f"hand-over {number}"
        edge = place in ("start", "end")
        if place == "end" and thread in recording.raised:
            place = f"raised {recording.raised[thread]}"
        if to or edge:
            rows.append(
                [f"{place} > {to}" if to and name == thread else place if name == thread else "" for name in names]
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) if len(names) > 1 else ""


def _one(script: Script, settings: dict[str, str], on_run: Callable[[], None]) -> Trial:
    trial = run(script.text, file=script.file, settings=settings)
    on_run()
    return trial


def _together(seen: list[Trial]) -> str:
    counted = Counter(trial.said for trial in seen)
    return "; ".join(said if len(seen) == 1 else f"{count} of {len(seen)}: {said}" for said, count in counted.items())


def _device(race: str) -> str:
    return results.CUDA if race in races.names(races.CUDA) else results.CPU


def clean_since(race: str) -> str | None:
    """The release from which on ``race`` does not show any more, up to the newest that is recorded."""
    spans = _spans(race)
    gone = len(spans) > 1 and spans[-1].seen.outcome is Kind.OK
    return str(spans[-1].first) if gone else None


def _releases(race: str) -> list[tuple[str, str]]:
    """The recorded releases, and what each came to."""
    return [(str(span), span.seen.outcome.bare) for span in _spans(race)]


def _spans(race: str) -> list[Span]:
    """The recorded releases, those in a row that came to the same together; none of a user's own callable."""
    found: list[Span] = []
    if races.is_audit(race):
        return found
    records = results.recorded(results.folder(_device(race)))
    for span in bisect(records, race, [NONE]).get(NONE, []):
        # How it fails may change from one release to the next.
        if found and found[-1].seen.outcome is span.seen.outcome:
            found[-1] = replace(found[-1], last=span.last)
        else:
            found.append(span)
    return found


def _versions() -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "torch.utils.collect_env"], capture_output=True, text=True, errors="replace"
    )
    return done.stdout.strip() or f"collect_env failed: {done.stderr.strip()}"
