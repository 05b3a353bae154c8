"""Flame graphs for speedscope hold all time, each nanosecond once, below what launched or spent it."""

import json

import pytest

from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from tests.support.region_programs import modules_above_ops
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.data import speedscope
from traceanalyzer.render.data.speedscope import NO_OP, OTHER, OUTSIDE, render_speedscope
from traceanalyzer.report.words import in_words
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.nesting import Nesting

Stacks = dict[tuple[str, ...], int]


def drawn(trace: Trace, graph: str) -> Stacks:
    """Stack of names -> ns."""
    document = json.loads(render_speedscope({None: trace}))
    names = [frame["name"] for frame in document["shared"]["frames"]]
    (profile,) = (one for one in document["profiles"] if one["name"] == f"all {graph}")
    stacks = [tuple(names[number] for number in stack) for stack in profile["samples"]]
    assert len(set(stacks)) == len(stacks)
    assert profile["endValue"] == sum(profile["weights"])
    return dict(zip(stacks, profile["weights"], strict=True))


@pytest.mark.parametrize("name", ["implicit-sync", "unfused-optimizer"])
def test_kernels_are_below_the_ops_that_launched_them(name: str) -> None:
    """Against a plain walk from each piece of work to the outermost op."""
    analysis = analysed(FIXTURES / name / "bad.json.gz")
    work = analysis.index(Work)
    expected: Stacks = {}
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
    assert drawn(analysis.trace, "GPU work") == expected


def test_modules_are_above_ops() -> None:
    model, layer = "nn.Module: Model_0", "nn.Module: Linear_0"
    assert drawn(modules_above_ops().load(), "GPU work") == {
        ("forward", model, layer, "aten::linear", "gemm"): 10_000,
        ("forward", model, "aten::linear", "gemm"): 20_000,
        (NO_OP, "lost"): 7_000,
    }


def test_cpu_time_is_each_row_s_own_and_calls_are_leaves() -> None:
    """The step only wraps others; a call that no op makes is outside of them."""
    made = TraceBuilder()
    made.step(1, 0, 300_000)
    made.annotation("phase", 0, 100_000)
    made.op("aten::mm", 10_000, 60_000)
    made.launch("cudaLaunchKernel", 20_000, 15_000, 1)
    made.launch("cudaDeviceSynchronize", 200_000, 30_000, 2)
    assert drawn(made.load(), "CPU time") == {
        ("phase",): 40_000,
        ("phase", "aten::mm"): 45_000,
        ("phase", "aten::mm", "cudaLaunchKernel"): 15_000,
        (OUTSIDE,): 170_000,
        (OUTSIDE, "cudaDeviceSynchronize"): 30_000,
    }


@pytest.mark.parametrize("name", ["implicit-sync", "launch-bound"])
def test_each_graph_has_all_time_of_its_kind(name: str) -> None:
    analysis = analysed(FIXTURES / name / "bad.json.gz")
    nesting = analysis.index(Nesting)
    assert sum(drawn(analysis.trace, "CPU time").values()) == nesting.self_ns[nesting.thread >= 0].sum()
    parts = analysis.index(Accounting).parts_ns(analysis.index(Idle))
    expected = {in_words(cause): ns for cause, ns in parts.items() if cause.startswith("idle:") and ns}
    idle: dict[str, int] = {}
    for (*_, cause), ns in drawn(analysis.trace, "idle time").items():
        idle[cause] = idle.get(cause, 0) + ns
    assert idle == expected


def test_deep_ops_and_small_stacks_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten ops the three longest kernels stay; 200 ops in one another are drawn as 64."""
    monkeypatch.setattr(speedscope, "_MOST_STACKS", 3)
    made = TraceBuilder()
    for i in range(9):
        made.op(f"aten::op{i}", i * 100_000, 50_000)
        made.launched((i * 100_000 + 1_000, 5_000), (i * 100_000 + 10_000, 10_000 + i), i + 1, name="kernel")
    for depth in range(200):
        made.op(f"aten::deep{depth}", 1_000_000 + depth, 1_000_000 - 2 * depth)
    made.launched((1_005_000, 5_000), (1_010_000, 50_000), 1_000, name="kernel")
    deep = tuple(f"aten::deep{depth}" for depth in range(64))
    assert drawn(made.load(), "GPU work") == {
        ("aten::op7", "kernel"): 10_007,
        ("aten::op8", "kernel"): 10_008,
        (*deep, "kernel"): 50_000,
        (OTHER,): sum(10_000 + i for i in range(7)),
    }
