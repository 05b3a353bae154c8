"""The window and the steps: which definition or mark holds, and which steps are cold, empty or cut."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.accounting import Accounting
from traceanalyzer.idle.causes import Idle
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.mark_search import Attended, attended, phase_and_batch
from traceanalyzer.timeline.steps import StepMarks, Steps


def test_a_step_on_the_device_is_the_work_that_it_launched() -> None:
    """The CPU is far ahead: all three steps are launched while the first one's work runs."""
    trace = TraceBuilder()
    for number in (3, 4, 5):
        start = 100 * (number - 3)
        trace.step(number, start, 90)
        trace.launched((start + 10, 10), (30 + 1_000 * (number - 3), 1_000), number)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.kind == "ProfilerStep"
    assert steps.number.tolist() == [3, 4, 5]
    assert (steps.window_start_ns, steps.window_end_ns) == (0, 3_030)
    assert steps.bounds_ns[0].tolist() == [0, 1_030, 2_030, 3_030]
    assert steps.durations_ns(0).tolist() == [1_030, 1_000, 1_000]
    assert steps.durations_ns().tolist() == [100, 100, 90]
    assert steps.of_work.tolist() == [0, 1, 2]


def test_a_step_begins_at_its_mark_where_the_device_waits() -> None:
    trace = TraceBuilder()
    for number in (0, 1):
        start = 1_000 * number
        trace.step(number, start, 990)
        trace.launched((start + 10, 10), (start + 30, 100), number + 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.bounds_ns[0].tolist() == [0, 1_000, 1_990]
    assert steps.at(0, np.array([-5, 0, 999, 1_000, 5_000])).tolist() == [-1, 0, 0, 1, 1]
    assert steps.at_cpu(np.array([-1, 0, 1_000])).tolist() == [-1, 0, 1]


def test_window_begins_with_unlinked_work() -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 1_000)
    trace.kernel(300, 100, 1)
    assert Analysis(trace.load()).index(StepMarks).whole_ns == (300, 1_000)


def test_devices_have_bounds_of_their_own() -> None:
    trace = TraceBuilder()
    for number in (0, 1):
        trace.step(number, 100 * number, 100)
        for device in (0, 1):
            correlation = 10 * number + device + 1
            trace.launch("cudaLaunchKernel", 100 * number + 10 + device, 5, correlation)
            trace.kernel(20 + 400 * number + device, 300 + device * 50, correlation, device=device)
    loaded = trace.load()
    steps = Analysis(loaded).index(Steps)
    assert {device: bounds.tolist() for device, bounds in steps.bounds_ns.items()} == {
        0: [0, 320, 771],
        1: [0, 371, 771],
    }
    asked = Analysis(loaded, (330, 360)).index(Steps)
    assert asked.number.tolist() == [0, 1]  # the one device is in the second step, the other in the first


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["ProfilerStep#7", "Optimizer.step#SGD.step"], "ProfilerStep"),
        (["execute_context_1(8_8)_generation_0(0)", "mine"], "serving step"),
        (["step[DECODE bs=32]"], "serving step"),
        (["Optimizer.step#SGD.step", "mine"], "Optimizer.step"),
        (["mine"], "mine"),
        ([], "window"),
    ],
)
def test_the_first_kind_of_mark_that_there_is_counts(names: list[str], kind: str) -> None:
    trace = TraceBuilder()
    for i, name in enumerate(names):
        for start in (0, 1_000):
            numbered = name.replace("#7", f"#{start}")
            trace.annotation(numbered, start + 10 * i, 900 - 20 * i)
    trace.launched((100, 10), (150, 1_700), 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.kind == kind
    assert len(steps) == (1 if kind == "window" else 2)
    assert steps.marked == (kind != "window")
    assert steps.source


def test_an_optimizers_step_ends_a_step() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 1_000, 1)
    for end in (400, 800):
        trace.annotation("Optimizer.step#SGD.step", end - 100, 100)
    steps = Analysis(trace.load()).index(Steps)
    assert (steps.cpu_start_ns.tolist(), steps.cpu_end_ns.tolist()) == ([0, 400], [400, 800])


def test_marks_within_marks_of_the_same_name_are_not_counted() -> None:
    trace = TraceBuilder()
    for start in (0, 500):
        trace.annotation("mine", start, 450)
        trace.annotation("mine", start + 10, 100)
    assert Analysis(trace.load()).index(Steps).cpu_start_ns.tolist() == [0, 500]


def test_the_profilers_last_wait_is_outside_the_window() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.launched((10, 10), (30, 500), 1)
    trace.launch("cudaDeviceSynchronize", 150, 5_000, 2)
    assert Analysis(trace.load()).index(StepMarks).whole_ns == (0, 530)


