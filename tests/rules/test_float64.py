"""Arithmetic in float64: what it is taken to cost, and what of it is deliberate."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rules.kernel_programs import F32, F64, US, Op, by_step, found, program
from tests.support.trace_builder import H200, TraceBuilder

FIELD = [[2048, 2048]] * 2
VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native::add>(int)"
PLACED = "void at::native::elementwise_kernel<128, 2, at::native::add>(int)"
LEAK = Op("aten::add", VECTORIZED, 50, FIELD, [F32, F64])


def test_conversions_go_and_float64_work_is_halved() -> None:
    cast = Op("aten::copy_", VECTORIZED, 100, FIELD, [F64, F32])
    (one,) = found(program([cast, LEAK]), "float64-math")
    assert (one.cost_ns, one.evidence["casts"]) == (6 * (100 + 25) * US, 6)


@pytest.mark.parametrize(
    ("dur", "sms", "left_ns"),
    [
        pytest.param(20, 132, 0.003 * 1_024 * 4_096, id="3 ps an element"),
        pytest.param(20, 264, 10_000, id="half, where more multiprocessors work out places"),
        pytest.param(20, 66, 20_000, id="no more than now"),
        pytest.param(40, 132, 20_000, id="half"),
    ],
)
def test_indexing_takes_as_long_in_float32(dur: int, sms: int, left_ns: float) -> None:
    """A row is broadcast over 1,024 others: as many elements as the larger tensor has."""
    placed = Op("aten::add", PLACED, dur, [[1_024, 4_096], [4_096]], [F64, F64])
    (one,) = found(program([placed, LEAK], device={**H200, "numSms": sms}), "float64-math")
    assert one.cost_ns == pytest.approx(6 * (dur * US - left_ns + 25 * US), rel=1e-3)


@pytest.mark.parametrize(("uploads", "cause"), [(False, "throughout"), (True, "")])
def test_uploaded_float64_is_not_deliberate(uploads: bool, cause: str) -> None:
    trace, number = TraceBuilder(record_shapes=1), 0
    inputs = {"Input Dims": FIELD, "Input type": [F64, F64]}
    for step in range(3):
        begin = step * 1_000 * US
        trace.step(step, begin, 1_000 * US)
        for place, name in enumerate(["aten::mul", "aten::copy_"][: 1 + uploads]):
            at, number = begin + (10 + place * 400) * US, number + 1
            trace.op(name, at, 20 * US, **inputs)
            trace.launch("cudaMemcpyAsync" if place else "cudaLaunchKernel", at + 5 * US, 5 * US, number)
            if place:
                copied = "Memcpy HtoD (Pageable -> Device)"
                trace.memcpy(at + 15 * US, 200 * US, number, name=copied, size=1 << 25)
            else:
                trace.kernel(at + 15 * US, 300 * US, number, name=VECTORIZED)
    (one,) = found(trace.load(), "float64-math")
    assert (one.cause, one.count) == (cause, 3)
    assert one.message.startswith("every floating tensor is float64, which may be deliberate") is not uploads


def test_the_first_mixing_op_of_the_last_step_is_named() -> None:
    """In the first step another op comes first."""
    late = replace(LEAK, name="aten::sub")

    def change(event: dict[str, Any], step: int) -> None:
        if step == 0 and event.get("name") == "aten::add":
            event["name"] = "aten::div"

    (one,) = found(by_step(program([LEAK, late]), change), "float64-math")
    assert one.evidence["first_op"] == "aten::add"
    assert "float64 enters with aten::add of 2048x2048, 2048x2048" in one.message
