"""Audits attention of the user's own: do threads that call it break it, by which schedule, and what does "no" mean?

What is audited is named ``MODULE:CALLABLE`` and called as ``(query, key, value, mask_mod) -> output``; it builds its
block mask itself, as user code does. It becomes a race like those of the catalogue, so that the engine and the
oracles are the same: its threads call it twice each, on keys of unequal lengths.

An audit is three steps. The callable is called alone, without any thread: what fails here is no race. Then come the
recorded schedules that break the catalogue's races, with its threads in their roles, cold or warm: they need two
switches or more, and no search finds those within a minute. Then a search, by default every schedule with one switch.

Beside it, :func:`audit` can run the callable against threads that are not the user's (:data:`FOREIGN`). Whether these
break it says something of the release, and nothing about the callable alone: no lock of its own holds them back.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.machinery import PathFinder
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from repro import fixes, recording, results
from repro.expectations import fixtures
from repro.experiment import Experiment, Observation
from repro.exploring import STRATEGIES as SEARCHES
from repro.exploring import smallest_of, verdict_of
from repro.interleave import point
from repro.interleave.bounded import Bounded
from repro.interleave.exploration import Exploration
from repro.interleave.explore import explore
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, Step, Switch
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Promise, Search
from repro.laboratory import Laboratory
from repro.oracles import numerics, sparsity, state
from repro.outcome import Kind, Sight, error_outcome
from repro.races import FOREIGN as OF_A_LIBRARY
from repro.races import THREADS, Race, Thread, foreign, names, own
from repro.recording import Recording
from repro.torch_names import entries
from repro.verdict import Verdict
from repro.warm import first_compile
from repro.workloads import Workload

if TYPE_CHECKING:
    from repro.user_code import UserCode

NAMES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
YOURS = "yours"
# Seconds for the import and one call on each length, alone; a cold first compile is some ten. It bounds a hang.
TIMEOUT = 120.0
# Enough for every schedule with one switch of three threads.
BUDGET = 150
# One switch between two threads is what a minute exhausts: 26 schedules, where two switches have some 400.
DEFAULT_THREADS = 2
DEFAULT_STRATEGY = "bounded"
STRATEGIES: dict[str, Callable[[int], Search]] = {**SEARCHES, "bounded": lambda seed: Bounded(switches=1)}

_AGAIN = "again"
_SEAMS = ("mask.sort", "flex.trace", "flex.traced")
_NAME = re.compile(r"(?P<module>[^\W\d][\w.]*):(?P<path>[^\W\d][\w.]*)")
_CUDA = re.compile(r"cuda|nvidia", re.IGNORECASE)


class BadTarget(ValueError):
    """What is named cannot be audited; the message says why and what to do."""


@dataclass(frozen=True)
class Target:
    """What is audited, and what with: a ``foreign`` thread, a ``backward`` in each call, memory ``unmetered``.

    ``str`` of it is the name of the race, ``MODULE:CALLABLE with A and B``.
    """

    module: str
    path: str
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " with ".join(filter(None, [self.name, " and ".join(self.extras)]))

    @property
    def name(self) -> str:
        return f"{self.module}:{self.path}"

    @property
    def foreign(self) -> str | None:
        return next((extra for extra in self.extras if extra in FOREIGN), None)

    def having(self, *extras: str) -> Target:
        return replace(self, extras=(*self.extras, *extras))


BACKWARD, UNMETERED = "backward", "unmetered memory"


@dataclass(frozen=True)
class Foreign:
    """A thread that is not the user's: what it does, the extra ``seams`` in it, and the races that it is known from.

    ``races`` says of each who takes whose part: a role of the recorded schedule is played by the user's callable or,
    where it is left out, by this thread.
    """

    summary: str
    races: Mapping[str, str]
    seams: tuple[str, ...] = ()


FOREIGN = {
    "model": Foreign(
        "another model's attention compiles",
        {
            "mask-metadata-foreign": "masks",
            "first-call": "second",
            "is-compiling-leak": "asking",
            "tracing-flag-leak": "uncompiled",
        },
    ),
    "tracer": Foreign(
        "a library traces a module with FX",
        {"tracing-bystander-foreign": "compiled", "patches-left": "compiled"},
    ),
    "make_fx": Foreign(
        "a library traces through operators with make_fx",
        {"make-fx-tracer": "compiled"},
        ("make_fx.entered", "make_fx.exiting"),
    ),
    "export": Foreign(
        "a library exports a module",
        {"export-modes": "compiled", "is-compiling-left": "compiled", "export-bystander": "uncompiled"},
        ("export.entered", "export.exiting"),
    ),
    "masks": Foreign(
        "block masks are built elsewhere",
        {"mask-metadata-error": "compiled", "mask-metadata-left": "one", "mask-metadata-tags": "compiled"},
    ),
    "stance": Foreign("a library sets a stance for its own calls", {"stance-leak": "compiled"}),
}


def parse(name: str) -> Target:
    """What ``str`` of a target stands for. Raises :class:`BadTarget`."""
    written, _, extras = name.partition(" with ")
    match = _NAME.fullmatch(written)
    if match is None or not all(part.isidentifier() and not iskeyword(part) for part in re.split("[.:]", written)):
        raise BadTarget(f"{written!r} is not MODULE:CALLABLE; write it as in my_app.attention:attend")
    if match["module"].endswith(".py"):
        raise BadTarget(f"{match['module']} is a file; write the module: {match['module'][:-3]}:{match['path']}")
    target = Target(match["module"], match["path"], tuple(filter(None, extras.split(" and "))))
    for extra in target.extras:
        if extra not in (BACKWARD, UNMETERED, *FOREIGN):
            raise BadTarget(f"{name!r}: nothing is called {extra!r} that a callable could be audited with")
    return target


def check(name: str) -> None:
    """That ``name`` is ``MODULE:CALLABLE`` of a package that is there, importing nothing; else :class:`BadTarget`."""
    target = parse(name)
    if target.extras:
        raise BadTarget(f"{name!r} is not MODULE:CALLABLE alone; leave out what follows it")
    package = target.module.partition(".")[0]
    there = (
        package in sys.modules or importlib.util.find_spec(package) or PathFinder.find_spec(package, [os.getcwd()])
    )
    if not there:
        raise BadTarget(_absent(package))


def workloads(threads: int) -> tuple[Workload, ...]:
    """What so many threads call it on, drafters of unequal context.

    No two sizes coincide, which torch would take for equal always. With eight heads all scores are three times what
    a block mask takes that is shared by the heads.
    """
    return tuple(Workload(heads=8, queries=512, keys=640 + 128 * number) for number in range(threads))


# ---- in the sandbox -----------------------------------------------------------------------------------------------


def race(name: str) -> Race:
    """The race of the target called ``name``. Imports the user's module, and torch."""
    target = parse(name)
    attention = _found(target)

    def threads(code: UserCode) -> dict[str, Thread]:
        from repro.user_code import metered

        # A lone call goes through it too.
        code.attention = attention if UNMETERED in target.extras else metered(attention)
        if target.foreign:
            return {YOURS: own(code.compiled(YOURS)), target.foreign: foreign(_body(target.foreign, code))}
        calls = {NAMES[index]: code.compiled(NAMES[index], index) for index in range(len(code.workloads))}
        return {name: own(_twice(call)) for name, call in calls.items()}

    seams = (*_SEAMS, *(FOREIGN[target.foreign].seams if target.foreign else ()))
    # threading.Thread starts with an empty context, and so do these.
    return Race(
        threads=threads,
        schedule="-",
        outcomes={},
        seams=seams,
        context="empty",
        trains=BACKWARD in target.extras,
    )


