"""Work that only moves data, and reordered state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.rules import programs
from tests.rules.kernel_programs import BF16, NVJET, US, Op, begun_later, changed, found, program
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Trace
from traceanalyzer.model.finding import Severity

GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
CHOICE, DECODED = Op("aten::topk", "gatherTopK", 10), Op("aten::mm", NVJET, 300)
PICK = Op("aten::index_select", GATHER, 60, grid=(80, 750))  # rows of 749 to 750 times 4 KiB
SLUG = "data-movement"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel_cuda>(int)"
PRODUCT = Op("aten::mm", NVJET, 100)
CLONE = Op("aten::clone", COPY, 100)
CACHE = [96, 16, 1088, 64]


def beams(picks: Sequence[Op] = (PICK,) * 4, before: Sequence[Op] = (CHOICE,)) -> Trace:
    """One token a step: a choice of beams, then the rows of each tensor."""
    return program([DECODED, *before, *picks])


def causes(trace: Trace) -> list[str]:
    return [one.cause for one in found(trace, "data-movement")]


def test_rows_of_several_tensors_after_a_choice_are_state() -> None:
    (one,) = found(beams(), "data-movement")
    assert (one.cause, one.by) == ("reorderings", "aten::index_select")
    assert one.severity is Severity.HIGH
    assert one.message.startswith(
        "aten::index_select picks large rows of tensor after tensor after each topk or sort"
    )
    assert "cross-attention" in one.advice
    assert one.evidence["gpu_share"] == pytest.approx(240 / 550)
    assert one.cost_ns == 6 * 240_000


@pytest.mark.parametrize(
    "trace",
    [
        lambda: beams([PICK] * 3),  # as many tensors as a batch has
        lambda: beams(before=[]),  # nothing was chosen
        lambda: beams([PICK, DECODED, PICK, PICK, PICK]),  # not right after each other
        lambda: beams([PICK, PICK, replace(PICK, grid=(79, 750)), PICK]),  # by different indices
        lambda: beams([PICK, PICK, replace(PICK, stream=8), PICK]),
        lambda: beams([replace(PICK, grid=(80, 16))] * 4),  # rows of 60 to 64 KiB
        lambda: beams([replace(PICK, kernel="void indexSelectLargeIndex<float>(int)")] * 4),
        lambda: beams(
            [replace(PICK, dims=[[800, 16, 1500, 64], [], [80]], types=[BF16, "", "long int"])] * 4
        ),
    ],
)
def test_other_gathers_are_the_work_itself(trace: object) -> None:
    assert callable(trace)
    assert causes(trace()) == ["gathers"]


def test_a_row_of_just_more_than_64_kib_is_large() -> None:
    assert causes(beams([replace(PICK, grid=(80, 17))] * 4)) == ["reorderings"]
    assert causes(beams([replace(PICK, grid=(80, 33), kernel=GATHER.replace("16", "8"))] * 4)) == [
        "reorderings"
    ]
    assert causes(beams([replace(PICK, grid=(80, 32), kernel=GATHER.replace("16", "8"))] * 4)) == ["gathers"]


def test_small_tensors_are_reordered_with_large_ones() -> None:
    small = replace(PICK, grid=(80, 4), dur=10)
    (one,) = found(beams([PICK, small, PICK, small, PICK, small, PICK]), "data-movement")
    assert one.cause == "reorderings"
    assert one.cost_ns == 6 * 270_000


def test_each_run_needs_its_own_choice() -> None:
    """The second run of a step picks what it likes."""
    trace = program([DECODED, CHOICE, *[PICK] * 4, DECODED, *[replace(PICK, dur=90)] * 4])
    assert {one.cause: one.cost_ns for one in found(trace, "data-movement")} == {
        "reorderings": 6 * 240_000,
        "gathers": 6 * 360_000,
    }


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
    assert one.cause == cause


@pytest.mark.parametrize(
    ("reader", "cause"),
    [("aten::relu", "gathers"), ("aten::cat", "reorderings"), ("aten::bmm", "reorderings")],
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


def test_reordered_state_is_told_by_what_is_known_of_most_of_it() -> None:
    """Of eight tensors the shapes of four are known: all their rows are put in another order."""
    bare = replace(picked(CACHE, "0"), dims=[], types=[], scalars=[], grid=(80, 750))
    (known,) = found(program([*[picked([96, 96, 1088, 64], "0")] * 4, PRODUCT]), SLUG)
    (bare_only,) = found(program([Op("aten::topk", "gatherTopK", 10), *[bare] * 4, PRODUCT]), SLUG)
    choice = Op("aten::topk", "gatherTopK", 10)
    (both,) = found(program([choice, *[bare] * 4, *[picked([96, 96, 1088, 64], "0")] * 4, PRODUCT]), SLUG)
    rows, picks = "puts all rows of a tensor in another order", "picks large rows of tensor after tensor"
    assert [(rows in one.message, picks in one.message) for one in (known, bare_only, both)] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert both.count == 6 * 8


@pytest.mark.parametrize(("times", "cause"), [(3, "gathers"), (4, "reorderings")])
def test_state_is_reordered_at_least_four_times_a_step(times: int, cause: str) -> None:
    (one,) = found(program([*[picked([96, 96, 1088, 64], "0")] * times, PRODUCT]), SLUG)
    assert one.cause == cause


@pytest.mark.parametrize(
    ("shape", "index", "cause"),
    [
        ([96, 32_768], [96], "gathers"),  # a row of numbers is no state of a layer
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
            trace.kernel(
                start, dur * US - (20 * US if place == 2 else 0), number + place, name=kernel, device=device
            )
    (one,) = programs.found(trace, SLUG)
    assert (one.by, one.device, one.count) == ("aten::clone", 1, 4)
    assert one.evidence["gpu_share"] == pytest.approx(120 / 940)
