"""What a trace shows that is no fault: the facts that a reader of the timeline would look for."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import distinct, median, pick, sums_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import COUNTER_RANGE
from traceanalyzer.model.short_names import short_op
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, matching
from traceanalyzer.model.units import format_ns
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.roofline.gpus import Peaks
from traceanalyzer.roofline.op_rates import OpWork
from traceanalyzer.rule.advice import adapt_to_recording
from traceanalyzer.rule.evidence_texts import called_names
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.tensors.ops.costs import ARITHMETIC
from traceanalyzer.timeline.mark_search import phase_and_batch, prompt_and_new_tokens
from traceanalyzer.timeline.names import BUFFER_OVERHEAD
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.synchronisation import SyncCalls

Value = int | float | str | None


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement of a kind in kebab-case, the numbers and names in it, and events to look at, the outer first."""

    name: str
    text: str
    values: Mapping[str, Value] = field(default_factory=dict)
    event_ids: tuple[int, ...] = ()


Facts = Iterator[Fact]


def _fact(name: str, text: str, event_ids: tuple[int, ...] = (), /, **values: Value) -> Fact:
    return Fact(name, text, values, event_ids)


def ids_of(*views: Calls | Work) -> tuple[int, ...]:
    """Event ids of all rows of some views, in their order, each once."""
    found: list[int] = []
    for view in views:
        trace = view.events.trace
        if isinstance(view, Calls):
            found += pick(ints(trace.lanes.cpu, "event_id"), view.rows).tolist()
        elif view.events.work is not None:
            found += ints(trace.lanes.gpu, "event_id")[view.events.work.row[view.entries]].tolist()
    return tuple(dict.fromkeys(event for event in found if event >= 0))


_TOP = 3
_REGION = regex(r"^Torch-Compiled Region: (?P<region>\S+)")
_GRAPH = regex(r"CompiledFxGraph (?P<hash>\w+)")
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
        longest = ids_of(found[np.array([int(np.argmax(found.dur_ns))])])
        amounts = {"share": share, "calls": calls, "kernels": len(found), "gpu_ns": found.total_ns}
        yield _fact("hotspot", text, longest, op=str(name), **amounts)


def _who_says_more(found: Work) -> str:
    """A profiler of kernels says nothing of copies and memsets, whatever they take."""
    if found.kind.one_of("communication").all():
        return "; the others wait for the rank on which these are shortest"
    if 2 * found.of_kind("compute").total_ns <= found.total_ns:
        return ""
    tool = adapt_to_recording("{ncu}", found.events.trace.meta.dialect).replace("ncu", "Nsight Compute")
    return f"; {tool} shows why its kernels take so long"


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
    times = {"cpu_ns": round(base.cpu_ns), "gpu_ns": round(base.gpu_ns), "step_ns": round(step.unprofiled_ns)}
    yield _fact("bound", text, bound=step.bound, **times)


def compiled_regions(analysis: Analysis) -> Facts:
    """Each compiled region with its hash, its guards' lookup and what comes before its first kernel."""
    calls = analysis.index(Calls)
    regions = calls[calls.name.matches(_REGION)]
    graphs, lookups = (calls[calls.name.matches(p)] for p in (r"CompiledFxGraph ", r"^TorchDynamo Cache Lookup"))
    launches = np.sort(calls[calls.is_call & calls.name.matches("Launch")].start_ns)
    for name, found in regions.by(regions.name):
        inside = graphs[graphs.inside(found)]
        hashes = [match["hash"] for one in inside.name.distinct() if (match := _GRAPH.search(one))]
        first = np.append(launches, np.iinfo(np.int64).max)[np.searchsorted(launches, found.start_ns)]
        prologue = int(median(np.minimum(first, found.end_ns) - found.start_ns))
        region = _REGION.match(name)
        text = (
            f"compiled region {region['region'] if region else name}, entered {len(found):,} times, "
            f"{format_ns(found.total_ns / len(found))} each, {format_ns(prologue)} before its first launch"
            + (f"; graph {hashes[0][:12]}" if hashes else "")
        )
        amounts = {"calls": len(found), "prologue_ns": prologue, "total_ns": found.total_ns}
        guards = {"lookups": len(lookups), "lookup_ns": lookups.total_ns}
        known = {"hash": hashes[0] if hashes else None, **guards}
        events = ids_of(found[_FIRST], inside[_FIRST[: len(inside)]])
        yield _fact("compiled-region", text, events, region=name, **amounts, **known)


