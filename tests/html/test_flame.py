"""The flame graph holds all GPU time, each nanosecond once, below what launched it; what the script gets of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.html.pages import parsed
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.render.html.timelines import flame, flame_data
from traceanalyzer.report.time_tree import NO_OP, OUTSIDE, Node, flame_of, flame_of_cpu, flame_of_idle
from traceanalyzer.report.words import in_words
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.nesting import Nesting


def paths(node: Node, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """(names from the outermost, ns) of every leaf."""
    for one in node.inside:
        yield from paths(one, (*above, one.name))
    if not node.inside:
        yield above, node.ns


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for one in node.inside:
        yield from nodes(one)


@pytest.mark.parametrize(
    "name", ["implicit-sync/bad", "unfused-optimizer/bad", "compile/bad", "healthy/tuned"]
)
def test_every_nanosecond_is_in_one_leaf(name: str) -> None:
    path = FIXTURES / f"{name}.json.gz"
    if not path.exists():
        path = sorted((FIXTURES / "healthy").glob("*.json.gz"))[0]
    root = flame_of(analysed(path))
    work = analysed(path).index(Work)
    assert root.ns == work.total_ns == sum(ns for _, ns in paths(root))
    assert root.count == len(work)
    for node in nodes(root):
        if node.inside:
            assert node.ns == sum(one.ns for one in node.inside)
            assert node.count == sum(one.count for one in node.inside)
        large = [one.ns for one in node.inside if one.kind != "other"]
        assert large == sorted(large, reverse=True)


@pytest.mark.parametrize("name", ["implicit-sync/bad", "unfused-optimizer/bad"])
def test_leaves_are_the_kernels_below_their_ops(name: str) -> None:
    """Against a plain walk from each piece of work to the outermost op."""
    analysis = analysed(FIXTURES / f"{name}.json.gz")
    work = analysis.index(Work)
    expected: dict[tuple[str, ...], int] = {}
    parent, names = work.events.nesting.parent, analysis.trace.cpu["name"].astype(str).tolist()
    annotation, op = work.events.nesting.annotation, work.events.nesting.op
    for row, kernel, ns in zip(work.op.rows.tolist(), work.name.values(), work.dur_ns.tolist(), strict=True):
        chain = []
        while row >= 0:
            shown = (op[row] == row or annotation[row]) and not names[row].startswith(
                ("ProfilerStep#", "autograd::engine::evaluate_function: ")
            )
            chain += [names[row]] * shown
            row = int(parent[row])
        key = (*(chain[::-1] or [NO_OP]), str(kernel))
        expected[key] = expected.get(key, 0) + ns
    found = dict(paths(flame_of(analysis)))
    assert {key: ns for key, ns in found.items() if "other" not in key}.items() <= expected.items()
    assert sum(found.values()) == sum(expected.values())
    assert len([key for key in found if "other" not in key]) > 3


def modules() -> TraceBuilder:
    """A linear layer within a model, with python's frames; and work of no op."""
    made = TraceBuilder(with_stack=1)
    made.python("train.py(3): step", 0, 1_000_000, python_id=1)
    made.python("nn.Module: Model_0", 1_000, 900_000, python_id=2, parent=1)
    made.python("nn.Module: Linear_0", 2_000, 300_000, python_id=3, parent=2)
    made.annotation("forward", 500, 950_000)
    for i, start in enumerate((5_000, 400_000)):
        made.op("aten::linear", start, 100_000)
        made.launched((start + 10_000, 5_000), (start + 50_000, 10_000 * (i + 1)), i + 1, name="gemm")
    made.kernel(960_000, 7_000, 99, name="lost")
    return made


def test_modules_are_above_ops() -> None:
    found = dict(paths(flame_of(Analysis(modules().load()))))
    model, layer = "nn.Module: Model_0", "nn.Module: Linear_0"
    assert found == {
        ("forward", model, layer, "aten::linear", "gemm"): 10_000,
        ("forward", model, "aten::linear", "gemm"): 20_000,
        (NO_OP, "lost"): 7_000,
    }


def test_small_frames_are_one_and_deep_ones_end() -> None:
    made = TraceBuilder()
    for i in range(500):
        at = i * 100_000
        made.op(f"aten::op{i}", at, 50_000)
        made.launched((at + 1_000, 5_000), (at + 10_000, 10_000 + i), i + 1)
    begin = 60_000_000
    for depth in range(200):
        made.op(f"aten::deep{depth}", begin + depth, 1_000_000 - 2 * depth)
    made.launched((begin + 5_000, 5_000), (begin + 10_000, 50_000_000), 1_000)
    analysis = Analysis(made.load())
    root = flame_of(analysis, 100)
    assert len(list(nodes(root))) < 300
    assert root.ns == analysis.index(Work).total_ns == sum(ns for _, ns in paths(root))
    assert max(len(path) for path, _ in paths(root)) <= 70
    data = flame_data(root)
    assert data is not None
    assert data["root"][2] == root.ns
    assert len(data["names"]) == len(data["shorts"])


def test_without_gpu_work_there_is_none() -> None:
    made = TraceBuilder()
    made.op("aten::add", 0, 1_000)
    with pytest.raises(Unavailable):
        flame_of(Analysis(made.load()))
    assert flame_data(None) is None


def test_copies_and_memsets_are_no_kernels() -> None:
    """Each piece of work has the kind that is drawn for it; together they are all GPU time."""
    path = FIXTURES / "exposed-copy" / "bad.json.gz"
    root = flame_of(analysed(path))
    sums: dict[str, int] = {}
    for node in nodes(root):
        if not node.inside:
            sums[node.kind] = sums.get(node.kind, 0) + node.ns
            assert (node.kind == "copy") == node.name.startswith("Memcpy"), node
    assert sums["copy"] > 0
    assert sums["kernel"] > 0
    assert sum(sums.values()) == root.ns
    drawn = str(flame(0, root))
    assert "f-copy" in drawn
    assert "f-communication" not in drawn


@pytest.mark.parametrize("name", ["implicit-sync/bad", "launch-bound/bad"])
def test_cpu_time_is_each_row_s_own_once(name: str) -> None:
    analysis = analysed(FIXTURES / f"{name}.json.gz")
    nesting = analysis.index(Nesting)
    root = flame_of_cpu(analysis)
    inside = nesting.thread >= 0
    assert root.ns == int(nesting.self_ns[inside].sum())
    for node in nodes(root):
        assert node.ns >= sum(one.ns for one in node.inside)
    names = {node.name for node in nodes(root)}
    assert OUTSIDE in names
    assert not any(one.startswith("ProfilerStep") for one in names)
    assert {node.kind for node in nodes(root)} >= {"op", "call"}


@pytest.mark.parametrize("name", ["implicit-sync/bad", "launch-bound/bad"])
def test_idle_time_is_that_of_the_books_by_cause(name: str) -> None:
    analysis = analysed(FIXTURES / f"{name}.json.gz")
    parts = analysis.index(Accounting).parts_ns(analysis.index(Idle))
    idle = {in_words(cause): ns for cause, ns in parts.items() if cause.startswith("idle:")}
    root = flame_of_idle(analysis)
    assert root.ns == sum(idle.values())
    found: dict[str, int] = {}
    for node in nodes(root):
        if node.kind == "idle":
            found[node.name] = found.get(node.name, 0) + node.ns
    assert all(ns <= idle[cause] for cause, ns in found.items())
    largest = max(idle, key=lambda cause: idle[cause])
    assert found[largest] == pytest.approx(idle[largest], rel=0.02)


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