def _twice(call: Callable[[], None]) -> Callable[[], None]:
    """A first call, which compiles, and a second: many a callable takes its lock for the first alone."""

    def body() -> None:
        call()
        point(_AGAIN)
        call()

    return body


def _body(name: str, code: UserCode) -> Callable[[], Any]:
    """What a foreign thread does: the same as in the catalogue."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from repro.races import is_compiling_left, make_fx_tracer, mask_metadata_error, mask_metadata_foreign
    from repro.races.stance_leak import uncompiled_for_a_while
    from repro.races.tracing_bystander import Traced

    bodies: dict[str, Callable[[], Callable[[], Any]]] = {
        "model": lambda: mask_metadata_foreign.library(code.workloads[0].device),
        "tracer": lambda: lambda: torch.fx.symbolic_trace(Traced()),
        "make_fx": lambda: lambda: make_fx(make_fx_tracer.plus_one)(torch.ones(4)),
        "export": lambda: is_compiling_left.export(code).body,
        "masks": lambda: mask_metadata_error.build_mask(code).body,
        "stance": lambda: uncompiled_for_a_while,
    }
    return bodies[name]()


def _found(target: Target) -> Callable[..., Any]:
    """The callable itself. Raises :class:`BadTarget`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        if error.name and f"{target.module}.".startswith(f"{error.name}."):
            raise BadTarget(_absent(error.name)) from None
        raise BadTarget(_unimportable(target, error)) from None
    except (Exception, SystemExit) as error:
        raise BadTarget(_unimportable(target, error)) from None
    for part in target.path.split("."):
        if not hasattr(found, part):
            near = get_close_matches(part, [name for name in dir(found) if not name.startswith("__")], n=1)
            hint = f"; did you mean {near[0]}?" if near else "; name a callable that stands in it"
            raise BadTarget(f"{target.module} has no {target.path}{hint}")
        found = getattr(found, part)
    if isinstance(found, type):
        raise BadTarget(f"{target.name} is a class; make an instance in the module and name that, or a method of it")
    if not callable(found):
        raise BadTarget(f"{target.name} is a {type(found).__name__}, which cannot be called; name a callable")
    return found  # type: ignore[no-any-return]


