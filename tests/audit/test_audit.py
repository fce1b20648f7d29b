"""What an audit says of callables that hold, break, or cannot be audited.

Which of them hold is a fact of a release of torch: those tests speak of 2.13.0.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import repro.audit
from repro import export, recording
from repro.audit import BACKWARD, FOREIGN, Audited, BadTarget, Origin, Target, audit, workloads
from repro.experiment import Experiment, Observation
from repro.export.trial import run
from repro.interleave.exploration import Exploration, Failure
from repro.interleave.pct import PCT
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule
from repro.laboratory import Laboratory
from repro.outcome import Kind, Outcome
from repro.report import document, html, terminal
from repro.verdict import Verdict

ROOT = Path(repro.__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
# One laboratory does for all.
pytestmark = pytest.mark.xdist_group("audit")


@pytest.fixture(scope="session")
def here() -> Laboratory:
    """A laboratory that finds the callables of this folder and of the examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(Path(__file__).parent), str(EXAMPLES), *sys.path])
        with Laboratory() as laboratory:
            laboratory.run("os:getpid", timeout=60)
            yield laboratory


def breaks(laboratory: Laboratory) -> None:
    if laboratory.torch.partition("+")[0] not in ("2.13.0", "2.14.1"):
        pytest.skip(f"what breaks is told of 2.13.0 and 2.14.1, this is {laboratory.torch}")


# ---- the examples ------------------------------------------------------------------------------------------------


def test_the_broken_loop_fails_by_a_schedule_that_replays(here, tmp_path):
    breaks(here)
    found = audit(here, "threaded_inference:attention")

    assert found.verdict is Verdict.FAILS
    assert found.shown.outcome.kind is Kind.ERROR
    assert found.shown.schedule == "first:fx.trace#1>second, second:mask.sort#1>first"
    text = terminal.audited_text(found)
    assert text.startswith("threaded_inference:attention, 2 threads: FAILS (error)\n  second: KeyError: 'custom'\n")
    assert "under no_grad" in text
    assert found.races == ["mask-metadata-error", "mask-metadata-foreign"]
    assert re.search(r"^  raised at threaded_inference\.py:\d+ in attention: \w", text, re.MULTILINE)
    assert "lock" in found.holding
    assert "dynamic" not in found.holding
    assert f"  fixes that hold against it on this release, as in repro/fixes/: {', '.join(found.holding)}\n" in text
    assert f"  the race {' or '.join(found.races)}, met by its recorded schedule, played by these threads\n" in text
    file = tmp_path / "broken.json"
    document.write(document.of_audit(found), str(file))
    written = json.loads(file.read_text())["found"]
    assert (written["by"], written["races"], written["text"]) == ("recorded schedule", found.races, found.how)
    assert written["fixes"] == found.holding
    assert found.how in html.load(str(file)).own[0].reason
    recorded = recording.load(str(file), here.torch)
    replayed = here.perform(recorded.experiment())
    assert replayed.signature == found.shown.signature
    assert recorded.divergence(replayed) is None
    script = export.write(export.recorded("threaded_inference:attention", str(file)))
    assert script.file == "repro_threaded_inference_attention.py"
    assert script.wrapped == ("torch.fx._symbolic_trace.Tracer.create_args_for_root", "torch.argsort")
    trial = run(script.text)
    assert trial.shown, trial.output
    assert trial.said == "BUG: threads that call `attention` break it: a call fails"
    assert "KeyError: 'custom'" in trial.output


@pytest.mark.parametrize(
    "module",
    [
        "threaded_inference_mended",
        pytest.param("threaded_inference_side_by_side", marks=pytest.mark.nightly),
    ],
)
def test_a_mended_loop_holds(here, module):
    found = audit(here, f"{module}:attention")

    assert found.verdict is Verdict.HOLDS, found.reason
    assert found.exploration.exhausted
    # Four of the catalogue's, told of cold threads and of warm ones.
    assert found.recorded == 9
    assert found.reason.startswith("every schedule of up to one switch ran (2 threads)")


