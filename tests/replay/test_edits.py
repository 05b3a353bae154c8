"""Each edit on a small program, on traces, and beside waits between streams: what is left of the step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay.programs import STEP_NS, Loop, forecast, program, replay
from tests.support.cached_reports import analysed, reported
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Saving
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edited_program import EditedProgram
from traceanalyzer.replay.edits import (
    Drop,
    DropSpans,
    DropWork,
    Insert,
    MoveToSideStream,
    ReadLater,
    Resize,
    Scale,
    ShrinkGaps,
    Wait,
)
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.rewrites import Batch, Compile, Fuse, GraphLaunch, Replace
from traceanalyzer.replay.schedule import Schedules


def saved(built: Program, *edits: object) -> float:
    """Nanoseconds a step, on a CPU that the profiler does not slow."""
    return replay(built, slowdown=1.0).ns - replay(built, edits, slowdown=1.0).ns  # type: ignore[arg-type]


def rows(trace: Trace, name: str) -> np.ndarray:
    return np.flatnonzero((trace.cpu["name"] == name).to_numpy())


def cpu_bound() -> Trace:
    """Twenty ops of 20 us with 10 us between, and then a pause of 400: the CPU is the step."""
    loop = Loop()
    for at in range(0, 600_000, 30_000):
        loop.op("aten::mul" if at % 60_000 else "aten::add", at + 10_000, 3_000)
    return loop.load()


def gpu_bound() -> Trace:
    """Ten kernels of 150 us a step of 1 ms: the GPU is the step."""
    loop = Loop()
    for at in range(0, 300_000, 30_000):
        loop.op("aten::mm", at + 10_000, 150_000)
    return loop.load()


def test_dropping_an_op_saves_its_time_and_the_python_around_it() -> None:
    trace = cpu_bound()
    built = program(trace)
    assert built.segments.usual_gap_ns == 10_000
    assert saved(built, Drop(rows(trace, "aten::add"))) == pytest.approx(10 * 30_000, rel=0.04)
    assert saved(built, Drop(rows(trace, "aten::add"), leaving_ns=1_000)) == pytest.approx(10 * 29_000, rel=0.04)


def test_dropping_spans_is_dropping_what_lies_in_them() -> None:
    trace = cpu_bound()
    built = program(trace)
    mine = rows(trace, "aten::add")
    spans = built.row_start_ns[mine], built.row_end_ns[mine]
    assert saved(built, DropSpans(*spans)) == saved(built, Drop(mine))


def test_dropping_a_wait_lets_cpu_and_gpu_overlap() -> None:
    loop = Loop()
    loop.op("aten::mm", 100_000, 500_000)
    loop.sync(200_000, 430_000)
    trace = loop.load()
    built = program(trace)
    mine = rows(trace, "cudaDeviceSynchronize")
    assert saved(built, Drop(mine)) == pytest.approx(499_000, rel=0.03)
    assert replay(built, [Drop(mine)]).bound == "gpu"
    # The Python around it stays: of a step of 1 ms, all but the 430 us of the wait.
    assert saved(built, ReadLater(mine)) == pytest.approx(430_000, rel=0.02)


def test_cold_run_takes_as_long_as_its_quicker_equal() -> None:
    loop = Loop()
    for at in range(0, 400_000, 30_000):
        loop.op("aten::mul", at + 10_000, 3_000)
    loop.sync(450_000, 100_000, name="cudaMalloc")
    loop.op("aten::mul", 560_000, 3_000, dur=100_000)
    trace = loop.load()
    dropped = [Drop(rows(trace, "cudaMalloc"))]
    assert saved(program(trace), *dropped) > 150_000
    assert "80.0 µs a step of it is what ran cold after it" in forecast(trace).saving(dropped).basis
    assert "cold" not in forecast(trace).saving([Drop(rows(trace, "aten::mul")[:1])]).basis


def test_cold_run_costs_no_more_than_the_stall() -> None:
    """Long ops that follow may be long of themselves: a saving is not larger than what was spent."""
    loop = Loop()
    for at in range(0, 400_000, 30_000):
        loop.op("aten::mul", at + 10_000, 3_000)
    loop.sync(450_000, 60_000, name="cudaMalloc")
    for at in (511_000, 560_000, 610_000):
        loop.op("aten::mul", at, 3_000, dur=48_000)
    trace = loop.load()
    edited = EditedProgram(program(trace))
    stall = edited.of_rows(rows(trace, "cudaMalloc"))
    took, before = edited.cpu_ns[stall].sum(), edited.cpu_ns.copy()
    edited.drop(stall)
    ops = ~stall & ~edited.program.segments.gap
    assert (before - edited.cpu_ns)[ops].sum() == pytest.approx(took)
    assert edited.quickened_ns == pytest.approx(took)


def test_resizing_and_scaling_work_shorten_a_gpu_bound_step() -> None:
    built = program(gpu_bound())
    assert replay(built).bound == "gpu"
    every = built.work.entry
    assert saved(built, Scale(every, 0.8)) == pytest.approx(10 * 30_000, rel=0.01)
    assert saved(built, Resize(every, 120_000.0)) == pytest.approx(10 * 30_000, rel=0.01)
    assert saved(built, Resize(every[:1], [120_000.0])) == pytest.approx(30_000 / 3, rel=0.01)


def test_entries_outside_the_sample_are_passed_over() -> None:
    built = program(gpu_bound())
    assert 0 not in built.work.entry
    assert saved(built, Scale([0], 0.0)) == 0


def test_dropping_work_drops_its_launch() -> None:
    built = program(gpu_bound())
    edited = EditedProgram(built)
    DropWork(built.work.entry[:1]).apply(edited)
    assert not edited.alive[0]
    assert not edited.kept[built.launch[0]]
    assert saved(built, DropWork(built.work.entry[::5])) == pytest.approx(2 * 151_000, rel=0.01)


def test_aside_takes_work_out_of_its_streams_way() -> None:
    loop = Loop()
    for at in range(0, 300_000, 30_000):
        loop.op("aten::mm" if at else "aten::copy_", at + 10_000, 150_000)
    built = program(loop.load())
    first = built.work.entry[::10]
    assert saved(built, MoveToSideStream(first)) == pytest.approx(151_000, rel=0.01)
    assert saved(built, MoveToSideStream(first, 5_000_000.0)) < 0  # then the side stream is the step


def test_moved_copies_wait_for_nothing_and_block_nothing() -> None:
    """Both ends of every edge between streams, one after the other: then others of its stream wait."""
    built = analysed(FIXTURES / "exposed-copy" / "good.json.gz").index(Program)
    to, source = built.work.edge_to, built.work.edge_from
    assert len(to)
    for moved in np.union1d(to, source):
        edited = EditedProgram(built)
        MoveToSideStream(built.work.entry[[moved]]).apply(edited)
        left = np.concatenate(Schedules(edited)._edges)
        assert len(left)
        assert moved not in left
        assert (edited.stream[moved], edited.streams) == (built.work.streams, built.work.streams + 1)


def test_gaps_shrink_to_the_usual_one() -> None:
    loop = Loop()
    for at in (*range(0, 300_000, 30_000), *range(600_000, 1_000_000, 30_000)):
        loop.op("aten::mul", at + 10_000, 3_000)
    trace = loop.load()
    built = program(trace)
    starts = np.array([begin + 300_000 for begin in loop.begins])
    expected = 310_000 - 10_000
    assert saved(built, ShrinkGaps(starts, starts + 310_000)) == pytest.approx(expected, rel=0.05)


def test_work_after_a_shrunk_gap_is_a_sixth_quicker_at_most() -> None:
    loop = Loop()
    for at in (*range(0, 300_000, 30_000), *range(600_000, 1_000_000, 30_000)):
        loop.op("aten::mul", at + 10_000, 3_000, dur=28_000 if at == 600_000 else 20_000)
    built = program(loop.load())
    starts = np.array([begin + 300_000 for begin in loop.begins])
    less = saved(built, ShrinkGaps(starts, starts + 310_000)) - (310_000 - 10_000)
    assert 0 < less <= 28_000 / 6


def test_inserting_costs() -> None:
    trace = cpu_bound()
    added = rows(trace, "aten::add")
    for some in (added, np.concatenate((added, added))):  # what is named twice pays once
        assert saved(program(trace), Insert(some, 2_000)) == pytest.approx(-10 * 2_000)


def test_a_wait_that_is_added_lets_the_cpu_see_the_work_done() -> None:
    loop = Loop()
    for at in range(0, 600_000, 30_000):
        loop.op("aten::mul" if at % 300_000 else "aten::add", at + 10_000, 28_000)
    first, built = rows(trace := loop.load(), "aten::add"), program(trace)
    assert saved(built, Wait(first, 2_000)) < saved(built, Insert(first, 2_000)) <= -2_000


def test_replacing_keeps_given_kernels_and_time() -> None:
    trace = cpu_bound()
    built = program(trace)
    begin = np.array([STEP_NS, 2 * STEP_NS, 3 * STEP_NS])
    edit = Replace(begin + 10_000, begin + 600_000, [40_000.0, 50_000.0], 25_000)
    edited = EditedProgram(built)
    edit.apply(edited)
    assert (edited.dur_ns[edited.alive] == 40_000).sum() == 3
    assert (edited.dur_ns[edited.alive] == 50_000).sum() == 3
    assert saved(built, edit) == pytest.approx(590_000 - 25_000, rel=0.03)


def test_fused_kernels_take_the_shortest_time_of_their_size() -> None:
    built = program(gpu_bound())
    step = built.timeline.step[built.launch]
    edited = EditedProgram(built)
    built.work.dur_ns[step == 0] *= np.array([1, 0.5, 0.01, 1, 1, 1, 1, 1, 1, 1])
    Fuse(built.work.entry, step).apply(edited)
    assert edited.alive.sum() == 3
    Fuse(built.work.entry, step).apply(fresh := EditedProgram(built))
    assert fresh.dur_ns[fresh.alive].tolist() == [75_000.0, 150_000.0, 150_000.0]
    Fuse(built.work.entry, step, [1.0, 2.0, 3.0]).apply(given := EditedProgram(built))
    assert given.dur_ns[given.alive].tolist() == [1.0, 2.0, 3.0]


def test_fusing_nothing_changes_nothing() -> None:
    assert saved(program(gpu_bound()), Fuse([], [])) == 0


def test_a_graph_is_one_launch_and_kernels_back_to_back() -> None:
    step = replay(program(cpu_bound()), [GraphLaunch()], slowdown=1.0)
    assert step.cpu_ns == pytest.approx(8_000 + 20 * 30 + 400_000, rel=0.05)  # the pause is no graph's
    assert step.gpu_ns == pytest.approx(20 * 3_100, rel=0.01)


def test_compiling_costs_its_wrapper() -> None:
    built = program(cpu_bound())
    step = replay(built, [Compile(built.work.entry)], slowdown=1.0)
    assert step.cpu_ns == pytest.approx(50_000 + 13_000 + 400_000, rel=0.05)
    assert step.gpu_ns == pytest.approx(3_000, rel=0.5)


def test_of_a_batch_the_first_stays() -> None:
    trace = cpu_bound()
    built = program(trace)
    mine = rows(trace, "aten::add")
    starts = built.row_start_ns[mine]
    edit = Batch(starts, built.row_end_ns[mine], starts // STEP_NS)
    assert saved(built, edit) == pytest.approx(9 * 30_000, rel=0.04)


def test_edits_add_up_without_counting_twice() -> None:
    trace = cpu_bound()
    built = program(trace)
    add, mul = Drop(rows(trace, "aten::add")), Drop(rows(trace, "aten::mul"))
    assert saved(built, add, add) == saved(built, add)
    both = saved(built, add, mul)
    assert max(saved(built, add), saved(built, mul)) < both <= STEP_NS


def test_the_program_is_never_changed() -> None:
    trace = cpu_bound()
    built = program(trace)
    before = built.segments.cpu_ns.copy(), built.work.dur_ns.copy()
    saved(built, Drop(rows(trace, "aten::add")), GraphLaunch(), Scale(built.work.entry, 0.1))
    assert np.array_equal(before[0], built.segments.cpu_ns)
    assert np.array_equal(before[1], built.work.dur_ns)


def test_edits_know_their_kind() -> None:
    trace = cpu_bound()
    known = forecast(trace)
    narrow = known.saving([Scale(known.program.work.entry, 1.0)])
    assert narrow.share == 0
    assert Drop([0]).kind == "drop"
    assert GraphLaunch().kind == "rewrite"


def test_a_compiled_step_still_launches_its_collectives(shared: Callable[[str], Path]) -> None:
    found = analysed(shared("ranks2/barrier.fixed.rank0")).index(Program)
    edited = EditedProgram(found)
    Compile(np.empty(0, np.int64)).apply(edited)
    top, launches = found.segments.top_op, edited.launch[found.work.communication]
    talking = np.isin(top, top[launches]) & (top >= 0)
    assert talking.sum() > len(launches) > 0
    assert edited.kept[talking].all()
    assert edited.kept.mean() < 0.5


# pair -> (rule, true saving, points that are allowed); these pairs are fitted: they keep the edits as they are
KNOWN = {
    "third/clip_loop": ("repeated-calls", 0.86, 8),  # small grids side by side
    "third/tiny_batch": ("repeated-calls", 0.97, 3),  # a whole model, image by image
    "third/attention_math": ("hand-written-attention", 0.93, 3),  # without shapes
    "third/kv_cat": ("strided-copy", 0.71, 8),  # writing in place is not free
    "pairs4/anomaly_mode": ("recomputation", 0.75, 9),  # a mode that slows every op
    "pairs4/cpu_index": ("exposed-copy", 0.44, 9),  # a copy that another op makes of its input
    "third/numpy_metric": ("exposed-copy", 0.99, 3),
}


@pytest.mark.parametrize("pair", KNOWN)
def test_a_fault_saves_what_was_measured(pair: str, shared: Callable[[str], Path]) -> None:
    rule, true, points = KNOWN[pair]
    saving = joint(shared(f"{pair}.bad"), rule)
    assert abs(saving.share - true) * 100 <= points


def test_what_only_makes_a_read_value_goes_with_it(shared: Callable[[str], Path]) -> None:
    """eq, any and is_nonzero per token: the read-back alone gives 10 %."""
    assert joint(shared("third/decode_sync.bad"), "implicit-sync").share > 0.15


def joint(path: Path, rule: str) -> Saving:
    """Of the fault that the rule's finding belongs to."""
    report = reported(path)
    named = {found.fault for found in report.findings if found.rule == rule}
    said = [fault.saving for fault in report.traces[0].faults if fault.id in named and fault.saving]
    return max(said, key=lambda one: one.share)