def _absent(module: str) -> str:
    return f"there is no module {module}; run this in the folder that has it, set PYTHONPATH to that, or install it"


def _unimportable(target: Target, error: BaseException) -> str:
    if _CUDA.search(str(error)):
        return f"{target.module} needs CUDA when it is imported ({_line(error)}); let it ask for a device when called"
    return (
        f"{target.module} cannot be imported: {_line(error)}; mend it until python -c 'import {target.module}' works"
    )


def _line(error: BaseException) -> str:
    return error_outcome(error).reason


def alone(name: str, workloads: Sequence[Workload]) -> tuple[str, bool]:
    """Call the target in this one thread: what is wrong with that, if anything, and whether memory can be metered."""
    import torch

    from repro.oracles import memory
    from repro.oracles.memory import AllocationMeter

    target = parse(name)
    try:
        attention = _found(target)
    except BadTarget as error:
        return str(error), False
    trains = BACKWARD in target.extras
    telling = True
    # On a device nothing was compiled yet, and what the first compile sets for good is not the callable's doing.
    first_compile()
    before = state.snapshot()
    for workload in workloads:
        inputs = sparsity.canary(workload)
        tensors = [tensor.detach().requires_grad_(trains) for tensor in (inputs.query, inputs.key, inputs.value)]
        meter = AllocationMeter(workload.device)
        try:
            with torch.set_grad_enabled(trains), meter:
                output = attention(*tensors, workload.mask_mod())
        except (Exception, SystemExit) as error:
            return _raised(target, workload, error), False
        if wrong := _wrong(output, inputs):
            return f"{target.name} {wrong}", False
        if trains:
            try:
                output.sum().backward()
            except Exception as error:
                return f"{target.name} cannot go backward when it is called alone: {_line(error)}", False
        telling = telling and memory.judge(meter, workload).sight is Sight.PASS
    left = state.judge(before, state.snapshot())
    if left.sight is Sight.FAIL:
        return f"{target.name} called alone leaves torch changed ({left.message}); do that once, at import", False
    return "", telling


