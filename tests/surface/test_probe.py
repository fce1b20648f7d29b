"""What was shown of suspects on the installed release is shown again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from repro import surface
from repro.expectations import fixtures
from repro.laboratory import Laboratory
from repro.preflight import torch_version
from repro.surface import probe

RELEASE = torch_version().partition("+")[0]
# The races that were known before: they are among what the probes came upon by themselves.
KNOWN = {
    "torch.fx._symbolic_trace._is_fx_tracing_flag",
    "torch.fx._symbolic_trace.CURRENT_PATCHER",
    "torch.nn.modules.module.Module.__call__",
    "torch.fx.traceback.current_meta",
    "torch._dynamo.eval_frame._stance",
    "torch.compiler._is_compiling_flag",
}


def recorded() -> dict[str, dict[str, Any]]:
    file = fixtures() / "surface" / f"probes-{RELEASE}.json"
    if not file.is_file():
        return {}
    return {one["name"]: one for one in json.loads(file.read_text(encoding="utf-8"))["probes"]}


RED = {"stale", "lost", "broken", "seen"}
SHOWN = [one for one in recorded().values() if one["verdict"] in RED]


def test_every_suspect_of_2_13_has_been_probed() -> None:
    file = fixtures() / "surface" / "probes-2.13.0.json"
    names = {one["name"] for one in json.loads(file.read_text(encoding="utf-8"))["probes"]}
    assert names >= {one.name for one in probe.suspects(surface.inventory("2.13.0"))}


def test_what_was_known_was_come_upon() -> None:
    if RELEASE != "2.13.0":
        pytest.skip("the probes of 2.13.0 are recorded")
    verdicts = {name: recorded()[name]["verdict"] for name in KNOWN}
    assert set(verdicts.values()) <= RED, verdicts


@pytest.mark.parametrize(
    "shown",
    [pytest.param(one, id=one["name"], marks=[] if one["name"] in KNOWN else pytest.mark.nightly) for one in SHOWN],
)
def test_what_was_shown_is_shown_again(shown: dict[str, Any], laboratory: Laboratory) -> None:
    one = surface.inventory(RELEASE).globals[shown["name"]]
    again = probe.Prober(laboratory, [one]).run(one, tuple(shown["actions"]), shown["schedule"])
    assert again.verdict == shown["verdict"], again.reason
    assert again.outcome == shown["outcome"], again.explanation
