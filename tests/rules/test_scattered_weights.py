"""Recurrent layers whose weights are not one buffer."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.rules.kernel_programs import changed, found
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Trace

US = 1_000


def recurrent(
    copies: int = 4, *, cleared: bool = True, name: str = "aten::_cudnn_rnn", own: bool = True, casts: int = 0
) -> Trace:
    """Six steps of ten calls of a layer, of 20 us for each copied weight and 50 us for the rest.

    Args:
        cleared: a buffer is cleared before the copies.
        own: the layer itself copies; else an op within it, such as contiguous().
        casts: weights that are copied before the buffer is cleared.
    """
    trace, cpu = TraceBuilder(record_shapes=1), 0
    for step in range(6):
        begin = cpu
        for _ in range(10):
            length = (20 * (casts + copies + cleared) + 50) * US
            trace.op("aten::lstm", cpu, length + 4 * US)
            trace.op(name, cpu + 1 * US, length + 2 * US)
            if not own:
                trace.op("aten::contiguous", cpu + 2 * US, length - 45 * US)
            at = cpu + 5 * US
            for op in ["aten::copy_"] * casts + ["aten::zero_"] * cleared + ["aten::copy_"] * copies + [""]:
                if op:
                    trace.op(op, at, 12 * US)
                trace.launched((at + 2 * US, 8 * US), (at + 9 * US, 2 * US))
                at += 20 * US
            cpu += length + 6 * US
        trace.step(step, begin, cpu - begin - 1)
    return trace.load()


def test_weights_apart_are_copied_in_each_call() -> None:
    (one,) = found(recurrent(), "scattered-weights")
    assert (one.by, one.count) == ("aten::lstm", 60)
    assert "copies its 4 weights into one buffer before it computes, 10 times a step" in one.message
    assert one.saving is not None
    assert one.saving.share == pytest.approx(0.62, abs=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(lambda: recurrent(0, cleared=False), id="one buffer"),
        pytest.param(lambda: recurrent(cleared=False), id="no buffer is made"),
        pytest.param(lambda: recurrent(1), id="one copy"),
        pytest.param(lambda: recurrent(own=False), id="the input is copied"),
        pytest.param(lambda: recurrent(name="aten::_thnn_fused_lstm_cell"), id="no cuDNN"),
    ],
)
def test_other_copies_are_none_of_weights(trace: Callable[[], Trace]) -> None:
    assert found(trace(), "scattered-weights") == []


@pytest.mark.parametrize(("casts", "copies", "said"), [(4, 1, False), (4, 2, True), (0, 2, True)])
def test_casts_before_clearing_are_no_weight_copies(casts: int, copies: int, said: bool) -> None:
    found_ = found(recurrent(copies, casts=casts), "scattered-weights")
    assert len(found_) == said
    for one in found_:
        assert f"copies its {copies} weights into one buffer" in one.message


def test_calls_before_the_first_step_are_no_part_of_one() -> None:
    """Ten calls in each of six steps, of which the first is a warm-up."""

    def unmark(event: dict[str, Any]) -> None:
        if event["name"] == "ProfilerStep#0":
            event.update(name="warm-up")

    (one,) = found(changed(recurrent(), unmark), "scattered-weights")
    assert (one.count, one.steps) == (50, 5)
    assert "10 times a step" in one.message


def test_bfloat16_weights_stay_apart_after_flattening() -> None:
    """torch's flatten_parameters() leaves types out that are not in CUDNN_TENSOR_DTYPES."""

    def narrow(event: dict[str, Any]) -> None:
        if event["name"] == "aten::_cudnn_rnn":
            event["args"]["Input type"] = ["c10::BFloat16", "TensorList"]

    (one,) = found(changed(recurrent(), narrow), "scattered-weights")
    assert one.advice.startswith("In bfloat16, flatten_parameters() does nothing")


def test_layers_with_one_buffer_do_not_count() -> None:
    """The first six of ten calls in each step copy nothing; the others clear a buffer, then copy four weights."""
    calls = [0]

    def flatten(event: dict[str, Any]) -> None:
        calls[0] += event["name"] == "aten::_cudnn_rnn"
        if event["name"] in ("aten::zero_", "aten::copy_") and (calls[0] - 1) % 10 < 6:
            event["name"] = "aten::add"

    (one,) = found(changed(recurrent(), flatten), "scattered-weights")
    assert one.count == 6 * 4
    assert "copies its 4 weights into one buffer before it computes, 4 times a step" in one.message
    assert one.evidence["gathering_ns"] == (4 * 20 + 12) * US
    assert one.cost_ns == 6 * 4 * (4 * 20 + 9 + 2) * US  # until the kernel of the last copy ends