def _raised(target: Target, workload: Workload, error: BaseException) -> str:
    if workload.device == "cpu" and _CUDA.search(str(error)):
        return (
            f"{target.name} needs CUDA ({_line(error)}); give --device cuda where there is one, or let it follow "
            "query.device"
        )
    return (
        f"{target.name} raises when it is called alone: {_line(error)}; it must take (query, key, value, mask_mod), "
        f"here with {workload.heads} heads, {workload.queries} queries and {workload.keys} keys, and build its block "
        "mask itself"
    )


def _wrong(output: Any, inputs: sparsity.Canary) -> str:
    """What is wrong with what a lone call gave; an empty string if nothing is."""
    import torch

    if not isinstance(output, torch.Tensor):
        return f"returns a {type(output).__name__}, not a tensor; return the output of flex_attention"
    wanted = inputs.query
    for what in ("shape", "dtype", "device"):
        seen, right = getattr(output, what), getattr(wanted, what)
        if seen != right:
            seen, right = (list(seen), list(right)) if what == "shape" else (seen, right)
            return f"returns {what} {seen} for a query of {right}; return one row for each query"
    sparse = sparsity.judge(inputs, output.detach())
    if sparse.sight is Sight.FAIL:
        return (
            f"is dense even when it is called alone ({sparse.message}): compile flex_attention, give it the block "
            "mask, and see that it is not above the recompile limit"
        )
    right = numerics.judge(output.detach(), inputs)
    if right.sight is Sight.FAIL:
        return (
            f"is wrong even when it is called alone ({right.message}): what is expected is "
            "softmax(query key / sqrt(head_dim)) value, under mask_mod"
        )
    return ""


# ---- outside ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beside:
    """What came of a foreign thread: ``shown`` is a run in which the callable broke, or else one that failed.

    ``origins`` are what the schedule of that run is recorded of; none where there is no such run, or where it had no
    schedule. ``holding`` are the fixes that hold against its race on this release.
    """

    name: str
    schedules: int
    shown: Observation | None
    inconclusive: str = ""
    origins: tuple[Recording, ...] = ()
    holding: tuple[str, ...] = ()

    @property
    def breaks(self) -> bool:
        return self.shown is not None and _suffers(self.shown)

    @property
    def race(self) -> str | None:
        """The race of the catalogue that the callable has with this thread: it fails in the recorded way."""
        if self.shown is None or not self.shown.failed:
            return None
        return next((each.race for each in self.origins if each.alike(self.shown)), None)

    @property
    def how(self) -> str:
        """Which race it is, and what holds against it, in words; empty where no recorded schedule showed it."""
        if not self.origins:
            return ""
        if self.race is None:
            known = " or ".join(f"{each.race} ({each.outcome})" for each in self.origins)
            return f"met by the recorded schedule of {known}; here it fails in another way"
        told = f"the race {self.race}, met by its recorded schedule"
        if not self.holding:
            return told
        # A thread of the catalogue's race is under the fix too, where the race does not say otherwise.
        under = "" if self.race.endswith(OF_A_LIBRARY) else ", that thread under them too"
        return f"{told}; fixes that hold on this release{under}: {', '.join(self.holding)}"


def _suffers(run: Observation) -> bool:
    """Whether it is the callable that a foreign thread broke, and not the foreign thread alone that broke."""
    raised = run.outcome.details.get("errors", {})
    return run.failed and (run.outcome.kind is not Kind.ERROR or YOURS in raised)


@dataclass(frozen=True)
class Origin:
    """The ``recordings`` whose schedule was told of the threads that call; ``warm`` is in its second call, if any."""

    recordings: tuple[Recording, ...]
    warm: str = ""


