"""What each iteration of a loop computes, though no op reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, US, Op, begun_later, found, program
from tests.support.sampling_loops import ADD, both, conv, of_one
from tests.support.trace_builder import H200, TraceBuilder
from tests.support.unread_refinements import (
    BEFORE,
    HEAD,
    IMAGE,
    INNER,
    LARGE,
    MASK,
    SHUFFLE,
    SOFTMAX,
    STATE,
    UPDATE,
    refined,
)
from traceanalyzer import Trace, diagnose
from traceanalyzer.model.finding import Status
from traceanalyzer.rules.tensors.unread_results import Made
from traceanalyzer.tensors.signatures import Signature

SLUG = "unread-results"
SPENT = 100 + 30 + 50


def of_list(name: str, count: int) -> Op:
    return Op(name, ADD, 5, [[LARGE] * count, []], ["TensorList", "Scalar"], scalars=["", "0"])


def test_results_of_all_iterations_but_the_last_are_needless() -> None:
    (one,) = found(program(refined()), SLUG)
    assert one.cost_ns == 6 * 4 * SPENT * 1_000
    assert one.count == 6 * 4 * 3
    assert "each of 5 iterations of a loop makes a tensor of 8x9x64x64 that no later op reads" in one.message
    assert one.evidence["iterations"] == 5
    assert one.evidence["gpu_share"] == pytest.approx(4 * SPENT / (5 * (SPENT + 630) + 70), rel=1e-3)
    assert one.saving is not None
    assert one.saving.share > 0.1


RELU_ = of_one("relu_", MASK)
SCALED = of_one("sigmoid", STATE, 2)  # as the state has its shape, the next iteration may read it
BETWEEN = [conv(STATE, 36, 100), SCALED, SOFTMAX, SHUFFLE]


@pytest.mark.parametrize(
    ("head", "spent"),
    [
        ([conv(STATE, 36, 100), RELU_, SOFTMAX, SHUFFLE], SPENT + 20),
        ([*HEAD, of_one("sigmoid", LARGE)], SPENT + 20),
        (BETWEEN, SPENT),
        ([conv(STATE, 36, 100), of_one("silu", MASK), conv(MASK, 36, 70)], 100 + 20 + 70),
        ([conv(STATE, 48, 90), *HEAD], SPENT + 90),
    ],
    ids=["in-place", "same-shape", "between", "read-before", "two-results"],
)
def test_all_that_only_the_result_needs_goes_with_it(head: list[Op], spent: int) -> None:
    (one,) = found(program(refined(head)), SLUG)
    assert one.cost_ns == 6 * 4 * spent * 1_000


def test_the_last_result_may_be_read_even_several_times() -> None:
    (one,) = found(program(refined(after=[both("sub", LARGE)])), SLUG)
    assert one.cost_ns == 6 * 4 * SPENT * 1_000
    assert found(program(refined(after=[both("sub", LARGE), of_one("abs", LARGE)])), SLUG) == []
    assert len(found(program(refined(after=[INDEXED] * 2)), SLUG)) == 1  # by tensors that may be the results
    assert found(program(refined(after=[INDEXED] * 3)), SLUG) == []


def test_the_iteration_may_begin_with_what_comes_last() -> None:
    ops = [*BEFORE, *HEAD, *refined()[2:]]  # the ops before the loop end like an iteration
    (one,) = found(program(ops), SLUG)
    assert one.cost_ns == 6 * 5 * SPENT * 1_000


def streamed(name: str, dim: int, shape: list[int], each: int = 1) -> list[Op]:
    """Each iteration takes a part of a tensor."""
    ops = list(BEFORE)
    for at in range(5):
        numbers = [str(dim), str(at * each), str(at * each + 1), "1"]
        types = [BF16, *["Scalar"] * 4]
        ops += [Op(name, "", 0, [shape, [], [], [], []], types, scalars=["", *numbers]), *UPDATE, *HEAD]
    return ops


def cut(name: str, shape: list[int], *numbers: str) -> Op:
    return Op(
        name, "", 0, [shape, *[[]] * len(numbers)], [BF16, *["Scalar"] * len(numbers)], scalars=["", *numbers]
    )


PLAIN = Op("aten::cat", ADD, 5, [[], []], ["TensorList", "Scalar"], scalars=["", "0"])
VIEW = Op("aten::select", "", 0, [[5, *LARGE], [], []], [BF16, "Scalar", "Scalar"], scalars=["", "0", "1"])
STORE = Op("aten::copy_", ADD, 5, [LARGE, LARGE, []], [BF16, BF16, "Scalar"], scalars=["", "", "False"])
FLAT = Op("aten::mm", ADD, 90, [[8192, 64], [64, 36]], [BF16] * 2)
OUT = Op("aten::mm", ADD, 90, [[8192, 64], [64, 36], [8192, 36]], [BF16] * 3)
BACK = Op(
    "aten::mm",
    ADD,
    5,
    [[7, 7], [7, 7]],
    [BF16] * 2,
    inside="autograd::engine::evaluate_function: MmBackward0",
)
INDEXED = Op("aten::index", ADD, 5, [[99, 7], []], [BF16, ""], scalars=["", ""])
NETWORK = [conv(IMAGE, 64, 50), conv(STATE, 96, 300), of_one("relu", INNER), conv(INNER, 64, 300)]


@pytest.mark.parametrize(
    "ops",
    [
        refined(times=2),
        refined(after=[of_list("aten::stack", 5)]),
        refined(after=[PLAIN]),
        refined(after=[Op("library::loss", ADD, 5)]),
        refined(after=[Op("library::loss", ADD, 5, [[]], ["Scalar"])]),
        refined(after=[BACK]),
        refined([*HEAD, VIEW, STORE]),
        refined([*HEAD, of_one("unknown", LARGE)]),
        refined([OUT]),
        refined([*HEAD, INDEXED]),
        refined([SOFTMAX, SHUFFLE]),
        refined([conv(STATE, 36, 100), of_one("dropout", MASK)]),
        refined([Op("library::conv2d", ADD, 100, [STATE], [BF16])]),
        [*BEFORE, *[*NETWORK, *HEAD] * 5],
        [*BEFORE, *[conv(LARGE, 3, 30, 2), conv(IMAGE, 64, 50), *UPDATE, *HEAD] * 5],
        refined([], update=[*UPDATE[:3], conv(STATE, 64, 100)]),
        streamed("aten::select", 1, [8, 5, 64]),
        streamed("aten::slice", 2, [8, 50, 64]),
        [cut("aten::unbind", [8, 5, 64], "1"), *refined()],
        [cut("aten::chunk", [8, 10, 64], "5", "1"), *refined()],
        [cut("aten::split", [8, 9, 64], "2", "1"), *refined()],
    ],
    ids=[
        "two",
        "list",
        "unknown-list",
        "library",
        "library-without-tensors",
        "training",
        "stored",
        "unknown",
        "out",
        "indexed",
        "no-layer",
        "random",
        "library-made",
        "calls",
        "next-reads",
        "state-alone",
        "select",
        "slice",
        "unbind",
        "chunk",
        "split",
    ],
)
def test_what_something_may_read_is_left_alone(ops: list[Op]) -> None:
    assert found(program(ops), SLUG) == []


@pytest.mark.parametrize(
    "ops",
    [
        streamed("aten::select", 0, [5]),
        streamed("aten::expand", 1, [8, 5, 64]),
        streamed("aten::select", 1, [8, 5, 64], each=0),
        [cut("aten::unbind", [8, 6, 64], "1"), *refined()],
        [cut("aten::chunk", [8, 10, 64], "2", "1"), *refined()],
        [cut("aten::split", [8, 9, 64], "5", "1"), *refined()],
        [cut("aten::split", [8, 9, 64], "0", "1"), *refined()],
    ],
    ids=["schedule", "other-view", "same-item", "unbind", "chunk", "split", "damaged"],
)
def test_what_takes_no_item_of_a_sequence_is_no_loop_over_it(ops: list[Op]) -> None:
    (one,) = found(program(ops), SLUG)
    assert one.cost_ns == 6 * 4 * SPENT * 1_000


def test_a_product_that_writes_to_no_tensor_of_others_is_told() -> None:
    (one,) = found(program(refined([FLAT])), SLUG)
    assert one.cost_ns == 6 * 4 * 90 * 1_000


ZEROS = Op("aten::zeros", ADD, 5, [[], []], ["ScalarList", ""])
TO_HOST, TO_DEVICE = "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)"


@pytest.mark.parametrize(
    ("ops", "count"),
    [
        (refined(after=[ZEROS]), 1),
        (refined(after=[Op("", ADD, 5)]), 0),
        (refined([Op("aten::to", TO_DEVICE, 5, [[9, 9], []], [BF16, ""]), *HEAD]), 0),
        ([Op("aten::to", TO_DEVICE, 5, [[9, 9], []], [BF16, ""]), *refined()], 1),
        (refined([*HEAD[:2], replace(SHUFFLE, kernel=TO_HOST)]), 0),
    ],
    ids=["no-input", "no-op", "upload-in-loop", "upload-before", "to-host"],
)
def test_work_without_an_op_may_read_anything(ops: list[Op], count: int) -> None:
    assert len(found(_with_copies(ops), SLUG)) == count


def test_steps_without_backward_are_looked_at_alone() -> None:
    trained = refined(times=3, after=[BACK, Op("library::step", ADD, 5)])
    (one,) = found(_with_copies(refined(), trained), SLUG)
    assert one.count == 4 * 3


def _with_copies(*steps: Sequence[Op]) -> Trace:
    """Steps of such ops; one without a name is a launch outside ops."""
    trace, number = TraceBuilder(devices=[H200], record_shapes=1), 0
    for step, ops in enumerate(steps):
        begin = 320 * US * (number + 1)
        for op in ops:
            number += 1
            cpu = 320 * US * number
            if op.inside:
                trace.op(op.inside, cpu - US, 10 * US)
            if op.name:
                shapes = {"Input Dims": op.dims, "Input type": op.types, "Concrete Inputs": op.scalars}
                trace.op(op.name, cpu, 8 * US, **shapes)
            trace.launch("cudaLaunchKernel", cpu + US, 3 * US, number)
            if op.kernel.startswith("Memcpy"):
                trace.memcpy(cpu + 10 * US, op.dur * US, number, name=op.kernel)
            else:
                trace.kernel(cpu + 10 * US, op.dur * US, number, name=op.kernel)
        trace.step(step, begin - 2 * US, 320 * US * (number + 1) - 3 * US - begin)
    return trace.load()


@pytest.mark.parametrize(
    ("name", "dims", "scalars", "makes"),
    [
        ("pixel_shuffle", [[8, 36, 5, 7], []], ["", "2"], (8, 9, 10, 14)),
        ("flatten", [[8, 36, 5, 7], [], []], ["", "1", "-2"], (8, 180, 7)),
        ("flatten", [[8, 36, 5, 7], [], []], ["", "0", "1"], (288, 5, 7)),
        (
            "im2col",
            [[4, 2, 55, 128], [], [], [], []],
            ["", "[3, 5]", "[1, 2]", "[1, 0]", "[1, 2]"],
            (4, 30, 55 * 60),
        ),
        ("im2col", [[4, 2, 55, 128], [], [], [], []], ["", "[3, 3]", "[1, 1]", "[1, 1]", ""], None),
        ("pixel_shuffle", [[], []], ["", "2"], None),
        ("relu_", [[8, 9]], [""], (8, 9)),
        ("add_", [[8, 9], [8, 9]], ["", ""], None),
        ("mm", [[8, 9], [9, 7]], ["", ""], (8, 7)),
        ("mm", [[8, 9], [9, 7], [8, 7]], ["", "", ""], None),
        ("add", [[8, 9], [8, 9], []], ["", "", "1"], (8, 9)),
        ("add", [[8, 9], [8, 9], [], [8, 9]], ["", "", "1", ""], None),
        ("addmm", [[7], [8, 9], [9, 7], [], []], ["", "", "", "1", "1"], (8, 7)),
        ("dropout", [[8, 9], [], []], ["", "0.1", "True"], None),
        ("randn_like", [[8, 9]], [""], None),
        ("sum", [[8, 9], [], []], ["", "[0, 1]", "False"], None),
    ],
)
def test_shapes_of_results(
    name: str, dims: list[list[int]], scalars: list[str], makes: tuple[int, ...] | None
) -> None:
    op = Signature(
        f"aten::{name}", tuple(dims), tuple("float" if one else "Scalar" for one in dims), tuple(scalars)
    )
    assert Made.of(op, hands_out=False).makes == makes
    assert Made.of(op, hands_out=True).makes is None
    assert Made.of(replace(op, name=name), hands_out=False).makes is None


CARRIED = [conv(IMAGE, 64, 50), both("add", STATE), *UPDATE[:3]]


def test_a_state_read_with_a_newer_equal_shape_is_read() -> None:
    (one,) = found(program(refined(update=CARRIED)), SLUG)
    assert one.cost_ns == 6 * 4 * SPENT * 1_000


def test_without_shapes_the_rule_does_not_apply() -> None:
    ops = [Op(one.name, one.kernel, one.dur) for one in refined()]
    (outcome,) = diagnose(program(ops), select=[SLUG]).outcomes
    assert outcome.status is Status.NOT_APPLICABLE


def test_a_result_made_across_two_iterations() -> None:
    """Before the loop is what ends an iteration, of other times: its product was not made in the loop."""
    others = [replace(SOFTMAX, dur=7), replace(SHUFFLE, dur=9)]
    (one,) = found(program([*BEFORE, *others, *refined()[2:]]), SLUG)
    assert one.cost_ns == 6 * 4 * SPENT * 1_000
    assert one.count == 6 * 4 * 3


@pytest.mark.parametrize(("count", "said"), [(4, True), (5, False)])
def test_a_list_as_long_as_the_loop_holds_its_results(count: int, said: bool) -> None:
    """Without the masks, only a shuffle is left that nothing reads."""
    joined = Op("aten::stack", ADD, 5, [[MASK] * count, []], ["TensorList", "Scalar"], scalars=["", "0"])
    assert bool(found(program(refined(after=[joined])), SLUG)) is said


@pytest.mark.parametrize(("start_us", "said"), [(1, True), (500, False)])
def test_work_launched_before_recording_reads_nothing(start_us: int, said: bool) -> None:
    """The first recorded launch's kernel starts at 6 us: what is not linked later on may read anything."""
    assert bool(found(program(refined(), unlinked_us=start_us), SLUG)) is said


def test_steps_that_were_recorded_whole_are_looked_at() -> None:
    (one,) = found(begun_later(program(refined())), SLUG)
    assert one.cost_ns == 5 * 4 * SPENT * 1_000
