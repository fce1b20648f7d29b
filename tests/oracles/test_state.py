from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from test_oracles import run

from repro import surface
from repro.laboratory import Laboratory
from repro.oracles import state
from repro.outcome import Sight
from repro.preflight import torch_version
from repro.surface.probe import suspects as suspects_of


class Settings(dict[str, int]):
    pass


class Claiming:
    """Says that it is settings, as a proxy of these may."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return Settings

    def __init__(self) -> None:
        self.kept = {"a": 1}

    def items(self) -> object:
        return self.kept.items()

    def __iter__(self) -> object:
        return iter(self.kept)


SETTINGS, CLAIMING = Settings(a=1), Claiming()
# Of what is as deep as this only the type is said.
DEEP = [[[[[SETTINGS, CLAIMING, {"b": 2}]]]]]


def test_what_was_too_deep_to_be_looked_into_is_looked_into_where_it_is_not() -> None:
    assert state.look(f"{__name__}.DEEP") == [[[[["<Settings>", "<Claiming>", "<dict>"]]]]]
    assert state.look(f"{__name__}.SETTINGS") == {"a": 1}
    assert state.look(f"{__name__}.CLAIMING") == {"a": 1}


def test_a_program_that_takes_turns_leaves_nothing(laboratory: Laboratory) -> None:
    finding = run(laboratory, "leave", "nothing")
    assert finding.sight is Sight.PASS, finding
    assert finding.data["values"] > 10_000


@pytest.mark.parametrize(
    ("what", "name", "releases"),
    [
        ("overlapping_traces", "torch.fx._symbolic_trace._is_fx_tracing_flag", "<2.14"),
        ("overlapping_traces", "torch.nn.modules.module.Module.__call__", ">=2.9"),
        ("overlapping_traces", "torch.nn.modules.module.Module.__getattr__", ">=2.9"),
        ("overlapping_stances", "torch._dynamo.eval_frame._stance", ">=2.9"),
        ("overlapping_annotations", "torch.fx.traceback.current_meta", ">=2.13"),
        ("config", "torch._dynamo.config.suppress_errors", ">=2.9"),
        ("patched_module_call", "torch.nn.modules.module.Module.__call__", ">=2.9"),
        # what is no global of a module of the stack, but inventoried
        ("attribute_of_a_class", "torch._inductor.ir.FlexibleLayout.allow_indexing", ">=2.9"),
        ("function_beside_the_stack", "torch.cuda.set_rng_state", ">=2.9"),
        ("filters_of_warnings", "warnings.filters", ">=2.9"),
        ("environment", "os.environ.LEFT_BY_A_TEST", ">=2.9"),
    ],
)
def test_a_leak_is_found_and_named(laboratory: Laboratory, what: str, name: str, releases: str) -> None:
    if Version(torch_version()).base_version not in SpecifierSet(releases):
        pytest.skip(f"only torch {releases} leaks it")
    finding = run(laboratory, "leave", what)
    assert finding.sight is Sight.FAIL, finding
    assert name in finding.data["changed"]
    assert name in finding.message


def test_every_suspect_of_the_inventory_is_looked_at(laboratory: Laboratory) -> None:
    release = Version(torch_version()).base_version
    if release not in surface.releases():
        pytest.skip(f"no inventory of torch {release} is recorded")
    suspects = [one.name for one in suspects_of(surface.inventory(release))]
    seen, left_out = run(laboratory, "looked_at", suspects)
    assert left_out == []
    assert len(seen) > len(suspects) * 2 / 3


def test_before_and_after_are_told(laboratory: Laboratory) -> None:
    assert run(laboratory, "leave", "config").data["changed"] == {
        "torch._dynamo.config.suppress_errors": ["False", "True"]
    }


def test_nothing_seen_is_blind() -> None:
    nothing = state.Snapshot({})
    assert state.judge(nothing, nothing).sight is Sight.BLIND
