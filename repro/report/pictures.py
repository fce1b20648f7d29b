"""Pictures as plain geometry, which the page's template draws: swim lanes, the memory curves, throughput."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

# A monospaced letter of the size that the template draws, a row of a lane, and what a hand-over needs besides.
LETTER, ROW, TURN, MARGIN = 6.7, 20, 12, 14
# Of a longer stretch without a switch the middle is left out.
LONG, HEAD, TAIL = 8, 3, 2
_STEP = re.compile(r"(?P<thread>[^:]+):(?P<seam>.+)#(?P<visit>\d+)(?:>(?P<to>.+))?")


@dataclass(frozen=True)
class Mark:
    """A seam that a thread passed. ``kind`` is ``seam``, ``wait`` or ``left out``; ``note`` is about a switch."""

    x: float
    y: float
    text: str
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Turn:
    """The turn goes to another thread: by a ``switch``, or, without one, since a thread ended or has to wait."""

    x: float
    y: float
    to_x: float
    to_y: float
    switch: bool


@dataclass(frozen=True)
class Lanes:
    """One run, a lane for each thread and time running down. ``stretches`` are ``(x, from, to)``."""

    width: float
    height: float
    threads: tuple[tuple[str, float], ...]
    stretches: tuple[tuple[float, float, float], ...]
    marks: tuple[Mark, ...]
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class _Step:
    thread: str
    text: str
    kind: str
    note: str = ""


def lanes(trace: Sequence[str], switches: Iterable[str] = ()) -> Lanes:
    """The picture of a seam trace; ``switches`` are as ``A:SEAM#1>B taken``. Raises :class:`ValueError`."""
    fates = {line.partition(">")[0]: line.partition(" ")[2].partition(" ")[0] for line in switches}
    steps = [_step(line, fates) for line in trace]
    names = list(dict.fromkeys(step.thread for step in steps))
    shown = _shortened(steps)
    lefts, left = {}, float(MARGIN)
    for name in names:
        lefts[name] = left
        texts = [len(step.text) + (len(step.note) + 3 if step.note else 0) for step in shown if step.thread == name]
        left += max(LETTER * max(*texts, len(name)) + 2 * MARGIN, 6 * MARGIN)
    marks, turns, stretches, y = [], [], [], float(2 * ROW)
    for number, step in enumerate(shown):
        x = lefts[step.thread]
        before = shown[number - 1] if number else None
        if before is not None and before.thread == step.thread:
            y += ROW
            stretches.append((x, y - ROW, y))
        elif before is not None:
            turns.append(Turn(lefts[before.thread], y, x, y + ROW + TURN, switch=bool(before.note)))
            y += ROW + TURN
        marks.append(Mark(x, y, step.text, step.kind, step.note))
    threads = tuple((name, lefts[name]) for name in names)
    return Lanes(left, y + ROW, threads, tuple(stretches), tuple(marks), tuple(turns))


def _step(line: str, fates: Mapping[str, str]) -> _Step:
    found = _STEP.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r} is not a step of a trace")
    thread, seam, to = found["thread"], found["seam"], found["to"]
    text = seam if found["visit"] == "1" else f"{seam}#{found['visit']}"
    fate = fates.get(line.partition(">")[0])
    note = ""
    if fate == "refused":
        note = "switch refused"
    elif fate == "taken" or (to is not None and seam != "end" and not seam.startswith("wait:")):
        note = "switch"
    return _Step(thread, text, "wait" if seam.startswith("wait:") else "seam", note)


def _shortened(steps: Sequence[_Step]) -> list[_Step]:
    """Every hand-over, and of long stretches of one thread the ends."""
    shown: list[_Step] = []
    for (thread, noted), group in groupby(steps, key=lambda step: (step.thread, bool(step.note))):
        stretch = list(group)
        if noted or len(stretch) <= LONG:
            shown += stretch
        else:
            count = len(stretch) - HEAD - TAIL
            shown += [*stretch[:HEAD], _Step(thread, f"{count} more seams", "left out"), *stretch[-TAIL:]]
    return shown


@dataclass(frozen=True)
class Axis:
    """Where values lie on a line of the picture, and the values to write there."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...] = ()

    def at(self, value: float) -> float:
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 1)


@dataclass(frozen=True)
class Curve:
    name: str
    style: str
    points: tuple[tuple[float, float], ...]

    @property
    def path(self) -> str:
        return "M" + " L".join(f"{x} {y}" for x, y in self.points)


@dataclass(frozen=True)
class Curves:
    """Bytes over sequence length, both on a log scale."""

    width: float
    height: float
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    curves: tuple[Curve, ...]


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def size(count: float) -> str:
    """Bytes as people read them."""
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), _UNITS[-1])
    return f"{count / unit:.3g} {name}" if count < 1000 * unit else f"{count / unit:.0f} {name}"


def curves(rows: Mapping[int, Mapping[str, int]], names: Mapping[str, tuple[str, str]]) -> Curves:
    """``rows`` are bytes by curve, by length; ``names`` are what to call a curve, and its style."""
    width, height = 440, 300
    lengths = sorted(rows)
    values = [value for row in rows.values() for value in row.values()]
    across = Axis(math.log2(lengths[0]), max(math.log2(lengths[-1]), math.log2(lengths[0]) + 1), 64, width - 24)
    low, high = math.floor(math.log2(min(values)) / 4) * 4, math.ceil(math.log2(max(values)) / 4) * 4
    up = Axis(low, max(high, low + 4), height - 40, 16)
    return Curves(
        width,
        height,
        tuple((across.at(math.log2(length)), f"{length:,}") for length in lengths),
        tuple((up.at(power), size(2.0**power)) for power in range(low, int(up.high) + 1, 4)),
        tuple(
            Curve(
                name,
                style,
                tuple(
                    (across.at(math.log2(length)), up.at(math.log2(rows[length][key])))
                    for length in lengths
                    if key in rows[length]
                ),
            )
            for key, (name, style) in names.items()
        ),
    )


@dataclass(frozen=True)
class Bar:
    name: str
    y: float
    low: float
    value: float
    high: float
    text: str


@dataclass(frozen=True)
class Bars:
    """Ratios with their bounds; at ``one`` nothing is lost."""

    width: float
    height: float
    one: float
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]


def bars(rows: Sequence[tuple[str, float, float, float]]) -> Bars:
    """``rows`` are name, lower bound, value and upper bound."""
    width, step = 440, 34
    low = min(1.0, *(row[1] for row in rows)) - 0.02
    high = max(1.0, *(row[3] for row in rows)) + 0.02
    axis = Axis(low, high, 16, width - 16)
    grain = next(grain for grain in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100) if (high - low) / grain <= 7)
    first = math.ceil(low / grain)
    return Bars(
        width,
        step * len(rows) + 30,
        axis.at(1),
        tuple(
            Bar(name, 24 + step * number, axis.at(least), axis.at(value), axis.at(most), f"{value:.3f}")
            for number, (name, least, value, most) in enumerate(rows)
        ),
        tuple((axis.at(n * grain), f"{n * grain:.2f}") for n in range(first, math.floor(high / grain) + 1)),
    )
