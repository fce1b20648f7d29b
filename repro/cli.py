"""``python -m repro``: the command line.

Exit codes: ``run``, ``explore``, ``audit`` and ``replay``: 0 holds, 1 race shown; ``matrix`` and ``gate``: 0 as this
release is known to behave, 1 not; all: 2 bad usage or input, 3 inconclusive; the rest 0.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from repro import __version__, fixes, races

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from repro.gate import Gate
    from repro.laboratory import Laboratory
    from repro.outcome import Kind
    from repro.results import Asked, Look, Report
    from repro.verdict import Cell, Standing

OK, SHOWN, USAGE, INCONCLUSIVE = 0, 1, 2, 3
CPU = ("cpu",)
# Where nobody says how many: schedules to search, and runs of an exported script.
SEARCHED, TRIALS = 200, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        options = _parser().parse_args(arguments)
        options.arguments = list(sys.argv[1:] if arguments is None else arguments)
        _check_targets(options)
        code = int(options.command(options))
        sys.stdout.flush()
        return code
    except SystemExit as end:
        # argparse has printed the help, or the version; or rich has met a reader that has gone.
        return INCONCLUSIVE if end.code else OK
    except KeyboardInterrupt:
        _say("interrupted; nothing is left running")
        return INCONCLUSIVE
    except OSError as error:
        # Nobody reads standard output any more, or it cannot take more: nothing more into it, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return INCONCLUSIVE
        _say(str(error))
        return USAGE
    except ImportError:
        # Not all that this needs is installed: repro.__main__ says so, as of what is missed before this module runs.
        raise
    except Exception as error:
        if isinstance(error, _bad_input()):
            _say(str(error))
            return USAGE
        # A mistake of ours must not be read as a verdict: Python's own exit code for it is that of a race shown.
        place = traceback.extract_tb(error.__traceback__)[-1]
        _say(f"a mistake in this program, {place.filename}:{place.lineno}: {type(error).__name__}: {error}")
        return INCONCLUSIVE


def _say(message: str) -> None:
    """One line on standard error; of a longer message how it begins and how it ends."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    print(f"repro: {lines[0]}" + (f" ... {lines[-1]}" if len(lines) > 1 else ""), file=sys.stderr)


def _check_targets(options: argparse.Namespace) -> None:
    targets = {f"--{name}": getattr(options, name, None) for name in ("json", "junit", "markdown")}
    targets["-o"] = getattr(options, "out", None)
    if list(targets.values()).count("-") > 1:
        raise _Usage("standard output can take only one of --json, --junit, --markdown and -o")
    for option, target in targets.items():
        if target is not None:
            from repro.report import document

            document.check_target(target, option)


def _bad_input() -> tuple[type[Exception], ...]:
    from repro.audit import BadTarget
    from repro.expectations import ExpectationError
    from repro.interleave.schedule import ScheduleError
    from repro.interleave.shrink import Unsteady
    from repro.preflight import NotReady
    from repro.report.document import Unwritable
    from repro.results import ReportError
    from repro.sandbox import SandboxError
    from repro.surface import BadSurface

    return (
        BadSurface,
        BadTarget,
        _Usage,
        races.UnknownRace,
        fixes.UnknownFix,
        ExpectationError,
        ScheduleError,
        NotReady,
        Unwritable,
        ReportError,
        SandboxError,
        Unsteady,
    )


class _Usage(Exception):
    """A command line that cannot be understood."""


