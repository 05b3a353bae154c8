"""Ops that stop in the first call with each new shape, while a library plans them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Severity, Trace, diagnose
from traceanalyzer.model.finding import Finding, Status

US = 1_000
MS = 1_000 * US
GROWING = (101, 102, 103, 104, 105, 106)


def decoding(
    lengths: Sequence[int],
    *,
    stalled: Sequence[int] = range(6),
    name: str = "aten::_cudnn_attention_forward",
    shapes: bool = True,
    stall: int = 20 * MS,
    layers: int = 8,
) -> Trace:
    """Steps of some layers of attention over so many positions, the first of which stops in some steps."""
    trace = TraceBuilder()
    for step, length in enumerate(lengths):
        at = step * 40 * MS
        trace.step(step, at, 39 * MS)
        for layer in range(layers):
            slow = stall * (layer == 0 and step in stalled)
            start = at + (100 * layer + 10) * US + stall * (layer > 0 and step in stalled)
            dims = {
                "Input Dims": [[32, 32, 1, 128], [32, 32, length, 128]],
                "Input type": ["c10::BFloat16"] * 2,
            }
            trace.op(name, start, 60 * US + slow, **(dims if shapes else {}))
            trace.launch("cuLaunchKernelEx", start + 40 * US + slow, 5 * US, 10 * step + layer + 1)
            trace.kernel(start + 50 * US + slow, 20 * US, 10 * step + layer + 1)
    return trace.load()


def found(trace: Trace) -> list[Finding]:
    return [one for one in diagnose(trace).findings if one.rule == "planned-anew"]


def test_each_new_length_is_planned_anew() -> None:
    (one,) = found(decoding(GROWING))
    assert (one.severity, one.count, one.by) == (Severity.HIGH, 5, "aten::_cudnn_attention_forward")
    assert one.cost_ns == pytest.approx(5 * 20 * MS, rel=0.01)
    assert one.saving is not None
    assert one.saving.share == pytest.approx(0.51, abs=0.03)
    assert "takes 20.0 ms (median)" in one.message
    assert "flash" in one.advice.lower()
    (other,) = found(decoding(GROWING, name="aten::cudnn_convolution"))
    assert "flash" not in other.advice.lower()


def test_stalled_calls_do_not_count_as_usual() -> None:
    """Of two layers one stops in each step: half of the calls."""
    (one,) = found(decoding(GROWING, layers=2))
    assert (one.evidence["stall_ns"], one.evidence["usual_ns"]) == (20 * MS + 40 * US, 60 * US)
    assert "with shapes that it had before it takes 60.0 µs" in one.message


@pytest.mark.parametrize(
    "trace",
    [
        decoding([101] * 6),  # stalls, but not for a shape
        decoding(GROWING, stalled=[0, 1]),  # a warm-up
        decoding(GROWING, stalled=[]),
        decoding(GROWING, stall=800 * US),
        decoding([101] * 5 + [102]),
    ],
)
def test_stalls_of_other_reasons(trace: Trace) -> None:
    assert found(trace) == []


def test_without_shapes_nobody_knows() -> None:
    report = diagnose(decoding(GROWING, shapes=False), select=["planned-anew"])
    (outcome,) = [one for one in report.outcomes if one.rule == "planned-anew"]
    assert outcome.status is Status.NOT_APPLICABLE
    assert "no shapes recorded" in str(outcome.why)


@pytest.mark.parametrize(
    ("lengths", "stalled", "count"),
    [
        (GROWING, [0, 1, 2], 0),  # of five later steps two
        (GROWING, [0, 1, 2, 3], 3),
        (GROWING, [1, 3, 5], 3),
        (GROWING[:4], [0, 1], 0),
        (GROWING[:4], [0, 1, 2], 2),
        (GROWING[:3], [0, 1, 2], 2),
        (GROWING[:3], [0, 1], 0),  # a single one may be chance
        ([101, 102, 103, 104, 104, 105], [0, 1, 2, 3, 4], 3),  # four of five are new
        ([101, 102, 103, 103, 103, 104], [0, 1, 2, 3, 4, 5], 0),
    ],
)
def test_half_of_the_later_steps_stall_for_a_new_length(
    lengths: Sequence[int], stalled: list[int], count: int
) -> None:
    assert [one.count for one in found(decoding(lengths, stalled=stalled))] == [count] * bool(count)


def test_an_op_that_always_stops_has_no_usual_time() -> None:
    (outcome,) = diagnose(decoding(GROWING, layers=1), select=["planned-anew"]).outcomes
    assert outcome.status is Status.CLEAR


def test_an_op_that_stops_twice_is_one() -> None:
    trace = TraceBuilder()
    for step, length in enumerate(GROWING):
        trace.step(step, step * 40 * MS, 39 * MS)
        start = step * 40 * MS + 10 * US
        for layer in range(8):
            slow, number = 8 * MS * (layer == 0), 100 * step + layer + 1
            dims = {"Input Dims": [[32, 32, length, 128]], "Input type": ["c10::BFloat16"]}
            trace.op("aten::_cudnn_attention_forward", start, 100 * US + 2 * slow, **dims)
            for part in range(2):
                begin = start + 10 * US + part * (slow + 40 * US)
                trace.launch("cuLaunchKernelEx", begin, 5 * US + slow, number + 10 * part)
                trace.kernel(begin + slow + 10 * US, 20 * US, number + 10 * part)
            start += 200 * US + 2 * slow
    (one,) = found(trace.load())
    assert (one.count, len(one.occurrences)) == (5, 5)
    assert one.cost_ns == pytest.approx(5 * 2 * 8 * MS, rel=0.01)
