"""What the device did: where its time went, what bounds the step, and the rates it reached."""

from __future__ import annotations

import re

import numpy as np

from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.short_names import short_op
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.report.fact import Fact, Facts, Value, ids_of
from traceanalyzer.roofline.op_rates import OpWork
from traceanalyzer.roofline.peaks import Peaks
from traceanalyzer.rule.evidence_texts import called_names
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.ops.costs import ARITHMETIC
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
    names = called_names(work)
    for name, found in list(work.by(names))[:_TOP]:
        share = found.total_ns / whole
        calls = len(found.outer_op.distinct()) or len(found)
        text = (
            f"{short_op(str(name))}: {100 * share:.0f} % of GPU time, {calls:,} calls, {format_ns(found.total_ns)} "
            f"in {len(steps)} step{'s' * (len(steps) != 1)}{_who_says_more(found)}"
        )
        values: dict[str, Value] = {
            "op": str(name),
            "share": share,
            "calls": calls,
            "kernels": len(found),
            "gpu_ns": found.total_ns,
        }
        yield Fact("hotspot", text, values, ids_of(found[np.array([int(np.argmax(found.dur_ns))])]))


def _who_says_more(found: Work) -> str:
    """A profiler of kernels says nothing of copies and memsets, whatever they take."""
    if found.kind.one_of("communication").all():
        return "; the others wait for the rank on which these are shortest"
    if 2 * found.of_kind("compute").total_ns <= found.total_ns:
        return ""
    amd = found.launch.name.matches(r"^hip").any()
    return f"; {'rocprof-compute' if amd else 'Nsight Compute'} shows why its kernels take so long"


def what_bounds(analysis: Analysis) -> Facts:
    """Overhead-bound or bound by the device, decided on the replayed step."""
    forecast = analysis.index(Forecast)
    step, base = forecast.step, forecast.base[0]
    bound = "open" if step.open else step.bound
    words = {
        "open": "bound by the CPU or the device, not clear from the trace alone",
        "cpu": "overhead-bound: the CPU takes longer to launch the step than the GPU to run it",
        "gpu": "bound by the device: the CPU is ahead of it",
        "communication": "bound by communication: the busiest stream mostly communicates",
        "wait": "bound by waiting: CPU and GPU wait for each other",
    }
    text = (
        f"{words.get(bound, bound)} ({format_ns(base.cpu_ns)} of CPU and {format_ns(base.gpu_ns)} of GPU "
        f"time in a step of {format_ns(step.unprofiled_ns)})"
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
    known = ops.shapes[ops.shapes["tflops"].notna()]
    known = known.assign(dtypes=[str(types).split(", ")[0] for types in known["dtypes"]])
    keys = ["kind", "dtypes", "device", "peak_tflops"]  # float32 has two peaks: with TF32 and without
    for (kind, types, device, peak), found in known.groupby(keys, sort=False, dropna=False):
        gpu_ns = int(found["gpu_ns"].sum())
        done = float((found["tflops"] * found["gpu_ns"]).sum() / max(gpu_ns, 1))
        yield _rate(str(kind), str(types), ops.peaks.get(int(str(device))), done, _known(peak), gpu_ns)


def _known(peak: object) -> float | None:
    number = float(str(peak))
    return None if np.isnan(number) else number


def _rate(kind: str, types: str, peaks: Peaks | None, done: float, peak: float | None, gpu_ns: int) -> Fact:
    """What was reached is achievable, too: no work here reaches more than all that is."""
    tf32 = types == "float" and peaks is not None and peak is not None and peak == peaks.tflops.get("tf32")
    arithmetic = "tf32" if tf32 else ARITHMETIC.get(types, types)
    usual = peaks.reached_tflops(kind, arithmetic) if peaks and peak else None
    text = f"{kind} in {types}{' by TF32' * tf32}: {done:,.0f} TFLOP/s"
    if peak and done > peak:
        text += f", more than the peak of {peak:,.0f}: its algorithm needs fewer operations than counted"
    else:
        text += f", {100 * done / peak:.0f} % of the peak of {peak:,.0f}" if peak else ", peak unknown"
    if usual is not None and done < usual:
        text += f" and {100 * done / usual:.0f} % of the achievable {usual:,.0f}"
    elif usual is not None and peak and done <= peak:
        text += f", all that is achievable: well-shaped work usually reaches {usual:,.0f}"
    values: dict[str, Value] = {
        "kind": kind,
        "dtypes": types,
        "tflops": done,
        "peak_tflops": peak,
        "achievable_tflops": None if usual is None else max(usual, done),
        "gpu_ns": gpu_ns,
    }
    return Fact("rate", text, values)