class _OneFix(argparse.Action):
    """Where one fix is judged a second one must not take its place in silence."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            joined = f"{getattr(namespace, self.dest)}+{values}"
            raise _Usage(f"one fix at a time; all of them together are --fix {joined}, and matrix takes several")
        setattr(namespace, self.dest, values)


_RACES = f"only this race, or those of a group: {', '.join(races.GROUPS)} (repeatable)"


def _races(named: str) -> list[str]:
    """A race by name, or all of a group."""
    return races.names(named) if named in races.GROUPS else [named]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m repro",
        description="Reproduce the races of concurrent torch.compile(flex_attention) and see which fix holds.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    listing = _command(commands, "list", "the races and the fixes there are")
    listing.add_argument("--markdown", metavar="FILE", help="write the catalogue of races as Markdown")
    listing.set_defaults(command=_list)

    run = _command(commands, "run", "one race, without a fix and with one")
    run.add_argument("race", metavar="RACE")
    run.add_argument(
        "--fix",
        action=_OneFix,
        metavar="F",
        help="a fix by name, several joined with +, or a .py file of your own with the same functions",
    )
    _device_option(run)
    run.set_defaults(command=_run)

    explore = _command(commands, "explore", "search the schedules of one race, without a fix and with one")
    explore.add_argument("race", metavar="RACE")
    explore.add_argument(
        "--fix", action=_OneFix, metavar="F", help="a fix by name, several joined with +, or a .py file of your own"
    )
    _device_option(explore)
    _search_options(explore)
    explore.set_defaults(command=_explore)

    _audit_options(_command(commands, "audit", "attention of your own, called by several threads: does it hold?"))

    table = _command(commands, "matrix", "all races by all fixes, against what this release is known to do")
    table.add_argument("--race", action="extend", type=_races, metavar="RACE", dest="races", help=_RACES)
    table.add_argument("--fix", action="append", metavar="F", dest="fixes", help="only this fix (repeatable)")
    table.add_argument(
        "--search",
        action="store_true",
        help="search each cell instead of replaying (minutes a cell; races of processes only by name)",
    )
    _search_options(table)
    _device_option(table)
    table.set_defaults(command=_matrix)

    _gate_options(_command(commands, "gate", "one red or green answer about a release of torch, with reasons"))

    replay = _command(commands, "replay", "a recorded run once more, decision by decision")
    replay.add_argument(
        "file", metavar="FILE", help="what run, explore, audit, matrix or gate wrote with --json, or a recorded run"
    )
    replay.add_argument(
        "--cell",
        type=_cell,
        metavar="RACE/FIX",
        help="which run of several, such as stance-leak/none (default: the one that shows a race)",
    )
    replay.add_argument("-n", type=_positive, default=1, metavar="N", help="how many times (default: 1)")
    _device_option(replay)
    replay.set_defaults(command=_replay)

    report = _command(commands, "report", "one HTML page about what another command wrote with --json")
    report.add_argument(
        "file",
        metavar="FILE",
        help="what run, explore, audit, replay, matrix or gate wrote with --json, or a recorded result: "
        "fixtures/results/torch-*.json",
    )
    report.add_argument(
        "-o",
        metavar="OUT",
        dest="out",
        help="where to write; - is standard output (default: of FILE.json FILE.html, beside it)",
    )
    report.add_argument("--against", metavar="BASELINE", help="compare with this report, or this recorded release")
    report.add_argument("--junit", metavar="FILE", help="write the differences as JUnit XML")
    report.add_argument("--markdown", metavar="FILE", help="write the differences as Markdown")
    report.set_defaults(command=_report)

    surface = _command(
        commands, "surface", "what torch keeps for the whole process, and who changes it; reads source"
    )
    what = "a recorded release, an inventory (--json), a Python interpreter, or a folder with torch"
    surface.add_argument("--torch", metavar="T", help=f"{what} (default: the installed torch)")
    surface.add_argument("--diff", nargs=2, metavar=("A", "B"), help="what changed from A to B instead; each as T")
    surface.set_defaults(command=_surface)

    export = _command(commands, "export", "a script that shows one race and needs torch alone, and an issue to file")
    export.add_argument(
        "race",
        metavar="RACE",
        help="or MODULE:CALLABLE, with what audit wrote as --schedule; or all, with --script-only",
    )
    export.add_argument("-o", metavar="DIR", dest="folder", required=True, help="where to write them")
    export.add_argument(
        "--schedule",
        metavar="FILE",
        help="what run, explore, matrix, gate or audit wrote with --json, if not the recorded; its run without a fix "
        "counts",
    )
    export.add_argument("--script-only", action="store_true", help="write the script, run nothing, write no issue")
    export.add_argument(
        "-n",
        type=_positive,
        metavar="N",
        help=f"how often to run the script, and each ablation (default: {TRIALS})",
    )
    export.add_argument(
        "--minimise",
        action="store_true",
        help="take out of the script what the race does not need (some hundred runs)",
    )
    export.add_argument("--c-trace", action="store_true", help="of a crash, the native stacks too (needs gdb)")
    export.set_defaults(command=_export)
    return parser


_AUDIT = """
MODULE:CALLABLE is imported as python -m would, and called as (query, key, value, mask_mod) -> output: query is
[1, 8, 512, 32], key and value [1, 8, N, 32] with another N in each thread, mask_mod as flex_attention takes it. It
builds its block mask itself. Calls run under no_grad; with --train, on CUDA, each goes backward too.

Exit code 0: it holds; 1: a schedule breaks it; 2: it cannot be audited, and what to do; 3: nothing can be said.
"""


def _audit_options(audit: argparse.ArgumentParser) -> None:
    from repro.audit import BUDGET, DEFAULT_STRATEGY, DEFAULT_THREADS, STRATEGIES, TIMEOUT

    audit.description = _AUDIT
    audit.formatter_class = argparse.RawDescriptionHelpFormatter
    audit.set_defaults(command=_audit)
    audit.add_argument("target", metavar="MODULE:CALLABLE")
    audit.add_argument(
        "--threads",
        type=_threads,
        default=DEFAULT_THREADS,
        metavar="N",
        help=f"how many call it, 2 to 8 (default: {DEFAULT_THREADS})",
    )
    audit.add_argument(
        "--foreign", action="store_true", help="list which threads that are not yours break it (no exit code)"
    )
    audit.add_argument("--train", action="store_true", help="go backward in each call; needs --device cuda")
    audit.add_argument("--device", metavar="D", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    audit.add_argument(
        "--strategy",
        metavar="S",
        choices=STRATEGIES,
        default=DEFAULT_STRATEGY,
        help="bounded (every schedule with one switch), pct or random (default: bounded)",
    )
    audit.add_argument(
        "--budget", type=_positive, default=BUDGET, metavar="N", help=f"schedules to run (default: {BUDGET})"
    )
    audit.add_argument("--seed", type=_seed, default=0, metavar="N", help="of pct and random (default: 0)")
    audit.add_argument(
        "--timeout",
        type=_positive,
        default=round(TIMEOUT),
        metavar="S",
        help=f"seconds for the import and a call, alone (default: {TIMEOUT:g})",
    )


_GATE = """
Measures every cell, and compares: outcomes with fixtures/expectations/, how each failure comes about with
fixtures/results/; on CUDA both with fixtures/results/cuda/. Red both ways: what should appear and does not must be
acknowledged with --update. A release newer than any recorded one is compared with the newest.