def test_the_users_window_cuts_the_steps_and_changes_no_numbers() -> None:
    trace, marks = TraceBuilder(), TraceBuilder()
    for number in (0, 1, 2):
        trace.step(number, 1_000 * number, 1_000)
        trace.launched((1_000 * number + 10, 10), (1_000 * number + 30, 100), number + 1)
        marks.step(number, 1_000 * number, 1_000)
    whole = trace.load()
    steps = Analysis(whole, (1_500, 2_500)).index(Steps)
    assert (steps.window_start_ns, steps.window_end_ns) == (1_500, 2_500)
    assert steps.number.tolist() == [1, 2]
    assert steps.bounds_ns[0].tolist() == [1_500, 2_000, 2_500]
    assert steps.at(0, np.array([1_500, 2_000])).tolist() == [0, 1]
    assert steps.of_work.tolist() == [-1, 0, 1]
    for asked, numbers in (((1_000, 2_000), [1]), ((999, 2_000), [0, 1]), ((1_000, 2_001), [1, 2])):
        for loaded in (whole, marks.load()):  # from edge to edge, also where nothing runs on a device
            assert Analysis(loaded, asked).index(Steps).number.tolist() == numbers
    with pytest.raises(Unavailable, match="outside"):
        Analysis(whole, (9_000, 9_999)).index(Steps)


def test_a_part_before_the_first_step_has_books_but_no_step() -> None:
    trace = TraceBuilder()
    trace.launched((0, 10), (20, 500), 1)
    trace.step(7, 100, 900)
    trace.launched((110, 10), (600, 100), 2)
    part = Analysis(trace.load(), (100, 300))
    steps = part.index(Steps)
    assert steps.at(0, np.array([100, 299])).tolist() == [-1, -1]
    frame = part.index(Accounting).frame(part.trace, part.index(Idle), steps)
    assert (frame["ns"].tolist(), frame["step"].isna().tolist()) == ([200], [True])


def test_many_names_are_no_burden() -> None:
    """A name per step, as some loops write: found without looking at every name for every row."""
    trace = TraceBuilder()
    for i in range(3_000):
        trace.annotation(f"batch {chr(97 + i // 100)}{chr(97 + i % 26)}{i}", 10 * i, 9)
    assert Analysis(trace.load()).index(Steps).kind == "window"


@pytest.mark.parametrize(
    "name",
    ["_compile.compile_inner (dynamo_timed)", "nccl:all_reduce", "enumerate(DataLoader)#_SingleProcess.__next__"],
)
def test_what_can_be_no_step(name: str) -> None:
    trace = TraceBuilder()
    trace.annotation(name, 0, 450)
    trace.annotation(name, 500, 450)
    assert Analysis(trace.load()).index(Steps).kind in ("window", "enumerate(DataLoader)#_SingleProcess.__next__")


@pytest.mark.parametrize("add", [TraceBuilder.annotation, TraceBuilder.op])
def test_a_batch_or_a_compiled_region_begins_a_step(add: Callable[..., int]) -> None:
    annotated = add is TraceBuilder.annotation
    name = "enumerate(DataLoader)#_SingleProcess.__next__" if annotated else "Torch-Compiled Region: 0/0"
    trace = TraceBuilder()
    for start in (100, 500, 900):
        add(trace, name, start, 50)
    if not annotated:
        trace.op("Torch-Compiled Region: 1/0", 200, 50)
    trace.kernel(0, 1_200, 1)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.kind == name
    assert (steps.cpu_start_ns.tolist(), steps.cpu_end_ns.tolist()) == ([100, 500, 900], [500, 900, 950])


@pytest.mark.parametrize(
    ("name", "phase", "batch"),
    [
        ("execute_context_2(6144)_generation_3(3)", "mixed", 5),
        ("execute_new_2_cached_3", "new and cached", 5),
        ("execute_new_0_cached_64", "cached", 64),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 1),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk9)", "decode", 32),
        ("step[DECODE bs=64 toks=64]", "decode", 64),
        ("step[EXTEND bs=2 toks=14721]", "prefill", 2),
        ("step[MIXED bs=7]", "mixed", 7),
        ("prefill[toks=512]", "prefill", -1),
        ("decode[bs=117/128 graph]", "decode", 117),
        ("execute_model", None, -1),
    ],
)
def test_serving_marks_say_phase_and_batch(name: str, phase: str | None, batch: int) -> None:
    assert phase_and_batch(name) == (phase, batch)
    trace = TraceBuilder()
    trace.annotation(name, 0, 450)
    trace.kernel(0, 500, 1)
    steps = Analysis(trace.load()).index(Steps)
    if phase:
        assert (steps.kind, steps.phase, steps.batch.tolist()) == ("serving step", (phase,), [batch])