def test_a_lock_for_the_first_call_alone_fails_where_another_thread_is_warm(here):
    breaks(here)
    found = audit(here, "audited:locked_for_the_first_call")

    assert found.verdict is Verdict.FAILS
    assert "second:again#1>first" in found.shown.schedule
    assert "second: KeyError: 'custom'" in found.reason
    assert found.how.startswith("the race mask-metadata-error or mask-metadata-foreign, met by its recorded schedule")
    assert found.how.endswith(", played by these threads, second in its second call")


@pytest.mark.nightly
def test_a_schedule_with_a_warm_thread_is_a_script_too(here, tmp_path):
    breaks(here)
    found = audit(here, "audited:locked_for_the_first_call")
    file = tmp_path / "found.json"
    document.write(document.of_audit(found), str(file))

    script = export.write(export.recorded("audited:locked_for_the_first_call", str(file)))

    assert 'hand_over(2, "second", to="first")  # it has called once, and is warm' in script.text
    trial = run(script.text)
    assert trial.shown, trial.output


def test_a_recorded_schedule_that_fails_in_another_way_is_not_called_its_race():
    (known,) = [found for found in repro.audit._catalogue("2.13.0") if found.race == "mask-metadata-error"]
    breaks = Observation(Outcome(Kind.DENSE, "it held all"), schedule="first:fx.trace#1>second")
    seen = Exploration(
        9, schedules=4, failing=1, failures=[Failure(None, Replay(known.schedule), breaks, None, None)]
    )
    rest = ("2.13.0", Verdict.FAILS, "it held all", 1, seen, Experiment(race="a:b"), breaks)
    found = Audited(Target("a", "b"), 2, "bounded", 0, *rest, origin=Origin((known,), "second"))

    assert found.races == []
    assert found.holding == []
    assert found.how == (
        "met by the recorded schedule of mask-metadata-error (error), played by these threads, second in its second "
        "call; here it fails in another way"
    )
    assert document.of_audit(found)["found"]["recorded_of"] == ["mask-metadata-error"]


def failing(target: Target, races: list[str], traceback: str = "", devices: tuple[str, ...] = ("cpu",)) -> Audited:
    """What an audit says of a callable whose thread raised, as in the ``races``, which come to a KeyError."""
    recordings = tuple(known for known in repro.audit._catalogue("2.13.0") if known.race in races)
    raised = {"type": "KeyError", "frame": "torch/fx/traceback.py:annotate", "traceback": traceback}
    outcome = Outcome(Kind.ERROR, "it raised", {"errors": {"first": raised}})
    breaks = Observation(outcome, schedule="first:fx.trace#1>second")
    experiment = Experiment(race=target.name, devices=devices)
    rest = ("2.13.0", Verdict.FAILS, "it raised", 1, Exploration(9), experiment, breaks)
    return Audited(target, 2, "bounded", 0, *rest, origin=Origin(recordings, "second"))


def test_what_is_recorded_of_the_cpu_says_nothing_of_another_device_or_of_training():
    races = ["mask-metadata-error", "mask-metadata-foreign"]
    assert "lock" in failing(Target("a", "b"), races).holding
    # No lock of the user's is around the library of that one.
    assert "lock" not in failing(Target("a", "b"), races[1:]).holding
    assert failing(Target("a", "b"), races, devices=("cuda",)).holding == []
    assert failing(Target("a", "b").having(repro.audit.BACKWARD), races).holding == []