By default each cell is replayed three times, and a race that its recorded schedule does not show is searched for
by others, so that a schedule that has grown stale is not taken for a race that is gone. --quick replays each cell
once and searches nothing: for every pull request; the full gate is for the decision to upgrade.
"""


def _gate_options(gate: argparse.ArgumentParser) -> None:
    gate.description = _GATE
    gate.formatter_class = argparse.RawDescriptionHelpFormatter
    gate.set_defaults(command=_gate)
    what = gate.add_argument_group("what is judged")
    what.add_argument("--race", action="extend", type=_races, metavar="RACE", dest="races", help=_RACES)
    what.add_argument("--fix", action="append", metavar="F", dest="fixes", help="only this fix (repeatable)")
    _device_option(what)
    what.add_argument(
        "--from",
        action="append",
        metavar="FILE",
        dest="reports",
        help="judge what gate, matrix or run wrote with --json, by what it was asked for, or a recorded release, and "
        "run nothing (with --update repeatable)",
    )
    what.add_argument(
        "--torch-spec",
        metavar="SPEC",
        help="run under another torch: what pip install takes ('torch==2.14.1'), or the path of a Python",
    )
    what.add_argument("--against", metavar="OLD", help="compare with this report, or this recorded release, instead")
    how = gate.add_argument_group("how")
    how.add_argument("--quick", action="store_true", help="each cell once, no search")
    how.add_argument("-n", type=_positive, metavar="N", help="replays of each cell (default: 3, with --quick 1)")
    how.add_argument("--budget", type=_positive, metavar="N", help=f"schedules to search (default: {SEARCHED})")
    answer = gate.add_argument_group("the answer")
    answer.add_argument("--update", action="store_true", help="write what was seen as expected of this release")
    answer.add_argument("--junit", metavar="FILE", help="write the answer as JUnit XML")
    answer.add_argument("--markdown", metavar="FILE", help="write the answer as Markdown")
    recorded = gate.add_argument_group("from what is recorded, without a run")
    recorded.add_argument("--bisect", metavar="RACE", help="at which recorded release a race changed")
    recorded.add_argument("--releases", action="store_true", help="print the table of releases by race as Markdown")
    recorded.add_argument(
        "--decision", action="store_true", help="print which fix is for which situation, docs/decision.md"
    )


def _command(commands: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    return command


def _device_option(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--device",
        action="append",
        metavar="D",
        dest="devices",
        help="cpu, cuda or cuda:N; repeat it to deal the threads out to several (default: cpu)",
    )


def _devices(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(options.devices or CPU)


def _check_catalogue(race: str) -> None:
    if races.is_audit(race):
        raise _Usage(f"{race} is no race of the catalogue; of a callable of your own: python -m repro audit {race}")


def _check_race(race: str, devices: tuple[str, ...]) -> None:
    """That there is a race of this name, and that it exists on these devices."""
    _check_catalogue(race)
    group = races.group(race)
    if race not in races.names_on(devices):
        raise _Usage(
            f"{race} is a race on CUDA alone: give --device cuda"
            if group == races.CUDA
            else f"{race} is a race of {group}, on the CPU alone: leave --device out"
        )


def _check_fix(fix: str, devices: tuple[str, ...], group: str | None = None) -> None:
    """That there is a fix of this name for races of ``group``, and that it says something on these devices."""
    fixes.check(fix, group)
    if "cpu" in devices and (lost := _on_cuda_alone(fix)):
        raise _Usage(f"{lost} can be told on CUDA alone: give --device cuda")


def _on_cuda_alone(fix: str) -> str | None:
    """What ``fix`` has in it that says something on CUDA alone."""
    return next((part for part in fixes.parts(fix) if part in fixes.ON_CUDA), None)


def _search_options(command: argparse.ArgumentParser) -> None:
    from repro.exploring import STRATEGIES

    command.add_argument(
        "--strategy", metavar="S", choices=STRATEGIES, default="pct", help=f"{', '.join(STRATEGIES)} (default: pct)"
    )
    command.add_argument(
        "--budget", type=_positive, default=SEARCHED, metavar="N", help=f"schedules to run (default: {SEARCHED})"
    )
    command.add_argument("--seed", type=_seed, default=0, metavar="N", help="of pct and random (default: 0)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def _threads(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 2 to 8")
    return int(text)


def _cell(text: str) -> tuple[str, str]:
    # A fix may be a file, in any folder.
    race, _, fix = text.partition("/")
    if not (race and fix):
        raise argparse.ArgumentTypeError(f"{text!r} is not RACE/FIX; without a fix it is RACE/none")
    return race, fix


def _console(options: argparse.Namespace) -> Console:
    """Where people read: standard output, or standard error where standard output belongs to a document."""
    from rich.console import Console

    taken = "-" in (getattr(options, name, None) for name in ("json", "junit", "markdown", "out"))
    console = Console(stderr=taken, highlight=False)
    if not console.is_terminal:
        # A file has no edge to wrap at.
        console.width = 200
    return console


def _progress() -> Progress:
    """Where somebody watches: how many are done, how fast that goes, and how long the rest takes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed * 60:.0f} a minute", style="progress.data.speed")

    return Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _list(options: argparse.Namespace) -> int:
    from rich.table import Table

    from repro import expectations
    from repro.report import document, markdown

    releases = {name: dict(expectations.recorded(name, fixes.NONE)) for name in races.names()}
    found = {
        "races": {name: races.documentation(name).partition("\n")[0] for name in races.names()},
        "fixes": {name: fixes.summary(name) for name in [*fixes.names(), *fixes.beside()]},
        "traps": {name: fixes.summary(name) for name in [*fixes.traps(), *fixes.ON_CUDA]},
    }
    console = _console(options)
    for kind, members, names in (
        ("races", "threads", races.names(races.THREADS)),
        ("races", "threads that need a CUDA device", races.names(races.CUDA)),
        ("fixes", "threads", fixes.names(races.THREADS)),
        ("fixes", "threads, which are no column of the matrix", fixes.beside()),
        ("races", "processes", races.names(races.PROCESSES)),
        ("fixes", "processes", fixes.names(races.PROCESSES)),
        ("traps", "threads, which look like fixes and are none", fixes.traps()),
        ("traps", "threads on a CUDA device", fixes.ON_CUDA),
    ):
        title = f"{kind} of {members}"
        table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
        for name in names:
            where = _shows(releases[name]) if kind == "races" else ""
            table.add_row(name, found[kind][name] + where)
        console.print(table)
    if options.markdown is not None:
        document.write_text(markdown.catalogue(), options.markdown, "--markdown")
    known = {name: {torch: kind.value for torch, kind in each.items()} for name, each in releases.items()}
    _write(options, document.envelope("list", None, {**found, "releases": known}, seeds=[]))
    return OK


