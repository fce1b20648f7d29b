"""One call that is interrupted at one place, and what is true afterwards. Runs in a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from repro.experiment import Experiment
from repro.interleave import Scheduler, Seams
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule
from repro.outcome import error_outcome
from repro.perform import Scene, seams
from repro.races import Race, own
from repro.surface.actions import ACTIONS
from repro.user_code import UserCode

ERRORS: dict[str, type[BaseException]] = {"error": RuntimeError, "interrupt": KeyboardInterrupt}
WORDS = "interrupted by the test"


class Interrupting(Scheduler):
    """Raises at the first visit of one seam, in the thread that stands there."""

    def __init__(self, seam: str, error: type[BaseException]) -> None:
        super().__init__(Replay(Schedule.parse("-")))
        self._seam, self._error = seam, error
        self.reached = False

    def reach(self, name: str, seam: str) -> None:
        super().reach(name, seam)
        if seam == self._seam and not self.reached:
            self.reached = True
            raise self._error(WORDS)


def at_a_seam(action: str, seam: str, error: str) -> tuple[bool, str, str, str]:
    """``action`` (see ``repro/surface/actions.py``) is interrupted at ``seam``."""
    scheduler = Interrupting(seam, ERRORS[error])
    judged = _judged(scheduler, lambda code: ACTIONS[action](code, "one", 0), [seam])
    return scheduler.reached, *judged


def in_a_function(which: str, error: str) -> tuple[bool, str, str, str]:
    """A function of the user's raises: the mask's when it is built, or when it is compiled, or the score's."""
    kind = ERRORS[error]

    def raising_mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        raise kind(WORDS)

    def raising_score(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
        raise kind(WORDS)

    def action(code: UserCode) -> Callable[[], None]:
        query, key, value = code.workloads[0].tensors()
        good = code.workloads[0].mask_mod()
        attention = torch.compile(flex_attention)

        def body() -> None:
            with torch.no_grad():
                mask_mod = raising_mask if which == "mask_mod" else good
                mask = create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device="cpu")
                if which == "mask_mod, compiled":
                    mask.mask_mod = raising_mask
                attention(
                    query, key, value, block_mask=mask, score_mod=raising_score if which == "score_mod" else None
                )

        return body

    return True, *_judged(Interrupting("", kind), action, [])


def _judged(
    scheduler: Interrupting, action: Callable[[UserCode], Callable[[], Any]], extra: list[str]
) -> tuple[str, str, str]:
    """What the caller got, and the outcome of everything that is looked at after a race, with its reason."""
    race = Race(threads=lambda code: {"one": own(action(code))}, schedule="-", outcomes={})
    scene = Scene(Experiment(race=""), race)
    # Where autograd hands work over, the interrupted thread does nothing itself.
    standing = [seam for seam in seams(extra=extra) if seam.where != "engine"]
    with Seams(standing, code=scene.code_under_test(), unseen=torch.compiler.is_dynamo_compiling):
        run = scheduler.run(scene.bodies)
    got = error_outcome(run.errors["one"]).reason if run.errors else ""
    # That the call failed was meant; what it leaves behind was not.
    outcome, _, _ = scene.judge({})
    return got, str(outcome.kind), outcome.reason
