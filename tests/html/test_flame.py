"""The flame graph of regions: what the script gets of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.html.pages import parsed
from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.region_programs import modules_above_ops
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.units import format_ns
from traceanalyzer.regions.regions import Regions
from traceanalyzer.render.html.redaction import NO_REDACTION, Redactor
from traceanalyzer.render.html.region_data import Region, RegionView, region_view
from traceanalyzer.render.html.timelines import flame, flame_data


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
    analysis = Analysis(modules_above_ops().load())
    names = {one.name for one in regions(region_view(analysis, Redactor({}, on=True)).root)}
    assert "[module]" in names
    assert not any("Model" in name or "Linear" in name for name in names)