@pytest.mark.parametrize(
    ("name", "queries", "keys", "pairs"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", 888, 888, 888 * 889 // 2),
        # Each of 32 requests reads its own keys, 55,086 together.
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", 32, 55_086, 55_086),
        # Four queries see 1, 2, 3 and 4 keys, one in another request 11.
        ("execute_5_context_1(sq4sk4sqsq16sqsk16)_generation_1(sq1sk11sqsq1sqsk11)", 5, 15, 10 + 11),
        # Eight queries behind 2 keys see 3 to 10, four behind 6 see 7 to 10.
        ("step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]", 12, 20, 52 + 34),
        ("step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]", 6, 20, 42),
        ("decode[bs=64 tok=64 d=64 sqsq=64 sqsk=65600 sk=65600]", 0, 65_600, 65_600 - 32),  # at least
    ],
)
def test_serving_marks_say_what_is_attended_to(name: str, queries: int, keys: int, pairs: int) -> None:
    assert attended(name) == Attended(queries, keys, pairs)


@pytest.mark.parametrize(
    "name",
    [
        "execute_context_1(888)_generation_0(0)",
        "execute_context_1(888_788544)_generation_3(3)",
        "execute_0_context_0(sq0sk0sqsq0sqsk0)_generation_0(sq0sk0sqsq0sqsk0)",
        "execute_4_context_1(sq4sk4sqsq999sqsk4)_generation_0(sq0sk0sqsq0sqsk0)",  # fewer than no pairs
        f"decode[bs=1 sqsq=1 sqsk={10**14} sk=7]",
        "step[DECODE bs=32]",
        "mine sk=4 sqsq=16 sqsk=16",
    ],
)
def test_marks_without_sums_say_nothing_of_what_is_attended_to(name: str) -> None:
    assert attended(name) is None


def stepping(*durations: int, idle: tuple[int, ...] = ()) -> TraceBuilder:
    """Steps of these lengths; each but those in `idle` launches a kernel, which ends within it."""
    trace, start = TraceBuilder(), 0
    for number, took in enumerate(durations):
        trace.step(number, start, took)
        if number not in idle:
            trace.launched((start + 1, 5), (start + 10, took - 12), number + 1)
        start += took
    return trace


@pytest.mark.parametrize(
    ("durations", "idle", "steady"),
    [
        ((150, 100, 100, 100), (), [True, True, True, True]),  # one and a half times the later ones
        ((151, 100, 100, 100), (), [False, True, True, True]),
        ((900, 900, 900, 100, 100, 100, 100), (), [False, False, False, True, True, True, True]),
        ((900, 900, 900, 100, 100), (), [False, False, True, True, True]),  # half of them at most
        ((100, 900, 100, 100, 100, 100), (), [True] * 6),  # a usual one came before
        ((1_000, 1_000, 1_000, 1_000, 99), (4,), [True, True, True, True, False]),
        ((1_000, 1_000, 1_000, 1_000, 100), (4,), [True] * 5),  # a tenth of the others
        ((1_000, 1_000, 1_000, 1_000, 99), (), [True] * 5),  # short, but it works
        ((1_000, 99, 1_000, 1_000), (1,), [True, True, True, True]),  # not at the end
        ((160, 100, 5), (2,), [False, True, False]),
        ((149, 100, 5), (2,), [True, True, False]),  # the usual length is that of those that are not empty
    ],
)
def test_cold_and_empty_steps(durations: tuple[int, ...], idle: tuple[int, ...], steady: list[bool]) -> None:
    assert Analysis(stepping(*durations, idle=idle).load()).index(Steps).steady.tolist() == steady


def test_a_step_is_cold_that_is_so_on_one_of_several_devices() -> None:
    trace, start = TraceBuilder(), 0
    for number, second in enumerate((700, 300, 300, 300, 300)):
        trace.step(number, 100 * number, 100)
        for device, took in enumerate((1_000, second)):
            trace.launch("cudaLaunchKernel", 100 * number + 10 * device, 5, 2 * number + device + 1)
            trace.kernel(20 + (start if device else 1_000 * number), took, 2 * number + device + 1, device=device)
        start += second
    steps = Analysis(trace.load()).index(Steps)
    assert steps.durations_ns(0)[:3].tolist() == [1_020, 1_000, 1_000]
    assert steps.durations_ns()[:3].tolist() == [100, 100, 100]
    with pytest.raises(ValueError, match=r"device 2 has no work: the devices are \[0, 1\]"):
        steps.durations_ns(2)
    assert steps.steady.tolist() == [False, True, True, True, True]