def test_the_line_that_raised_is_one_of_the_users_module_and_of_no_other():
    traceback = """Traceback (most recent call last):
  File "flex_attention.py", line 12, in attend
    return compiled(query, key, value, block_mask=mask)
  File "<generated>", line 2, in go
  File "flex_attention.py", line 20, in attend_again
    return attend()
           ^^^^^^^^
  File "torch/nn/attention/flex_attention.py", line 1555, in flex_attention
    raise error
"""
    found = failing(Target("flex_attention", "attend"), [], traceback)
    assert found.raised_at == "flex_attention.py:20 in attend_again: return attend()"
    assert failing(Target("my.flex_attention", "attend"), [], traceback).raised_at == ""


def test_a_drawn_schedule_says_that_it_was_drawn_and_made_smaller():
    breaks = Observation(Outcome(Kind.ERROR, "it raised"), schedule="first:fx.trace#1>second")
    first = Schedule.parse("first:start#1>second, second:fx.trace#1>first")
    seen = Exploration(9, schedules=7, failing=1, failures=[Failure(first, PCT(seed=0).next(), breaks, None, None)])
    rest = ("2.13.0", Verdict.FAILS, "it raised", 3, seen, Experiment(race="a:b"), breaks)
    found = Audited(Target("a", "b"), 2, "pct", 0, *rest)
    assert found.how == (
        "no recorded schedule: the search came to it as schedule 7, with 2 switches, and made smaller"
    )
    assert document.of_audit(found)["found"]["by"] == "search"


@pytest.mark.gpu
def test_the_training_loop_holds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
        with Laboratory(devices=("cuda",)) as laboratory:
            found = audit(laboratory, "training:attention", device="cuda", trains=True)
    assert found.verdict is Verdict.HOLDS, found.reason


# ---- whatever the callable is, its locks are seen ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "lock"),
    [
        ("instance", "lock"),
        ("bound", "lock"),
        ("Attention.static", "Locks.shared"),
        ("decorated", "lock"),
        ("partial", "args.0"),
        ("per_head", "LOCK"),
    ],
)
def test_the_lock_of_a_callable_refuses_the_schedule(here, path, lock):
    name = f"audited:{path}"
    schedule = Schedule.parse("first:mask.sort#1>second")
    experiment = Experiment(race=name, workloads=workloads(2), strategy=Replay(schedule))

    seen = here.perform(experiment)

    assert lock in seen.seams
    (switch,) = seen.switches
    assert switch.status == "refused", str(switch)
    assert f"second waits for {lock}, held by first" in switch.reason


def test_a_mask_that_is_larger_than_all_scores_is_not_taken_for_a_dense_call(here):
    found = audit(here, "audited:per_head", strategy="pct", budget=1)
    assert str(found.target) == "audited:per_head with unmetered memory"
    assert found.exploration.failing == 0


# ---- verdicts that are none --------------------------------------------------------------------------------------


def test_a_budget_that_is_too_small_is_inconclusive_and_names_the_floor(here):
    found = audit(here, "audited:bound", strategy="pct", budget=2, threads=3)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the budget is too small" in found.reason
    assert found.exploration.threads == 3


@pytest.mark.nightly
def test_a_budget_that_leaves_schedules_out_says_how_large_a_one_does_not(here):
    found = audit(here, "threaded_inference_mended:attention", budget=2)
    assert found.verdict is Verdict.INCONCLUSIVE
    enough = re.fullmatch(r"2 schedules are not all with one switch; a --budget of (\d+) is enough", found.reason)
    assert enough is not None, found.reason
    assert int(enough[1]) == 37


def test_threads_that_meet_no_point_are_inconclusive(here):
    found = audit(here, "audited_warm:attention", budget=1)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason == "the threads met no point at which they could be interleaved"


def test_what_fails_in_a_second_thread_without_any_overlap_fails(here):
    found = audit(here, "audited:of_one_thread", budget=1)
    assert found.verdict is Verdict.FAILS
    assert "this belongs to another thread" in found.reason
    assert (found.races, found.origin) == ([], None)
    assert found.how == "no recorded schedule: the search came to it as schedule 1"
    assert f"  {found.how}\n" in terminal.audited_text(found)