def rates(analysis: Analysis) -> Facts:
    """TFLOP/s of matrix products, convolutions and attention by dtype, against the peak and what is achievable."""
    ops = analysis.index(OpWork)
    known = ops.shapes[ops.shapes["tflops"].notna()]
    known = known.assign(dtypes=[str(types).split(", ")[0] for types in known["dtypes"]])
    keys = ["kind", "dtypes", "device", "peak_tflops"]  # float32 has two peaks: with TF32 and without
    for (kind, types, device, peak), found in known.groupby(keys, sort=False, dropna=False):
        gpu_ns = int(found["gpu_ns"].sum())
        done = float((found["tflops"] * found["gpu_ns"]).sum() / max(gpu_ns, 1))
        most = None if np.isnan(number := float(str(peak))) else number
        yield _rate(str(kind), str(types), ops.peaks.get(int(str(device))), done, most, gpu_ns)


def _rate(kind: str, types: str, peaks: Peaks | None, done: float, peak: float | None, gpu_ns: int) -> Fact:
    """What was reached is achievable, too: no work here reaches more than all that is."""
    tf32 = types == "float" and peaks is not None and peak is not None and peak == peaks.tflops.get("tf32")
    arithmetic = "tf32" if tf32 else ARITHMETIC.get(types, types)
    usual = peaks.reached_tflops(kind, arithmetic) if peaks and peak else None
    text = f"{kind} in {types}{' by TF32' * tf32}: {done:,.0f} TFLOP/s"
    if peak and done > peak:
        text += f", more than the peak of {peak:,.0f}: it does fewer operations than counted, or its time is wrong"
    else:
        text += f", {100 * done / peak:.0f} % of the peak of {peak:,.0f}" if peak else ", peak unknown"
    if usual is not None and done < usual:
        text += f" and {100 * done / usual:.0f} % of the achievable {usual:,.0f}"
    elif usual is not None and peak and done <= peak:
        text += f", all that is achievable: well-shaped work usually reaches {usual:,.0f}"
    achievable = None if usual is None else max(usual, done)
    speeds = {"tflops": done, "peak_tflops": peak, "achievable_tflops": achievable}
    return _fact("rate", text, kind=kind, dtypes=types, **speeds, gpu_ns=gpu_ns)


_CHAINS = 3  # top ops whose way to the device is told
_OCCUPANCY = regex(r"Occupancy(MaxActive|MaxPotential)|OccupancyMaxActiveBlocks")
_ADDS = r"^aten::(addmm|baddbmm|addbmm|addmv)$"


