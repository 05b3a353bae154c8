"""What fixes take from a program, and when one fix does for another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replay.programs import OP_NS, STEP_NS, Loop, program, replay
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edit_footprint import WHOLLY, Autograd, Footprint
from traceanalyzer.replay.edits import (
    CapOps,
    Drop,
    DropSpans,
    Edit,
    MoveToSideStream,
    ReadLater,
    Resize,
    Scale,
    ShrinkGaps,
)
from traceanalyzer.replay.peer_comparison import MatchPeers
from traceanalyzer.replay.program import Program
from traceanalyzer.replay.rewrites import Batch, Fuse
from traceanalyzer.rule.severity import graded
from traceanalyzer.timeline.nesting import Nesting


def read_back() -> Trace:
    """Ops; then a synchronisation, 300 us of Python, and ops again."""
    loop = Loop()
    for at in (10_000, 40_000, 70_000):
        loop.op("aten::mm", at, 30_000)
    loop.sync(100_000, 50_000)
    for at in (450_000, 480_000, 510_000):
        loop.op("aten::add", at, 2_000)
    return loop.load()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_back()


@pytest.fixture(scope="module")
def built(trace: Trace) -> Program:
    return program(trace)


def rows(trace: Trace, name: str) -> np.ndarray:
    return np.flatnonzero((trace.cpu["name"] == name).to_numpy())


def pauses(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """From the synchronisation's end to the next op."""
    sync = rows(trace, "cudaDeviceSynchronize")
    ends = (trace.cpu["start_ns"] + trace.cpu["dur_ns"]).to_numpy()[sync]
    return ends, ends + 300_000


def taken(built: Program, *edits: Edit) -> Footprint:
    return Footprint.of(built, edits)


def test_what_holds_all_that_another_drops_does_for_it(trace: Trace, built: Program) -> None:
    starts = np.sort(trace.cpu["start_ns"].to_numpy()[rows(trace, "aten::mm")])[::3]
    whole, part = (taken(built, DropSpans(starts, starts + 90_000)), taken(built, Drop(rows(trace, "aten::mm"))))
    other = taken(built, Drop(rows(trace, "aten::add")))
    assert whole.holds(part)
    assert not whole.holds(other)
    assert not other.holds(whole)


def test_what_another_only_quickens_is_another_change(trace: Trace, built: Program) -> None:
    entries = built.work.entry
    dropped, quickened = taken(built, Drop(rows(trace, "aten::mm"))), taken(built, Resize(entries, 1_000.0))
    assert not dropped.holds(quickened)


