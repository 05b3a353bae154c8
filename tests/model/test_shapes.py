"""Sizes in JSON text, and what stands in their place in damaged traces."""

from __future__ import annotations

import pytest

from traceanalyzer.model.shapes import elements_of, product_of, shapes_of, sizes_of


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[4096,768],[768]]", [(4096, 768), (768,)]),
        ("[[[8],[4,2]],[]]", [(8,), (4, 2)]),
        ('[[2,"a"],[3]]', [(3,)]),
        ("[[0,3],[0]]", [(0, 3), (0,)]),
        ("[[2.5],[true],[-1],[null],7]", []),
        ("7", []),
        ("[", []),
    ],
)
def test_shapes_are_those_of_tensors_and_of_lists_of_them(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert shapes_of(text) == shapes


@pytest.mark.parametrize(
    ("text", "product"),
    [
        ("[132,2,1]", 264),
        ("[0,1,1]", 0),
        ('["",1]', 0),
        ("[null]", 0),
        ("1.5", 0),
        ("[[1]]", 0),
        ("[]", 0),
        ("", 0),
        ("[4294967296,4294967296]", 2**62),
    ],
)
def test_a_product_is_zero_where_there_are_no_sizes(text: str, product: int) -> None:
    assert product_of(text) == product


@pytest.mark.parametrize(("text", "sizes"), [("[132,0,1]", (132, 0, 1)), ("[-1]", ()), ("[]", ()), ("", ())])
def test_sizes_are_those_of_one_list(text: str, sizes: tuple[int, ...]) -> None:
    assert sizes_of(text) == sizes


def test_elements_fit_a_column() -> None:
    assert elements_of((3, 4)) == 12
    assert elements_of((2**40, 2**40)) == 2**62
