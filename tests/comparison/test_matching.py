"""Which work of two recordings counts as the same, rung by rung."""

from __future__ import annotations

from typing import Any

import pytest

from tests.comparison.programs import pairs


def test_rest_of_a_rung_is_matched_by_remaining_executions() -> None:
    """Six of ten run the same kernel and four another: nothing is left, and nothing counts twice."""
    assert pairs([{}], [{"count": 6.0}, {"kernel": "other", "count": 4.0}]) == [
        ("path", {0: 0.6}, {0: 1.0}),
        ("path", {0: 0.4}, {1: 1.0}),
    ]


@pytest.mark.parametrize("more", ["base", "new"])
def test_unmatched_remainder_goes_to_its_rows_first_pair(more: str) -> None:
    many: list[dict[str, Any]] = [{}]
    few = [{"count": 6.0}, {"kernel": "other", "count": 3.0}]
    told = pairs(many, few) if more == "base" else pairs(few, many)
    large, small = [{0: 0.7}, {0: 0.3}], [{0: 1.0}, {1: 1.0}]
    sides = (large, small) if more == "base" else (small, large)
    assert told == [("path", sides[0][at], sides[1][at]) for at in (0, 1)]


@pytest.mark.parametrize(
    ("changed", "rung"),
    [
        ({"kernel": "other", "blocks": 7}, "path"),
        ({"outer": "aten::matmul", "types": "half"}, "op"),
        ({"outer": "aten::matmul", "kernel": "other"}, "op"),
        ({"op": "aten::addmm", "dims": "[9]"}, "kernel"),
        ({"outer": "aten::matmul", "kernel": "other", "dims": "[9]"}, "region"),  # the same inner op
        ({"op": "aten::addmm", "kernel": "other"}, "region"),  # the same outer op
        ({"outer": "aten::addmm", "op": "aten::addmm", "kernel": "sgemm"}, "family"),
        ({"outer": "aten::add", "op": "aten::add", "kernel": "softmax"}, "none"),
        ({"kind": "communication"}, "none"),
    ],
)
def test_work_is_the_same_by_the_most_that_it_has_in_common(changed: dict[str, Any], rung: str) -> None:
    told = pairs([{}], [changed])
    assert told == (
        [("none", {0: 1.0}, {}), ("none", {}, {0: 1.0})] if rung == "none" else [(rung, {0: 1.0}, {0: 1.0})]
    )


def test_kernels_of_other_ops_pair_by_similar_grid() -> None:
    """Of as many bits: 100 blocks are like 64 and like 127, and unlike 63 and 128."""
    for alike, unlike in ((64, 63), (127, 128)):
        new = [
            {"outer": name, "op": name, "dims": "", "blocks": size}
            for name, size in (("a", unlike), ("b", alike))
        ]
        assert pairs([{}], new)[0] == ("kernel", {0: 1.0}, {1: 1.0})


@pytest.mark.parametrize(("kind", "rung"), [("copy_d2d", "family"), ("copy_h2d", "none")])
def test_kernel_may_replace_a_device_copy_but_no_link_copy(kind: str, rung: str) -> None:
    copy = {"outer": "aten::copy_", "op": "aten::copy_", "kernel": "Memcpy", "kind": kind}
    kernel = {"outer": "aten::clone", "op": "aten::clone", "kernel": "direct_copy_kernel"}
    assert [one[0] for one in pairs([copy], [kernel])] == ([rung] if rung == "family" else ["none", "none"])


def test_regions_hold_all_that_is_left_in_them() -> None:
    """Blocks of one name whose kernels all differ: two rows a step against one that runs nine times."""
    base = [{"annotation": "block", "outer": name, "op": name, "kernel": name} for name in ("a", "b")]
    new = [{"annotation": "block", "outer": "c", "op": "c", "kernel": "c", "count": 9.0}]
    assert pairs(base, new) == [("region", {0: 1.0, 1: 1.0}, {0: 1.0})]


def test_unmatched_work_is_listed_by_op_or_else_by_kernel() -> None:
    ops = [{"kernel": name} for name in ("x", "y")]
    kernels = [{"outer": "", "op": "", "kernel": name} for name in ("x", "y")]
    assert pairs([*ops, *kernels], []) == [
        ("none", {0: 1.0, 1: 1.0}, {}),
        ("none", {2: 1.0}, {}),
        ("none", {3: 1.0}, {}),
    ]