def _shows(releases: Mapping[str, Kind]) -> str:
    """On which releases a race shows without a fix, where it does not on all."""
    from repro.outcome import Kind

    shown = [f"{kind} on torch {torch}" for torch, kind in releases.items() if kind is not Kind.OK]
    if len(shown) == len(releases):
        return ""
    return f" ({'; '.join(shown)} only)" if shown else " (clean without a fix on every recorded release)"


def _run(options: argparse.Namespace) -> int:
    from repro.report import document, terminal
    from repro.results import Asked
    from repro.verdict import EXIT

    _check_race(options.race, _devices(options))
    fix = options.fix or fixes.NONE
    _check_fix(fix, _devices(options), races.group(options.race))
    torch, cells, _ = _measure(options, [options.race], [fix], controls=False)
    console = _console(options)
    for cell in cells:
        terminal.cell(console, cell)
    _write(
        options,
        document.of_cells(
            "run",
            torch,
            cells,
            asked=Asked((options.race,), (fix,), times=1, searched=False),
            devices=_devices(options),
        ),
    )
    return EXIT[cells[-1].verdict]


def _explore(options: argparse.Namespace) -> int:
    from repro.exploring import search
    from repro.laboratory import Laboratory
    from repro.report import document, terminal
    from repro.verdict import EXIT

    _check_race(options.race, _devices(options))
    fix = options.fix or fixes.NONE
    _check_fix(fix, _devices(options), races.group(options.race))
    with (
        _progress() as progress,
        Laboratory(lanes=2, devices=_devices(options)) as laboratory,
    ):
        laboratory.check(options.race, fix)
        bar = progress.add_task("schedules", total=options.budget)
        found = search(
            laboratory,
            options.race,
            fix,
            strategy=options.strategy,
            budget=options.budget,
            seed=options.seed,
            devices=_devices(options),
            on_progress=lambda seen: progress.update(bar, completed=seen.schedules),
        )
    terminal.searched(_console(options), found)
    _write(options, document.of_search(laboratory.torch, found, _devices(options)))
    return EXIT[found.verdict]


def _audit(options: argparse.Namespace) -> int:
    from repro.audit import audit, check
    from repro.laboratory import Laboratory
    from repro.report import document, terminal
    from repro.verdict import EXIT

    if options.train and options.device == "cpu":
        raise _Usage("--train needs --device cuda: on the CPU compiled flex_attention is for inference")
    # Before torch is imported, which takes seconds.
    check(options.target)
    with _progress() as progress, Laboratory(lanes=2, devices=[options.device]) as laboratory:
        bar = progress.add_task("schedules", total=options.budget)
        found = audit(
            laboratory,
            options.target,
            threads=options.threads,
            strategy=options.strategy,
            budget=options.budget,
            seed=options.seed,
            foreign=options.foreign,
            trains=options.train,
            device=options.device,
            timeout=options.timeout,
            on_progress=lambda seen: progress.update(bar, completed=seen.schedules),
        )
    terminal.audited(_console(options), found)
    _write(options, document.of_audit(found))
    return EXIT[found.verdict]


