"""The pair sweep: every pair of compiler APIs in two threads, under the state oracle and all others.

``python tests/quality/pairs.py -o FILE [--only API [API]] [--switches 1|2] [--budget N] [--list]``

It takes hours, so it is no test. FILE is written after each pair; started again with the same FILE it goes on where
it stopped. ``--list`` says how far it has come. Exit code 0 when the sweep is complete, 3 when it is not.

Of each pair are run

* every schedule with one preemption, whichever thread begins ("one switch": that another thread begins is none);
* the 142 schedules that PCT draws at depth 2 by one seed. Two threads at that depth are preempted once, so most of
  what it draws has run already; a run is known by its decisions, and what is known is not run again;
* with ``--switches 2``, every schedule with two preemptions of which one stands where a write to shared state was
  seen: each API is first run alone, and a bystander looks at the state of the process at each of its seams.

A pair fails by what neither order of the two, one after the other, shows: state that dynamo.reset() itself changes is
no race. Of each distinct failure the file has the smallest schedule, how many of five replays fail the same way, the
races that its signs belong to, and the signs that belong to none (``unexplained``).

What was made cheaper, and what that leaves out:

* shapes are the smallest with a block to skip, 256 by 256; at that size the memory oracle cannot tell, and a dense
  call is seen by the rows that a block-sparse kernel never reads;
* only attention is compiled by Inductor; create_block_mask goes to the backend "aot_eager", and the function of
  mark_dynamic to "eager": a race inside Inductor is met through attention alone;
* where neither thread compiles attention, the lone call at the end is one that was compiled before the threads began:
  that a later *first* compile goes wrong is then seen by the state oracle alone;
* each API has run once before the threads begin, so what torch sets up on the very first use is not raced for.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.experiment import Experiment, Observation
from repro.interleave import Schedule, Scheduler, Seams, Step, Switch, point
from repro.interleave.pct import PCT
from repro.interleave.replay import Replay
from repro.interleave.scheduler import Strategy
from repro.laboratory import BOUND, Laboratory
from repro.outcome import Kind
from repro.races import Race, Thread, own
from repro.user_code import UserCode

SCHEMA = 1
SEED = 0
PCT_RUNS = 142
REPLAYS = 5
HERE = Path(__file__).stem


# What a failure shows, and the race that it is a sign of. The first pattern that fits counts; one failure may have
# signs of several races, where their windows overlap.
SIGNS = {
    r"error .*: NameError .*": "patcher-bystander",
    r"error .*: BackendCompilerFailed in torch/fx/_symbolic_trace.py:path_of_module": "patcher-bystander",
    r"error .*: KeyError in torch/fx/traceback.py:annotate": "mask-metadata-error",
    # Inductor is told not to lower flex_attention, and cannot call it as it is either.
    r"error compiled: InductorError in torch/_inductor/ir.py:get_dtype": "mask-metadata-tags",
    r"error .* in torch/fx/_symbolic_trace.py:_new_patcher": "patches-left",
    r"error .* in torch/_higher_order_ops/utils.py:wrapped": "make-fx-tracer",
    r"error .* in torch/export/_trace.py:_get_module_call_graph": "export-hierarchy",
    r"error .* in torch/_ops.py:_pop_mode_from_pre_dispatch": "export-modes",
    r"error .* in torch/utils/_python_dispatch.py:_unset_infra_mode": "export-modes",
    r"error export: RuntimeError in torch/export/_trace.py:_export_for_training": "export-modes",
    # What the other thread does goes to the export's tracer, which does not know its tensors, symbols or levels.
    r"error .*: \w+ in torch/fx/experimental/proxy_tensor.py:proxy_call": "export-modes",
    r"error .*: BackendCompilerFailed in torch/fx/interpreter.py:run": "export-modes",
    r"error .*: BackendCompilerFailed in torch/_functorch/predispatch.py:_remove_batch_dim": "export-modes",
    r"error .*: InternalTorchDynamoError in torch/fx/experimental/proxy_tensor.py:get_proxy_slot": "export-modes",
    # The export stumbles over the other thread's call in its graph, or the call over the export's tracer.
    r"error export: .*:(_graph_output_names|detect_fake_mode|check_arg|lint)": "export-bystander",
    r"error export: .*:_free_unbacked_symbols_with_path": "export-bystander",
    r"error uncompiled: AttributeError in torch/fx/_symbolic_trace.py:get_fresh_qualname": "export-bystander",
    r"error .*: RuntimeError in torch/_dynamo/eval_frame.py:compile_wrapper": "tracing-bystander",
    r"lone call RuntimeError in torch/_dynamo/eval_frame.py:compile_wrapper": "tracing-flag-leak",
    r"left torch.fx._symbolic_trace._is_fx_tracing_flag": "tracing-flag-leak",
    r"left torch.fx._symbolic_trace.(CURRENT_PATCHER|_assert_is_none)": "patches-left",
    r"left torch.nn(.modules.module)?.Module.__(call|getattr)__": "patches-left",
    # Replaced by the same trace: a function that is wrapped wherever it is used.
    r"left torch._dynamo.utils.dict_keys_getitem": "patches-left",
    r"left torch.fx.traceback.(current_meta|should_preserve_node_meta)": "mask-metadata-left",
    r"left torch.fx.experimental.proxy_tensor._CURRENT_MAKE_FX_TRACER": "make-fx-tracer-left",
    # That a trace's mode is on is noted for the process, and put back as it was found: as its tracer.
    r"left torch.utils._python_dispatch._is_in_torch_dispatch_mode": "make-fx-tracer-left",
    r"left torch.compiler._is_(compiling|exporting)_flag": "is-compiling-left",
    r"left torch._dynamo.eval_frame._stance": "stance-left",
    r"dense .*stance.*": "stance-leak",
    r"crash .*reset.* 11": "reset-crash",
}


class WrongResult(AssertionError):
    """An API gave something else than it gives alone."""


def check(right: bool, what: str) -> None:
    if not right:
        raise WrongResult(what)


# ---- the APIs: a thread's body each, and the extra seams inside it; they import torch, so they run in a sandbox ----


def compiled(code: UserCode, name: str) -> Callable[[], Any]:
    return code.compiled(name)


def uncompiled(code: UserCode, name: str) -> Callable[[], Any]:
    return code.uncompiled(name)


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def looked_at_causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    point("in-mask-mod")
    return query >= key


def check_mask(mask: Any) -> None:
    # Two blocks of queries: the second sees one whole block before its own.
    check(mask.kv_num_blocks.tolist() == [[[1, 1]]], "kv_num_blocks")
    check(mask.full_kv_num_blocks.tolist() == [[[0, 1]]], "full_kv_num_blocks")
    check([row[0] for row in mask.kv_indices[0, 0].tolist()] == [0, 1], "kv_indices")


def create_mask(code: UserCode, name: str) -> Callable[[], Any]:
    from torch.nn.attention.flex_attention import create_block_mask

    return lambda: check_mask(create_block_mask(looked_at_causal, None, None, 256, 256, device="cpu"))


def create_mask_compiled(code: UserCode, name: str) -> Callable[[], Any]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    create = torch.compile(create_block_mask, backend="aot_eager")
    return lambda: check_mask(create(causal, None, None, 256, 256, device="cpu"))


def check_graph(graph_module: Any) -> None:
    import torch

    operations = [node.op for node in graph_module.graph.nodes]
    check(operations == ["placeholder", "call_function", "output"], f"graph {operations}")
    given = graph_module(torch.ones(4))
    check(torch.equal(given[0] if isinstance(given, tuple) else given, torch.full((4,), 2.0)), "numbers")


def make_fx(code: UserCode, name: str) -> Callable[[], Any]:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    def traced(x: torch.Tensor) -> torch.Tensor:
        point("in-make-fx")
        return x + 1

    return lambda: check_graph(make_fx(traced)(torch.ones(4)))


def module() -> Any:
    import torch

    class Traced(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            point("in-forward")
            return x + 1

    return Traced()


def symbolic_trace(code: UserCode, name: str) -> Callable[[], Any]:
    import torch

    traced = module()
    return lambda: check_graph(torch.fx.symbolic_trace(traced))


def export(code: UserCode, name: str) -> Callable[[], Any]:
    import torch

    exported = module()
    return lambda: check_graph(torch.export.export(exported, (torch.ones(4),)).graph_module)


def reset(code: UserCode, name: str) -> Callable[[], Any]:
    import torch._dynamo

    return torch._dynamo.reset


def set_stance(code: UserCode, name: str) -> Callable[[], Any]:
    import torch

    def body() -> None:
        with torch.compiler.set_stance("force_eager"):
            point("in-stance")

    return body


def patch_config(code: UserCode, name: str) -> Callable[[], Any]:
    import torch._dynamo

    config = torch._dynamo.config

    def body() -> None:
        before = config.recompile_limit
        with config.patch(recompile_limit=before + 8):
            point("in-patch")
            check(config.recompile_limit == before + 8, "the patched value is not there")
        check(config.recompile_limit == before, "the value before the patch did not come back")

    return body


def mark_dynamic(code: UserCode, name: str) -> Callable[[], Any]:
    import torch._dynamo

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    function = torch.compile(doubled, backend="eager")

    def body() -> None:
        x = torch.ones(4)
        torch._dynamo.mark_dynamic(x, 0)
        point("marked")
        check(torch.equal(function(x), torch.full((4,), 2.0)), "numbers")

    return body


@dataclass(frozen=True)
class API:
    """``body`` gives what a thread does; ``seams`` are the extra ones of ``torch_names.toml`` inside it."""

    body: Callable[[UserCode, str], Callable[[], Any]]
    seams: tuple[str, ...] = ()


MASK = ("mask.sort",)
FLEX = ("flex.trace", "flex.traced")
MAKE_FX = ("make_fx.entered", "make_fx.exiting")
EXPORT = ("export.inputs", "export.entered", "export.exiting")
APIS = {
    "compiled": API(compiled, (*MASK, *FLEX)),
    "mask": API(create_mask, MASK),
    "uncompiled": API(uncompiled, (*MASK, *FLEX)),
    "compiled-mask": API(create_mask_compiled, MASK),
    "symbolic-trace": API(symbolic_trace, ("fx.patched",)),
    "make-fx": API(make_fx, ("fx.patched", *MAKE_FX)),
    "export": API(
        export, ("make_fx.entered", "make_fx.exiting", "export.inputs", "export.entered", "export.exiting")
    ),
    "stance": API(set_stance, ("stance.set",)),
    "reset": API(reset, ("reset.codes", "reset.frames")),
    "patch": API(patch_config),
    "mark-dynamic": API(mark_dynamic, ("mark.dynamic",)),
}
Pair = tuple[str, str]
# Those with the user's attention or mask in them come first.
PAIRS: list[Pair] = list(itertools.combinations_with_replacement(APIS, 2))


def second(pair: Pair) -> str:
    """The name of the second thread."""
    return pair[1] if pair[1] != pair[0] else f"{pair[1]}-2"


def race_of(pair: Pair) -> Race:
    """The pair as a race, without an expectation of its own."""
    import torch._dynamo

    def threads(code: UserCode) -> dict[str, Thread]:
        names = (pair[0], second(pair))
        return {name: own(APIS[api].body(code, name)) for api, name in zip(pair, names, strict=True)}

    return Race(
        threads=threads,
        schedule="-",
        outcomes={},
        # The sandbox has attention compiled already: see warm().
        setup=torch._dynamo.reset if "compiled" in pair else None,
        seams=tuple(sorted({seam for api in pair for seam in APIS[api].seams})),
    )


# ---- jobs: these run in a sandbox ------------------------------------------------------------------------------


def warm() -> None:
    """Run each API once; then leave attention compiled and everything else forgotten."""
    import torch._dynamo

    import repro.perform  # noqa: F401  loaded once, and not in each run
    from repro import fixes
    from repro.torch_names import entries
    from repro.warm import torch_and_one_compile
    from repro.workloads import Workload

    entries("seam", torch.__version__)

    torch_and_one_compile()
    code = UserCode(fixes.load(fixes.NONE), [Workload()])
    for name, api in APIS.items():
        api.body(code, name)()
    torch._dynamo.reset()
    code.compiled("warm")()


def perform(pair: Pair, strategy: Strategy) -> Observation:
    from repro.perform import perform_race

    return perform_race(race_of(pair), Experiment(race="+".join(pair), strategy=strategy))


@dataclass
class Alternate:
    """One step of the watched thread, one of the bystander's, and so on."""

    def choose(self, thread: str, seam: str, visit: int, ready: tuple[str, ...]) -> str:
        return next((name for name in ready if name != thread), thread)


