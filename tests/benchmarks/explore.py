"""What a schedule costs: in a fresh interpreter, in the warm sandbox by the engine, and its bare work there.

``python tests/benchmarks/explore.py [--runs N]``; exits 1 if the engine costs more than 1.25 times the bare work of
the same scenario (the same threads one after another, no seams, the same oracles), or if a search on two lanes that
are warm takes 20 s or more to find the leaked flag. The kinds take turns, so that other load on the machine meets
them all.
"""

from __future__ import annotations

import argparse
import contextvars
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repro import preflight, races
from repro.expectations import expected
from repro.experiment import Experiment, Observation
from repro.exploring import STRATEGIES
from repro.fixes import NONE
from repro.interleave import Schedule
from repro.interleave.explore import explore
from repro.interleave.replay import Replay
from repro.interleave.scheduler import Strategy
from repro.laboratory import Laboratory
from repro.oracles.memory import preload
from repro.outcome import Kind
from repro.sandbox import Ended, Sandbox

RACE = "tracing-flag-leak"
COST = 1.25
FIND_SECONDS = 20.0
DEFAULT = "pct"
BOUND = 300.0
ONE_AFTER_ANOTHER = Experiment(race=RACE, strategy=Replay(Schedule()))


def bare(experiment: Experiment) -> Observation:
    """The work of a run without the engine."""
    from repro.perform import Scene

    scene = Scene(experiment, races.load(experiment.race))
    for body in scene.bodies.values():
        # In a copied context as by the engine: in an empty one torch's settings are its defaults since 2.12, and what
        # its caches then save is no gain over the engine.
        thread = threading.Thread(target=contextvars.copy_context().run, args=(body,))
        thread.start()
        thread.join()
    outcome, findings, compiled = scene.judge({})
    return Observation(outcome, findings=findings, compiled=compiled)


def seconds(run: Callable[[], Ended]) -> float:
    started = time.perf_counter()
    ended = run()
    took = time.perf_counter() - started
    if not isinstance(ended.value, Observation) or ended.value.outcome.kind is not Kind.OK:
        raise SystemExit(f"{ended.outcome}\n{ended.value}\n{ended.output}")
    return took


def costs(runs: int) -> bool:
    """Print what a schedule costs; whether the engine costs little enough."""
    here = f"{Path(__file__).stem}:bare"
    engine = "repro.perform:perform"
    with Laboratory() as laboratory:
        environment = {
            **preload(laboratory.cache),
            "CXX": preflight.compiler(),
            "TORCHINDUCTOR_CACHE_DIR": str(laboratory.cache),
        }
        with Sandbox(warm="repro.warm:torch_settings", start="spawn", env=environment) as spawning:
            kinds: dict[str, Callable[[], Ended]] = {
                "fresh interpreter": lambda: spawning.run(engine, ONE_AFTER_ANOTHER, timeout=BOUND),
                "warm sandbox, by the engine": lambda: laboratory.run(engine, ONE_AFTER_ANOTHER, timeout=BOUND),
                "warm sandbox, bare work": lambda: laboratory.run(here, ONE_AFTER_ANOTHER, timeout=BOUND),
            }
            for run in kinds.values():
                seconds(run)
            times = {name: [] for name in kinds}
            for _ in range(runs):
                for name, run in kinds.items():
                    times[name].append(seconds(run))
    fresh, warm, base = times.values()
    print(f"{'median of ' + str(runs):30} {'seconds':>8} {'schedules/s':>12}   {'from':>6} to {'':6}  against bare")
    for name, measured in times.items():
        median = statistics.median(measured)
        print(
            f"{name:30} {median:8.3f} {1 / median:12.2f}   {min(measured):6.3f} to {max(measured):6.3f}"
            f"  {median / statistics.median(base):6.2f}"
        )
    # Round by round, since the machine may be busier in one round than in the next.
    cost = statistics.median(one / other for one, other in zip(warm, base, strict=True))
    gain = statistics.median(one / other for one, other in zip(fresh, warm, strict=True))
    print(f"the engine costs {cost:.2f} times the bare work, at most {COST:g}")
    print(f"warm is {gain:.1f} times as fast as fresh interpreters")
    return cost <= COST


def finds() -> bool:
    """Print how long each search takes to its first find; whether the default one is quick enough."""
    with Laboratory(lanes=2) as laboratory, ThreadPoolExecutor(laboratory.lanes) as pool:
        known = expected(RACE, NONE, laboratory.torch)
        if known is None or known.outcome is Kind.OK:
            print(f"torch {laboratory.torch} does not have the leak: there is nothing to find")
            return True

        def run(strategy: Strategy) -> Observation:
            return laboratory.perform(Experiment(race=RACE, strategy=strategy))

        started = time.perf_counter()
        list(pool.map(lambda _: laboratory.run("builtins:bool", timeout=BOUND), range(laboratory.lanes)))
        print(f"{'first find':30} {'seconds':>8} {'schedules':>12}")
        print(f"{'warming two lanes, once':30} {time.perf_counter() - started:8.3f}")
        took = {}
        for name, search in STRATEGIES.items():
            started = time.perf_counter()
            found = explore(run, search(0), 200, pool, stop_after=1)
            took[name] = time.perf_counter() - started
            print(f"{name:30} {took[name] if found.failing else float('inf'):8.3f} {found.schedules:12}")
            if not found.failing:
                took[name] = float("inf")
    print(f"{DEFAULT}, the default, finds it in {took[DEFAULT]:.1f} s, less than {FIND_SECONDS:g}")
    return took[DEFAULT] < FIND_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="of each kind (default: %(default)s)")
    cheap = costs(parser.parse_args().runs)
    quick = finds()
    return 0 if cheap and quick else 1


if __name__ == "__main__":
    sys.exit(main())
