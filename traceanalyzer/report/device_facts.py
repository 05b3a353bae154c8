"""What the device did: where its time went, what bounds the step, and the rates it reached."""

from __future__ import annotations

import re

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.costs import short_name
from traceanalyzer.report.fact import Fact, Facts, Value, ids_of
from traceanalyzer.roofline.op_model import ARITHMETIC
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.steps import Steps

_TOP = 3
_REGION = re.compile(r"^Torch-Compiled Region: (?P<region>\S+)")
_GRAPH = re.compile(r"CompiledFxGraph (?P<hash>\w+)")
_FIRST = np.array([0])


def hotspots(analysis: Analysis) -> Facts:
    """The ops with most GPU time, how often they are called, and which tool says more."""
    work, steps = analysis.index(Work), analysis.index(Steps)
    work = work[work.step >= 0] if (work.step >= 0).any() else work
    whole = max(work.total_ns, 1)
    names = work.outer_op.name.or_else(work.name)
    for name, found in list(work.by(names))[:_TOP]:
        share = found.total_ns / whole
        calls = len(found.outer_op.distinct()) or len(found)
        text = (
            f"{short_name(str(name))}: {100 * share:.0f} % of GPU time, {calls:,} calls, {format_ns(found.total_ns)} "
            f"in {len(steps)} steps; {_profilers(work)[0]} says why its kernels take so long"
        )
        values: dict[str, Value] = {
            "op": str(name),
            "share": share,
            "calls": calls,
            "kernels": len(found),
            "gpu_ns": found.total_ns,
        }
        yield Fact("hotspot", text, values, ids_of(found[np.array([int(np.argmax(found.dur_ns))])]))


def _profilers(work: Work) -> tuple[str, str]:
    """Who says more of a kernel, and of the system, by the maker of the device."""
    if work.launch.name.matches(r"^hip").any():
        return "rocprof-compute", "rocprof-sys"
    return "Nsight Compute", "Nsight Systems"


def what_bounds(analysis: Analysis) -> Facts:
    """Overhead-bound or bound by the device, decided on the replayed step."""
    forecast = analysis.index(Forecast)
    step, base, tool = forecast.step, forecast.base[0], _profilers(analysis.index(Work))[1]
    words = {
        "cpu": "overhead-bound: the CPU needs longer to launch the step than the GPU to run it",
        "gpu": "bound by the device: the CPU is ahead of it",
        "communication": "bound by communication: the busiest stream mostly communicates",
        "wait": "bound by waiting: CPU and GPU wait for one another",
    }
    text = (
        f"{words.get(step.bound, step.bound)} ({format_ns(base.cpu_ns)} of CPU and {format_ns(base.gpu_ns)} of GPU "
        f"time in a step of {format_ns(step.unprofiled_ns)}); {tool} shows processes and graphs"
    )
    values: dict[str, Value] = {
        "bound": step.bound,
        "cpu_ns": round(base.cpu_ns),
        "gpu_ns": round(base.gpu_ns),
        "step_ns": round(step.unprofiled_ns),
    }
    yield Fact("bound", text, values)


def compiled_regions(analysis: Analysis) -> Facts:
    """Each compiled region with its hash, its guards' lookup and what comes before its first kernel."""
    calls = analysis.index(Calls)
    regions = calls[calls.name.matches(_REGION)]
    graphs, lookups = (
        calls[calls.name.matches(p)] for p in (r"CompiledFxGraph ", r"^TorchDynamo Cache Lookup")
    )
    launches = np.sort(calls[calls.is_call & calls.name.matches("Launch")].start_ns)
    for name, found in regions.by(regions.name):
        inside = graphs[graphs.inside(found)]
        hashes = [match["hash"] for one in inside.name.distinct() if (match := _GRAPH.search(one))]
        first = np.append(launches, np.iinfo(np.int64).max)[np.searchsorted(launches, found.start_ns)]
        prologue = int(np.median(np.minimum(first, found.end_ns) - found.start_ns))
        region = _REGION.match(name)
        text = (
            f"compiled region {region['region'] if region else name}, entered {len(found):,} times, "
            f"{format_ns(found.total_ns / len(found))} each, {format_ns(prologue)} before its first launch"
            + (f"; graph {hashes[0][:12]}" if hashes else "")
        )
        values: dict[str, Value] = {
            "region": name,
            "calls": len(found),
            "prologue_ns": prologue,
            "total_ns": found.total_ns,
            "hash": hashes[0] if hashes else None,
            "lookups": len(lookups),
            "lookup_ns": lookups.total_ns,
        }
        yield Fact("compiled-region", text, values, ids_of(found[_FIRST], inside[_FIRST[: len(inside)]]))


def rates(analysis: Analysis) -> Facts:
    """TFLOP/s of matrix products, convolutions and attention by dtype, against the peak and what is achievable."""
    ops = analysis.index(OpWork)
    shapes = ops.shapes
    known = shapes[shapes["tflops"].notna()]
    known = known.assign(dtypes=[str(types).split(", ")[0] for types in known["dtypes"]])
    for key, found in known.groupby(["kind", "dtypes", "device"], sort=False):
        kind, types, device = key if isinstance(key, tuple) else (key, "", 0)
        gpu_ns = int(found["gpu_ns"].sum())
        done = float((found["tflops"] * found["gpu_ns"]).sum() / max(gpu_ns, 1))
        peak = float(found["peak_tflops"].iloc[0]) if found["peak_tflops"].notna().iloc[0] else None
        reach = _reached(ops.peaks.get(int(str(device))), str(kind), str(types), peak)
        text = f"{kind} in {types}: {done:,.0f} TFLOP/s"
        text += f", {100 * done / peak:.0f} % of the peak of {peak:,.0f}" if peak else ", peak unknown"
        text += f" and {100 * done / reach:.0f} % of the {reach:,.0f} that are achievable" if reach else ""
        values: dict[str, Value] = {
            "kind": str(kind),
            "dtypes": str(types),
            "tflops": done,
            "peak_tflops": peak,
            "achievable_tflops": reach,
            "gpu_ns": gpu_ns,
        }
        yield Fact("rate", text, values)


def _reached(peaks: Peaks | None, kind: str, types: str, peak: float | None) -> float | None:
    """What well-shaped work of that kind reaches; float32 that is compared with the peak of TF32 is TF32."""
    if peaks is None:
        return None
    arithmetic = ARITHMETIC.get(types, types)
    if arithmetic == "fp32" and peak is not None and peak == peaks.tflops.get("tf32"):
        arithmetic = "tf32"
    return peaks.reached_tflops(kind, arithmetic)