def _matrix(options: argparse.Namespace) -> int:
    from repro.report import document, terminal
    from repro.verdict import standing

    wanted = options.fixes or fixes.names()
    for fix in wanted:
        _check_fix(fix, _devices(options))
    # A schedule of processes takes seconds, so hundreds of them are searched only where that is asked for.
    everything = [
        race
        for race in races.names_on(_devices(options))
        if not options.search or races.group(race) != races.PROCESSES
    ]
    chosen = options.races or _suited(everything, wanted)
    for race in chosen:
        _check_race(race, _devices(options))
        group = races.group(race)
        if not any(fixes.suits(fix, group) for fix in wanted):
            fixes.check(wanted[0], group)
    controls = options.fixes is None and not options.search
    torch, cells, _ = _measure(options, chosen, wanted, controls=controls, search=options.search)
    console = _console(options)
    terminal.matrix(console, cells, torch)
    terminal.summary(console, cells)
    seeds = [options.seed] if options.search else []
    # A search ends with what it finds, so its cells did not run a number of times.
    asked = _asked(options) if options.search else _asked(options, times=1, searched=False)
    devices = _devices(options)
    _write(options, document.of_cells("matrix", torch, cells, seeds=seeds, asked=asked, devices=devices))
    return _exit(standing(cells))


def _exit(standing: Standing) -> int:
    from repro.verdict import Standing

    return {Standing.AS_EXPECTED: OK, Standing.NOT: SHOWN, Standing.INCONCLUSIVE: INCONCLUSIVE}[standing]


def _gate(options: argparse.Namespace) -> int:
    from repro import environment, gate, results

    _check_gate(options)
    if options.torch_spec:
        # An empty one stands for the torch that is here.
        return environment.run(options.torch_spec, [*options.arguments, "--torch-spec="])
    if options.bisect or options.releases or options.decision:
        return _recorded(options)
    # What is recorded is read before the run, so that a file that cannot be read does not cost one.
    for device in results.DEVICES:
        results.recorded(results.folder(device))
        results.recorded(results.apart(results.folder(device)))
    if options.against and not options.reports:
        results.find(options.against, results.kind_of(_devices(options)))
    codes = []
    for content, report in _reports(options):
        yardstick = results.find(options.against, report.device) if options.against else None
        narrowed = _narrowed(options, report)
        answer = _judge(narrowed, report, yardstick)
        _show(options, answer, content)
        if options.update:
            written = gate.acknowledge(report, _link)
            for line in [f"written: {path}" for path in written] or ["nothing to write: all of it is known"]:
                _console(options).print(line, markup=False, soft_wrap=True)
            answer = _judge(narrowed, report, yardstick)
        codes.append(_exit(answer.standing))
    return max(codes)


def _asked(options: argparse.Namespace, *, times: int | None = None, searched: bool | None = None) -> Asked:
    from repro.results import Asked

    races, fixes = (tuple(named) if named else None for named in (options.races, options.fixes))
    return Asked(races, fixes, times, searched)


def _narrowed(options: argparse.Namespace, report: Report) -> argparse.Namespace:
    """The options; where they name nothing, with what the report was narrowed to: it cannot answer for more."""
    chosen, wanted = options.races or report.asked.races, options.fixes or report.asked.fixes
    devices = report.devices
    _check_named(chosen, wanted, devices)
    return argparse.Namespace(**{**vars(options), "races": chosen, "fixes": wanted, "devices": devices})


def _judge(options: argparse.Namespace, report: Report, yardstick: Report | None) -> Gate:
    from repro import gate, results
    from repro.verdict import places

    wanted = places(_chosen(options), options.fixes or fixes.names(), controls=options.fixes is None)
    if yardstick is not None:
        # Two reports may know other races than this version does.
        both = sorted({*yardstick.cells, *report.cells})
        columns, chosen = [fixes.NONE, *(options.fixes or [])], _chosen(options)
        wanted = [
            (race, fix)
            for race, fix in both
            if race in (options.races or [race])
            and (options.fixes is None or fix in columns)
            # Of the races of the catalogue those that a named fix is for.
            and (options.races or options.fixes is None or race in chosen or race not in races.names())
        ]
        if options.races or options.fixes:
            # What is asked for by name and stands in neither of them must not pass in silence.
            named = options.races or sorted({race for race, _ in both} & set(chosen))
            wanted += places(named, options.fixes or [], controls=False)
    place = results.folder(report.device)
    records, apart = results.recorded(place), results.recorded(results.apart(place))
    known = gate.other(yardstick) if yardstick else gate.release(report, wanted, records, apart=apart)
    old = known.report.version if known.report else report.version
    surface, unknown = gate.upgrade(old, report.version, here=not options.reports)
    notes = [*_left_out(options, report.asked), *unknown]
    return gate.compare(known, report, wanted, notes=notes, surface=surface)


_JUDGING = (
    "races",
    "devices",
    "reports",
    "torch_spec",
    "against",
    "quick",
    "n",
    "budget",
    "update",
    "junit",
    "markdown",
)
# Of the gate's options, which have nothing to do beside which.
_IDLE = {
    "reports": ("devices", "torch_spec", "quick", "n", "budget"),
    "quick": ("budget",),
    "bisect": _JUDGING,
    "releases": ("bisect", "fixes", *_JUDGING),
    "decision": ("releases", "bisect", "fixes", *_JUDGING),
}
# Where an option is not spelled as it is stored.
_SPELLED = {
    "reports": "--from",
    "races": "--race",
    "fixes": "--fix",
    "devices": "--device",
    "torch_spec": "--torch-spec",
    "n": "-n",
}


