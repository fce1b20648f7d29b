"""Performs one experiment. Runs inside a sandbox: it leaves the process in any state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe, get_context
from typing import Any

import torch

from repro import fixes, races, warm
from repro.experiment import Experiment, Observation
from repro.interleave import Fate, LostSeam, Run, Schedule, Scheduler, Seam, Seams, Switch
from repro.interleave import processes as by_processes
from repro.interleave.replay import Replay, SwitchFate, fates
from repro.interleave.scheduler import Strategy
from repro.oracles import memory, numerics, recompiles, sparsity, state
from repro.outcome import Finding, Kind, Outcome, Sight, error_outcome, portably
from repro.torch_names import entries
from repro.user_code import Call, UserCode
from repro.workloads import Workload

THIRD = "third"


def perform(experiment: Experiment) -> Observation:
    """Run it. Only ever call this in a process that can be thrown away."""
    return perform_race(races.load(experiment.race), experiment)


def perform_race(race: races.Race, experiment: Experiment) -> Observation:
    """As :func:`perform`, for a race that need not be in the catalogue."""
    if experiment.processes:
        return _in_processes(experiment, race)
    scene = Scene(experiment, race)
    strategy = experiment.strategy or Replay(race.recorded())
    try:
        with _standing(race, scene) as standing:
            context = experiment.context or race.context
            scheduler = Scheduler(strategy, context=context, pause=memory.pause, resume=memory.resume)
            run = scheduler.run(scene.bodies)
            if run.fate is not Fate.DONE:
                # Threads are parked for good inside seams and models: there is nothing to judge by.
                return describe(run, strategy, standing.standing, _stuck(run))
    except LostSeam as lost:
        return Observation(Outcome(Kind.INCONCLUSIVE, str(lost)))
    outcome, findings, compiled = scene.judge(run.errors)
    return replace(describe(run, strategy, standing.standing, outcome), findings=findings, compiled=compiled)


def refusal(race: str, fix: str) -> ValueError | None:
    """What is wrong with the user's code that a run would import: a fix file, or a callable that is audited."""
    from repro.audit import BadTarget

    try:
        fixes.load(fix)
        if races.is_audit(race):
            races.load(race)
    except (fixes.UnknownFix, BadTarget) as error:
        return error
    return None


def asked(experiment: Experiment) -> str | None:
    """The schedule that a run of ``experiment`` is to follow, where it follows one."""
    strategy = experiment.strategy or Replay(races.load(experiment.race).recorded())
    return str(strategy.schedule) if isinstance(strategy, Replay) else None


def seams(kind: str = "seam", *, extra: Collection[str] = ()) -> list[Seam]:
    """The seams of one kind that this release of torch has: those of every race, and the ``extra`` ones named."""
    known = ("name", "target", "where", "required", "within")
    return [
        Seam(**{key: entry[key] for key in known if key in entry})
        for entry in entries(kind, torch.__version__)
        if not entry.get("extra") or entry["name"] in extra
    ]


def _standing(race: races.Race, scene: Scene) -> Seams:
    # Dynamo reads through a seam that stands in what it compiles: a graph break there would be of our making.
    return Seams(seams(extra=race.seams), code=scene.code_under_test(), unseen=torch.compiler.is_dynamo_compiling)


def prepared(experiment: Experiment, race: races.Race) -> UserCode:
    """The user's code, and what comes before any thread of the race is made."""
    warm.first_compile()
    if race.setup is not None:
        race.setup()
    workloads = _dealt(experiment.workloads or race.workloads(), experiment.devices)
    code = UserCode(fixes.load(experiment.fix), workloads, race.trains)
    code.prepare()
    if race.warm:
        for index in range(len(workloads)):
            code.compiled("warm", index)()
    code.calls.clear()
    return code