# A frame of a traceback; of generated code there is no source.
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)(?:\n    (?P<source>\S.*))?')


@dataclass(frozen=True)
class Audited:
    """A verdict about a callable. ``shown`` is the run that breaks it; ``recorded`` schedules came before the search.

    ``origin`` is that of the schedule that breaks it, ``None`` where the search came to it; ``beside`` is ``None``
    where no foreign threads were asked for.
    """

    target: Target
    threads: int
    strategy: str
    seed: int
    torch: str
    verdict: Verdict
    reason: str
    recorded: int
    exploration: Exploration[Observation]
    experiment: Experiment
    shown: Observation | None = None
    beside: tuple[Beside, ...] | None = None
    origin: Origin | None = None

    @property
    def trains(self) -> bool:
        return BACKWARD in self.target.extras

    @property
    def races(self) -> list[str]:
        """The races of the catalogue that it has: their recorded schedule breaks it, and in the recorded way."""
        if self.shown is None or self.origin is None:
            return []
        return [each.race for each in self.origin.recordings if each.alike(self.shown)]

    @property
    def raised_at(self) -> str:
        """The line of the callable's module that the error passed last; empty where it passed none."""
        errors = {} if self.shown is None else self.shown.outcome.details.get("errors", {})
        # A traceback names files from where Python finds them.
        module = self.target.module.replace(".", "/")
        for error in errors.values():
            frames = _FRAME.finditer(error["traceback"])
            if own := [frame for frame in frames if frame["file"] in (f"{module}.py", f"{module}/__init__.py")]:
                return "{file}:{line} in {name}: {source}".format(**own[-1].groupdict())
        return ""

    @property
    def holding(self) -> list[str]:
        """The fixes that are recorded as holding, on this release, against what it has.

        None where nothing is recorded of it: of a release on such a device, of training.
        """
        # All threads that call are the user's, so a race with another library's thread stands for itself alone.
        mine = [race for race in self.races if not race.endswith(OF_A_LIBRARY)] or self.races
        return [] if self.trains else _holding(self.torch, self.experiment.devices, mine)

    @property
    def how(self) -> str:
        """How the schedule that breaks it was found, in words; empty where none does."""
        if self.shown is None:
            return ""
        if self.origin is None:
            first = self.exploration.failures[0].schedule
            smaller = first is not None and len(first) > len(Schedule.parse(self.shown.schedule))
            made = f", with {len(first or ())} switches, and made smaller" if smaller else ""
            return f"no recorded schedule: the search came to it as schedule {self.exploration.schedules}{made}"
        told = f"played by these threads{f', {self.origin.warm} in its second call' if self.origin.warm else ''}"
        if self.races:
            return f"the race {' or '.join(self.races)}, met by its recorded schedule, {told}"
        known = " or ".join(f"{each.race} ({each.outcome})" for each in self.origin.recordings)
        return f"met by the recorded schedule of {known}, {told}; here it fails in another way"


def _holding(torch: str, devices: tuple[str, ...], against: Sequence[str]) -> list[str]:
    """The fixes that hold against all of these races; none where one does not show on this release without a fix.

    None either where nothing is recorded of this release there.
    """
    recorded = results.recorded(results.folder(results.kind_of(devices)))
    if not (against and results.best(recorded, Version(Version(torch).public), "")):
        return []
    known = results.expectation(torch, devices)

    def holds(fix: str, race: str) -> bool:
        found = known(race, fix)
        return found is not None and found.outcome is Kind.OK

    if any(holds(fixes.NONE, race) for race in against):
        return []
    return [fix for fix in fixes.names(THREADS) if all(holds(fix, race) for race in against)]