def dispatch_chains(analysis: Analysis) -> Facts:
    """Step > annotation > op > ... > runtime call > kernel: of each top op's costliest kernel a usual execution."""
    work = analysis.index(Work)
    linked = work[work.launch.there & work.outer_op.there]
    for op, found in list(linked.by(linked.outer_op.name))[:_CHAINS]:
        _, costliest = next(found.by(found.name))
        order = np.argsort(costliest.dur_ns, kind="stable")
        one = costliest[order[[len(order) // 2]]]
        rows, parent = [int(one.launch.rows[0])], one.launch.events.nesting.parent
        while parent[rows[-1]] >= 0:
            rows.append(int(parent[rows[-1]]))
        chain = Calls(one.launch.events, np.array(rows[::-1], np.int64))  # the outermost first
        columns = chain.name.values(), chain.dur_ns.tolist(), chain.self_ns.tolist()
        calls = zip(*columns, strict=True)
        parts = [f"{name} {format_ns(total)} ({format_ns(own)} self)" for name, total, own in calls]
        parts.append(f"{short_op(str(one.name[0]))} {format_ns(one.total_ns)} on the GPU")
        amounts = {"calls": len(distinct(found.outer_op.rows)), "gpu_ns": found.total_ns}
        amounts |= {"kernel_ns": one.total_ns, "depth": len(chain)}
        yield _fact("dispatch-chain", " > ".join(parts), ids_of(chain, one), op=op, **amounts)


def matmul_resolved(analysis: Analysis) -> Facts:
    """Which products aten::matmul and aten::linear became: mm for two matrices, bmm for batches, addmm with a bias."""
    calls = analysis.index(Calls)
    asked = calls[calls.name.one_of("aten::matmul", "aten::linear", "aten::einsum")]
    products = calls[calls.name.one_of("aten::mm", "aten::bmm", "aten::addmm", "aten::mv", "aten::dot")]
    owner = products.index_of_enclosing(asked)
    inside = products[owner >= 0]
    outer = asked.name[owner[owner >= 0]]
    for name, found in inside.by(outer):
        became = found.name.sums(np.ones(len(found), np.int64))
        words = ", ".join(f"{op} ({count:,} times)" for op, count in became.items())
        yield _fact("matmul-resolved", f"{name} becomes {words}", ids_of(found[_FIRST]), op=name, **became)


def addmm_launches(analysis: Analysis) -> Facts:
    """addmm is one op for the dispatcher; whether it is one kernel, too, depends on its bias."""
    calls = analysis.index(Calls)
    adds = calls[calls.name.matches(_ADDS)]
    launched, owner = adds.launched()
    if len(launched) == 0:
        return
    copies = launched.kind.one_of("copy_d2d")
    kernels = launched.kind.one_of("compute")
    copied = sums_of(owner, copies.astype(np.int64), len(adds)) > 0
    for name, of_name in adds.by(adds.name):
        own = np.isin(adds.rows, of_name.rows)
        count, seeded = int(np.isin(np.flatnonzero(own), owner).sum()), int((copied & own).sum())
        if count == 0:
            continue
        each = int((kernels & own[owner]).sum()) / count
        words = (
            f"is fused at the dispatcher only: {seeded:,} of {count:,} copy the bias before the product"
            if seeded
            else f"is fused in the kernel, too: the bias is added in its epilogue, {each:.1f} kernels a call"
        )
        amounts = {"calls": count, "copies": seeded, "kernels_per_call": float(each)}
        yield _fact("addmm-fusion", f"{name} {words}", ids_of(of_name[_FIRST]), op=name, **amounts)


def adaptive_launches(analysis: Analysis) -> Facts:
    """Launches that ask for the occupancy first choose their grid at run time; the others have a fixed one."""
    calls = analysis.index(Calls)
    runtime = calls[calls.is_call]
    runtime = runtime[np.lexsort((runtime.start_ns, runtime.thread))]
    launches = np.flatnonzero(runtime.name.matches(r"Launch(Cooperative)?Kernel"))
    if len(launches) == 0:
        return
    asks = runtime.name.matches(_OCCUPANCY)
    before = np.maximum(launches - 1, 0)
    same = pick(runtime.parent.rows, launches) == pick(runtime.parent.rows, before)
    adaptive = asks[before] & same & (launches > 0)
    asking = runtime[launches[adaptive]]
    ops = asking.outer_op.name.sums(np.ones(len(asking), np.int64))
    words = f"; most by {', '.join(list(ops)[:3])}" if ops else ""
    counts = f"{len(asking):,} of {len(launches):,}"
    text = f"{counts} kernel launches query the occupancy first and adapt their grid{words}"
    first = ids_of(asking[np.arange(min(len(asking), 1))])
    yield _fact("adaptive-launches", text, first, launches=len(launches), adaptive=len(asking))


def profilers_own(analysis: Analysis) -> Facts:
    """Buffers that the profiler asked for, and its synchronisation at the end: none of it is in the program."""
    calls, syncs = analysis.index(Calls), analysis.index(SyncCalls)
    trace = calls.events.trace
    every = Calls(calls.events, np.flatnonzero(matching(trace.lanes.cpu, "category", "overhead".__eq__)))
    buffers = every[every.name.matches(BUFFER_OVERHEAD)]
    if len(buffers):
        times = f"{len(buffers):,} times, {format_ns(buffers.total_ns)} in total"
        text, values = f"the profiler requested buffers {times}", {"count": len(buffers)}
        yield _fact("profiler-buffers", text, ids_of(buffers), **values, total_ns=buffers.total_ns)
    final = Calls(calls.events, syncs.row[syncs.profiler])
    if len(final):
        last = final[np.array([len(final) - 1])]
        text = f"{last.name[0]} of {format_ns(last.total_ns)} at the end is the profiler's own"
        yield _fact("profiler-synchronisation", text, ids_of(last), total_ns=last.total_ns)


def serving_steps(analysis: Analysis) -> Facts:
    """How long steps of each phase and batch size take, the GPU time that they launch, and their tokens.

    Tokens a second are of the time from each mark to the next; `between_ns` is the part after the mark's end.
    """
    calls = analysis.index(Calls)
    marks = calls[calls.is_annotation & calls.name.meets(lambda name: phase_and_batch(name)[0])]
    marks = marks[~marks.parent.inside(marks)]
    gpu_ns = idle_ns = np.zeros(len(marks), np.int64)
    following = np.append(marks.start_ns[1:], marks.end_ns[-1:])
    if (work := marks.events.work) is not None:
        launched, owner = marks.launched()
        gpu_ns = sums_of(owner, launched.dur_ns, len(marks))
        busy = intervals.union(work.start_ns, work.end_ns)
        idle_ns = following - marks.end_ns - intervals.covered(busy, marks.end_ns, following)
    names = [str(name) for name in marks.name.values()]
    kinds = [phase_and_batch(name) for name in names]
    for phase, batch in sorted(set(kinds), key=str):
        own = np.flatnonzero([kind == (phase, batch) for kind in kinds])
        cpu, gpu = int(median(marks.dur_ns[own])), int(median(gpu_ns[own]))
        requests = "" if batch < 0 else f" of {batch} request{'s' * (batch != 1)}"
        times = f"median {format_ns(cpu)} on the CPU, {format_ns(gpu)} of GPU work"
        values: dict[str, Value] = {"phase": phase, "batch": batch if batch >= 0 else None, "steps": len(own)}
        values |= {"cpu_ns": cpu, "gpu_ns": gpu}
        # Nothing marks where the last one ends.
        whole = own[own < len(marks) - 1]
        if len(whole):
            between, idle = (int(median(ns[whole])) for ns in (following - marks.end_ns, idle_ns))
            times += f"; {format_ns(between)} from its end to the next, the GPU idle for {format_ns(idle)} of it"
            whole_ns = int((following - marks.start_ns)[whole].sum())
            words, rates = _token_rates(phase, batch, [names[mark] for mark in whole.tolist()], whole_ns)
            times += words
            values |= {"between_ns": between, "between_idle_ns": idle, **rates}
        text = f"{phase}{requests}: {len(own):,} steps, {times}"
        yield _fact("serving-steps", text, ids_of(marks[own[:1]]), **values)


def _token_rates(phase: str | None, batch: int, marks: list[str], time_ns: int) -> tuple[str, dict[str, Value]]:
    """Tokens a second in all these steps, and time for each, in words and as values; empty where no mark tells."""
    words, values = "", dict[str, Value]()
    counts = np.sum([prompt_and_new_tokens(mark) for mark in marks], axis=0).tolist()
    for kind, count in zip(("prompt", "new"), counts, strict=True):
        if count and time_ns:
            values[f"{kind}_tokens_per_s"] = round(count / time_ns * 1e9, 1)
            words += f"; {values[f'{kind}_tokens_per_s']:,.0f} {kind} tokens a second"
    if len(values) == 1 and phase in ("prefill", "decode"):
        # The requests of a decode step get their tokens at the same time.
        token_ns = round(time_ns * (max(batch, 1) if phase == "decode" else 1) / sum(counts))
        values["token_ns"] = token_ns
        words += f", {format_ns(token_ns)} a token{' of each request' * (phase == 'decode')}"
    return words, values


def kernel_counters(analysis: Analysis) -> Facts:
    """Sums of the GPU's counters, and the kernel that has most of each."""
    gpu = analysis.trace.lanes.gpu
    rows = np.flatnonzero(matching(gpu, "category", COUNTER_RANGE.__eq__))
    names, others = Texts.column(gpu, "name", rows), Texts.column(gpu, "other_args", rows)
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, text in zip(names.values(), others.values(), strict=True):
        for counter, value in json.loads(text or "{}").items():
            if isinstance(value, int | float):
                sums[counter][str(name)] += value
    for counter, kernels in sorted(sums.items()):
        total, most = sum(kernels.values()), max(kernels, key=kernels.__getitem__)
        largest = f"; {short_op(most)} has {100 * kernels[most] / total:.0f} %" if total else ""
        text = f"{counter}: {total:,.0f} in {len(rows):,} kernels{largest}"
        yield _fact("kernel-counter", text, counter=counter, sum=total, kernels=len(rows), most=most)


BUILDERS: tuple[Callable[[Analysis], Facts], ...] = (
    *(what_bounds, hotspots, rates, dispatch_chains, matmul_resolved, addmm_launches, adaptive_launches),
    *(compiled_regions, serving_steps, profilers_own, kernel_counters),
)


def facts_of(analysis: Analysis) -> tuple[Fact, ...]:
    """Every fact, in the order of `BUILDERS`; what the trace does not carry gives none."""
    facts: list[Fact] = []
    for builder in BUILDERS:
        with suppress(Unavailable):
            facts += [*builder(analysis)]
    return tuple(facts)