class Scene:
    """The threads of a race, ready to go, and what was true before they went."""

    def __init__(self, experiment: Experiment, race: races.Race) -> None:
        self.code = prepared(experiment, race)
        self.threads = dict(race.threads(self.code))
        self.before = state.snapshot()
        self.promised = race.graphs
        self.graphs = recompiles.compiled_graphs()
        self.frames = recompiles.compiled_frames()

    @property
    def bodies(self) -> Mapping[str, Callable[[], Any]]:
        start = self.code.fix.thread
        return {name: start(thread.body) if thread.own else thread.body for name, thread in self.threads.items()}

    def code_under_test(self) -> list[Any]:
        return [self.code.attention, self.code.uncompiled_attention, *self.bodies.values()]

    def judge(self, errors: Mapping[str, BaseException]) -> tuple[Outcome, list[Finding], int | None]:
        """All oracles, after the threads are done: the calls, the state, and then a lone call."""
        left = state.judge(self.before, state.snapshot())
        findings = [finding for call in self.code.calls for finding in _judge_call(call)] + self.code.findings
        if self.promised is not None:
            graphs = _difference(self.graphs, recompiles.compiled_graphs())
            findings.append(recompiles.judge(graphs, self.promised, what="graphs"))
        dense = _out_of_memory(self.code.calls, errors)
        lone, lone_error = self._lone_calls()
        findings = [*findings, *lone, left]
        outcome = _outcome(errors, lone_error, findings, dense)
        return outcome, findings, _difference(self.frames, recompiles.compiled_frames())

    def _lone_calls(self) -> tuple[list[Finding], BaseException | None]:
        """Call compiled attention once more, alone, on every workload; what is seen, and what was raised."""
        findings: list[Finding] = []
        for index in range(len(self.code.workloads)):
            self.code.calls.clear()
            try:
                self.code.compiled("lone call", index)()
            except Exception as error:
                return findings, error
            findings += _judge_call(self.code.calls[0])
        return findings, None


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _dealt(workloads: Sequence[Workload], devices: Sequence[str]) -> list[Workload]:
    count = max(len(workloads), len(devices))
    return [replace(workloads[i % len(workloads)], device=devices[i % len(devices)]) for i in range(count)]


def _judge_call(call: Call) -> list[Finding]:
    """Sparsity, gradients, memory and numerics of one call; of an uncompiled one, dense by nature, nothing."""
    name = f"{call.thread}: "
    workload = call.inputs.workload
    found = []
    if call.compiled:
        if call.output is not None:
            found.append(sparsity.judge(call.inputs, call.output))
        if call.gradients is not None:
            found.append(sparsity.judge_gradients(call.inputs, call.gradients))
        if call.meter is not None and memory.can_tell(workload):
            found.append(memory.judge(call.meter, workload))
        if call.backward is not None and call.gradients is not None and memory.can_tell_backward(workload):
            found.append(memory.judge_backward(call.backward, workload, call.gradients))
        if call.output is not None and not any(finding.sight is Sight.FAIL for finding in found):
            found.append(numerics.judge(call.output, call.inputs))
    return [Finding(f.oracle, f.sight, name + f.message, f.data) for f in found]


def _out_of_memory(calls: list[Call], errors: Mapping[str, BaseException]) -> str | None:
    for call in calls:
        error = errors.get(call.thread)
        if error is not None and memory.score_sized(error, call.inputs.workload):
            return f"{call.thread}: ran out of memory on a request for all scores: {error}"
    return None


def _outcome(
    errors: Mapping[str, BaseException],
    lone_error: BaseException | None,
    findings: list[Finding],
    out_of_memory: str | None,
) -> Outcome:
    """The one outcome of many signs: dense before error before wrong before poisoned before wasteful before blind."""
    failed = {name: error_outcome(error) for name, error in errors.items()}
    also = {"errors": {name: outcome.details for name, outcome in failed.items()}} if failed else {}
    if lone_error is not None:
        also["lone call"] = error_outcome(lone_error).details

    def first(sight: Sight, *oracles: str) -> Finding | None:
        return next((f for f in findings if f.sight is sight and (not oracles or f.oracle in oracles)), None)

    if out_of_memory:
        return Outcome(Kind.DENSE, out_of_memory, also)
    if dense := first(Sight.FAIL, "sparsity", "gradients", "memory"):
        return Outcome(Kind.DENSE, dense.message, {**dense.data, **also})
    if failed:
        name, outcome = next(iter(failed.items()))
        return Outcome(Kind.ERROR, f"{name}: {outcome.reason}", {**outcome.details, **also})
    if wrong := first(Sight.FAIL, "numerics"):
        return Outcome(Kind.WRONG, wrong.message, {**wrong.data, **also})
    if lone_error is not None:
        return Outcome(Kind.POISONED, f"a later, lone call fails: {error_outcome(lone_error).reason}", also)
    if left := first(Sight.FAIL, "state"):
        return Outcome(Kind.POISONED, left.message, {**left.data, **also})
    if waste := first(Sight.FAIL, "recompiles", "fallbacks", "mask memory"):
        return Outcome(Kind.WASTEFUL, waste.message, {**waste.data, **also})
    if blind := first(Sight.BLIND):
        return Outcome(Kind.INCONCLUSIVE, f"the {blind.oracle} oracle could not look: {blind.message}", also)
    return Outcome(Kind.OK, "all calls right and block-sparse; a lone call works; no state left behind")