def audit(
    laboratory: Laboratory,
    name: str,
    *,
    threads: int = DEFAULT_THREADS,
    strategy: str = DEFAULT_STRATEGY,
    budget: int = BUDGET,
    seed: int = 0,
    foreign: bool = False,
    trains: bool = False,
    device: str = "cpu",
    timeout: float = TIMEOUT,
    on_progress: Callable[[Exploration[Observation]], None] | None = None,
) -> Audited:
    """Audit ``MODULE:CALLABLE`` by up to ``budget`` schedules of so many ``threads``, until one breaks it.

    It is called with query ``[1, 8, 512, 32]``, key and value ``[1, 8, keys, 32]`` (``keys`` as :func:`workloads` has
    them), all float32 on ``device``, and a causal mask_mod; its output is as query. ``timeout``, in seconds, bounds
    the call alone; each schedule has a bound of its own.

    Raises :class:`BadTarget` for what cannot be audited, a callable that fails alone above all.
    """
    target = parse(name)
    if not 2 <= threads <= len(NAMES):
        raise BadTarget(f"{threads} threads: give 2 to {len(NAMES)}")
    if strategy not in STRATEGIES:
        raise BadTarget(f"no strategy is called {strategy!r}; there are {', '.join(STRATEGIES)}")
    if trains:
        target = target.having(BACKWARD)
    sizes = tuple(replace(workload, device=device) for workload in workloads(threads))
    target = _alone(laboratory, target, sizes, timeout)
    experiment = Experiment(race=str(target), workloads=sizes, devices=(device,))
    finder = _Aimed(_recorded(laboratory.torch, NAMES[:threads]), STRATEGIES[strategy](seed))
    with ThreadPoolExecutor(laboratory.lanes) as pool:
        found = explore(_Runs(laboratory, experiment), finder, budget, pool, on_progress, stop_after=1)
    verdict, reason = _verdict(found, finder, threads)
    shown = found.failures[0].trial if found.failures else None
    if found.failures and not isinstance(found.failures[0].strategy, Replay):
        # Of recorded schedules, and of those in order of their size, the first is small already.
        smallest = smallest_of(laboratory, experiment, found)
        shown = smallest.trial if smallest is not None else shown
    beside = tuple(_beside(laboratory, target, sizes[:1], device)) if foreign else None
    return Audited(
        target,
        threads,
        strategy,
        seed,
        laboratory.torch,
        verdict,
        reason,
        finder.ran,
        found,
        experiment,
        shown,
        beside,
        finder.origin(found.failures[0].strategy) if found.failures else None,
    )


def _alone(laboratory: Laboratory, target: Target, sizes: Sequence[Workload], timeout: float) -> Target:
    """The target as it is to be run, after a look at it alone."""
    ended = laboratory.run("repro.audit:alone", str(target), sizes, timeout=timeout)
    if ended.outcome.kind is Kind.HANG:
        raise BadTarget(
            f"{target.name} does not end within {timeout:g} s when it is imported and called alone; mend that, or "
            "give a longer --timeout"
        )
    if ended.outcome.kind is Kind.CRASH:
        raise BadTarget(f"{target.name} ends the process when it is called alone: {ended.outcome.reason}; mend that")
    if ended.outcome.kind is not Kind.OK:
        raise BadTarget(f"{target.name} cannot be called alone: {ended.outcome.reason}")
    wrong, telling = ended.value
    if wrong:
        raise BadTarget(wrong)
    return target if telling else target.having(UNMETERED)


class _Runs:
    """Runs the schedules of one experiment. After one that cannot be judged no other is run.

    That one may have been blocked for most of a minute, each other would be, and the verdict is inconclusive anyway.
    """

    def __init__(self, laboratory: Laboratory, experiment: Experiment) -> None:
        self._laboratory = laboratory
        self._experiment = experiment
        self._lost: Observation | None = None

    def __call__(self, strategy: Strategy) -> Observation:
        if self._lost is not None:
            return self._lost
        seen = self._laboratory.perform(replace(self._experiment, strategy=strategy))
        if not seen.conclusive:
            self._lost = seen
        return seen


