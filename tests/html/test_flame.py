"""The flame graph holds all GPU time, each nanosecond once, below what launched it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
        made.launch("cudaLaunchKernel", start + 10_000, 5_000, i + 1)
        made.kernel(start + 50_000, 10_000 * (i + 1), i + 1, name="gemm")
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
        made.launch("cudaLaunchKernel", at + 1_000, 5_000, i + 1)
        made.kernel(at + 10_000, 10_000 + i, i + 1)
    begin = 60_000_000
    for depth in range(200):
        made.op(f"aten::deep{depth}", begin + depth, 1_000_000 - 2 * depth)
    made.launch("cudaLaunchKernel", begin + 5_000, 5_000, 1_000)
    made.kernel(begin + 10_000, 50_000_000, 1_000)
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