@pytest.mark.nightly
def test_a_lock_that_nobody_sees_is_inconclusive(here):
    found = audit(here, "audited:blocked_where_nobody_looks", budget=8)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "blocked outside the model" in found.reason


# ---- against threads that are not the user's ---------------------------------------------------------------------


def test_foreign_threads_break_what_holds_and_do_not_change_the_verdict(here, monkeypatch):
    breaks(here)
    some = {name: FOREIGN[name] for name in ("model", "stance")}
    monkeypatch.setattr(repro.audit, "FOREIGN", some)

    found = audit(here, "audited:instance", strategy="pct", budget=1, foreign=True)

    assert found.verdict is Verdict.INCONCLUSIVE
    assert [one.name for one in found.beside if one.breaks] == list(some)
    assert found.beside[0].shown.outcome.kind is Kind.ERROR
    # A lock of one's own holds back neither a library's compile nor its stance.
    assert found.beside[1].shown.outcome.kind is Kind.DENSE
    text = terminal.audited_text(found)
    assert "  stance (a library sets a stance for its own calls): breaks it (dense)" in text
    assert [one.race for one in found.beside] == ["mask-metadata-foreign", "stance-leak"]
    assert "the race mask-metadata-foreign, met by its recorded schedule; fixes that hold on this release: " in text
    assert "the race stance-leak, met by its recorded schedule; fixes that hold on this release, that thread" in text


@pytest.mark.nightly
def test_each_foreign_thread_can_be_told_of(here):
    breaks(here)
    found = audit(here, "audited:instance", strategy="pct", budget=1, foreign=True)
    assert [one.name for one in found.beside] == list(FOREIGN)
    assert not [one for one in found.beside if one.inconclusive]
    broken = {one.name for one in found.beside if one.breaks}
    assert {"model", "make_fx", "export", "masks", "stance"} <= broken
    # From 2.14 the mark "somebody traces" belongs to the thread that traces.
    assert ("tracer" in broken) == here.torch.startswith("2.13.0")


class Ending:
    """A laboratory in which a run by one schedule ends so, and every other is right."""

    def __init__(self, schedule, kind, torch="2.13.0"):
        self.schedule, self.kind, self.torch = schedule, kind, torch

    def perform(self, experiment):
        ends = str(experiment.strategy.schedule) == self.schedule
        return Observation(Outcome(self.kind if ends else Kind.OK, "so it ended"))

    def beside(self, thread, *extras):
        told = repro.audit._beside(self, Target("a", "b", extras), (), "cpu")
        return next(one for one in told if one.name == thread)


@pytest.mark.parametrize("kind", [Kind.DENSE, Kind.CRASH, Kind.HANG])
def test_a_foreign_thread_that_breaks_it_by_no_schedule_is_told_without_a_race(kind):
    for thread in FOREIGN:
        told = Ending("-", kind).beside(thread)
        assert (told.breaks, told.schedules, told.how) == (True, 1, "")


def test_of_races_with_one_schedule_that_which_fails_so_is_named():
    ending = Ending("yours:start#1>model, model:fx.trace#1>yours", Kind.POISONED)
    model = ending.beside("model")
    assert {each.race for each in model.origins} == {"first-call", "tracing-flag-leak"}
    assert model.race == "tracing-flag-leak"
    assert "lock" in model.holding
    assert "wrapper" not in model.holding
    # Of training nothing is recorded.
    assert ending.beside("model", BACKWARD).holding == ()


def test_no_fix_is_named_against_what_the_release_does_not_show():
    told = Ending("yours:backend.call#1>export, export:export.entered#1>yours", Kind.POISONED, "2.11.0").beside(
        "export"
    )
    assert told.race == "is-compiling-left"
    assert told.holding == ()


