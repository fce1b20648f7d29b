"""``python -m repro``: the command line.

Exit codes: ``run``, ``explore`` and ``replay``: 0 holds, 1 race shown; ``matrix``: 0 as this release is known to
behave, 1 not; ``export``: 0 the script shows its race every time, 1 never; all: 2 bad usage or input, 3 inconclusive.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from repro import __version__, fixes, races

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from repro.verdict import Cell

OK, SHOWN, USAGE, INCONCLUSIVE = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        options = _parser().parse_args(arguments)
        if options.json is not None:
            _check_target(options.json)
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


def _check_target(target: str) -> None:
    from repro.report import document

    document.check_target(target)


def _bad_input() -> tuple[type[Exception], ...]:
    from repro.expectations import ExpectationError
    from repro.interleave.schedule import ScheduleError
    from repro.interleave.shrink import Unsteady
    from repro.preflight import NotReady
    from repro.report.document import Unwritable
    from repro.sandbox import SandboxError

    return (
        _Usage,
        races.UnknownRace,
        fixes.UnknownFix,
        ExpectationError,
        ScheduleError,
        NotReady,
        Unwritable,
        SandboxError,
        Unsteady,
    )


class _Usage(Exception):
    """A command line that cannot be understood."""


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
    listing.set_defaults(command=_list)

    run = _command(commands, "run", "one race, without a fix and with one")
    run.add_argument("race", metavar="RACE")
    run.add_argument("--fix", metavar="F", help="a fix by name, or a .py file of your own with the same functions")
    run.set_defaults(command=_run)

    explore = _command(commands, "explore", "search the schedules of one race, without a fix and with one")
    explore.add_argument("race", metavar="RACE")
    explore.add_argument("--fix", metavar="F", help="a fix by name, or a .py file of your own")
    _search_options(explore)
    explore.set_defaults(command=_explore)

    table = _command(commands, "matrix", "all races by all fixes, against what this release is known to do")
    table.add_argument("--race", action="append", metavar="RACE", dest="races", help="only this race (repeatable)")
    table.add_argument("--fix", action="append", metavar="F", dest="fixes", help="only this fix (repeatable)")
    table.add_argument("--search", action="store_true", help="search each cell instead of replaying (minutes a cell)")
    _search_options(table)
    table.set_defaults(command=_matrix)

    replay = _command(commands, "replay", "a recorded run once more, decision by decision")
    replay.add_argument("file", metavar="FILE", help="what run or explore wrote with --json")
    replay.add_argument("-n", type=_positive, default=1, metavar="N", help="how many times (default: 1)")
    replay.set_defaults(command=_replay)

    export = _command(commands, "export", "a script that shows one race and needs torch alone, and an issue to file")
    export.add_argument("race", metavar="RACE", help="or all, with --script-only")
    export.add_argument("-o", metavar="DIR", dest="folder", required=True, help="where to write them")
    export.add_argument(
        "--schedule", metavar="FILE", help="what run or explore wrote with --json, if not the recorded"
    )
    export.add_argument("--script-only", action="store_true", help="write the script, run nothing, write no issue")
    export.add_argument(
        "-n",
        type=_positive,
        default=3,
        metavar="N",
        help="how often to run the script, and each ablation (default: 3)",
    )
    export.add_argument(
        "--minimise",
        action="store_true",
        help="take out of the script what the race does not need (some hundred runs)",
    )
    export.add_argument("--c-trace", action="store_true", help="of a crash, the native stacks too (needs gdb)")
    export.set_defaults(command=_export)
    return parser


def _command(commands: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    command.add_argument("--json", metavar="FILE", help="write the result as JSON; - is standard output")
    return command


def _search_options(command: argparse.ArgumentParser) -> None:
    from repro.exploring import STRATEGIES

    command.add_argument(
        "--strategy", metavar="S", choices=STRATEGIES, default="pct", help=f"{', '.join(STRATEGIES)} (default: pct)"
    )
    command.add_argument("--budget", type=_positive, default=200, metavar="N", help="schedules to run (default: 200)")
    command.add_argument("--seed", type=_seed, default=0, metavar="N", help="of pct and random (default: 0)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def _console(options: argparse.Namespace) -> Console:
    """Where people read: standard output, or standard error where standard output belongs to the JSON."""
    from rich.console import Console

    console = Console(stderr=options.json == "-", highlight=False)
    if not console.is_terminal:
        # A file has no edge to wrap at.
        console.width = 200
    return console


def _progress() -> Progress:
    """A progress bar where somebody watches."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _list(options: argparse.Namespace) -> int:
    from rich.table import Table

    from repro.report import document

    found = {
        "races": {name: races.documentation(name).partition("\n")[0] for name in races.names()},
        "fixes": {name: fixes.summary(name) for name in fixes.names()},
    }
    console = _console(options)
    for title, entries in found.items():
        table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, text in entries.items():
            table.add_row(name, text)
        console.print(table)
    _write(options, document.envelope("list", None, found, seeds=[]))
    return OK


