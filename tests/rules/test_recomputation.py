"""What backward does again, and the checks of anomaly mode."""

from collections.abc import Sequence

import pytest

from tests.rules.kernel_programs import NVJET, US, found
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.finding import Severity


def anomaly_mode(*unchecked: str) -> TraceBuilder:
    """Four steps, each with five nodes of backward and the three ops that check each, and nodes without checks."""
    trace = TraceBuilder()
    for step in range(4):
        begin = step * 400 * US
        trace.step(step, begin, 399 * US)
        for node in range(5):
            at = begin + node * 70 * US
            trace.op(f"autograd::engine::evaluate_function: MulBackward{node}", at, 60 * US)
            for place, name in enumerate(("aten::ne", "aten::any", "aten::item")):
                trace.op(name, at + (20 + 10 * place) * US, 9 * US)
                trace.launched((at + (21 + 10 * place) * US, 3 * US), (at + (26 + 10 * place) * US, 2 * US))
        for place, name in enumerate(unchecked):
            trace.op(f"autograd::engine::evaluate_function: {name}", begin + (350 + 5 * place) * US, 4 * US)
    return trace


def test_nodes_that_compute_no_gradient_need_no_check() -> None:
    """Five nodes of eleven are checked; the others accumulate, or give a view."""
    views = ("ViewBackward0", "TBackward0", "TransposeBackward0", "ExpandBackward0")
    (one,) = found(anomaly_mode(*["torch::autograd::AccumulateGrad"] * 2, *views).load(), "recomputation")
    assert (one.cause, one.evidence["checks"]) == ("anomaly-mode", 20)


def backward(numbers: Sequence[int | None], node: str = "MulBackward0") -> TraceBuilder:
    """Six steps of one backward node whose ops have these sequence numbers, a kernel each."""
    trace = TraceBuilder()
    for step in range(6):
        begin = step * 1_000 * US
        trace.step(step, begin, 999 * US)
        trace.op(f"autograd::engine::evaluate_function: {node}", begin, 900 * US)
        trace.op(node, begin + 1 * US, 890 * US)
        for place, sequence in enumerate(numbers):
            at = begin + (10 + 20 * place) * US
            recorded = {} if sequence is None else {"Sequence number": sequence}
            trace.op("aten::mm", at, 15 * US, **recorded)
            trace.launched((at + 1 * US, 3 * US), (begin + (50 + 100 * place) * US, 99 * US), name=NVJET)
    return trace


def test_sequence_numbers_show_forward_within_backward() -> None:
    (one,) = found(backward([7, 8, None]).load(), "recomputation")
    assert (one.cause, one.count) == ("checkpoint", 12)
    (other,) = found(backward([7, 8], "CheckpointFunctionBackward").load(), "recomputation")
    assert other.count == 12


def test_what_is_repeated_goes_by_its_own_op() -> None:
    """Two of three products are forward's; the third is the node's."""
    (one,) = found(backward([7, 8, None]).load(), "hotspot")
    assert (one.by, one.evidence["gpu_ns"]) == ("aten::mm", 198 * US)
    (one,) = found(backward([None, None, None]).load(), "hotspot")
    assert (one.by, one.evidence["gpu_ns"]) == ("MulBackward0", 297 * US)


def test_gradients_of_gradients_are_no_recomputation() -> None:
    assert found(backward([7, 8, 9]).load(), "recomputation") == []
    assert found(backward([None, None]).load(), "recomputation") == []


@pytest.mark.parametrize(("again", "others"), [(7, 1), (1, 7)])
def test_checkpointing_is_a_choice_with_its_price(again: int, others: int) -> None:
    (one,) = found(backward([*[7] * again, *[None] * others]).load(), "recomputation")
    assert one.severity is Severity.INFO
    assert one.evidence["gpu_share"] == pytest.approx(again / (again + others))
    assert one.saving is not None


@pytest.mark.parametrize(("others", "said"), [(5, 1), (6, 0)])
def test_anomaly_mode_checks_at_least_half_of_the_nodes(others: int, said: int) -> None:
    assert len(found(anomaly_mode(*["MulBackward0"] * others).load(), "recomputation")) == said


def test_questions_of_the_program_itself_are_no_checks() -> None:
    """`loss.item()` after each step, and within an op that a node calls."""
    trace = anomaly_mode()
    for step in range(4):
        trace.op("aten::item", (step * 400 + 380) * US, 5 * US)
        trace.op("aten::is_nonzero", (step * 400 + 390) * US, 5 * US)
    (one,) = found(trace.load(), "recomputation")
    assert one.evidence["checks"] == 20
    assert one.count == 60