class _Aimed:
    """Hands out another search's first strategy, then the recorded schedules, then the rest of the search.

    The first run shows which points a thread comes to in its first call and which in its second; that is needed to
    tell a schedule of a thread that is warm. ``ran`` counts the recorded schedules.
    """

    def __init__(self, recorded: Mapping[Schedule, tuple[Recording, ...]], then: Search) -> None:
        self._recorded = recorded
        self._then = then
        self._started = False
        self._aimed: dict[Schedule, Origin] | None = None
        self._left: list[Schedule] = []
        self._out: list[Replay] = []
        self.ran = 0
        self.met = False

    def next(self) -> Strategy | None:
        if not self._started:
            self._started = True
            return self._then.next()
        if self._aimed is None:
            return None
        if self._left:
            self._out.append(Replay(self._left.pop(0)))
            return self._out[-1]
        return self._then.next()

    def saw(self, strategy: Strategy, steps: Sequence[Step], conclusive: bool = True) -> None:
        self.met = self.met or any(step.seam not in ("start", _AGAIN, "end") for step in steps)
        if any(strategy is one for one in self._out):
            self.ran += 1
            return
        if self._aimed is None:
            self._aimed = {schedule: Origin(known) for schedule, known in self._recorded.items()}
            for schedule, known in self._recorded.items():
                for warm, later in _warm(schedule, steps):
                    self._aimed.setdefault(later, Origin(known, warm))
            self._left = list(self._aimed)
        self._then.saw(strategy, steps, conclusive)

    def origin(self, strategy: Strategy) -> Origin | None:
        """Where a recorded schedule that was handed out is from; ``None`` for what the search handed out."""
        given = next((one for one in self._out if one is strategy), None)
        return None if given is None else (self._aimed or {})[given.schedule]

    @property
    def left(self) -> int:
        """How many schedules are still to be handed out, so far as they are known."""
        return len(self._left) + (self._then.left if isinstance(self._then, Bounded) else 0)

    @property
    def promise(self) -> Promise:
        return self._then.promise


def _warm(schedule: Schedule, steps: Sequence[Step]) -> Iterator[tuple[str, Schedule]]:
    """``schedule`` with one of its threads in its second call: each of them that ``steps`` says can be there."""
    visits = Counter((step.thread, step.seam) for step in steps)
    first_calls: Counter[tuple[str, str]] = Counter()
    again = set()
    for step in steps:
        if step.seam == _AGAIN:
            again.add(step.thread)
        elif step.thread not in again:
            first_calls[step.thread, step.seam] += 1
    leader = schedule.switches[0].thread
    for warm in dict.fromkeys(name for switch in schedule.switches for name in (switch.thread, switch.to)):
        later = []
        for switch in schedule.switches:
            if switch.thread == warm and switch.seam == "start":
                switch = replace(switch, seam=_AGAIN)
            elif switch.thread == warm and switch.seam != "end":
                switch = replace(switch, visit=first_calls[warm, switch.seam] + switch.visit)
            later.append(switch)
        if warm != leader:
            later[:0] = [Switch(leader, "start", 1, warm), Switch(warm, _AGAIN, 1, leader)]
        if all(switch.visit <= visits[switch.thread, switch.seam] for switch in later):
            yield warm, Schedule(tuple(later))


def _verdict(found: Exploration[Observation], finder: _Aimed, threads: int) -> tuple[Verdict, str]:
    verdict, reason = verdict_of(found, None)
    if not finder.met and not (found.failures or found.inconclusive):
        return Verdict.INCONCLUSIVE, "the threads met no point at which they could be interleaved"
    if verdict is Verdict.INCONCLUSIVE and found.promise.switches and not (found.failures or found.inconclusive):
        if found.schedules < found.budget:
            return verdict, "some runs did not follow their schedule: what lies below these is unknown"
        enough = found.schedules + finder.left
        return verdict, f"{found.budget} schedules are not all with one switch; a --budget of {enough} is enough"
    if verdict is Verdict.HOLDS:
        reason = f"{reason} ({threads} threads); beside these, {finder.ran} recorded schedules that break other code"
    return verdict, reason