# ---- what cannot be audited --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:attention", "there is no module nowhere; run this in the folder that has it, set PYTHONPATH"),
        ("broken_import:attention", "broken_import cannot be imported: ZeroDivisionError: division by zero; mend it"),
        ("cuda_import:attention", "cuda_import needs CUDA when it is imported ("),
        ("audited.py:right", "audited.py is a file; write the module: audited:right"),
        ("audited:Attention", "audited:Attention is a class; make an instance in the module and name that, or a"),
        ("audited:rihgt", "audited has no rihgt; did you mean right?"),
        ("audited:NOT_A_CALLABLE", "audited:NOT_A_CALLABLE is a int, which cannot be called"),
        ("audited:raises", "audited:raises raises when it is called alone: ValueError: no such context; it "),
        ("audited:leaves", "audited:leaves raises when it is called alone: SystemExit: good bye"),
        ("audited:dies", "audited:dies ends the process when it is called alone: killed by SIGKILL"),
        ("audited:returns_nothing", "audited:returns_nothing returns a NoneType, not a tensor"),
        ("audited:transposed", "audited:transposed returns shape [1, 512, 8, 32] for a query of [1, 8, 512, 32]"),
        ("audited:rounded", "audited:rounded returns dtype torch.float16 for a query of torch.float32"),
        ("audited:uncompiled", "audited:uncompiled is dense even when it is called alone"),
        ("audited:unscaled", "audited:unscaled is wrong even when it is called alone"),
        ("audited:on_cuda", "audited:on_cuda needs CUDA ("),
        ("audited:changes_torch", "audited:changes_torch called alone leaves torch changed (state left changed: "),
    ],
)
def test_a_callable_that_cannot_be_audited(here, name, message):
    with pytest.raises(BadTarget) as refusal:
        audit(here, name)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_a_callable_that_hangs(here):
    with pytest.raises(BadTarget, match=r"audited:hangs does not end within 4 s .* give a longer --timeout"):
        audit(here, "audited:hangs", timeout=4)


# ---- the fixture -----------------------------------------------------------------------------------------------


TESTS = """
import sys

def test_broken(flex_audit):
    flex_audit("threaded_inference:attention")

def test_inconclusive(flex_audit):
    flex_audit("threaded_inference_mended:attention", strategy="pct", budget=1)

def test_no_such(flex_audit):
    flex_audit("threaded_inference:attend")

def test_torch_stays_out():
    assert "torch" not in sys.modules
"""


@pytest.mark.parametrize(
    "workers", [pytest.param([], id="plain", marks=pytest.mark.nightly), pytest.param(["-n", "1"], id="xdist")]
)
def test_the_fixture_fails_with_the_report_in_a_project_of_somebody_else(here, tmp_path, workers):
    breaks(here)
    (tmp_path / "test_mine.py").write_text(TESTS)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    paths = os.pathsep.join([str(ROOT), str(EXAMPLES)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "repro.pytest_plugin", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
        env={**plain, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert "3 failed, 1 passed" in done.stdout, done.stdout[-3000:]
    assert "schedule: first:fx.trace#1>second, second:mask.sort#1>first" in done.stdout
    assert "INCONCLUSIVE" in done.stdout
    assert "threaded_inference has no attend; did you mean attention?" in done.stdout


def test_the_plugin_that_an_installed_package_brings_is_the_one_that_p_names():
    entries = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("entry-points.pytest11]\n")[2]
    # Under two names pytest would refuse to load it twice.
    assert entries.startswith('"repro.pytest_plugin" = "repro.pytest_plugin"\n')


def test_the_report_is_json_of_the_usual_envelope(here):
    found = audit(here, "audited:of_one_thread", budget=1, seed=7)
    content = json.loads(json.dumps(document.of_audit(found)))
    assert content["command"] == "audit"
    assert content["seeds"] == [7]
    assert content["verdict"] == "FAILS"
    assert content["cells"][0]["race"] == "audited:of_one_thread"
    assert len(content["cells"][0]["workloads"]) == 2
