"""Ops that torch.compile leaves to eager mode within a compiled region."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builder import TraceBuilder
from tests.rules.launches import GEMM, POINTWISE, US, of_rule
from traceanalyzer import diagnose


def broken(
    eager: Sequence[str],
    *,
    kernel: str = POINTWISE,
    called: str = "## Call CompiledFxGraph f7d ##",
    product: bool = False,
) -> TraceBuilder:
    """Steps of four calls of a region: a compiled kernel, eager ones of 100 us, and a compiled one that resumes."""
    trace, at, gpu, number = TraceBuilder(), 0, 0, 0

    def run(op: str, name: str) -> None:
        nonlocal at, gpu, number
        number, gpu = number + 1, max(gpu, at) + 100 * US
        trace.op(op, at, 10 * US)
        trace.launch("cuLaunchKernel", at + 2 * US, 4 * US, number)
        trace.kernel(gpu - 94 * US, 90 * US, number, name=name)
        at += 12 * US

    for step in range(4):
        begin = at
        for _ in range(4):
            entered, at = at, at + 2 * US
            for part in (0, 1):
                if part:
                    for op in eager:
                        run(op, kernel)
                resumed, at = at, at + 5 * US
                run("triton_poi_fused_add_0", "triton_poi_fused_add_0")
                if product:
                    run("extern_kernels.mm", GEMM)
                trace.op(called, resumed + 2 * US, at - resumed - 3 * US)
                if part:
                    trace.op("Torch-Compiled Region: 1/0", resumed, at - resumed)
            trace.op("Torch-Compiled Region: 0/0", entered, at + 2 * US - entered)
            at += 5 * US
        at = max(at, gpu)
        trace.step(step, begin, at - begin)
    return trace


def test_what_a_graph_break_leaves_eager_is_one_fault_with_its_compiled_neighbours() -> None:
    report = diagnose(broken(["aten::mul", "aten::sub", "aten::mul"]).load())
    (fault, *_) = report.traces[0].faults
    one = report.findings[0]
    assert (one.rule, one.cause, one.count) == ("compile", "eager-ops", 4 * 4 * 5)
    assert "run aten::mul (67 % of this time), aten::sub (33 %) outside their compiled code" in one.message
    assert fault.saving is not None
    assert fault.saving.share == pytest.approx(0.8, abs=0.1)  # of five kernels one is left
    (beside,) = of_rule(broken(["aten::mul"] * 3, product=True), "compile")[:1]
    assert (beside.cause, beside.count) == ("eager-ops", 4 * 4 * 4)  # a product ends what one kernel can do


@pytest.mark.parametrize(
    "trace",
    [
        broken([]),
        broken(["aten::mm"], kernel=GEMM),
        broken(["aten::copy_"]),
        broken(["aten::mul"] * 3, called="CompiledFunction"),
    ],
    ids=["no-break", "nothing-to-fuse", "copy-to-an-input", "backend-without-marks"],
)
def test_what_no_compiler_would_fuse_is_left_alone(trace: TraceBuilder) -> None:
    assert "eager-ops" not in {one.cause for one in of_rule(trace, "compile")}