def _recorded(torch: str, threads: Sequence[str]) -> dict[Schedule, tuple[Recording, ...]]:
    """The recorded schedules of two switches or more that can be told of ``threads``, each taking a role in turn.

    Fewer switches are the search's business. The shortest come first, and each with all that it was recorded of.
    """
    told: dict[Schedule, tuple[Recording, ...]] = {}
    points = _points(torch)
    for found in _catalogue(torch):
        schedule = found.schedule
        roles = list(dict.fromkeys(name for switch in schedule.switches for name in (switch.thread, switch.to)))
        cast = dict(zip(roles, threads, strict=False))
        there = all(switch.seam in points for switch in schedule.switches)
        if len(schedule) > 1 and len(roles) <= len(threads) and there:
            line = _told(schedule, cast)
            told[line] = (*told.get(line, ()), found)
    return {schedule: told[schedule] for schedule in sorted(told, key=len)}


def _catalogue(torch: str) -> Iterator[Recording]:
    """What is recorded of the races of threads without a fix, on this release where it was."""
    for name in names(THREADS):
        file = fixtures() / "schedules" / f"{name}.json"
        if file.is_file():
            found = recording.load(str(file), torch)
            if found.fix == fixes.NONE:
                yield found


def _points(torch: str) -> set[str]:
    """The points that a callable may come to; others are in the code of a race."""
    seams = [entry["name"] for entry in entries("seam", torch) if not entry.get("extra")]
    return {"start", "end", *_SEAMS, *seams}


def _told(schedule: Schedule, cast: Mapping[str, str]) -> Schedule:
    return Schedule(tuple(Switch(cast[one.thread], one.seam, one.visit, cast[one.to]) for one in schedule.switches))


def _beside(laboratory: Laboratory, target: Target, sizes: tuple[Workload, ...], device: str) -> Iterator[Beside]:
    """Against each foreign thread, by the recorded schedules, until one breaks the callable."""
    catalogue = {found.race: found for found in _catalogue(laboratory.torch)}
    for name, known in FOREIGN.items():
        experiment = Experiment(race=str(target.having(name)), workloads=sizes, devices=(device,))
        origins: dict[Schedule, tuple[Recording, ...]] = {Schedule(): ()}
        for race, role in known.races.items():
            schedule = catalogue[race].schedule
            roles = {who for switch in schedule.switches for who in (switch.thread, switch.to)}
            told = _told(schedule, {who: YOURS if who == role else name for who in roles})
            if told.switches[0].thread != YOURS:
                told = Schedule((Switch(YOURS, "start", 1, name), *told.switches))
            origins[told] = (*origins.get(told, ()), catalogue[race])
        runs: dict[Schedule, Observation] = {}
        for schedule in origins:
            runs[schedule] = laboratory.perform(replace(experiment, strategy=Replay(schedule)))
            if _suffers(runs[schedule]):
                break
        failed = [schedule for schedule, run in runs.items() if run.failed]
        showing = next((schedule for schedule in failed if _suffers(runs[schedule])), next(iter(failed), None))
        lost = next((run.outcome.reason for run in runs.values() if not run.conclusive), "")
        fates = [fate for run in runs.values() for fate in run.switches if fate.switch.seam != "start"]
        if not lost and fates and all(fate.status == "absent" for fate in fates):
            lost = f"no recorded schedule was reached: {fates[0]}"
        if showing is None:
            yield Beside(name, len(runs), None, lost)
            continue
        found = Beside(name, len(runs), runs[showing], origins=origins[showing])
        # Of training nothing is recorded.
        if found.race is not None and BACKWARD not in target.extras:
            found = replace(found, holding=tuple(_holding(laboratory.torch, (device,), [found.race])))
        yield found
