"""One-hot tensors: what makes and converts them, and the product that reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rules.kernel_programs import Op, program
from tests.rules.programs import US, found
from tests.support.execution_traces import Call, Tensor, written
from tests.support.gathered_products import GEMM
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose, load
from traceanalyzer.model.finding import Confidence

LONG, F32, BF16 = "long int", "float", "c10::BFloat16"
ROWS, CLASSES = 1024 * 1024, 100
INDEX, SEEN, FLAT = [16, 256, 256], [16, CLASSES, 256, 256], [ROWS, CLASSES]
# Name, µs on the device, shapes, types, and sequence number.
Piece = tuple[str, int, list[Any], list[str], int]

SOFTMAX: Piece = ("aten::softmax", 800, [SEEN, [], []], [F32, "Scalar", ""], 9)
ONE_HOT: Piece = ("aten::one_hot", 430, [INDEX, []], [LONG, "Scalar"], -1)
CONVERTED: Piece = ("aten::to", 700, [SEEN, []], [LONG, "Scalar"], -1)
PRODUCT: Piece = ("aten::mul", 2_000, [SEEN, SEEN], [F32, F32], 10)
LOOKUP: Piece = ("aten::matmul", 900, [FLAT, [CLASSES, 64]], [F32, F32], -1)


def training(*pieces: Piece, steps: int = 4) -> TraceBuilder:
    """Steps of these ops, one kernel each; nodes of backward run a copy."""
    trace, at, number = TraceBuilder(), 0, 0
    for step in range(steps):
        begin = at
        for name, dur, dims, types, sequence in (("aten::randn", 3_000, [[9]], [F32], -1), *pieces):
            recorded: dict[str, Any] = {"Input Dims": dims, "Input type": types}
            if name == "aten::one_hot":
                recorded["Concrete Inputs"] = ["", str(CLASSES)]
            if sequence >= 0:
                recorded["Sequence number"] = 100 * step + sequence
            trace.op(name, at, 20 * US, tid=7 if "Backward" in name else 1000, **recorded)
            if "Backward" in name:
                inner: dict[str, Any] = {"Input Dims": dims, "Input type": types}
                trace.op("aten::copy_", at + 2 * US, 16 * US, tid=7, **inner)
            number += 1
            trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number, tid=7 if "Backward" in name else 1000)
            trace.kernel(at + 15 * US, dur * US, number)
            at += (dur + 20) * US
        trace.step(step, begin, at - begin)
    return trace


def test_a_product_with_one_hot_becomes_a_gather() -> None:
    (one,) = found(training(SOFTMAX, ONE_HOT, CONVERTED, PRODUCT), "one-hot")
    gather_us = 25  # 16 bytes for each of a million values at 4.8 TB/s, of which gather reaches 0.14
    assert one.cost_ns == pytest.approx(4 * (430 + 700 + 2_000 - gather_us) * US, rel=0.001)
    assert one.evidence["making_ns"] == 4 * 430 * US
    assert one.evidence["converting_ns"] == 4 * 700 * US
    assert one.evidence["readers"] == {"aten::mul": 4 * 2_000 * US}
    assert one.confidence is Confidence.MEDIUM
    assert "to compute with them, in aten::mul" in one.message


def test_a_product_with_a_table_becomes_an_embedding() -> None:
    table: Piece = ("aten::to", 9, [[CLASSES, 64], []], [F32, "Scalar"], -1)
    (one,) = found(training(ONE_HOT, CONVERTED, table, LOOKUP), "one-hot")
    assert one.evidence["converting_ns"] == 4 * 700 * US  # not the table
    rows_us = ROWS * (2 * 64 * 4 + 8) / 4_800e3 / 0.14  # of the embedding, each read and written
    assert one.cost_ns == pytest.approx(4 * (430 + 700 + 900 - rows_us) * US, rel=0.001)


@pytest.mark.parametrize(
    ("after", "converted"),
    [
        ([], 0),
        ([("aten::to", 700, [SEEN, []], [BF16, "Scalar"], -1)], 0),  # of another tensor
        ([CONVERTED, ("aten::mul", 900, [SEEN, []], [F32, "Scalar"], -1)], 700),
        ([CONVERTED, ("aten::mul", 900, [SEEN, [16, 1, 256, 256]], [F32, F32], -1)], 700),
        ([CONVERTED, ("aten::matmul", 900, [[64, ROWS], FLAT], [F32, F32], -1)], 700),
        ([CONVERTED, *[("aten::exp", 1, [[9]], [F32], -1)] * 4, PRODUCT], 700),
    ],
)
def test_what_is_not_surely_of_the_mask_is_not_counted(after: list[Piece], converted: int) -> None:
    (one,) = found(training(ONE_HOT, *after), "one-hot")
    assert one.cost_ns == 4 * (430 + converted) * US
    assert (one.evidence["reading_ns"], one.confidence) == (0, Confidence.HIGH)


def test_on_unknown_devices_products_save_nothing() -> None:
    trace = training(ONE_HOT, CONVERTED, PRODUCT)
    trace.header["deviceProperties"][0]["name"] = "Another GPU"
    (one,) = found(trace, "one-hot")
    assert one.evidence["reading_ns"] == 4 * 2_000 * US
    assert one.cost_ns == 4 * (430 + 700) * US


@pytest.mark.parametrize(
    ("name", "types", "sequence", "saved_us"),
    [
        pytest.param("MulBackward0", [F32, F32], 10, 600, id="its own: a third is written"),
        pytest.param("SoftmaxBackward0", [F32, F32], 9, 900, id="a change of layout"),
        pytest.param("SoftmaxBackward0", [F32, BF16], 9, 0, id="a conversion"),
        pytest.param("ExpBackward0", [F32, F32], 8, 0, id="of another op"),
    ],
)
def test_backward_of_the_product_is_saved_too(name: str, types: list[str], sequence: int, saved_us: int) -> None:
    forward: list[Piece] = [("aten::exp", 1, [[9]], [F32], 8), SOFTMAX, ONE_HOT, CONVERTED, PRODUCT]
    (plain,) = found(training(*forward), "one-hot")
    (one,) = found(training(*forward, (name, 900, [SEEN, SEEN], types, sequence)), "one-hot")
    assert one.cost_ns == pytest.approx(plain.cost_ns + 4 * saved_us * US, rel=1e-5)


def test_every_product_that_reads_the_tensor_is_followed(tmp_path: Path) -> None:
    """Ids of tensors show two products behind five other ops; another product reads other tensors."""
    mask, float_mask, probs, others = (Tensor(storage, tuple(SEEN)) for storage in (2, 3, 4, 5))
    results = [Tensor(storage, tuple(SEEN)) for storage in (6, 7, 8)]
    calls = [
        Call("aten::one_hot", (Tensor(1, tuple(INDEX)),), (mask,), numbers=(float(CLASSES),), gpu=430 * US),
        Call("aten::to", (mask,), (float_mask,), gpu=700 * US),
        *[Call("aten::exp", (probs,), (others,), gpu=300 * US)] * 5,
        Call("aten::mul", (float_mask, others), (results[0],), gpu=2_000 * US),
        Call("aten::mul", (probs, others), (results[1],), gpu=1_000 * US),
        Call("aten::mul", (others, float_mask), (results[2],), gpu=2_000 * US),
        Call("mine::read", tuple(results)),
    ]
    path = written(tmp_path, [calls] * 3)
    content = json.loads(path.read_text())
    for event in content["traceEvents"]:
        if event.get("name") in ("aten::one_hot", "aten::to") and event.get("cat") == "cpu_op":
            event["args"] |= {"Concrete Inputs": ["", str(CLASSES)], "Input type": [LONG, ""]}
    path.write_text(json.dumps(content))
    (one,) = diagnose(load(path), select=("one-hot",)).findings
    assert one.evidence["readers"] == {"aten::mul": 3 * 2 * 2_000 * US}
    assert one.evidence["converting_ns"] == 3 * 700 * US


@pytest.mark.parametrize(("places", "said"), [(1_280, True), (1_024, False)])
def test_rows_are_moved_by_products_with_a_mask(places: int, said: bool) -> None:
    """8,192 tokens go to 2 of 16 experts of 1,280 places; in the other case no one-hot tensor has so many classes."""
    tokens, slots, mask = 8_192, 16 * places, [8_192, 16, places]
    ops = [
        Op("aten::one_hot", GEMM, 2, [[tokens, 2], []], [LONG, "Scalar"], scalars=["", "16"]),
        Op("aten::one_hot", GEMM, 50, [[tokens, 2], []], [LONG, "Scalar"], scalars=["", "1280"]),
        Op("aten::bmm", GEMM, 200, [[tokens, 16, 2], [tokens, 2, places]], [BF16, BF16]),
        Op("aten::gt", GEMM, 100, [mask, []], [BF16, "Scalar"]),
        Op("aten::bmm", GEMM, 500, [[1, slots, tokens], [1, tokens, 1_024]], [BF16, BF16]),
        Op("aten::bmm", GEMM, 100, [[16, places, 1_024], [16, 1_024, 64]], [BF16, BF16]),
    ]
    findings = diagnose(program(ops), select=["one-hot"]).findings
    facts = [one for one in findings if one.cause == "dispatch"]
    assert len(facts) == said
    for one in facts:
        # Each of 20,480 places reads and writes 1,024 numbers at 4.8 TB/s, of which gather reaches 0.14.
        rows_us, made_us = (20_480 * 2 * width * 2 / 4_800e3 / 0.14 for width in (1_024, 2))
        assert one.cost_ns == pytest.approx(6e3 * (200 - made_us + 100 + 500 - rows_us), rel=0.01)
