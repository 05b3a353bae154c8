"""What the script gets of the flame graph: names once, and what stands in the page without it."""

from __future__ import annotations

import pytest

from tests.html.pages import parsed
from traceanalyzer.render.html.timelines import flame, flame_data
from traceanalyzer.report.time_tree import Node

GEMM = "void at::native::gemm_kernel<float, 4>(float*, int)"
MODULE = "nn.Module: Linear_0"
ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def test_names_are_there_once_and_nodes_point_to_them() -> None:
    leaf = Node(GEMM, "kernel", 700, 3, [])
    tree = Node(
        "all", "all", 1_000, 5, [Node(MODULE, "module", 900, 4, [leaf]), Node(GEMM, "kernel", 100, 1, [])]
    )
    data = flame_data(tree)
    assert data is not None
    assert data["names"] == ["all", MODULE, GEMM]
    assert data["shorts"] == ["all", "Linear_0", "gemm_kernel"]
    assert data["kinds"] == ["all", "module", "kernel"]
    assert data["root"] == [0, 0, 1_000, 5, [[1, 1, 900, 4, [[2, 2, 700, 3, []]]], [2, 2, 100, 1, []]]]
    assert data["told"] == {}  # each is in what is shown


def test_similar_names_stay_distinct_and_searchable() -> None:
    kernels = [f"void at::native::gemm_kernel<{kind}, 4>(int)" for kind in ("float", "half")]
    data = flame_data(Node(ENGINE, "op", 2, 2, [Node(name, "kernel", 1, 1, []) for name in kernels]))
    assert data is not None
    assert data["names"] == [ENGINE, *kernels]
    first, *shorts = data["shorts"]
    assert first == "MmBackward0"
    assert ["float" in shorts[0], "half" in shorts[1]] == [True, True]
    assert len(set(shorts)) == 2


def test_kernel_is_named_as_in_findings() -> None:
    """Names of more than 160 characters lose their middle; of two that look alike the shorter keeps its beginning."""
    filled, far = "int, " * 30, "a::" * 30
    kernels = [f"void {far}hidden_kernel<{filled * 2}int>(int)"]
    kernels += [
        f"void {'b' * 30}::gemm_kernel<{filled}{kind}, {filled}int>(int)" for kind in ("float", "half")
    ]
    alone = flame_data(Node("all", "all", 1, 1, [Node(kernels[0], "kernel", 1, 1, [])]))
    both = flame_data(Node("all", "all", 2, 2, [Node(name, "kernel", 1, 1, []) for name in kernels[1:]]))
    assert alone is not None
    assert both is not None
    assert ("hidden_kernel" in alone["names"][1], "hidden_kernel" in alone["shorts"][1]) == (False, True)
    assert alone["told"] == {}
    assert ["gemm_kernel" in name for name in both["names"]] == [False, True, True]
    assert ["gemm_kernel" in name for name in both["shorts"]] == [False, False, False]
    assert both["told"] == {}


def test_the_largest_eight_branches_stand_there_without_scripts() -> None:
    tree = Node(
        "all", "all", 45_000, 9, [Node(f"op{at}", "op", 9_000 - 1_000 * at, 1, []) for at in range(9)]
    )
    page = parsed(str(flame(3, tree)).encode())
    branches = [
        one.text
        for one in page.elements
        if one.name == "li" and one.text.startswith("op") and "µs" in one.text
    ]
    assert branches == [f"op{at} {9 - at}.00 µs" for at in range(8)]


@pytest.mark.parametrize(
    ("kinds", "legend"),
    [
        (("op",), ["op"]),
        (("copy", "op", "module", "other"), ["module", "op", "copy"]),
        (
            ("memset", "kernel", "annotation", "communication"),
            ["annotation", "kernel", "communication", "memset"],
        ),
    ],
)
def test_the_legend_has_the_kinds_that_are_anywhere_in_the_graph(
    kinds: tuple[str, ...], legend: list[str]
) -> None:
    """In one order; with those of the CPU's graph and of idle time."""
    tree = Node("all", "all", 1, 1, [])
    for kind in kinds:
        tree = Node("all", "all", 1, 1, [Node("x", kind, 1, 1, [tree])])
    page = parsed(str(flame(0, tree)).encode())
    looks = [str(one.attributes["class"]).split()[-1] for one in page.of_class("swatch")]
    assert looks == [*(f"f-{kind}" for kind in legend), "f-call", "f-idle"]
