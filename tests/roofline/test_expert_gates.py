"""Gates of a mixture of experts, and what follows them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.roofline.expert_gates import Gate, gates_of, in_forward, is_product, summed_dimension
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.signatures import Signature, signatures_of


def signature(name: str, dims: list[Any], scalars: list[str] | None = None) -> Signature:
    trace = TraceBuilder(record_shapes=1)
    types = ["float" if one else "Scalar" for one in dims]
    trace.op(name, 0, 1_000, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": scalars or []})
    calls = Analysis(trace.load()).index(Calls)
    _, (found,) = signatures_of(calls.events.trace, calls.rows)
    return found


def topk(shape: list[int], kept: str) -> Signature:
    return signature("aten::topk", [shape, [], [], [], []], ["", kept, "-1", "True", "True"])


@pytest.mark.parametrize(
    ("shape", "kept", "gates"),
    [
        ([512, 8], "2", [Gate(512, 8, 2)]),
        ([16, 32, 8], "2", [Gate(512, 8, 2)]),  # rows of all sequences
        ([512, 8], "4", [Gate(512, 8, 4)]),  # half of them
        ([512, 8], "5", []),
        ([512, 8], "0", []),
        ([511, 8], "2", []),
        ([512, 8], "", []),
    ],
)
def test_a_gate_keeps_few_of_the_experts_for_many_rows(
    shape: list[int], kept: str, gates: list[Gate]
) -> None:
    assert gates_of([topk(shape, kept)], 0.5, 512) == gates


def test_gates_come_once_and_in_order_and_other_ops_are_none() -> None:
    other = signature("aten::sort", [[512, 8], [], []], ["", "2", "True"])
    ops = [topk([900, 8], "2"), topk([512, 8], "2"), other, topk([900, 8], "2")]
    assert gates_of(ops, 0.5, 512) == [Gate(512, 8, 2), Gate(900, 8, 2)]


@pytest.mark.parametrize(
    ("name", "dims", "summed"),
    [
        ("aten::mm", [[3, 5], [5, 7]], 5),
        ("aten::bmm", [[2, 3, 5], [2, 5, 7]], 5),
        ("aten::addmm", [[7], [3, 5], [5, 7], [], []], 5),
        ("aten::baddbmm", [[2, 3, 7], [2, 3, 5], [2, 5, 7], [], []], 5),
        ("aten::add", [[3, 5], [3, 5]], None),
    ],
)
def test_a_product_sums_over_the_last_size_of_its_first_matrix(
    name: str, dims: list[Any], summed: int | None
) -> None:
    op = signature(name, dims)
    assert summed_dimension(op) == summed
    assert is_product(op) is (summed is not None)
    assert not is_product(signature(name, []))
    assert summed_dimension(signature(name, [])) is None


def test_forward_work_has_an_op_and_no_backward_node() -> None:
    trace = TraceBuilder()
    for number, name in enumerate(
        ("aten::mm", "MmBackward0", "autograd::engine::evaluate_function: MmBackward0", "MmBackward", None)
    ):
        if name:
            trace.op(name, number * 10_000, 5_000)
            trace.op("aten::mm", number * 10_000 + 10, 4_000)
            trace.launch("cudaLaunchKernel", number * 10_000 + 100, 1_000, number + 1)
        trace.kernel(number * 10_000 + 2_000, 1_000, number + 1)
    work = Analysis(trace.load()).index(Work)
    assert in_forward(work).tolist() == [True, False, False, False, False]