def writes(api: str) -> dict[str, Any]:
    """Where ``api`` comes by when it runs alone, and at which of these places a bystander sees what state changed."""
    import torch

    from repro import fixes
    from repro.oracles import state
    from repro.perform import seams
    from repro.workloads import Workload

    race = race_of((api, api))
    if race.setup is not None:
        race.setup()
    body = race.threads(UserCode(fixes.load(fixes.NONE), [Workload()]))[api].body
    seen: list[state.Snapshot] = []
    over: list[bool] = []

    def watched() -> None:
        try:
            body()
        finally:
            over.append(True)

    def look() -> None:
        while not over:
            seen.append(state.snapshot())
            point("looked")

    with Seams(seams(extra=race.seams), unseen=torch.compiler.is_dynamo_compiling):
        run = Scheduler(Alternate()).run({"bystander": look, api: watched})
    if run.errors or run.explanation:
        raise RuntimeError(f"{api} does not run alone: {run.errors or run.explanation}")
    steps = [step for step in run.steps if step.thread == api and step.chosen != api and step.seam != "end"]
    places = [f"{step.seam}#{step.visit}" for step in steps]
    changed: dict[str, list[str]] = {}
    # The first look is at its start, before it has done anything.
    for place, after in zip(places, seen, strict=True):
        for name in state.judge(seen[0], after).data.get("changed", ()):
            changed.setdefault(name, []).append(place)
    return {"places": " ".join(places), "changed": {name: " ".join(changed[name]) for name in sorted(changed)}}