NODE = "autograd::engine::evaluate_function: MulBackward0"
NODES, PAUSE_NS = 20, 60_000


def training(pause_ns: int = PAUSE_NS) -> Loop:
    """Steps of a loss, a pause, nodes with 2 us between them, and a pause of the same length."""
    loop = Loop(step_ns=150_000 + 22_000 * NODES + 2 * pause_ns)
    loop.op("aten::ones_like", 10_000, 1_000)
    for at in range(NODES):
        loop.op(NODE, 30_000 + pause_ns + at * 22_000, 1_000)
    loop.op("aten::add_", 28_000 + 2 * pause_ns + NODES * 22_000, 1_000)
    return loop


@pytest.mark.parametrize(("pause_ns", "before_ns", "after_ns"), [(PAUSE_NS, 5_000, 10_000), (7_000, 2_500, 2_500)])
def test_autograd_counts_and_frees_fewer_nodes(pause_ns: int, before_ns: int, after_ns: int) -> None:
    """The gaps before the first node and after the last shrink with the graph, by the share of its nodes at most."""
    trace = training(pause_ns).load()
    built = program(trace)
    edited = EditedProgram(built)
    mine = np.flatnonzero((trace.cpu["name"] == NODE).to_numpy())
    number = np.argsort(np.argsort(trace.cpu["start_ns"].to_numpy()[mine])) % NODES
    Drop(mine[(number >= 5) & (number < 15)]).apply(edited)
    start, segments = built.timeline.start_ns, built.segments
    pauses = segments.gap & (built.timeline.end_ns - start == pause_ns)
    cut = (segments.cpu_ns - edited.cpu_ns)[pauses]
    assert cut.reshape(-1, 2).tolist() == [[before_ns, after_ns]] * 3