@pytest.mark.parametrize(("begin", "cut"), [(99, False), (100, False), (101, True)])
def test_a_step_is_cut_where_the_window_leaves_a_hundredth_out(begin: int, cut: bool) -> None:
    trace = stepping(10_000, 10_000).load()
    whole = Analysis(trace).index(StepMarks).whole_ns[0]
    assert Analysis(trace, (whole + begin, 20_000)).index(Steps).cut.tolist() == [cut, False]
    assert not Analysis(trace).index(Steps).cut.any()


def test_steps_in_use_reach_from_first_to_last_work() -> None:
    steps = Analysis(stepping(100, 100, 100, 100, 100, idle=(0, 2, 4)).load()).index(Steps)
    assert (steps.in_use, steps.working) == ((1, 4), 3)
    marks = TraceBuilder()
    for number in range(3):
        marks.step(number, 100 * number, 100)
    assert Analysis(marks.load()).index(Steps).in_use == (0, 3)


def test_recording_that_began_amid_a_step_is_warm() -> None:
    trace = stepping(1_000, 1_000)
    assert not Analysis(trace.load()).index(Steps).warm
    assert Analysis(trace.load(), (1_200, 1_900)).index(Steps).warm
    earlier = trace.shifted(1_000)
    earlier.launched((100, 10), (200, 100), 77)
    assert Analysis(earlier.load()).index(Steps).warm


def test_unlinked_work_of_an_unlinked_device_goes_by_time() -> None:
    """On the other device it goes with what ran before it there, and before the first launch with no step."""
    trace = TraceBuilder()
    trace.kernel(5, 10, 90)
    for number in (0, 1):
        trace.step(number, 1_000 * number, 1_000)
        trace.launched((1_000 * number + 20, 10), (1_000 * number + 50, 100), number + 1)
    trace.kernel(900, 20, 91, device=1)
    trace.kernel(1_100, 20, 92, device=1)
    trace.kernel(1_900, 20, 93)
    steps = Analysis(trace.load()).index(Steps)
    assert steps.of_work.tolist() == [-1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("work", "op", "sync", "end"),
    [
        (500, 300, 0, 500),  # the last work
        (200, 300, 0, 300),  # the op that launched it
        (200, 300, 400, 400),  # a wait for the device
    ],
)
def test_unmarked_window_ends_with_the_last_device_request(work: int, op: int, sync: int, end: int) -> None:
    """And not with an op after it that launches nothing."""
    trace = TraceBuilder()
    trace.op("aten::linear", 0, op)
    trace.op("aten::mm", 10, 50)
    trace.launched((20, 10), (100, work - 100), 1)
    if sync:
        trace.launch("cudaStreamSynchronize", 350, sync - 350, 2)
    trace.op("aten::size", 900, 50)
    steps = Analysis(trace.load()).index(Steps)
    assert (steps.kind, steps.cpu_end_ns.tolist()) == ("window", [end])


def steps_of(trace: TraceBuilder) -> Steps:
    """With a kernel of 1,000 ns, as long as the window is."""
    trace.kernel(0, 1_000, 1)
    return Analysis(trace.load()).index(Steps)


@pytest.mark.parametrize(("last", "kind"), [(250, "mine"), (249, "window")])
def test_an_annotation_that_covers_half_of_the_window_is_a_step(last: int, kind: str) -> None:
    trace = TraceBuilder()
    trace.annotation("mine", 0, 250)
    trace.annotation("mine", 400, last)
    assert steps_of(trace).kind == kind


def test_step_is_the_repeated_annotation_that_covers_most() -> None:
    trace = TraceBuilder()
    trace.annotation("once", 0, 990)
    for start in (0, 500):
        trace.annotation("step", start, 400)
        trace.annotation("a part", start + 10, 300)
    assert steps_of(trace).kind == "step"


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_equal_ones_the_first_by_name_is_the_step(names: str) -> None:
    trace = TraceBuilder()
    for start in (0, 500):
        for name in names:
            trace.annotation(name, start, 400)
    assert steps_of(trace).kind == "a"


@pytest.mark.parametrize(("digits", "number"), [("9" * 18, int("9" * 18)), ("9" * 19, 1)])
def test_a_number_that_fits_no_column_counts_from_0(digits: str, number: int) -> None:
    trace = TraceBuilder()
    trace.annotation("ProfilerStep#7", 0, 400)
    trace.annotation(f"ProfilerStep#{digits}", 500, 400)
    assert steps_of(trace).number.tolist() == [7, number]


@pytest.mark.parametrize(
    ("names", "kind"), [(("llama 7b", "llama 7b"), "llama 7b"), (("batch 1", "batch 2"), "batch #")]
)
def test_step_mark_is_named_by_what_names_have_in_common(names: tuple[str, str], kind: str) -> None:
    trace = TraceBuilder()
    for start, name in zip((0, 500), names, strict=True):
        trace.annotation(name, start, 400)
    steps = steps_of(trace)
    assert steps.kind == kind
    assert repr(kind) in steps.source
