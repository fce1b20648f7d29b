from __future__ import annotations

import pytest
from test_oracles import run

from repro.laboratory import Laboratory
from repro.oracles import recompiles
from repro.outcome import Sight


@pytest.mark.parametrize(
    ("lengths", "frames"), [([256], 1), ([256, 256], 1), ([256, 384], 2), ([256, 384, 512, 384], 3)]
)
def test_a_new_static_shape_is_a_frame(laboratory: Laboratory, lengths: list[int], frames: int) -> None:
    compiled = run(laboratory, "frames_of", lengths)
    assert compiled == frames
    assert recompiles.judge(compiled, frames, at_least=frames).sight is Sight.PASS
    assert recompiles.judge(compiled, frames - 1).sight is Sight.FAIL


def test_a_whole_graph_is_counted_as_a_graph(laboratory: Laboratory) -> None:
    before, after = run(laboratory, "graphs_of_a_whole_graph")
    assert after - before == 1


def test_a_compile_that_was_not_counted_is_blind() -> None:
    assert recompiles.judge(0, 1, at_least=1).sight is Sight.BLIND
    assert recompiles.judge(0, 0).sight is Sight.PASS


def test_without_a_count_it_is_blind() -> None:
    assert recompiles.judge(None, 1).sight is Sight.BLIND
