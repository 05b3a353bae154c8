"""Built programs for tests of rules about GPU work: a list of ops, again in every step."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.trace_builder import H200, TraceBuilder, content_of, load_bytes
from traceanalyzer import Finding, Trace, diagnose
from traceanalyzer.model.finding import Status

US = 1_000
BF16, F32, F64 = "c10::BFloat16", "float", "double"
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)"


@dataclass(frozen=True)
class Op:
    """One op with one kernel, `dur` in us; a view, which launches nothing, where the kernel has no name.

    Up to three kernels more, (name, us), are what the same op launches after the first.
    """

    name: str
    kernel: str
    dur: int = 100
    dims: Sequence[Any] = ()
    types: Sequence[str] = ()
    grid: int | tuple[int, int] = 1_320
    inside: str | None = None
    pause: int = 0
    stream: int = 7
    strides: Sequence[Any] = ()
    scalars: Sequence[str] = ()
    more: Sequence[tuple[str, int]] = ()


def program(
    ops: Sequence[Op],
    *,
    steps: int = 6,
    device: dict[str, Any] = H200,
    around: Mapping[int, tuple[str, int, dict[str, Any]]] | None = None,
    unlinked_us: int | None = None,
) -> Trace:
    """The same ops in each step, the device never idle.

    Args:
        around: position of an op -> name of an op around so many from there on, and its inputs.
        unlinked_us: when a kernel starts whose launch is not recorded.
    """
    trace, number, cpu, gpu = TraceBuilder(devices=[device], record_shapes=1), 0, 0, 0
    for step in range(steps):
        begin = cpu
        for place, op in enumerate(ops):
            if around and place in around:
                name, count, inputs = around[place]
                trace.op(name, cpu, 11 * count * US - 1, **inputs)
            number, cpu = number + 1, cpu + op.pause * US
            shapes = {"Input Dims": list(op.dims), "Input type": list(op.types)} if op.dims else {}
            if op.strides:
                shapes["Input Strides"] = list(op.strides)
            if op.scalars:
                shapes["Concrete Inputs"] = list(op.scalars)
            if op.inside:
                trace.op(op.inside, cpu, 10 * US)
            trace.op(op.name, cpu + 1 * US, 8 * US, **shapes)
            if op.kernel:
                trace.launch("cudaLaunchKernel", cpu + 2 * US, 3 * US, number)
                gpu = max(gpu, cpu + 6 * US)
                wide, high = op.grid if isinstance(op.grid, tuple) else (op.grid, 1)
                trace.kernel(gpu, op.dur * US, number, name=op.kernel, grid=(wide, high, 1), stream=op.stream)
                gpu += (op.dur + 1) * US
            for at, (kernel, us) in enumerate(op.more, 5):
                number += 1
                trace.launch("cudaLaunchKernel", cpu + at * US, 1 * US, number)
                trace.kernel(gpu, us * US, number, name=kernel, grid=(wide, high, 1), stream=op.stream)
                gpu += (us + 1) * US
            cpu += 11 * US
        cpu = max(cpu, gpu)
        trace.step(step, begin, cpu - begin - 1)
    if unlinked_us is not None:
        trace.kernel(unlinked_us * US, 5 * US, number + 1, stream=99)
    return trace.load()


def found(trace: Trace, rule: str) -> list[Finding]:
    report = diagnose(trace, select=[rule])
    assert [outcome.why for outcome in report.outcomes if outcome.status is Status.FAILED] == []
    return list(report.findings)


def changed(trace: Trace, change: Callable[[dict[str, Any]], None]) -> Trace:
    """The same recording with each event changed in place."""
    content = json.loads(content_of(trace))
    for event in content["traceEvents"]:
        change(event)
    return load_bytes(json.dumps(content).encode())


def by_step(trace: Trace, change: Callable[[dict[str, Any], int], None]) -> Trace:
    """As `changed`, where the change knows the number of the step in which the event begins, -1 for none."""
    content = json.loads(content_of(trace))
    steps = [one for one in content["traceEvents"] if str(one.get("name")).startswith("ProfilerStep")]
    for event in content["traceEvents"]:
        at = [one["ts"] <= event.get("ts", -1) < one["ts"] + one["dur"] for one in steps]
        change(event, at.index(True) if True in at else -1)
    return load_bytes(json.dumps(content).encode())


def begun_later(trace: Trace) -> Trace:
    """The same recording without what the CPU did in the first step: its kernels were launched before."""
    content = json.loads(content_of(trace))
    (end,) = (one["ts"] + one["dur"] for one in content["traceEvents"] if one.get("name") == "ProfilerStep#0")
    cpu = ("cpu_op", "cuda_runtime", "user_annotation")
    content["traceEvents"] = [one for one in content["traceEvents"] if one.get("cat") not in cpu or one["ts"] > end]
    return load_bytes(json.dumps(content).encode())
