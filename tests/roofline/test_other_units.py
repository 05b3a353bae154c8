"""Other arithmetic on a device's other units, types of tensors, and elements that lie in memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.op_calls import BF16, F32, LONG, signature
from traceanalyzer.roofline.gpus import Gpu, first_of, reached_flops_per_ns, speedup
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.tensors.signatures import (
    converts,
    has_float64,
    mixes_float64,
    tensors,
    widens_to_float64,
)

F64 = "double"
RATES = {"fp64": 10.0, "fp32": 20.0, "tf32": 100.0, "bf16": 200.0}


def gpu(capability: tuple[int, int] | None = (9, 0), **rates: float) -> Gpu:
    return Gpu("x", 132, capability, Peaks("x", {**RATES, **rates}, 1_000.0, ""))


@pytest.mark.parametrize(
    ("device", "kind", "now", "then", "times"),
    [
        (gpu(), "matmul", "fp64", "fp32", 20 * 0.76 / (10 * 0.90)),
        (gpu(), "matmul", "fp32", "tf32", 100 * 0.72 / (20 * 0.76)),
        (gpu(fp64=20.0), "matmul", "fp64", "fp32", 1.0),  # no slower than it is
        (gpu(), "convolution", "fp32", "tf32", 100 * 0.43 / (20 * 0.41)),
        (gpu((8, 9)), "convolution", "fp32", "tf32", 100 * 0.43 / (20 * 0.76)),  # as its products
        (gpu(None), "convolution", "fp32", "tf32", 100 * 0.43 / (20 * 0.76)),
        (gpu(), "attention", "fp32", "bf16", 200 * 0.40 / (20 * 0.50)),
        (gpu(), "matmul", "fp32", "fp8", None),
        (gpu(), "attention", "fp64", "bf16", None),
        (Gpu("new", 1, (9, 0), None), "matmul", "fp32", "tf32", None),
    ],
)
def test_how_many_times_as_quick_work_is_in_another_arithmetic(
    device: Gpu, kind: str, now: str, then: str, times: float | None
) -> None:
    assert speedup(device, kind, now, then) == (None if times is None else pytest.approx(times))


def test_the_first_arithmetic_that_the_device_has_counts() -> None:
    assert first_of(gpu(), "fp8", "bf16", "fp32") == "bf16"
    assert first_of(gpu(), "fp8") is None
    assert reached_flops_per_ns(gpu(), "matmul", "fp8", "bf16", "fp32") == pytest.approx(200 * 0.75 * 1e3)
    assert reached_flops_per_ns(gpu(), "matmul", "fp8") is None
    nothing = Gpu("new", 1, None, None)
    assert (first_of(nothing, "fp32"), reached_flops_per_ns(nothing, "matmul", "fp32")) == (None, None)


@pytest.mark.parametrize(
    ("name", "dims", "types", "told"),
    [
        ("mul", [[4], [4]], [F64, F64], (True, False, False)),
        ("mul", [[4], [4]], [F32, F64], (True, True, False)),
        ("mul", [[4], []], [F32, F64], (False, False, False)),  # a number of Python's
        ("mul", [[4], [1]], [F32, F64], (False, False, False)),
        ("mul", [[4], [2]], [F32, F64], (True, True, False)),
        ("mul", [[4], [4]], [LONG, F64], (True, False, False)),
        ("copy_", [[4], [4]], [F64, F32], (True, True, True)),
        ("copy_", [[4], [4]], [F32, F64], (True, True, False)),  # narrows
        ("copy_", [[4], [4]], [F64, LONG], (True, False, False)),
        ("mul", [[4]], ["c10::complex<double>"], (True, False, False)),
    ],
)
def test_doubles_count_if_a_tensor_of_several_has_them(
    name: str, dims: list[Any], types: list[str], told: tuple[bool, bool, bool]
) -> None:
    op = signature(name, dims, types)
    assert (has_float64(op), mixes_float64(op), widens_to_float64(op)) == told


@pytest.mark.parametrize(
    ("name", "types", "told"),
    [
        ("copy_", [F32, BF16], True),
        ("copy_", [F32, F32], False),
        ("copy_", [F32, F64], False),
        ("copy_", [F32, LONG], False),
        ("copy_", [F32, "QInt8"], False),
        ("copy_", ["QInt8", "QInt8"], None),
        ("to", [F32, BF16], None),
    ],
)
def test_a_copy_converts_from_one_floating_type_to_another(
    name: str, types: list[str], told: bool | None
) -> None:
    assert converts(signature(name, [[4], [4]], types)) is told


def test_tensors_are_those_with_shapes_and_those_in_lists() -> None:
    assert tensors(signature("cat", [[[2, 3], [4, 3]], [], [5]], ["TensorList", "Scalar", F32])) == [
        (5,),
        (2, 3),
        (4, 3),
    ]
    assert tensors(signature("index", [[2, 3], [[], [4]], ["x", 2]], [F32, "", F32])) == [(2, 3), (4,)]


@pytest.mark.parametrize(
    ("strides", "elements"),
    [
        ([[3, 1]], 6),
        ([[0, 1]], 3),  # expanded: one row in memory
        ([[0, 0]], 1),
        ([[1]], 6),  # of another shape: not believed
        ([["a", 0]], 6),
        ([], 6),
        ([7], 6),
    ],
)
def test_what_is_expanded_is_in_memory_once(strides: list[Any], elements: int) -> None:
    op = signature("sum", [[2, 3]], [BF16], strides=strides)
    assert (op.elements(0), op.bytes(0)) == (elements, 2 * elements)
