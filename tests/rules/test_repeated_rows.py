"""Copies that write the same rows several times: small built traces."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.kernel_programs import BF16, NVJET, Op, found, program
from tests.rules.test_kernel_patterns import EXPANDED, MOVED, copied


def test_reports_the_count_of_the_most_expensive_copies() -> None:
    """One of 90 us writes each element four times, two of 10 us twice."""
    dims = [[24, 8, 2, 512, 64], [24, 8, 2, 512, 64], []]
    strides = [[524288, 65536, 32768, 64, 1], EXPANDED, []]
    short = Op("aten::copy_", MOVED, 10, dims, [BF16, BF16, "Scalar"], strides=strides)
    copies = [replace(copied(*EXPANDED), dur=90), short, short]
    (one,) = found(program([*copies, Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert (one.count, one.evidence["often"]) == (18, "4 times")


def test_a_row_that_multinomial_copies_is_drawn_from_as_it_is() -> None:
    copy = replace(copied(*EXPANDED), inside="aten::multinomial")
    (one,) = found(program([copy, Op("aten::mm", NVJET, 100)]), "strided-copy")
    assert "draw all samples from the one row" in one.advice
    (both,) = found(program([copy, replace(copy, inside="aten::clone")]), "strided-copy")
    assert "draw all samples from the one row" not in both.advice


def test_requested_copies_may_write_parts_without_strides() -> None:
    own = replace(copied(262144, 32768, 64, 256, 1), strides=[])
    assert found(program([own, Op("aten::mm", NVJET, 100)]), "strided-copy") == []
    (inner,) = found(
        program([replace(own, inside="aten::contiguous"), Op("aten::mm", NVJET, 100)]), "strided-copy"
    )
    assert inner.cause == "transposition"
