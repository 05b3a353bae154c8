"""The op that takes most of the step, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceanalyzer.model.lazy import pd
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Limits:
    min_near_share: float = limit(0.5, "of the peak: what is beyond it is near what the device can do")
    max_latency_ns: int = limit(5_000, "mean kernel: shorter ones are mostly their own start; H200, MI300X")


_LONGEST = 60  # characters of a kernel's name that tell it from others
_ENGINE = "autograd::engine::evaluate_function: "


@rule(since="0.2", claims=Claims.NET, min_share=0.0, limits=Limits)
def hotspot(
    work: Work, steps: Steps, rates: OpWork, forecast: Forecast | None, limits: Limits
) -> Iterator[Hits]:
    """The op that takes the largest share of the step, and what bounds it.

    What it looks for: GPU time by the outermost op, what the user called or the backward node of it; of that the
    line, the annotation, the shapes and the kernel; and how near it came to the peak of its arithmetic or of memory.
    Why it matters: it is where to look first, whatever the reason. It is a fact and no fault: always info.
    Bad: tuning a kernel of 2 % of the step. Good: starting with the one of 60 %, in Nsight Compute if need be.
    How sure: the time is measured; the bound is computed from recorded shapes and types against the data sheet of
    the device, and unknown where these are not known.
    When it is wrong: work that another stream hides costs less than its share.
    Source: roofline model (Williams, Waterman, Patterson 2009).
    """
    named = work[work.step >= 0] if (work.step >= 0).any() else work
    names = named.outer_op.name.or_else(named.name)
    for device in sorted(set(named.device.tolist())):
        here = named.device == device
        op, found = next(named[here].by(names[here]))
        yield _hits(str(op), found, rates.shapes, steps, forecast, limits)


def _hits(
    op: str, found: Work, rates: pd.DataFrame, steps: Steps, forecast: Forecast | None, limits: Limits
) -> Hits:
    each = found.total_ns / max(len(steps), 1)
    whole = forecast.step.unprofiled_ns if forecast else steps.window_ns / max(len(steps), 1)
    lines, annotations = found.line.sums(found.dur_ns), found.launch.annotation.sums(found.dur_ns)
    bound, words = _bound(found, rates, limits)
    shapes = bool(found.events.trace.meta.capabilities.get("shapes"))
    return Hits(
        at=found,
        by=_short(op),
        cause=bound,
        lost=Lost.none(),
        message="{by} takes {gpu} of GPU time a step, {part} of it without the profiler"
        + (", at {lines}" if lines else ", in {annotations}" if annotations else "")
        + ": "
        + words,
        advice=_UNMODELLED if bound == "unknown" and shapes else _ADVICE[bound],
        evidence={
            "gpu_ns": int(each),
            "part_share": min(each / max(whole, 1.0), 1.0),
            "kernels": found.name.sums(found.dur_ns),
            "shapes": next(iter(found.dims.sums(found.dur_ns)), None),
            "lines": lines,
            "annotations": annotations,
        },
        info=True,
    )


_ADVICE = {
    "compute": "It is near what the device computes: a smaller dtype or less work is what is left.",
    "memory": "It is near what memory delivers: fuse it with its neighbours, or move fewer bytes.",
    "below-bounds": "Neither compute nor memory is near its limit: Nsight Compute or rocprof-compute says why.",
    "latency": "Its kernels are too short to be limited by anything but their start: fewer and larger ones.",
    "unknown": "Record with record_shapes=True to see how near to its limits it comes.",
}


_UNMODELLED = "Ask Nsight Compute or rocprof-compute: what this op has to compute and move is not known here."


def _short(op: str) -> str:
    """Without the engine's words; a kernel that has no op without its template arguments and parameters."""
    plain = op.removeprefix(_ENGINE).replace("(anonymous namespace)::", "")
    name = plain if "(" not in plain else plain.split("(")[0].split("<")[0].removeprefix("void ")
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."


def _bound(found: Work, rates: pd.DataFrame, limits: Limits) -> tuple[str, str]:
    """(what limits it, in words) of its costliest op and shapes."""
    if found.total_ns / len(found) < limits.max_latency_ns:
        return "latency", "its kernels are so short that their start limits them"
    inner = next(iter(found.op.name.sums(found.dur_ns)), None)
    own = rates[(rates["op"] == inner) & rates["peak_share"].notna()]
    if own.empty:
        return "unknown", "what limits it is unknown"
    best = own.iloc[0]
    rate = f"{best['tflops']:,.0f} TFLOP/s" if best["limit"] == "compute" else f"{best['gbps']:,.0f} GB/s"
    words = f"{rate}, {best['peak_share']:.0%} of the {best['limit']} peak"
    return (best["limit"] if best["peak_share"] >= limits.min_near_share else "below-bounds"), words