US = 1_000
STEPS = 4
SENT, CLEARED, MADE = 800, 1, 200  # us of what the other stream receives, a memset after it, and a product


def received() -> Program:
    """A product of 50 us, a receive on another stream that waits for it, a memset and a product that wait for that.

    The CPU waits for all at the end of each step, so that nothing of one step runs beside the next.
    """
    trace, at, number = TraceBuilder(), 0, 0

    def launched(name: str, start_us: int, **more: Any) -> int:
        nonlocal number
        number += 1
        trace.launch(name, start_us * US, 5 * US, number, **more)
        return number

    for step in range(STEPS):
        begin = at
        trace.op("aten::mm", at * US, 20 * US)
        trace.kernel((at + 15) * US, 50 * US, launched("cudaLaunchKernel", at + 5))
        launched("cudaStreamWaitEvent", at + 26)
        trace.op("c10d::recv_", (at + 32) * US, 20 * US)
        first_end = at + 67
        trace.kernel(first_end * US, SENT * US, launched("cudaLaunchKernel", at + 37), name="ncclRecv", stream=20)
        launched("cudaStreamWaitEvent", at + 60)
        trace.op("aten::addmm", (at + 66) * US, 30 * US)
        sent_end = first_end + SENT + 3
        trace.memset(sent_end * US, CLEARED * US, launched("cudaMemsetAsync", at + 68))
        trace.kernel((sent_end + 3) * US, MADE * US, launched("cudaLaunchKernel", at + 80), name="nvjet_gemm")
        end = sent_end + 3 + MADE
        trace.launch("cudaDeviceSynchronize", (at + 100) * US, (end + 5 - at - 100) * US, number + 1_000)
        at = end + 10
        trace.step(step, begin * US, (at - begin) * US)
        at += 10
    built = program(trace.load())
    assert len(built.work.edge_to) >= 2 * (STEPS - 1)
    return built


