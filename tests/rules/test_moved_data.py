"""Work that only moves data, and reordered state."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rules import programs
from tests.rules.kernel_programs import BF16, NVJET, US, Op, begun_later, changed, found, program
from tests.support.trace_builder import TraceBuilder

SLUG = "data-movement"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel_cuda>(int)"
PRODUCT = Op("aten::mm", NVJET, 100)
CLONE = Op("aten::clone", COPY, 100)
CACHE = [96, 16, 1088, 64]


def picked(shape: list[int], along: str) -> Op:
    types = [BF16, "Scalar", "long int"]
    kernel = "void vectorized_gather_kernel<16, long>(char*)"
    return Op("aten::index_select", kernel, 100, [shape, [], [shape[0]]], types, scalars=["", along, ""])


def test_conversions_of_gradients_follow_those_of_forward() -> None:
    (one,) = found(program([CLONE, PRODUCT]), SLUG)
    assert one.by == "aten::clone"
    mirror = replace(CLONE, inside="autograd::engine::evaluate_function: ToCopyBackward0")
    assert found(program([mirror, PRODUCT]), SLUG) == []


def test_copies_queued_before_the_recording_have_no_op() -> None:
    (one,) = found(begun_later(program([CLONE, PRODUCT], steps=3)), SLUG)
    assert (one.by, one.count) == ("aten::clone", 2)


def test_copies_that_are_launched_outside_of_steps_count_too() -> None:
    def unmark(event: dict[str, Any]) -> None:
        if event["name"] == "ProfilerStep#0":
            event.update(name="warm-up")

    (one,) = found(changed(program([CLONE, PRODUCT], steps=3), unmark), SLUG)
    assert (one.by, one.count) == ("aten::clone", 3)


@pytest.mark.parametrize(("along", "cause"), [("0", "reorderings"), ("", "reorderings"), ("1", "gathers")])
def test_state_is_reordered_along_its_rows(along: str, cause: str) -> None:
    (one,) = found(program([*[picked([96, 96, 1088, 64], along)] * 4, PRODUCT]), SLUG)
    assert (one.cause, one.severity == "info") == (cause, cause == "gathers")
    assert "4 times a step" in one.message


@pytest.mark.parametrize(
    ("reader", "cause"), [("aten::relu", "gathers"), ("aten::cat", "reorderings"), ("aten::bmm", "reorderings")]
)
def test_what_is_computed_with_number_by_number_is_no_state(reader: str, cause: str) -> None:
    """A cache is appended to, and products read it."""
    reads = Op(reader, NVJET, 100, [CACHE], [BF16])
    (one,) = (one for one in found(program([*[picked(CACHE, "0")] * 4, reads]), SLUG) if one.by != reader)
    assert one.cause == cause


@pytest.mark.parametrize(("after", "cause"), [(False, "graph-inputs"), (True, "copies")])
def test_copies_after_a_graph_are_no_inputs(after: bool, cause: str) -> None:
    trace = TraceBuilder()
    for step in range(5):
        at, number = 1_000 * US * step, 2 * step + 1
        trace.step(step, at, 1_000 * US)
        trace.op("Torch-Compiled Region: 0/0", at + 10 * US, 100 * US)
        graph, copy = (20, 60) if after else (60, 30)
        trace.launch("cudaGraphLaunch", at + graph * US, 20 * US, number)
        trace.op("aten::clone", at + (copy - 5) * US, 30 * US)
        trace.launch("cudaLaunchKernel", at + copy * US, 10 * US, number + 1)
        first, last = at + 100 * US, at + (700 if after else 300) * US
        trace.kernel(first if after else last, 600 * US, number, name="nvjet_tst_128x256")
        trace.kernel(last if after else first, 200 * US, number + 1, name=COPY)
    (one,) = programs.found(trace, SLUG)
    assert (one.by, one.cause) == ("aten::clone" if after else one.by, cause)


@pytest.mark.parametrize(("times", "cause"), [(3, "gathers"), (4, "reorderings")])
def test_state_is_reordered_at_least_four_times_a_step(times: int, cause: str) -> None:
    (one,) = found(program([*[picked([96, 96, 1088, 64], "0")] * times, PRODUCT]), SLUG)
    assert one.cause == cause


@pytest.mark.parametrize(
    ("shape", "index", "cause"),
    [
        ([96, 32_768], [96], "gathers"),  # a row of numbers is no state of a layer
        ([96], [96], "gathers"),
        ([96, 1, 32_768], [96], "reorderings"),  # 64 KiB
        ([96, 1, 32_767], [96], "gathers"),
        ([96, 1, 32_768], [95], "gathers"),  # some of the rows
    ],
)
def test_state_has_large_rows_and_all_are_reordered(shape: list[int], index: list[int], cause: str) -> None:
    pick = replace(picked(shape, "0"), dims=[shape, [], index])
    (one,) = found(program([*[pick] * 4, PRODUCT]), SLUG)
    assert one.cause == cause


def test_a_device_s_copies_are_held_against_its_own_work() -> None:
    """12 % of what the second device does, and 6 % of what both do."""
    trace = TraceBuilder()
    for step in range(4):
        at, number = 1_000 * US * step, 10 * step + 1
        trace.step(step, at, 1_000 * US)
        for place, (op, kernel, dur, device) in enumerate(
            [("aten::mm", NVJET, 880, 0), ("aten::clone", COPY, 120, 1), ("aten::mm", NVJET, 840, 1)]
        ):
            trace.op(op, at + 20 * US * place, 15 * US)
            trace.launch("cudaLaunchKernel", at + 20 * US * place + 5 * US, 5 * US, number + place)
            start = at + (60 if place < 2 else 181) * US
            trace.kernel(start, dur * US - (20 * US if place == 2 else 0), number + place, name=kernel, device=device)
    (one,) = programs.found(trace, SLUG)
    assert (one.by, one.device, one.count) == ("aten::clone", 1, 4)
    assert one.evidence["gpu_share"] == pytest.approx(120 / 940)
