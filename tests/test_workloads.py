from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import workload_jobs

from repro.laboratory import Laboratory
from repro.workloads import MASKS, STORY, Workload


@pytest.mark.parametrize("mask", MASKS)
def test_json_round_trip(mask: str) -> None:
    workload = Workload(mask=mask, queries=300, keys=700, dtype="bfloat16", seed=3)
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


def test_fields_left_out_take_their_defaults() -> None:
    assert Workload.from_json({"keys": 512}) == Workload(keys=512)


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"heads": 0}, "heads is 0: give a whole number of at least 1"),
        ({"queries": 2.0}, "queries is 2.0: give a whole number"),
        ({"batch": True}, "batch is True: give a whole number"),
        ({"seed": -1}, "seed is -1: give a whole number of at least 0"),
        ({"mask": "sliding-window"}, "did you mean 'sliding_window'?"),
        ({"mask": "?"}, "choose one of causal, sliding_window, document, dflash"),
        ({"dtype": "float64"}, "did you mean 'float"),
        ({"queries": 300, "keys": 299}, "give at least 300 keys"),
        ({"mask": "dflash"}, "give more than 256 keys"),
        ({"mask": "dflash", "keys": 512, "draft": 10}, "give a divisor of 128"),
        ({"key": 512}, "did you mean 'keys'?"),
    ],
)
def test_what_does_not_fit_is_refused_with_advice(fields: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)):
        Workload.from_json(fields)


def test_the_story_asks_for_what_the_story_said() -> None:
    assert STORY.dense_bound / 2**30 == 284.25


def test_a_workload_is_made_without_torch() -> None:
    code = "import sys; from repro.workloads import STORY; STORY.to_json(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0


def test_causal_sees_the_keys_up_to_its_own(laboratory: Laboratory) -> None:
    assert mask_of(laboratory, Workload(queries=2, keys=4)) == ["x...", "xx.."]


def test_sliding_window_sees_as_many_keys_as_it_is_long(laboratory: Laboratory) -> None:
    workload = Workload(mask="sliding_window", queries=3, keys=5, window=2)
    assert mask_of(laboratory, workload) == ["x....", "xx...", ".xx.."]


def test_documents_do_not_see_each_other(laboratory: Laboratory) -> None:
    workload = Workload(mask="document", queries=5, keys=5, document=2)
    assert mask_of(laboratory, workload) == ["x....", "xx...", "..x..", "..xx.", "....x"]


def test_a_draft_block_sees_itself_whole_and_the_context_before_its_anchor(laboratory: Laboratory) -> None:
    workload = Workload(mask="dflash", queries=5, keys=8, draft=2)
    rows = mask_of(laboratory, workload)
    assert [row[3:] for row in rows] == ["xx...", "xx...", "..xx.", "..xx.", "....x"]
    seen = [len(row[:3].rstrip(".")) for row in rows]
    assert [row[:3] for row in rows] == ["xxx"[:n].ljust(3, ".") for n in seen]
    assert 1 <= seen[0] == seen[1] <= seen[2] == seen[3] <= seen[4]


def mask_of(laboratory: Laboratory, workload: Workload) -> list[str]:
    ended = laboratory.run("workload_jobs:dense_mask", workload, timeout=workload_jobs.NET)
    assert ended.value is not None, ended
    rows: list[str] = ended.value
    return rows


def test_every_query_sees_a_key_and_some_block_is_never_visited(laboratory: Laboratory) -> None:
    sizes = [(256, 257), (256, 383), (257, 300), (300, 700), (384, 512), (511, 900)]
    workloads = [Workload(mask=mask, queries=queries, keys=keys) for mask in MASKS for queries, keys in sizes] + [
        Workload(mask="dflash", queries=256, keys=300, draft=draft) for draft in (1, 128)
    ]
    ended = laboratory.run("workload_jobs:unseen_and_unchecked", workloads, timeout=workload_jobs.NET)
    assert ended.value == [], ended


def test_tensors_are_three_and_the_same_every_time(laboratory: Laboratory) -> None:
    ended = laboratory.run("workload_jobs:tensors", Workload(keys=300, dtype="float16"), timeout=workload_jobs.NET)
    same, buffers, shapes, dtypes = ended.value
    assert same
    assert buffers == 3
    assert shapes == [(1, 2, 256, 32), (1, 2, 300, 32), (1, 2, 300, 32)]
    assert dtypes == ["torch.float16"] * 3


def test_a_reach_hides_what_is_further_before_the_anchor(laboratory: Laboratory) -> None:
    workload = Workload(mask="dflash", queries=4, keys=12, draft=2)
    whole = mask_of(laboratory, workload)
    near = mask_of(laboratory, Workload(**{**workload.to_json(), "reach": 2}))
    assert [row[8:] for row in near] == [row[8:] for row in whole]
    for row, full in zip(near, whole, strict=True):
        anchor = len(full[:8].rstrip("."))
        assert row[:8] == ("." * max(anchor - 2, 0) + "x" * min(anchor, 2)).ljust(8, ".")
