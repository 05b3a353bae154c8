"""ROCm's profiler until torch 2.3: the number that joins calls and work is written as External id."""

import gzip
import json
from typing import Any

import pytest

from tests.support.paths import REPOSITORY, SHARED
from tests.support.trace_builder import TraceBuilder, load_bytes
from traceanalyzer import Trace, diagnose, load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.device_work import DeviceWork

UNITS = sorted((SHARED / "public2" / "amd_units").glob("*.json.gz"))
FIXTURES = ["implicit-sync/bad", "launch-bound/bad", "healthy/train"]
CALLS, WORK = ("cuda_runtime", "cuda_driver"), ("kernel", "gpu_memcpy", "gpu_memset")


def without_correlation(content: dict[str, Any]) -> Trace:
    """The recording as ROCm's profiler wrote it with torch 2.1 to 2.3."""
    for event in content["traceEvents"]:
        args = event.get("args", {})
        if event.get("cat") in (*CALLS, *WORK) and "correlation" in args:
            args["External id"] = args.pop("correlation")
    return load_bytes(json.dumps(content).encode())


def launching_ops(trace: Trace) -> list[str | None]:
    """Name of the op that launched each piece of work; None without one."""
    work = Analysis(trace).index(DeviceWork)
    names = trace.cpu["name"].tolist()
    return [names[row] if row >= 0 else None for row in work.op.tolist()]


@pytest.mark.parametrize("fixture", FIXTURES)
def test_a_recording_without_correlations_gives_the_same_answers(fixture: str) -> None:
    content = json.loads(gzip.decompress((REPOSITORY / "fixtures" / f"{fixture}.json.gz").read_bytes()))
    whole = load_bytes(json.dumps(content).encode())
    older = without_correlation(content)
    assert launching_ops(older) == launching_ops(whole)
    answers = [[(one.rule, one.by, one.cost_ns) for one in diagnose(t).findings] for t in (older, whole)]
    assert answers[0] == answers[1]


def built(call_ids: tuple[int, ...], work_ids: tuple[int, ...]) -> Trace:
    """Three ops with External ids 1 to 3, each with a call; calls and kernels have External ids alone."""
    trace = TraceBuilder()
    for number, (call, work) in enumerate(zip(call_ids, work_ids, strict=True)):
        at = number * 100_000
        trace.op(f"aten::op{number + 1}", at, 50_000)
        trace.span("cuda_runtime", "hipLaunchKernel", at + 10_000, 5_000, 1000, 1000, {"External id": call})
        trace.work("kernel", "gemm", at + 30_000, 20_000, 0, 0, {"External id": work})
    return trace.load()


def test_work_belongs_to_the_op_around_its_call() -> None:
    assert launching_ops(built((2, 3, 4), (2, 3, 4))) == ["aten::op1", "aten::op2", "aten::op3"]


def test_ids_that_calls_share_are_of_ops() -> None:
    assert launching_ops(built((1, 1, 3), (1, 2, 3))) == ["aten::op1", "aten::op2", "aten::op3"]


def test_a_kernel_without_call_has_no_op() -> None:
    assert launching_ops(built((12, 13, 14), (12, 13, 3))) == ["aten::op1", "aten::op2", None]


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name.split(".")[0])
def test_all_work_of_the_amd_units_has_its_launch_and_op(file: Any) -> None:
    trace = load(file)
    work = Analysis(trace).index(DeviceWork)
    assert (work.call >= 0).all()
    assert None not in launching_ops(trace)
