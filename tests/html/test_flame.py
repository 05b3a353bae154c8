"""The flame graph holds all GPU time, each nanosecond once, below what launched it; what the script gets of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.html.pages import parsed
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.units import format_ns
from traceanalyzer.regions.regions import Regions
from traceanalyzer.render.html.redaction import NO_REDACTION, Redactor
from traceanalyzer.render.html.region_data import Region, RegionView, region_view
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


def test_without_gpu_work_there_is_none() -> None:
    made = TraceBuilder()
    made.op("aten::add", 0, 1_000)
    with pytest.raises(Unavailable):
        flame_of(Analysis(made.load()))


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


def regions(region: Region) -> Iterator[Region]:
    yield region
    for one in region.inside:
        yield from regions(one)


def view(name: str, **more: Any) -> RegionView:
    return region_view(analysed(FIXTURES / f"{name}.json.gz"), NO_REDACTION, **more)


def test_regions_of_a_page_cost_what_the_tree_says() -> None:
    analysis = analysed(FIXTURES / "implicit-sync" / "bad.json.gz")
    tree = analysis.index(Regions)
    found = list(regions(view("implicit-sync/bad").root))
    assert [one.name for one in found][:1] == ["step"]
    assert found[0].gpu_ns == round(tree.totals["gpu_ns"][0])
    assert found[0].cpu_ns == round(tree.totals["predicted_ns"][0])
    for one in found:
        assert one.gpu_ns >= sum(inner.gpu_ns for inner in one.inside) - len(one.inside)
        assert one.start_ns <= one.end_ns
    assert len(list(regions(view("implicit-sync/bad", most=5).root))) <= 6


def test_a_region_begins_where_its_first_op_does() -> None:
    """In the first step that is replayed, the second."""
    analysis = Analysis(two_steps().load())
    root = region_view(analysis, NO_REDACTION).root
    places = {one.name: (one.start_ns, one.end_ns) for one in regions(root)}
    origin = analysis.trace.meta.origin_ns
    assert places["aten::mm"] == (origin + 1_100_000, origin + 1_150_000)
    assert places["aten::add"] == (origin + 1_400_000, origin + 1_450_000)


def two_steps() -> TraceBuilder:
    """Each 1 ms, of a product and a sum; the product's kernel takes 100 us, the sum's 20."""
    made = TraceBuilder()
    for step in range(4):
        begin = step * 1_000_000
        made.step(step, begin, 1_000_000)
        for i, (name, at, ns) in enumerate((("aten::mm", 100_000, 100_000), ("aten::add", 400_000, 20_000))):
            made.op(name, begin + at, 50_000)
            made.launched((begin + at + 10_000, 5_000), (begin + at + 20_000, ns), 2 * step + i + 1)
    return made


LEAF = Region("aten::mm", "op", 5, 70, 1, 3.0, 1_100, 1_150, ())
ROOT = Region("step", "step", 9, 100, 4, 0.0, 1_000, 2_000, (replace(LEAF, kind="module", inside=(LEAF,)),))


def test_names_are_there_once_and_nodes_point_to_them() -> None:
    data = flame_data(RegionView(ROOT, (), 2_000, replayed=True), 1_000)
    assert data["names"] == ["step", "aten::mm"]
    assert data["kinds"] == ["step", "module", "op"]
    leaf = [1, 2, 5, 70, 1, 3.0, 100, 50, []]
    assert data["root"] == [0, 0, 9, 100, 4, 0.0, 0, 1_000, [[1, 1, 5, 70, 1, 3.0, 100, 50, [leaf]]]]


def test_the_legend_has_the_kinds_that_are_in_the_graph() -> None:
    page = parsed(str(flame(0, RegionView(ROOT, (), 2_000, replayed=True))).encode())
    looks = [str(one.attributes["class"]).split()[-1] for one in page.of_class("swatch")]
    assert looks == ["f-module", "f-op"]


def test_the_table_of_regions_has_forward_and_backward_apart() -> None:
    rows = view("healthy/train").rows
    assert rows[0].name == "forward and backward"
    assert 0 < rows[0].backward_gpu_ns < rows[0].gpu_ns
    assert 0 < rows[0].backward_cpu_ns < rows[0].cpu_ns
    page = parsed(str(flame(0, view("healthy/train"))).encode())
    cells = [one.text for one in page.elements if one.name in ("th", "td") and "tbody" in one.parents]
    assert cells[0] == "forward and backward"
    assert cells[2] == format_ns(rows[0].gpu_ns - rows[0].backward_gpu_ns)
    assert cells[3] == format_ns(rows[0].backward_gpu_ns)


def test_regions_of_the_user_are_shown_by_kind_on_request() -> None:
    analysis = Analysis(modules().load())
    names = {one.name for one in regions(region_view(analysis, Redactor({}, on=True)).root)}
    assert "[module]" in names
    assert not any("Model" in name or "Linear" in name for name in names)
