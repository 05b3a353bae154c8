"""What tests of rules about launches share: steps of small ops, and what those rules say of a trace."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.cached_reports import selected
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Finding, diagnose

US = 1_000
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_TNT"
ACCUSES = ("launch-bound", "repeated-calls", "unfused-optimizer", "compile", "scheduler-gap", "host-gap")
SLUGS = (*ACCUSES[:4], "exposed-communication", "needless-collectives", "hotspot")
Shared = Callable[[str], Path]


def found(path: Path, *rules: str) -> list[Finding]:
    """What the rules say of the trace in the file."""
    return list(selected(path, *(rules or SLUGS)).findings)


def loop(
    names: list[str],
    repeats: int,
    *,
    steps: int = 3,
    kernel: str = POINTWISE,
    dims: Callable[[int], object] | None = None,
) -> TraceBuilder:
    """Steps of `repeats` times these ops, each of 10 us and launching one kernel of 1 us at once."""
    inputs = [{} if dims is None else {"Input Dims": dims(repeat)} for repeat in range(repeats)]
    each = [(name, args) for args in inputs for name in names]
    return steps_of(each, steps=steps, kernel=kernel)


def steps_of(
    ops: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    steps: int = 3,
    kernel: str = POINTWISE,
    quiet: str = "",
    backward_tid: int = 1000,
) -> TraceBuilder:
    """Steps of these ops and their args, one after the other; all but the quiet ones launch a kernel."""
    trace = TraceBuilder()
    at = 0
    for step in range(steps):
        begin = at
        for name, args in ops:
            tid = backward_tid if "Backward" in name else 1000
            sequence = args.get("Sequence number")
            own = {} if sequence is None else {"Sequence number": sequence + step * 100_000}
            trace.op(name, at, 10 * US, tid=tid, **{**args, **own})
            if name != quiet:
                trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), tid=tid, name=kernel)
            at += 12 * US
        trace.step(step, begin, at - begin)
    return trace


def of_rule(trace: TraceBuilder, *rules: str) -> list[Finding]:
    """What the rules say of a built trace."""
    return list(diagnose(trace.load(), select=rules).findings)
