"""Ops that copy one value and wait for it: which they are, and which way it goes."""

from __future__ import annotations

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.host_round_trips import AwaitedValues

US = 1_000
DOWN, UP, ACROSS = "DtoH (Device -> Pageable)", "HtoD (Pageable -> Device)", "DtoD (Device -> Device)"


def awaited(*ops: tuple[str, str, int], waits: bool = True) -> tuple[list[str], list[bool], list[bool]]:
    """(op, upwards, scaler) of ops of a name that copy one way so many bytes, and wait for it; no way: no copy."""
    trace, at = TraceBuilder(), 0
    for number, (name, way, size) in enumerate(ops):
        trace.op(name, at, 90 * US)
        if way:
            trace.launch("cudaMemcpyAsync", at + 5 * US, 5 * US, number + 1)
            trace.memcpy(at + 20 * US, 10 * US, number + 1, name=f"Memcpy {way}", size=size)
        if waits:
            trace.launch("cudaStreamSynchronize", at + 15 * US, 20 * US, 100 + number)
        at += 100 * US
    trace.op("aten::mm", at, 20 * US)
    trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, 99)
    trace.kernel(at + 12 * US, 5 * US, 99)
    analysis = Analysis(trace.load())
    found = analysis.index(AwaitedValues)
    names = analysis.trace.cpu["name"].iloc[found.op].tolist()
    assert (len(found.copy), len(found.wait)) == (len(names), len(names))
    return names, found.upwards.tolist(), found.scaler.tolist()


@pytest.mark.parametrize(
    ("way", "size", "names", "upwards"),
    [
        (DOWN, 4, ["aten::item"], [False]),
        (DOWN, 65_536, ["aten::item"], [False]),
        (DOWN, 65_537, [], []),  # data
        (DOWN, 0, ["aten::item"], [False]),  # old ROCm records no size
        (UP, 4, ["aten::item"], [True]),
        (UP, 0, [], []),  # may be a batch
        (ACROSS, 4, [], []),
        ("", 0, [], []),
    ],
)
def test_a_value_is_a_small_copy_between_host_and_device(
    way: str, size: int, names: list[str], upwards: list[bool]
) -> None:
    assert awaited(("aten::item", way, size)) == (names, upwards, [False] * len(names))
    assert awaited(("aten::item", way.replace("Pageable", "Pinned"), size), waits=False)[0] == []


CHECK, UPDATE = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"


@pytest.mark.parametrize(
    ("ops", "scaler"),
    [
        (["item", CHECK, "item", "item", UPDATE, "item"], [False, False, True, False]),
        ([CHECK, "item", UPDATE, CHECK, "item", UPDATE], [True, True]),
        (["item", UPDATE], [False]),  # nothing was checked
        ([CHECK, "item"], [False]),
        ([CHECK, "nonzero", UPDATE], [False]),
    ],
)
def test_the_scaler_asks_last_between_its_check_and_its_update(ops: list[str], scaler: list[bool]) -> None:
    reads = [("", 0) if "amp" in op else (DOWN, 4) for op in ops]
    named = [op if "amp" in op else f"aten::{op}" for op in ops]
    assert awaited(*((op, *read) for op, read in zip(named, reads, strict=True)))[2] == scaler


def test_round_trips_are_not_awaited_values() -> None:
    assert awaited(("aten::to", DOWN, 4_096), ("aten::to", UP, 4_096)) == (["aten::to"], [True], [False])
    assert awaited(("aten::to", DOWN, 1_023), ("aten::to", UP, 1_023))[1] == [False, True]
