"""One-hot tensors in training: what backward of a product with them does again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.programs import US, found
from tests.rules.test_one_hot import CONVERTED, PRODUCT, SEEN, training
from tests.support.trace_builder import TraceBuilder

F32, BF16 = "float", "c10::BFloat16"


def trained(name: str, shape: list[int], kinds: tuple[str, ...], behind: int) -> TraceBuilder:
    """After the product an op of 900 us in a node of autograd, whose number lies so far before the product's."""
    trace = training(CONVERTED, PRODUCT, (name, 900, (shape, shape), kinds))
    ops = [one for one in trace.events if one["name"] in ("aten::mul", "aten::copy_")]
    for number, place in enumerate(range(0, len(ops), 3), 1):
        _, product, again = ops[place : place + 3]
        product["args"]["Sequence number"] = 10 * number
        sequence: dict[str, Any] = {"Sequence number": 10 * number - behind}
        trace.op("MulBackward0", round(again["ts"] * US) - US // 2, 21 * US, **sequence)
    return trace


@pytest.mark.parametrize(
    ("name", "shape", "kinds", "behind", "saved_us"),
    [
        pytest.param("aten::mul", SEEN, (F32, F32), 0, 600, id="its own: a third is written"),
        pytest.param("aten::mul", SEEN, (F32, F32), 1, 0, id="another product's"),
        pytest.param("aten::mul", [16, 256], (F32, F32), 0, 0, id="of another size"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 1, 900, id="a change of layout"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 2, 900, id="behind a view"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 3, 0, id="far behind"),
        pytest.param("aten::copy_", SEEN, (F32, F32), 0, 0, id="its own copy"),
        pytest.param("aten::copy_", SEEN, (F32, BF16), 1, 0, id="a conversion"),
    ],
)
def test_backward_of_the_product_is_saved_too(
    name: str, shape: list[int], kinds: tuple[str, ...], behind: int, saved_us: int
) -> None:
    (plain,) = found(training(CONVERTED, PRODUCT), "one-hot")
    (one,) = found(trained(name, shape, kinds, behind), "one-hot")
    assert one.cost_ns == pytest.approx(plain.cost_ns + 4 * saved_us * US, rel=1e-5)
    assert one.evidence["reading_ns"] == 4 * (2_000 + 900 * bool(saved_us)) * US