def _stuck(run: Run) -> Outcome:
    details = {"stacks": portably(run.stacks)}
    if run.fate is Fate.DEADLOCK:
        return Outcome(Kind.HANG, f"deadlock: {run.explanation}", details)
    return Outcome(Kind.INCONCLUSIVE, run.explanation, details)


def describe(run: Run, strategy: Strategy, standing: list[str], outcome: Outcome) -> Observation:
    """The observation of a run that came to ``outcome``."""
    asked = strategy.schedule if isinstance(strategy, Replay) else run.schedule
    return Observation(
        outcome=outcome, schedule=str(run.schedule), steps=run.steps, switches=fates(asked, run), seams=standing
    )


def _in_processes(experiment: Experiment, race: races.Race) -> Observation:
    """The control group: each thread of the race in a process of its own, by the same schedule.

    Where the race has two threads, a third process stands in the middle of a compile all the while. That every
    switch was taken proves that the windows overlapped; without that a clean run proves nothing.
    """
    schedule = race.recorded()
    names = _names(race)
    if len(names) < 3:
        schedule = Schedule((Switch(THIRD, "fx.trace", 1, names[0]), *schedule.switches))
        names = [THIRD, *names]

    def body(name: str, drive: by_processes.Drive) -> tuple[Outcome, list[Finding]]:
        # The third must compile for itself, or it would have no window; what the race promises is not of it.
        scene = Scene(experiment, replace(race, warm=False, graphs=None) if name == THIRD else race)
        part = scene.code.compiled(THIRD) if name == THIRD else scene.bodies[name]
        with _standing(race, scene):
            raised = drive(part)
        outcome, findings, _ = scene.judge({} if raised is None else {name: raised})
        return outcome, findings

    strategy = Replay(schedule)
    run = by_processes.run(names, strategy, body)
    return replace(
        describe(run, strategy, [seam.name for seam in seams(extra=race.seams)], _control(run, fates(schedule, run))),
        findings=[finding for _, findings in run.values.values() for finding in findings],
    )


def _names(race: races.Race) -> list[str]:
    """What the threads of ``race`` are called.

    Asked elsewhere: who makes them may compile, compiling touches CUDA where there is any, and who has cannot fork.
    """
    answer, ask = Pipe(duplex=False)

    def tell() -> None:
        try:
            ask.send([*race.threads(UserCode(fixes.load(fixes.NONE), [*race.workloads()]))])
        except Exception as error:
            ask.send(error_outcome(error).reason)

    process = get_context("fork").Process(target=tell)
    process.start()
    ask.close()
    try:
        said: list[str] | str = answer.recv()
    except EOFError:
        said = "the process that made them died"
    process.join()
    if isinstance(said, str):
        raise RuntimeError(f"the threads cannot be made: {said}")
    return said


def _control(run: Run, switches: list[SwitchFate]) -> Outcome:
    if run.fate is not Fate.DONE or run.errors:
        return Outcome(Kind.INCONCLUSIVE, run.explanation or "; ".join(map(str, run.errors.values())))
    for name, (outcome, _) in run.values.items():
        if outcome.kind is not Kind.OK:
            return Outcome(outcome.kind, f"process {name}: {outcome.reason}", outcome.details)
    for switch in switches:
        if switch.status != "taken":
            return Outcome(Kind.INCONCLUSIVE, f"no proof that the windows overlapped: {switch}")
    return Outcome(Kind.OK, "each process is right by itself, while their windows overlapped")