def of(built: Program, number: int) -> Any:
    """Entries of the work that is so many pieces after the first of its step."""
    return built.work.entry[number::4]


@pytest.mark.parametrize(
    "edit",
    [
        lambda built: DropWork(of(built, 2)),
        lambda built: MoveToSideStream(of(built, 2)),
        lambda built: Fuse(
            np.sort(np.concatenate((of(built, 2), of(built, 3)))),
            np.arange(len(built.work.entry) // 2) // 2,
            np.full(len(built.work.entry) // 4, MADE * US),
        ),
    ],
)
def test_what_follows_the_work_that_goes_still_waits(edit: Callable[[Program], Any]) -> None:
    """Without the memset: it takes 1 us and about 2 more to start."""
    built = received()
    whole, none = replay(built), replay(built, [Scale(of(built, 2), 0.0)])
    assert replay(built, [edit(built)]).ns == pytest.approx(none.ns, abs=8 * US)
    assert whole.ns - none.ns < 5 * US


def test_what_was_waited_for_still_ends_before() -> None:
    """Without the first product the receive waits for the step before, and is not of the CPU's pace alone."""
    built = received()
    shorter = replay(built, [Scale(of(built, 0), 0.0)]).ns
    assert replay(built, [DropWork(of(built, 0))]).ns == pytest.approx(shorter, abs=20 * US)