def _check_gate(options: argparse.Namespace) -> None:
    from repro import expectations

    for given, others in _IDLE.items():
        if getattr(options, given) and (idle := [other for other in others if getattr(options, other)]):
            spelled = [_SPELLED.get(name, f"--{name}") for name in (given, *idle)]
            raise _Usage(f"beside {spelled[0]} there is nothing to do for {', '.join(spelled[1:])}: leave it out")
    if options.update and expectations.installed():
        raise _Usage(
            f"--update writes what this project holds to be known, and the next installation would replace "
            f"{expectations.fixtures()}: run it in a checkout"
        )
    if len(_devices(options)) > 1:
        raise _Usage("what is recorded is of one device: give --device once; matrix takes several")
    if options.bisect and (lost := next(filter(None, map(_on_cuda_alone, options.fixes or ())), None)):
        raise _Usage(f"{lost} can be told on CUDA alone, and --bisect reads what is recorded on the CPU")
    if not options.reports:
        # What was measured says where.
        _check_named(options.races, options.fixes, _devices(options))
    if options.bisect:
        _check_catalogue(options.bisect)
        races.documentation(options.bisect)
        for fix in options.fixes or ():
            fixes.check(fix, races.group(options.bisect))
    if options.reports and len(options.reports) > 1 and not options.update:
        raise _Usage("--from takes more than one report only with --update")
    if options.reports and len(options.reports) > 1 and (options.json or options.junit or options.markdown):
        raise _Usage("--json, --junit and --markdown take one answer, and each --from gives one")
    if options.update and options.against:
        raise _Usage("--update writes what is expected of one release, --against compares with another: use one")


def _check_named(chosen: Sequence[str] | None, wanted: Sequence[str] | None, devices: tuple[str, ...]) -> None:
    for race in chosen or ():
        _check_race(race, devices)
    groups = [races.group(race) for race in chosen or ()]
    for fix in wanted or ():
        if any(map(fixes.is_file, fixes.parts(fix))):
            raise _Usage(f"the gate knows what is recorded, and of {fix} nothing is; use matrix --fix {fix}")
        _check_fix(fix, devices)
        if groups and not any(fixes.suits(fix, group) for group in groups):
            fixes.check(fix, groups[0])


def _chosen(options: argparse.Namespace) -> list[str]:
    """The races that the gate is asked about: the named ones, or all that a named fix is for."""
    return options.races or _suited(races.names_on(_devices(options)), options.fixes or fixes.names())