def _run(options: argparse.Namespace) -> int:
    from repro.report import document, terminal
    from repro.verdict import EXIT

    races.documentation(options.race)
    fix = options.fix or fixes.NONE
    fixes.check(fix)
    torch, cells = _measure(options, [options.race], [fix], controls=False)
    console = _console(options)
    for cell in cells:
        terminal.cell(console, cell)
    _write(options, document.of_cells("run", torch, cells))
    return EXIT[cells[-1].verdict]


def _explore(options: argparse.Namespace) -> int:
    from repro.exploring import search
    from repro.laboratory import Laboratory
    from repro.report import document, terminal
    from repro.verdict import EXIT

    races.documentation(options.race)
    fix = options.fix or fixes.NONE
    fixes.check(fix)
    with (
        _progress() as progress,
        Laboratory(lanes=2) as laboratory,
    ):
        bar = progress.add_task("schedules", total=options.budget)
        found = search(
            laboratory,
            options.race,
            fix,
            strategy=options.strategy,
            budget=options.budget,
            seed=options.seed,
            on_progress=lambda seen: progress.update(bar, completed=seen.schedules),
        )
    terminal.searched(_console(options), found)
    _write(options, document.of_search(laboratory.torch, found))
    return EXIT[found.verdict]


def _matrix(options: argparse.Namespace) -> int:
    from repro.report import document, terminal
    from repro.verdict import Standing, standing

    chosen = options.races or races.names()
    for race in chosen:
        races.documentation(race)
    for fix in options.fixes or []:
        fixes.check(fix)
    controls = options.fixes is None and not options.search
    torch, cells = _measure(options, chosen, options.fixes or fixes.names(), controls=controls, search=options.search)
    console = _console(options)
    terminal.matrix(console, cells, torch)
    terminal.summary(console, cells)
    _write(options, document.of_cells("matrix", torch, cells, seeds=[options.seed] if options.search else []))
    return {Standing.AS_EXPECTED: OK, Standing.NOT: SHOWN, Standing.INCONCLUSIVE: INCONCLUSIVE}[standing(cells)]


def _replay(options: argparse.Namespace) -> int:
    from repro.laboratory import Laboratory
    from repro.recording import load, unproven
    from repro.report import document, terminal

    recording = load(options.file)
    with Laboratory(lanes=min(2, options.n)) as laboratory:
        runs = list(laboratory.perform_all([recording.experiment()] * options.n))
    console = _console(options)
    terminal.replays(console, recording, runs, laboratory.torch)
    cells = [document.of_observation(run) for run in runs]
    _write(
        options,
        document.envelope(
            "replay", laboratory.torch, {"race": recording.race, "fix": recording.fix, "runs": cells}, seeds=[]
        ),
    )
    if unproven(runs):
        return INCONCLUSIVE
    return SHOWN if runs[0].failed else OK


def _export(options: argparse.Namespace) -> int:
    from repro import export
    from repro.report import document

    everything = options.race == "all"
    if everything and (options.schedule or not options.script_only):
        raise _Usage("all races at once only with --script-only, and without --schedule")
    recordings = [
        export.recorded(race, options.schedule) for race in (races.names() if everything else [options.race])
    ]
    console = _console(options)
    # Before the long part, so that there is something to keep if that is interrupted.
    scripts = [export.write(recording) for recording in recordings]
    files = [_put(options.folder, script.file, script.text) for script in scripts]
    if options.script_only:
        console.print("\n".join(files), soft_wrap=True)
        return OK
    with _progress() as progress:
        bar = progress.add_task("runs", total=export.runs(options.n))
        exported = export.export(
            recordings[0],
            times=options.n,
            smaller=options.minimise,
            native=options.c_trace,
            on_run=lambda: progress.advance(bar),
        )
    files = [
        _put(options.folder, exported.script.file, exported.script.text),
        _put(options.folder, "issue.md", exported.issue),
    ]
    console.print(f"{options.race} on torch {exported.torch}: shown {exported.shown} of {options.n} times")
    for file in files:
        console.print(f"  {file}")
    content = {"race": options.race, "files": files, "said": [trial.said for trial in exported.trials]}
    _write(options, document.envelope("export", exported.torch, content, seeds=[]))
    if exported.shown == options.n:
        return OK
    return SHOWN if all(trial.clean for trial in exported.trials) else INCONCLUSIVE


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
    options: argparse.Namespace, races: Sequence[str], fixes: Sequence[str], *, controls: bool, search: bool = False
) -> tuple[str, list[Cell]]:
    """Judge the cells, by replay or by search."""
    from repro import exploring
    from repro.laboratory import Laboratory
    from repro.verdict import columns, matrix

    cells = []
    total = len(races) * len(columns(fixes, controls=controls))
    with (
        _progress() as progress,
        Laboratory(lanes=min(2, total)) as laboratory,
    ):
        bar = progress.add_task("cells", total=total)
        found = (
            exploring.matrix(
                laboratory, races, fixes, strategy=options.strategy, budget=options.budget, seed=options.seed
            )
            if search
            else matrix(laboratory, races, fixes, controls=controls)
        )
        for cell in found:
            cells.append(cell)
            progress.advance(bar)
    return laboratory.torch, cells


def _write(options: argparse.Namespace, content: dict[str, Any]) -> None:
    from repro.report import document

    if options.json is not None:
        document.write(content, options.json)