@pytest.mark.parametrize(("others", "does"), [(1, True), (2, False)])
def test_kernels_that_another_fix_replaces_need_not_get_quicker(
    trace: Trace, built: Program, others: int, does: bool
) -> None:
    """Three products of 30 us a step become one kernel; the rest of what could be quicker takes 3 x 30 or 60 us."""
    device = built.work
    products = np.flatnonzero(device.dur_ns == 30_000)
    fused = taken(built, Fuse(device.entry[products], np.arange(len(products)) // 3, np.full(99, 60_000.0)))
    quickened = taken(built, Scale(device.entry[products], 0.5))
    rest = np.where(device.dur_ns == 2_000, 15_000.0 * others, 0.0)
    assert fused.replaces(replace(quickened, work_ns=quickened.work_ns + rest)) is does
    assert not taken(built, Scale(device.entry[products], 0.5)).replaces(quickened)


def test_shrinking_applies_to_gaps_not_to_quicker_ops() -> None:
    loop = Loop()
    for at in (10_000, 410_000):
        loop.op("aten::mm", at, 2_000, dur=200_000)
    built = program(loop.load())
    segments = built.segments
    half = taken(built, MatchPeers(np.full(len(segments.gap), 0.5), 1.0)).cpu_ns
    shrunk = segments.gap & (segments.cpu_ns > 2 * 20_000)  # less is the Python around an op
    assert half[shrunk].tolist() == (segments.cpu_ns[shrunk] / 2).tolist()
    assert half[shrunk].sum() == pytest.approx(3 * (200_000 + 390_000) / 2, rel=0.05)
    assert half[~shrunk].sum() == 0


@pytest.mark.parametrize(("left", "does"), [(0.1, True), (0.2, False)])
def test_leaving_a_tenth_does_for_dropping(trace: Trace, built: Program, left: float, does: bool) -> None:
    """All pairs that are never written leave nothing of the pointwise kernels over them that could be fused."""
    entries = built.work.entry
    fused = taken(built, Fuse(entries, np.arange(len(entries)) // 3))
    assert taken(built, Scale(entries, left)).holds(replace(fused, cpu_ns=0.0 * fused.cpu_ns)) is does


def test_host_work_after_a_wait_belongs_to_it_until_a_launch(trace: Trace, built: Program) -> None:
    wait = taken(built, Drop(rows(trace, "cudaDeviceSynchronize")))
    pause = taken(built, ShrinkGaps(*pauses(trace)))
    later = taken(built, Drop(rows(trace, "aten::add")))
    assert wait.leads_to(pause, built.launch)
    assert not pause.leads_to(wait, built.launch)
    assert not later.leads_to(pause, built.launch)


def test_host_work_stays_where_results_are_read_later(trace: Trace, built: Program) -> None:
    wait = taken(built, ReadLater(rows(trace, "cudaDeviceSynchronize")))
    assert not wait.leads_to(taken(built, ShrinkGaps(*pauses(trace))), built.launch)
    assert (wait.cpu_ns.sum(), wait.dropped.any()) == (0, False)


def test_host_work_after_one_of_many_waits_is_chance() -> None:
    """A loop that checks a value after each op also reads its configuration once."""
    loop = Loop()
    for at in range(10_000, 310_000, 60_000):
        loop.op("aten::mm", at, 5_000)
        loop.sync(at + 30_000, 10_000)
    loop.op("aten::add", 900_000, 2_000)
    trace = loop.load()
    built = program(trace)
    waits = taken(built, Drop(rows(trace, "cudaDeviceSynchronize")))
    begins = np.arange(4) * STEP_NS
    assert not waits.leads_to(taken(built, ShrinkGaps(begins + 290_000, begins + 900_000)), built.launch)


@pytest.mark.parametrize(
    ("copy_ns", "op", "does"), [(100_000, True, True), (99_000, True, False), (100_000, False, False)]
)
def test_host_ops_use_all_data_copied_before_them(copy_ns: int, op: bool, does: bool) -> None:
    """Windows are copied to the host one by one; after the last, the host looks for the largest of all."""
    loop = Loop()
    for begin in loop.begins:
        loop.trace.op("aten::argmax", begin + 650_000, 200_000)
    for at in range(10_000, 610_000, 120_000):
        loop.op("aten::copy_", at, copy_ns)
        loop.sync(at + 20_000, 97_000)
    loop.op("aten::add", 900_000, 2_000)
    trace = loop.load()
    built = program(trace)
    copied = np.isin(built.work.dur_ns, [copy_ns])
    moved = MoveToSideStream(built.work.entry[copied])
    waits = taken(built, Drop(rows(trace, "cudaDeviceSynchronize")), moved)
    begins = np.arange(4) * STEP_NS + 650_000
    after = DropSpans(begins, begins + 200_000) if op else ShrinkGaps(begins, begins + 200_000)
    assert waits.leads_to(taken(built, after), built.launch) is does


def test_ops_are_capped_and_calls_are_not(trace: Trace, built: Program) -> None:
    before, after = replay(built, slowdown=1.0), replay(built, (CapOps(2_000.0),), slowdown=1.0)
    ops = 6 * (OP_NS - 5_000)
    assert before.cpu_ns - after.cpu_ns == pytest.approx(ops - 6 * 2 * 2_000, rel=0.1)


def test_the_first_repeat_of_the_sample_does_for_all(trace: Trace, built: Program) -> None:
    at = rows(trace, "aten::mm")
    start = np.sort(trace.cpu["start_ns"].to_numpy()[at])
    group = np.repeat(np.arange(len(at) // 3), 3)
    footprint = taken(built, Batch(start, start + OP_NS, group))
    sampled = len(built.sample)
    assert footprint.dead.sum() == 2 * sampled  # of three


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["aten::mm", "aten::add", "cudaDeviceSynchronize"]), min_size=1, unique=True),
    st.floats(500.0, 30_000.0),
    st.booleans(),
)
def test_nothing_is_saved_beyond_what_stays(names: list[str], dur: float, fused: bool) -> None:
    """The step is never shorter than the CPU's or the busiest stream's time that the edits leave."""
    trace = read_back()
    built = program(trace)
    entries = built.work.entry
    edits: list[Edit] = [Drop(rows(trace, name)) for name in names]
    edits.append(Fuse(entries, np.arange(len(entries)) // 3) if fused else Resize(entries, dur))
    left, before = replay(built, edits, slowdown=1.0), replay(built, slowdown=1.0)
    assert left.ns >= max(left.cpu_ns, left.gpu_ns) * 0.999
    assert left.cpu_ns <= before.cpu_ns * 1.001


def saving(share: float, low: float) -> Saving:
    return Saving(1, 1, 1, share, low, 1.0, "replayed")


@pytest.mark.parametrize(
    ("share", "low", "severity"),
    [
        (0.3, 0.2, "high"),
        (0.3, 0.03, "high"),
        (0.3, 0.029, "medium"),  # the low end must reach the threshold of the class below
        (0.3, 0.004, "low"),
        (0.3, 0.0, "low"),
        (0.05, 0.005, "medium"),
        (0.05, 0.004, "low"),
        (0.02, 0.001, "low"),
        (0.02, 0.0, "info"),
        (0.001, 0.0005, "info"),
    ],
)
def test_severity_asks_both_ends(share: float, low: float, severity: str) -> None:
    assert graded(0.5, saving(share, low)) == severity


def prepared() -> Trace:
    """100 us of an op on the host, then the launch that copies what it made; later an op that launches by itself."""
    loop = Loop()
    for begin in loop.begins:
        loop.trace.op("aten::div_", begin + 10_000, 100_000)
    loop.op("aten::copy_", 112_000, 50_000)
    loop.op("aten::mm", 200_000, 30_000)
    return loop.load()


def test_host_work_right_before_a_moved_copy_prepares_it() -> None:
    trace = prepared()
    built = program(trace)
    kernels = built.work.entry.reshape(-1, 2)
    starts = np.sort(trace.cpu["start_ns"].to_numpy()[rows(trace, "aten::div_")])
    made = taken(built, DropSpans(starts, starts + 100_000))
    assert made.prepares(taken(built, MoveToSideStream(kernels[:, 0])), built.launch)
    assert not made.prepares(taken(built, MoveToSideStream(kernels[:, 1])), built.launch)
    assert not made.prepares(taken(built, Resize(kernels[:, 0], 1_000.0)), built.launch)
    # Where something stays, others make the data, and the copies are still needed.
    loaded = taken(built, DropSpans(starts, starts + 100_000, leaving_ns=5_000.0))
    assert not loaded.prepares(taken(built, MoveToSideStream(kernels[:, 0])), built.launch)


def test_of_a_part_that_another_drops_most_is_not_all(trace: Trace, built: Program) -> None:
    """Two thirds of the work and of the ops: most of it, but not wholly."""
    starts = np.sort(trace.cpu["start_ns"].to_numpy()[rows(trace, "aten::mm")]).reshape(-1, 3)
    two = taken(built, DropSpans(starts[:, 0], starts[:, 0] + 60_000))
    three = taken(built, Drop(rows(trace, "aten::mm")))
    assert two.holds(three)
    assert not two.holds(three, WHOLLY)
    assert three.holds(three, WHOLLY)


@pytest.mark.parametrize(("number", "backward"), [(5, True), (6, False), (-1, False)])
def test_backward_of_an_op_shares_autograds_number_with_it(number: int, backward: bool) -> None:
    loop = Loop()
    loop.op("aten::native_layer_norm", 10_000, 20_000, **{"Sequence number": 5})
    args = {"Sequence number": number, "Fwd thread id": 1} if number >= 0 else {}
    loop.op("NativeLayerNormBackward0", 50_000, 40_000, **args)
    trace = loop.load()
    built = program(trace)
    autograd = Autograd.of(trace, Analysis(trace).index(Nesting), built)
    names = "aten::native_layer_norm", "NativeLayerNormBackward0"
    first, second = (taken(built, Drop(rows(trace, name))) for name in names)
    assert second.is_backward_of(first, autograd) is backward
    assert not first.is_backward_of(second, autograd)


@pytest.mark.parametrize("told", [{"Sequence number": 0}, {"Sequence number": 5, "Fwd thread id": 0}])
def test_first_autograd_number_is_one_and_thread_0_is_forward(told: dict[str, int]) -> None:
    loop = Loop()
    loop.op("aten::mm", 10_000, 20_000, **told)
    loop.op("MmBackward0", 50_000, 40_000, **{**told, "Fwd thread id": 1})
    trace = loop.load()
    built = program(trace)
    autograd = Autograd.of(trace, Analysis(trace).index(Nesting), built)
    first, second = (taken(built, Drop(rows(trace, name))) for name in ("aten::mm", "MmBackward0"))
    assert second.is_backward_of(first, autograd)
    assert not first.is_backward_of(second, autograd)


US = 1_000.0


def filled(size: int, values: Mapping[int, float]) -> np.ndarray:
    array = np.zeros(size)
    array[list(values)] = list(values.values())
    return array


def among(size: int, places: Sequence[int]) -> np.ndarray:
    return np.isin(np.arange(size), list(places))


def fix(
    cpu_us: Mapping[int, float] | None = None,
    *,
    dropped: Sequence[int] = (),
    woken: Sequence[int] = (),
    work_us: Mapping[int, float] | None = None,
    dead: Sequence[int] = (),
    emptied: Sequence[int] = (),
    moved_us: Mapping[int, float] | None = None,
    leaves: bool = False,
) -> Footprint:
    """Of ten segments and four pieces of work: what the fix takes of each."""
    cpu = US * filled(10, cpu_us or {})
    work, moved = (US * filled(4, one or {}) for one in (work_us, moved_us))
    gone, empty = among(4, dead), among(4, [*dead, *emptied])
    return Footprint(cpu, work, among(10, dropped), gone, gone, empty, among(10, woken), moved, leaves)


LAUNCH = np.array([0, 3, 6, 9])


@pytest.mark.parametrize(
    ("cpu_us", "leads"),
    [
        ({2: 10}, True),
        ({1: 10}, False),  # the wait itself
        ({3: 10}, False),  # what launches next
        ({2: 10, 4: 10}, True),
        ({2: 10, 4: 11}, False),
        ({}, False),
    ],
)
def test_host_work_belongs_to_the_wait_before_it(cpu_us: dict[int, float], leads: bool) -> None:
    assert fix(woken=[1]).leads_to(fix(cpu_us), LAUNCH) is leads


@pytest.mark.parametrize(
    ("wait_dead", "work_dead", "leads"), [((), (), False), ((1,), (), True), ((), (1,), True), ((2,), (2,), False)]
)
def test_dropped_launch_is_not_next(wait_dead: Sequence[int], work_dead: Sequence[int], leads: bool) -> None:
    """The host works after a wait and after the launch that follows it."""
    wait, work = fix(woken=[1], dead=wait_dead), fix({2: 10, 4: 30}, dead=work_dead)
    assert wait.leads_to(work, LAUNCH) is leads


@pytest.mark.parametrize(
    ("dropped", "moved_us", "dead_us", "leads"),
    [
        ([7], {0: 100, 1: 100}, {}, True),
        ([7], {0: 100, 1: 99}, {}, False),  # values and no data: less than 100 us each
        ([7], {}, {0: 150, 1: 50}, True),  # copies that go
        ([7], {}, {}, False),
        ([], {0: 100, 1: 100}, {}, False),  # a gap: its Python may do anything
    ],
)
def test_ops_after_the_last_wait_use_the_copied_data(
    dropped: list[int], moved_us: dict[int, float], dead_us: dict[int, float], leads: bool
) -> None:
    wait = fix(woken=[1, 4, 7 - 1], moved_us=moved_us, work_us=dead_us, dead=list(dead_us))
    assert wait.leads_to(fix({7: 10}, dropped=dropped), np.array([0, 3, 5, 9])) is leads


def test_work_after_half_of_the_waits_is_no_chance() -> None:
    launch = np.array([0, 2, 5, 8])
    assert fix(woken=[3, 6]).leads_to(fix({4: 10}), launch)
    assert not fix(woken=[1, 3, 6]).leads_to(fix({4: 10}), launch)
    assert fix(woken=[1, 3, 6]).leads_to(fix({4: 10, 7: 1}), launch)


@pytest.mark.parametrize(
    ("moved_us", "cpu_us", "prepares"),
    [
        ({1: 50}, {2: 10}, True),
        ({1: 50}, {1: 10}, True),  # anywhere after the launch before
        ({1: 50}, {4: 10}, False),
        ({1: 50}, {2: 10, 4: 10}, True),
        ({1: 50}, {2: 10, 4: 11}, False),  # most of the host's work is for another launch
        ({1: 50, 3: 50}, {2: 10}, True),
        ({1: 50, 3: 51}, {2: 10}, False),  # most of what is copied comes from elsewhere
        ({}, {2: 10}, False),
        ({1: 50}, {}, False),
    ],
)
def test_host_prepares_the_copy(moved_us: dict[int, float], cpu_us: dict[int, float], prepares: bool) -> None:
    assert fix(cpu_us).prepares(fix(moved_us=moved_us), LAUNCH) is prepares


def test_what_comes_before_two_copies_of_one_call_counts_once() -> None:
    launch = np.array([0, 3, 3, 9])
    copies = fix(moved_us={1: 50, 2: 50})
    assert not fix({2: 40, 5: 60}).prepares(copies, launch)
    assert fix({2: 60, 5: 40}).prepares(copies, launch)


@pytest.mark.parametrize(
    ("mine", "other", "holds"),
    [
        (fix({1: 10}, dropped=[1]), fix({1: 10, 2: 10}, dropped=[1, 2]), True),
        (fix({1: 10}, dropped=[1]), fix({1: 10, 2: 11}, dropped=[1, 2]), False),
        (fix({1: 4}), fix({1: 10}), False),  # a gap that shrinks by less
        (fix({1: 5}), fix({1: 10}), True),
        (fix({1: 99}), fix({1: 10, 2: 11}), False),  # by more: no more than all of it is done
        (fix({1: 10}), fix({1: 10}, dropped=[1]), False),  # shrinks what the other drops
        (fix(work_us={0: 10}, dead=[0]), fix(work_us={0: 10, 1: 10}, dead=[0, 1]), True),
        (fix(work_us={0: 9}, emptied=[0]), fix(work_us={0: 10, 1: 10}, dead=[0, 1]), True),
        (fix(work_us={0: 5}), fix(work_us={0: 10}, dead=[0]), False),  # only quickened
        (fix(work_us={0: 10}, dead=[0]), fix(work_us={0: 5}), False),  # the other quickens it
        (fix(), fix(), False),
    ],
)
def test_fix_covers_another_that_it_halves(mine: Footprint, other: Footprint, holds: bool) -> None:
    assert mine.holds(other) is holds


AUTOGRAD = Autograd(
    number=np.array([5, 5, 6, 6, -1, 7, 7, -1, -1, -1]), backward=among(10, [1, 3, 4, 6]), launch=np.array([0, 1, 3, 8])
)


@pytest.mark.parametrize(
    ("mine", "other", "backward"),
    [
        (fix({1: 10}), fix({0: 1}), True),
        (fix({1: 10}), fix({1: 10}), False),
        (fix({1: 10}), fix({2: 1}), False),
        (fix({1: 10, 3: 10}), fix({0: 1}), True),
        (fix({1: 10, 3: 11}), fix({0: 1}), False),
        (fix({1: 10, 2: 10}), fix({0: 1}), False),  # as much of forward
        (fix({1: 11, 2: 10}), fix({0: 1}), True),
        (fix({1: 10, 4: 99, 7: 99}), fix({0: 1}), True),  # of what has no number nothing is known
        (fix({4: 10}), fix({7: 10}), False),
        (fix(work_us={1: 10}), fix(work_us={0: 1}), True),  # work counts where it is launched
        (fix(work_us={2: 10}), fix(work_us={0: 1}), False),
        (fix(), fix(), False),
    ],
)
def test_most_of_a_fix_is_backward_of_another(mine: Footprint, other: Footprint, backward: bool) -> None:
    assert mine.is_backward_of(other, AUTOGRAD) is backward