def _suited(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Of the races of these names, those that one of the ``wanted`` fixes is for."""
    groups = {group: any(fixes.suits(fix, group) for fix in wanted) for group in races.GROUPS}
    return [race for race in names if groups[races.group(race)]]


def _reports(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Report]]:
    """What is to be judged: the document, and the report in it."""
    from repro import results
    from repro.report import document

    if options.reports:
        for file in options.reports:
            report = results.load(file) if Path(file).exists() else results.find(file)
            if len(report.devices) > 1:
                raise _Usage(f"{file} is of several devices, {', '.join(report.devices)}: what is recorded is of one")
            alone = [race for race, _ in report.cells if race in races.names(races.CUDA)]
            if alone and report.device == results.CPU:
                raise _Usage(f"{file} does not say that it ran on CUDA, and has {alone[0]}: measure it again")
            yield {**document.envelope("gate", report.torch, {}, seeds=[]), "python": report.python}, report
        return
    times = options.n or (1 if options.quick else 3)
    torch, cells, looks = _measure(
        options,
        _chosen(options),
        options.fixes or fixes.names(),
        controls=options.fixes is None,
        times=times,
        look=not options.quick,
    )
    seeds = [] if options.quick else [0]
    asked = _asked(options, times=times, searched=not options.quick)
    content = {
        **document.of_cells("gate", torch, cells, seeds=seeds, asked=asked, devices=_devices(options)),
        "looks": [vars(look) for look in looks],
    }
    yield content, results.of_document(content)


def _look(
    options: argparse.Namespace, laboratory: Laboratory, progress: Progress, cells: Sequence[Cell]
) -> list[Look]:
    """Search, without a fix, for the races of threads that their recorded schedules do not show."""
    from repro.exploring import second_look
    from repro.verdict import Verdict

    away = [
        cell.race
        for cell in cells
        if cell.fix == fixes.NONE and cell.verdict is Verdict.HOLDS and races.group(cell.race) == races.THREADS
    ]
    devices = _devices(options)
    bar = progress.add_task("searches", total=len(away))
    looks = []
    for race in away:
        looks.append(second_look(laboratory, race, budget=options.budget or SEARCHED, devices=devices))
        progress.advance(bar)
    return looks


def _left_out(options: argparse.Namespace, asked: Asked) -> list[str]:
    notes = []
    if asked.searched is False:
        once = "each cell ran once, and " if asked.times == 1 else ""
        notes.append(f"quick: {once}no race that stayed away was searched for")
    here, chosen = races.names_on(_devices(options)), _chosen(options)
    if left := set(here) - set(chosen):
        notes.append(f"left out: {len(left)} of {len(here)} races")
    if options.fixes:
        notes.append("left out: all fixes but the named ones, and the control group")
    return notes


def _link(race: str) -> str | None:
    """The upstream link of a race; its file imports torch, which stays out of this process."""
    from repro.sandbox import Sandbox, SandboxError

    with Sandbox() as sandbox:
        ended = sandbox.run("repro.races:link", race, timeout=600)
    if ended.outcome.kind != "ok":
        raise SandboxError(f"cannot read the upstream link of {race}: {ended.outcome.reason}")
    link: str | None = ended.value
    return link


def _show(options: argparse.Namespace, answer: Gate, content: dict[str, Any]) -> None:
    from repro.report import document, github, junit, markdown, terminal

    console = _console(options)
    terminal.gate(console, answer)
    if github.here():
        for line in github.errors(answer):
            console.print(line, markup=False, soft_wrap=True)
        github.summary(answer)
    if options.junit is not None:
        document.write_text(junit.gate(answer), options.junit, "--junit")
    if options.markdown is not None:
        document.write_text(markdown.gate(answer), options.markdown, "--markdown")
    _write(options, {**content, **document.of_gate(answer)})


def _recorded(options: argparse.Namespace) -> int:
    """What the recorded reports say by themselves."""
    from repro import decision, gate, results
    from repro.report import document, markdown, terminal
    from repro.verdict import columns

    records = results.recorded()
    if options.releases or options.decision:
        if options.releases:
            page = markdown.releases(records, results.recorded(results.folder(results.CUDA)))
        else:
            found = decision.releases(records, results.recorded(results.apart()), decision.load_costs())
            place = results.folder(results.CUDA)
            on_cuda = decision.traps_on_cuda(results.recorded(place), results.recorded(results.apart(place)))
            page = markdown.decision(found, on_cuda, datetime.date.today().isoformat())
        if options.json != "-":
            sys.stdout.write(page)
        _write(options, document.envelope("gate", None, {"markdown": page}, seeds=[]))
        return OK
    chosen = columns(options.bisect, options.fixes or fixes.names(), controls=options.fixes is None)
    changes = gate.bisect(records, options.bisect, chosen)
    # Records apart are of few releases: they are asked about what the others do not know.
    unknown = [fix for fix in chosen if fix not in changes]
    changes |= gate.bisect(results.recorded(results.apart()), options.bisect, unknown)
    terminal.bisected(_console(options), options.bisect, changes, options.fixes or ())
    content = {
        "race": options.bisect,
        "changes": {
            fix: [
                {"torch": str(span.first), "last": str(span.last), "outcome": span.seen.outcome.value}
                for span in line
            ]
            for fix, line in changes.items()
        },
    }
    _write(options, document.envelope("gate", None, content, seeds=[]))
    releases = {record.version for record in records if any(race == options.bisect for race, _ in record.cells)}
    return OK if len(releases) > 1 and all(fix in changes for fix in options.fixes or ()) else INCONCLUSIVE


def _replay(options: argparse.Namespace) -> int:
    from repro import preflight
    from repro.expectations import PROCESSES
    from repro.laboratory import Laboratory, lanes
    from repro.recording import load, unproven
    from repro.report import document, terminal
    from repro.verdict import EXIT, Verdict

    recording = load(options.file, preflight.torch_version(), options.cell)
    devices = tuple(options.devices or recording.devices)
    if not races.is_audit(recording.race):
        _check_race(recording.race, devices)
        if recording.fix != PROCESSES:
            _check_fix(recording.fix, devices)
    experiment = replace(recording.experiment(), devices=devices)
    with Laboratory(lanes=lanes(options.n), devices=experiment.devices) as laboratory:
        laboratory.check(recording.race, recording.fix)
        runs = list(laboratory.perform_all([experiment] * options.n))
    console = _console(options)
    terminal.replays(console, recording, runs, laboratory.torch)
    why = unproven(runs, recording, laboratory.torch)
    verdict = Verdict.INCONCLUSIVE if why else Verdict.FAILS if runs[0].failed else Verdict.HOLDS
    content = {
        "race": recording.race,
        "fix": recording.fix,
        "devices": list(devices),
        "verdict": verdict.value,
        "reason": why or runs[0].outcome.reason,
        "runs": [document.of_observation(run) for run in runs],
    }
    _write(options, document.envelope("replay", laboratory.torch, content, seeds=[]))
    return EXIT[verdict]


def _report(options: argparse.Namespace) -> int:
    from repro import results
    from repro.report import document, html, junit, markdown

    out = options.out or f"{options.file.removesuffix('.json')}.html"
    if out != "-" and Path(out).resolve() == Path(options.file).resolve():
        raise _Usage(f"the page would be written over {options.file}; give -o another file")
    document.check_target(out, "-o")
    page = html.load(
        options.file, results.find(options.against, results.device_of(options.file)) if options.against else None
    )
    if page.answer is None and (options.junit or options.markdown):
        raise _Usage(
            "there is nothing to compare these cells with, so nothing for --junit or --markdown: give --against"
        )
    document.write_text(html.render(page), out, "-o")
    if page.answer is not None:
        if options.junit is not None:
            document.write_text(junit.gate(page.answer), options.junit, "--junit")
        if options.markdown is not None:
            document.write_text(markdown.gate(page.answer), options.markdown, "--markdown")
    if out != "-":
        _console(options).print(f"written: {out}", markup=False, soft_wrap=True)
    answer = {} if page.answer is None else document.of_gate(page.answer)
    content = {"file": options.file, "out": out, "cells": len(page.own), **answer}
    _write(options, document.envelope("report", page.torch, content, seeds=[]))
    return OK


def _surface(options: argparse.Namespace) -> int:
    from repro import surface
    from repro.report import document, terminal

    if options.diff and options.torch:
        raise _Usage("--torch and --diff exclude each other: A and B name both sides")
    console = _console(options)
    try:
        if options.diff:
            difference = surface.compare(*options.diff)
            terminal.difference(console, difference)
            content = {"old": difference.old, "changes": [vars(change) for change in difference.changes]}
            _write(options, document.envelope("surface", difference.new, content, seeds=[]))
        else:
            found = surface.inventory(options.torch)
            terminal.surface(console, found)
            if options.json is not None:
                head = document.envelope("surface", found.torch, {}, seeds=[])
                document.write_text(surface.dumps(found, head), options.json)
    except surface.Nothing as nothing:
        raise _Usage(f"nothing to inventory: {nothing}") from None
    return OK


def _export(options: argparse.Namespace) -> int:
    from repro import export, preflight
    from repro.report import document

    everything = options.race == "all"
    if options.script_only and (options.n or options.minimise or options.c_trace):
        raise _Usage("--script-only runs nothing, so there is nothing to do for -n, --minimise and --c-trace")
    times = options.n or TRIALS
    if everything and (options.schedule or not options.script_only):
        raise _Usage("all races at once only with --script-only, and without --schedule")
    recordings = [
        export.recorded(race, options.schedule) for race in (export.formed() if everything else [options.race])
    ]
    if options.race in races.names(races.CUDA) and not (options.script_only or preflight.cuda_devices()):
        raise _Usage(f"{options.race} needs a CUDA device, and torch sees none: --script-only only writes its script")
    if races.is_audit(options.race) and not options.script_only:
        preflight.check_devices(recordings[0].devices)
    console = _console(options)
    # Before the long part, so that there is something to keep if that is interrupted.
    scripts = [export.write(recording) for recording in recordings]
    files = [_put(options.folder, script.file, script.text) for script in scripts]
    if options.script_only:
        console.print("\n".join(files), soft_wrap=True, markup=False)
        _write(options, document.envelope("export", None, {"race": options.race, "files": files}, seeds=[]))
        return OK
    with _progress() as progress:
        bar = progress.add_task("runs", total=export.runs(times))
        exported = export.export(
            recordings[0],
            times=times,
            smaller=options.minimise,
            native=options.c_trace,
            on_run=lambda: progress.advance(bar),
        )
    files = [
        _put(options.folder, exported.script.file, exported.script.text),
        _put(options.folder, "issue.md", exported.issue),
    ]
    console.print(f"{options.race} on torch {exported.torch}: shown {exported.shown} of {times} times", markup=False)
    if since := export.clean_since(options.race):
        console.print(f"  recorded as clean from {since} on: a new issue is hardly wanted")
    for file in files:
        console.print(f"  {file}", soft_wrap=True, markup=False)
    content = {"race": options.race, "files": files, "said": [trial.said for trial in exported.trials]}
    _write(options, document.envelope("export", exported.torch, content, seeds=[]))
    # A race of the catalogue that this release does not have is exported too; an audit saw here what it found.
    gone = not races.is_audit(options.race) and all(trial.clean for trial in exported.trials)
    return OK if exported.shown == times or gone else INCONCLUSIVE


def _put(folder: str, name: str, text: str) -> str:
    """Write one file; returns where it is."""
    path = Path(folder, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _Usage(f"cannot write {str(path)!r}: {error.strerror}; give -o another folder") from None
    return str(path)


def _measure(
    options: argparse.Namespace,
    races: Sequence[str],
    fixes: Sequence[str],
    *,
    controls: bool,
    search: bool = False,
    times: int = 1,
    look: bool = False,
) -> tuple[str, list[Cell], list[Look]]:
    """On which torch, and the cells, judged by replay or by search; with ``look`` what searches of races said too."""
    from repro import exploring
    from repro.laboratory import Laboratory, lanes
    from repro.verdict import matrix, places

    cells = []
    total = len(places(races, fixes, controls=controls))
    # A search of a cell ends with its first failure, so how many schedules there will be is not known.
    each = 1 if search else times
    with (
        Laboratory(lanes=lanes(None if search or look else total * each), devices=_devices(options)) as laboratory,
        _progress() as progress,
    ):
        for fix in fixes:
            laboratory.check(races[0], fix)
        bar = progress.add_task("cells" if search else "schedules", total=total * each)
        found = (
            exploring.matrix(
                laboratory,
                races,
                fixes,
                strategy=options.strategy,
                budget=options.budget,
                seed=options.seed,
                devices=_devices(options),
            )
            if search
            else matrix(laboratory, races, fixes, controls=controls, times=times, devices=_devices(options))
        )
        for cell in found:
            cells.append(cell)
            progress.advance(bar, each)
        looks = _look(options, laboratory, progress, cells) if look else []
    return laboratory.torch, cells, looks


def _write(options: argparse.Namespace, content: dict[str, Any]) -> None:
    from repro.report import document

    if options.json is not None:
        document.write(content, options.json)