# ---- the search ----------------------------------------------------------------------------------------------------


class Known:
    """The runs so far as a tree of decisions: one that a strategy would only repeat is found in it."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, ...], tuple[Step, Observation]] = {}

    def add(self, observation: Observation) -> None:
        path: tuple[str, ...] = ()
        for step in observation.steps:
            self._runs.setdefault(path, (step, observation))
            path = (*path, step.chosen)

    def find(self, strategy: Strategy) -> Observation | None:
        strategy = copy.deepcopy(strategy)
        path: tuple[str, ...] = ()
        found: Observation | None = None
        while path in self._runs:
            step, found = self._runs[path]
            chosen = step.chosen
            if len(step.ready) > 1:
                chosen = strategy.choose(step.thread, step.seam, step.visit, step.ready)
            path = (*path, chosen)
        complete = found is not None and path == tuple(step.chosen for step in found.steps)
        return found if complete else None


def preemptions(schedule: Schedule, first: str) -> list[Switch]:
    """The switches, without the one that lets the other thread begin."""
    return [switch for switch in schedule.switches if (switch.thread, switch.seam) != (first, "start")]


def children(schedule: Schedule, steps: Sequence[Step]) -> Iterator[Schedule]:
    """``schedule`` and one switch more, wherever its run could have left the default after its last one."""
    left = [number for number, step in enumerate(steps) if step.ready and step.chosen != step.default]
    for step in steps[left[-1] + 1 if left else 0 :]:
        for to in step.ready:
            if to != step.chosen:
                yield Schedule((*schedule.switches, Switch(step.thread, step.seam, step.visit, to)))


def signature(observation: Observation, serial: set[str]) -> dict[str, Any]:
    """What makes two failures the same: the outcome, who raised what and where, and what was left behind."""
    details = observation.outcome.details

    def brief(error: dict[str, Any]) -> str:
        return f"{error['type']} in {error['frame']}"

    errors = [f"{name.removesuffix('-2')}: {brief(error)}" for name, error in details.get("errors", {}).items()]
    made: dict[str, Any] = {"outcome": str(observation.outcome.kind)}
    if errors:
        made["errors"] = sorted(errors)
    if "lone call" in details:
        made["lone call"] = brief(details["lone call"])
    if "signal" in details:
        made["signal"] = str(details["signal"])
    if names := sorted(left(observation) - serial):
        made["left"] = names
    return made


def signs(pair: Pair, signature: dict[str, Any]) -> list[str]:
    """The signs of a failure, one by one."""
    found = [f"error {error}" for error in signature.get("errors", ())]
    found += [f"lone call {signature['lone call']}"] if "lone call" in signature else []
    found += [f"left {name}" for name in signature.get("left", ())]
    return (
        found
        if signature["outcome"] in (Kind.ERROR, Kind.POISONED)
        else [
            f"{signature['outcome']} {'+'.join(pair)} {signature.get('signal', '')}".strip(),
            *found,
        ]
    )


def explain(pair: Pair, failure: dict[str, Any]) -> dict[str, Any]:
    """``failure`` with the races that it shows, and what none of them explains."""
    known: set[str] = set()
    unexplained = []
    for sign in signs(pair, failure):
        race = next((race for pattern, race in SIGNS.items() if re.fullmatch(pattern, sign)), None)
        if race is None:
            unexplained.append(sign)
        else:
            known.add(race)
    return {**failure, "races": sorted(known), "unexplained": unexplained}


def left(observation: Observation) -> set[str]:
    """The state that was left changed."""
    looks = [finding for finding in observation.findings if finding.oracle == "state"]
    return {name for look in looks for name in look.data.get("changed", ())}


def failed(observation: Observation, serial: set[str]) -> bool:
    """Whether it failed by more than the state that a serial order leaves changed too."""
    if observation.outcome.kind is Kind.POISONED and "lone call" not in observation.outcome.details:
        return bool(left(observation) - serial)
    return observation.failed


@dataclass
class Failure:
    signature: dict[str, Any]
    reason: str
    schedule: Schedule | None = None
    runs: int = 0


@dataclass
class Sweep:
    """One pair. ``written`` has what :func:`writes` says of each API."""

    pair: Pair
    run: Callable[[Strategy], Observation]
    written: dict[str, dict[str, Any]]
    budget: int
    ran: int = 0
    serial: set[str] = field(default_factory=set)
    known: Known = field(default_factory=Known)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)
    strayed: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)

    def sweep(self, switches: int) -> dict[str, Any]:
        begins = Schedule((Switch(self.pair[0], "start", 1, second(self.pair)),))
        for serial in (Schedule(), begins):
            self.serial |= left(self.run(Replay(serial)))
        one, skipped = self._bounded(switches)
        pct = self._pct()
        return {
            "switches": switches,
            "schedules": {
                "one switch": one[1],
                **({"two switches": one[2], "two switches, nothing written": skipped} if switches == 2 else {}),
                "pct drawn": PCT_RUNS,
                "pct not known before": pct,
            },
            "exhausted": self.ran < self.budget and not self.strayed and not self.crashed,
            "outcomes": dict(sorted(self.outcomes.items())),
            **({"strayed": self.strayed} if self.strayed else {}),
            **({"unknown below a crash": self.crashed} if self.crashed else {}),
            **({"changed by a serial order": sorted(self.serial)} if self.serial else {}),
            "failures": [self._described(failure) for failure in self._sorted()],
        }

    def _bounded(self, switches: int) -> tuple[dict[int, int], int]:
        first = self.pair[0]
        queue, counts, skipped = [Schedule()], {1: 0, 2: 0}, 0
        for schedule in queue:
            if self.ran >= self.budget:
                break
            observation = self._one(Replay(schedule))
            depth = len(preemptions(schedule, first))
            counts[max(depth, 1)] += 1
            if observation.outcome.kind is Kind.CRASH:
                # It leaves no steps, so nobody knows what lies below it.
                if depth < switches:
                    self.crashed.append(str(schedule))
                continue
            if Schedule.of(observation.steps) != schedule:
                self.strayed.append(str(schedule))
                continue
            for child in children(schedule, observation.steps):
                placed = preemptions(child, first)
                if len(placed) == 2 and switches == 2 and not any(map(self._writes, placed)):
                    skipped += 1
                elif len(placed) <= switches:
                    queue.append(child)
        return counts, skipped

    def _writes(self, switch: Switch) -> bool:
        """Whether shared state was seen changed there; where nobody has looked, it counts as if it was."""
        api, place = self.written[switch.thread.removesuffix("-2")], f"{switch.seam}#{switch.visit}"
        looked_at = place in api["places"].split()
        return not looked_at or any(place in where.split() for where in api["changed"].values())

    def _pct(self) -> int:
        search, fresh = PCT(depth=2, seed=SEED), 0
        for _ in range(PCT_RUNS + 1):
            strategy = search.next()
            assert strategy is not None
            observation = self.known.find(strategy)
            if observation is None:
                observation = self._one(strategy)
                fresh += 1
            search.saw(strategy, observation.steps, observation.conclusive)
        return fresh

    def _one(self, strategy: Strategy) -> Observation:
        self.ran += 1
        observation = self.run(strategy)
        self.known.add(observation)
        failing = failed(observation, self.serial)
        kind = observation.outcome.kind if failing or not observation.conclusive else Kind.OK
        self.outcomes[str(kind)] += 1
        if failing or not observation.conclusive:
            made = signature(observation, self.serial)
            # A crash leaves no steps, so that nobody knows where PCT has switched.
            schedule = getattr(strategy, "schedule", None)
            if observation.steps:
                schedule = Schedule.of(observation.steps)
            failure = self.failures.setdefault(json.dumps(made), Failure(made, observation.outcome.reason[:200]))
            failure.runs += 1
            failure.schedule = min(failure.schedule, schedule, key=self._size)
        return observation

    def _size(self, schedule: Schedule | None) -> tuple[int, int]:
        if schedule is None:
            return sys.maxsize, 0
        return len(preemptions(schedule, self.pair[0])), len(schedule)

    def _sorted(self) -> list[Failure]:
        return sorted(self.failures.values(), key=lambda one: (*self._size(one.schedule), json.dumps(one.signature)))

    def _described(self, failure: Failure) -> dict[str, Any]:
        known = failure.schedule is not None
        times = REPLAYS if known else 0
        again = [signature(self.run(Replay(failure.schedule)), self.serial) for _ in range(times)]
        return {
            **failure.signature,
            "schedule": str(failure.schedule) if known else None,
            "runs": failure.runs,
            "replays": f"{again.count(failure.signature)} of {len(again)}",
            "reason": failure.reason,
        }


# ---- the file ------------------------------------------------------------------------------------------------------


def empty(torch: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "torch": torch,
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "seed": SEED,
        "writes": {},
        "pairs": {},
    }


def load(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA:
        raise SystemExit(f"{file}: schema {data.get('schema')} is not {SCHEMA}; give another file")
    return data


def save(file: Path, data: dict[str, Any]) -> None:
    order = {"+".join(pair): number for number, pair in enumerate(PAIRS)}
    data["pairs"] = dict(sorted(data["pairs"].items(), key=lambda item: order[item[0]]))
    for name, entry in data["pairs"].items():
        one, other = name.split("+")
        entry["failures"] = [explain((one, other), failure) for failure in entry["failures"]]
    new = file.with_suffix(".new")
    new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(new, file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="file", type=Path, required=True, help="the data file, made or gone on with")
    parser.add_argument("--only", nargs="+", choices=[*APIS], default=[], help="one API: its pairs; two: that pair")
    parser.add_argument("--switches", type=int, choices=[1, 2], default=2, help="preemptions (default: %(default)s)")
    parser.add_argument("--budget", type=int, default=3000, help="runs of a pair at most (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="say how far the file has come, and run nothing")
    arguments = parser.parse_args()
    data = load(arguments.file)

    def wanted(pair: Pair) -> bool:
        return all(api in pair for api in arguments.only)

    def done(pair: Pair) -> bool:
        entry = (data or {}).get("pairs", {}).get("+".join(pair))
        return entry is not None and entry["switches"] >= arguments.switches

    pairs = [pair for pair in PAIRS if wanted(pair)]
    if arguments.list:
        for pair in pairs:
            print(line(pair, (data or {}).get("pairs", {}).get("+".join(pair))))
        print(f"{sum(map(done, pairs))} of {len(pairs)} pairs through with {arguments.switches} switches")
        return 0 if all(map(done, pairs)) else 3
    with Laboratory(warm=f"{HERE}:warm") as laboratory:
        if data is None:
            data = empty(laboratory.torch)
        if data["torch"] != laboratory.torch:
            raise SystemExit(f"{arguments.file} is of torch {data['torch']}, this is {laboratory.torch}")
        for api in sorted({api for pair in pairs for api in pair}, key=[*APIS].index):
            if api not in data["writes"]:
                ended = laboratory.run(f"{HERE}:writes", api, timeout=BOUND)
                if ended.outcome.kind is not Kind.OK:
                    raise SystemExit(f"{ended.outcome}\n{ended.output}")
                data["writes"][api] = ended.value
        # What is explained now was perhaps not when it was found.
        save(arguments.file, data)
        for pair in pairs:
            if done(pair):
                continue

            def run(strategy: Strategy, pair: Pair = pair) -> Observation:
                ended = laboratory.run(f"{HERE}:perform", pair, strategy, timeout=BOUND)
                return ended.value if isinstance(ended.value, Observation) else Observation(ended.outcome)

            started = time.perf_counter()
            one = Sweep(pair, run, data["writes"], arguments.budget)
            data["pairs"]["+".join(pair)] = one.sweep(arguments.switches)
            save(arguments.file, data)
            took = time.perf_counter() - started
            print(f"{line(pair, data['pairs']['+'.join(pair)])}  ({one.ran} runs, {took:.0f} s)", flush=True)
    return 0 if all(map(done, pairs)) else 3


def line(pair: Pair, entry: dict[str, Any] | None) -> str:
    if entry is None:
        return f"{'+'.join(pair):32} not yet"
    outcomes = ", ".join(f"{kind} {count}" for kind, count in entry["outcomes"].items())
    return f"{'+'.join(pair):32} {outcomes}; {len(entry['failures'])} failures"


if __name__ == "__main__":
    sys.exit(main())
