from __future__ import annotations

import pytest

from repro.oracles.scaling import Timed, judge
from repro.outcome import Sight


@pytest.mark.parametrize(
    ("few", "many", "sight"),
    [
        # As measured on a card: compiled, uncompiled.
        (Timed(0.0346, 4.84), Timed(0.2864, 27.36), Sight.PASS),
        (Timed(0.0346, 80.0), Timed(0.2864, 80.4), Sight.FAIL),
        # Faster with more to do: noise, and no growth.
        (Timed(0.0346, 82.3), Timed(0.2864, 78.5), Sight.FAIL),
        (Timed(0.1, 1.0), Timed(0.5, 2.0), Sight.BLIND),
        # No three times as many blocks.
        (Timed(0.0346, 4.84), Timed(0.0607, 7.23), Sight.BLIND),
        (Timed(0.2, 4.84), Timed(0.2, 4.84), Sight.BLIND),
    ],
)
def test_only_a_block_sparse_call_takes_longer_with_more_to_visit(few: Timed, many: Timed, sight: Sight) -> None:
    assert judge(few, many).sight is sight
