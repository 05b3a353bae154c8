"""Which work of two recordings counts as the same, rung by rung."""

from __future__ import annotations

from typing import Any

import pytest

from tests.comparison.programs import pairs


def test_what_a_rung_leaves_is_matched_by_as_many_executions_as_are_left() -> None:
    """Six of ten run the same kernel and four another: nothing is left, and nothing counts twice."""
    assert pairs([{}], [{"count": 6.0}, {"kernel": "other", "count": 4.0}]) == [
        ("path", {0: 0.6}, {0: 1.0}),
        ("path", {0: 0.4}, {1: 1.0}),
    ]


@pytest.mark.parametrize("more", ["base", "new"])
def test_a_remainder_that_nothing_matches_goes_to_the_first_pair_of_its_row(more: str) -> None:
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


def test_kernels_of_other_ops_are_paired_with_those_on_a_grid_of_about_their_size() -> None:
    """Of as many bits: 100 blocks are like 64 and like 127, and unlike 63 and 128."""
    for alike, unlike in ((64, 63), (127, 128)):
        new = [
            {"outer": name, "op": name, "dims": "", "blocks": size}
            for name, size in (("a", unlike), ("b", alike))
        ]
        assert pairs([{}], new)[0] == ("kernel", {0: 1.0}, {1: 1.0})


@pytest.mark.parametrize(("kind", "rung"), [("copy_d2d", "family"), ("copy_h2d", "none")])
def test_a_kernel_may_take_the_place_of_a_copy_on_the_device_and_of_none_over_the_link(
    kind: str, rung: str
) -> None:
    copy = {"outer": "aten::copy_", "op": "aten::copy_", "kernel": "Memcpy", "kind": kind}
    kernel = {"outer": "aten::clone", "op": "aten::clone", "kernel": "direct_copy_kernel"}
    assert [one[0] for one in pairs([copy], [kernel])] == ([rung] if rung == "family" else ["none", "none"])


def test_regions_hold_all_that_is_left_in_them_whatever_its_number() -> None:
    """Blocks of one name whose kernels all differ: two rows a step against one that runs nine times."""
    base = [{"annotation": "block", "outer": name, "op": name, "kernel": name} for name in ("a", "b")]
    new = [{"annotation": "block", "outer": "c", "op": "c", "kernel": "c", "count": 9.0}]
    assert pairs(base, new) == [("region", {0: 1.0, 1: 1.0}, {0: 1.0})]


def test_what_nothing_matches_is_told_op_by_op_and_without_an_op_by_kernel() -> None:
    ops = [{"kernel": name} for name in ("x", "y")]
    kernels = [{"outer": "", "op": "", "kernel": name} for name in ("x", "y")]
    assert pairs([*ops, *kernels], []) == [
        ("none", {0: 1.0, 1: 1.0}, {}),
        ("none", {2: 1.0}, {}),
        ("none", {3: 1.0}, {}),
    ]
