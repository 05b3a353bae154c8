"""torch.compile compiles again, leaves ops out, or costs more than it saves."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, starts_of_runs
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import ints, matching
from traceanalyzer.replay.edits import Drop, DropSpans
from traceanalyzer.replay.rewrites import Fuse, Replace
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline.names import is_compilation
from traceanalyzer.timeline.steps import Steps

_REGION = regex(r"^Torch-Compiled Region: (?P<frame>\d{1,9})/(?P<version>\d{1,9})")
_LOOKUP = r"^TorchDynamo Cache Lookup"
_CALLED = r"^## Call CompiledFxGraph"
_MACHINERY = rf"{_REGION.pattern}|{_LOOKUP}|{_CALLED}|^(?:Pregraph bytecode|AOTDispatcher|triton_)"
# Kernels. Fewer are a break around one op, copies of the wrapper, or inputs of a graph.
_SHORT = 3
_BREAKS = "Remove graph breaks if you can (TORCH_LOGS=graph_breaks names them), but measure: it may not pay. "
_GUARDS = (
    "Capture the whole step in a CUDA graph ({torch.cuda.graph}): this removes all of this overhead. "
    "mode='reduce-overhead' removes only the launches inside the regions, not the guards."
)


_GRAPH_FRAME = regex(r"torch/_inductor/cudagraph_trees\.py\(\d+\): (?:deferred_cudagraphify|cudagraphify)$")
_GRAPH_MARK = r"^cudagraphify"
_REPLAY_NS = 60_000.0  # of the CPU, for guards, wrapper and launch of a region that is replayed; H200, torch 2.11


class Limits:
    max_versions: int = 8
    """a frame is regarded as recompiled too often if it has at least this many versions; this is the default
    of torch._dynamo.config.recompile_limit in torch 2.11"""
    min_guard_share: float = 0.05
    """guards are reported only if checking them takes at least this share of the recorded step on the CPU; chosen"""
    min_times: float = 2.0
    """a region is reported as tiny if entering it takes at least this many times as long as its kernels; chosen"""
    min_eager_share: float = 0.05
    """eager ops inside compiled regions are reported only if they take at least this share of GPU time; chosen"""


@rule(
    since="0.1",
    claims=Claims.EVENT,
    limits=Limits,
    causes=("recompilation", "tiny-regions", "graph-breaks", "eager-ops", "guards", "not-replayed"),
)
def compile(calls: Calls, idle: IdleTime, steps: Steps, limits: Limits) -> Iterator[Hits]:
    """Compiled code is compiled again in the loop, is interrupted by eager ops, or takes longer to enter than to run.

    What it looks for:
    - compilation in several steps, or in a step that is not the first;
    - a compiled region whose version number grows (`Torch-Compiled Region: 0/18` is the nineteenth version of
      frame 0);
    - several regions in a step: each region after the first is a graph break (cause `graph-breaks`), and the
      finding names the ops and the user's lines between them;
    - regions that take the CPU much longer to enter than the GPU needs for their kernels (cause
      `tiny-regions`);
    - eager pointwise kernels inside a region, between its compiled kernels (cause `eager-ops`);
    - a long `TorchDynamo Cache Lookup` before each region, which checks the guards of the compiled code (cause
      `guards`);
    - a region that asks for its CUDA graph, as with mode='reduce-overhead', but launches its kernels one by one
      (cause `not-replayed`). Only Python stacks, or marks of the compiler, show that it asks.
    Why it costs: compiling takes seconds, and nothing runs meanwhile. After 8 versions of a frame, dynamo
    runs this frame eagerly. A graph break prevents fusion of the code before and after the break. Entering a
    region takes CPU time, so tiny ops are faster in eager mode.
    Bad: a compiled function that is called with a new length in each step; torch.compiler.disable, print or
    .item() within a compiled function. Good: dynamic=True, mark_dynamic, or few different sizes; no graph
    breaks (fullgraph=True raises an error at each graph break).
    How sure: the trace has events of the compiler. If only the first step compiles, the rule cold-start
    reports the compilation. Findings of graph breaks and of tiny regions are always info. Removing a graph
    break saves time only if eager kernels can then be fused.
    When it is wrong: a shape occurs only once, as in the last batch of an epoch.
    Saving: the time of compiling. For `eager-ops`, the prediction replaces consecutive pointwise kernels by
    one kernel, and gives it the time of the longest.
    Source: "Dealing with Recompilations"; measured on an H200 with torch 2.11.
    """
    compilations = calls[calls.name.meets(is_compilation)].outermost()
    compilations = compilations[compilations.step >= 0]
    regions = calls[calls.name.matches(_REGION) & (calls.step >= 0)]
    if len(compilations) == 0 and len(regions) == 0:
        raise Unavailable("nothing in the trace is compiled by torch.compile")
    if (compilations.step > 0).any():
        yield _recompilation_hits(compilations, regions, idle, limits)
    yield from _guard_hits(calls, idle, steps, limits)
    yield from _graph_hits(calls, regions, idle)
    yield from _eager_hits(calls, regions, limits)
    yield from _overhead(calls, regions, limits)


def _recompilation_hits(compilations: Calls, regions: Calls, idle: IdleTime, limits: Limits) -> Hits:
    steps = len(distinct(compilations.step))
    # Counted from 1.
    version, frame = max(((version + 1, frame) for frame, version in _region_numbers(regions)), default=(0, 0))
    return Hits(
        occurrences=compilations,
        cause="recompilation",
        lost=LostTime.idle_within(idle, compilations.start_ns, compilations.end_ns),
        fix=DropSpans(compilations.start_ns, compilations.end_ns),
        confidence=Confidence.HIGH if steps > 1 else Confidence.MEDIUM,
        message="code is compiled again {in_steps}: {in_a_step} of CPU time in each of these steps"
        + ("; frame {frame} has been compiled {version} times since the program began" if version > 1 else ""),
        advice="TORCH_LOGS=recompiles shows which guard fails. If a size changes, use dynamic=True, mark_dynamic, "
        "or padding to a few sizes. If a Python number changes, make it a tensor.",
        evidence={
            "compiling_ns": compilations.total_ns,
            "in_a_step_ns": compilations.total_ns // steps,
            "frame": frame,
            "version": version,
            "over_limit": version >= limits.max_versions,
        },
    )


def _guard_hits(calls: Calls, idle: IdleTime, steps: Steps, limits: Limits) -> Iterator[Hits]:
    lookups = calls[calls.name.matches(_LOOKUP) & (calls.step >= 0)].outermost()
    if not len(lookups) or lookups.total_ns < limits.min_guard_share * steps.window_ns:
        return
    yield Hits(
        occurrences=lookups,
        cause="guards",
        lost=LostTime.idle_within(idle, lookups.start_ns, lookups.end_ns),
        fix=Drop(lookups.rows),
        message="TorchDynamo Cache Lookup checks the guards of compiled code {times_a_step} and takes {lookup} of CPU "
        "time a step",
        advice="Use fewer guards: TORCH_LOGS=guards lists them. If no module or global changes after the warm-up, pass "
        "options={'guard_filter_fn': torch.compiler.skip_guard_on_all_nn_modules_unsafe} to {torch.compile}, or call "
        "torch.compiler.set_stance(skip_guard_eval_unsafe=True).",
        evidence={"lookup_ns": lookups.total_ns // max(len(distinct(lookups.step)), 1)},
    )


def _graph_hits(calls: Calls, regions: Calls, idle: IdleTime) -> Iterator[Hits]:
    """Hits for regions with mode='reduce-overhead' of which no CUDA graph is replayed."""
    outer = regions.outermost()
    python, marks = calls.events.trace.lanes.python, calls[calls.name.matches(_GRAPH_MARK)]
    asked_ns = np.append(ints(python, "start_ns")[matching(python, "name", _GRAPH_FRAME.search)], marks.start_ns)
    asked = distinct(intervals.overlaps(intervals.union(asked_ns, asked_ns + 1), outer.start_ns, outer.end_ns)[0])
    kernels, owner = outer.launched()
    eager = (np.bincount(owner[~kernels.in_graph], minlength=len(outer)) >= _SHORT)[asked]
    eager &= np.bincount(owner[kernels.in_graph], minlength=len(outer))[asked] == 0
    lost = outer[asked[eager]]
    if len(lost) <= len(asked) / 2 or len(distinct(lost.step)) < 2:
        return
    launched, owner = lost.launched()
    gpu_ns = np.bincount(owner, launched.dur_ns, len(lost)).astype(np.float64)[:, None]
    yield Hits(
        occurrences=lost,
        cause="not-replayed",
        lost=LostTime.idle_within(idle, lost.start_ns, lost.end_ns),
        fix=Replace(lost.start_ns, lost.end_ns, gpu_ns, _REPLAY_NS),
        message="compiled regions ask for a CUDA graph, as with mode='reduce-overhead', {times_a_step}, but none is "
        "replayed: each launches {kernels} kernels one by one",
        advice="TORCH_LOGS=perf_hints prints why no graph is replayed. Usual reasons: an input is changed in place "
        "(return the result instead), an input or a constant is on the CPU (move it), the size changes in each call "
        "(pad to a few sizes), or an op waits for the CPU (move it out of the compiled function).",
        evidence={"kernels": round(len(launched) / len(lost)), "regions": lost.name.sums(lost.dur_ns)},
    )


def _eager_hits(calls: Calls, regions: Calls, limits: Limits) -> Iterator[Hits]:
    """Hits for pointwise kernels that regions launch outside their compiled code."""
    every, run = eager_runs(calls, regions)
    for eager_work, gpu_share in every.device_shares():
        number = np.unique(run[np.isin(every.entries, eager_work.entries)], return_inverse=True)[1]
        longest = np.zeros(int(number.max()) + 1)
        np.maximum.at(longest, number, eager_work.dur_ns)
        total = np.bincount(number, weights=eager_work.dur_ns)
        if gpu_share * float((total - longest).sum()) / max(eager_work.total_ns, 1) < limits.min_eager_share:
            continue
        rest = eager_work[~eager_work.op.name.matches(r"^triton_")]
        # Regions within others that launch only this work follow a break and go with it.
        inner = regions[regions.parent.inside(regions)]
        launched, owner = inner.launched()
        staying = owner[~np.isin(launched.entries, eager_work.entries)]
        resumed = inner[~np.isin(np.arange(len(inner)), staying)]
        yield Hits(
            occurrences=eager_work,
            cause="eager-ops",
            lost=LostTime.excess(eager_work, np.asarray(eager_work.dur_ns * (1 - longest / total)[number], np.int64)),
            fix=(Fuse(eager_work.entries, number, longest), Drop(resumed.rows)),
            message="graph breaks: compiled regions run {left} outside their compiled code, kernel by kernel; with the "
            "compiled kernels next to them {gpu} of all GPU work{where}",
            advice="TORCH_LOGS=graph_breaks shows what breaks the graph: torch.compiler.disable, print, a value on the "
            "host, or a call that dynamo does not trace. Without the break one kernel does all of this.",
            evidence={
                **gpu_time_evidence(eager_work),
                "gpu_share": gpu_share,
                "left": rest.op.name.sums(rest.dur_ns),
                "runs": len(total),
            },
        )


def _overhead(calls: Calls, regions: Calls, limits: Limits) -> Iterator[Hits]:
    """Hits for CPU time of regions, if a step enters several or their CPU time exceeds their GPU time."""
    frames, times = len({frame for frame, _ in _region_numbers(regions)}), times_of(calls, regions)
    if len(regions) <= frames:  # each is entered once, which loads and sets up what later calls find
        return
    # Without the profiler, entering takes 50 µs and 13 µs more for each kernel; H200, torch 2.11.
    tax = times["cpu_ns"] >= limits.min_times * max(times["gpu_ns"], 1)
    if tax or frames > 1:
        breaks = between_of(calls, regions)
        yield Hits(
            occurrences=regions,
            cause="tiny-regions" if tax else "graph-breaks",
            message=(
                "{frames} compiled regions, called {times_a_step} in all, take"
                if frames > 1
                else "a compiled region, called {times_a_step}, takes"
            )
            + " {cpu} of CPU time a step under the profiler, and the kernels that "
            + ("they launch" if frames > 1 else "it launches")
            + " take {gpu}"
            + "; at the graph breaks between them run {between:of the time there}" * bool(len(breaks))
            + "{at_lines:of the time there}",
            advice=_BREAKS * (frames > 1) + _GUARDS,
            evidence={
                "frames": frames,
                "regions": regions.name.sums(regions.dur_ns),
                "between": breaks.name.sums(breaks.dur_ns),
                "lines": breaks.line.sums(breaks.dur_ns),
                **times,
            },
            info=True,
        )


def between_of(calls: Calls, regions: Calls) -> Calls:
    """Eager ops between two regions of a step, or between two graphs of one region: what breaks the graph."""
    outer, graphs = regions.outermost(), calls[calls.name.matches(_CALLED)]
    within = graphs.in_order(by_step=True)
    region = within.index_of_enclosing(outer)
    inside = _gaps(within, (region[1:] == region[:-1]) & (region[1:] >= 0))
    gaps = intervals.union(*map(np.concatenate, zip(inside, _gaps(outer.in_order(by_step=True)), strict=True)))
    ops = calls[calls.is_op & ~calls.name.matches(_MACHINERY)]
    ops = ops[~ops.inside(calls[calls.name.matches(f"{_CALLED}|^CompiledFunction")])].outermost()
    between: Calls = ops[distinct(intervals.overlaps(gaps, ops.start_ns, ops.end_ns)[0])]
    return between


def _gaps(calls: Calls, chosen: Mask | bool = True) -> intervals.Set:
    """From the end of each call to the next one of its step and thread, in order."""
    follows = ~starts_of_runs(calls.step)[1:] & ~starts_of_runs(calls.thread)[1:] & chosen
    return intervals.union(calls.end_ns[:-1][follows], calls.start_ns[1:][follows])


def _region_numbers(regions: Calls) -> list[tuple[int, int]]:
    """(frame, version) of each region; each frame after a model's first is a graph break."""
    matches = [_REGION.match(name) for name in regions.name.distinct()]
    return [(int(match["frame"]), int(match["version"])) for match in matches if match]


def times_of(calls: Calls, regions: Calls) -> dict[str, int]:
    """Means per step that has a region, ns under the profiler, but for the last.

    cpu_ns: within regions; lookup_ns: looking up guards; wrapper_ns: in regions around the compiled code, 0 where that
    has no marks; gpu_ns and launches: the work that they launch.
    """
    outer = regions.outermost()
    inside = calls[calls.name.matches(_CALLED)]
    inside = inside[inside.inside(regions)].outermost()
    launched, _ = regions.launched()
    count = max(len(distinct(regions.step)), 1)
    return {
        "cpu_ns": outer.total_ns // count,
        "lookup_ns": calls[calls.name.matches(_LOOKUP)].total_ns // count,
        "wrapper_ns": max(outer.total_ns - inside.total_ns, 0) // count if len(inside) else 0,
        "gpu_ns": launched.total_ns // count,
        "launches": round(len(launched) / count),
    }


def eager_runs(calls: Calls, regions: Calls) -> tuple[Work, Rows]:
    """(pointwise kernels of regions in order, number of the run that each is in); runs that hold eager ones, too.

    A run is what one region launches in a row, on one stream. Regions whose compiled code has no marks of its own are
    left out: what they run may all be eager.
    """
    compiled = calls[calls.name.matches(_CALLED)]
    outer = regions.outermost()
    outer = outer[distinct(compiled.index_of_enclosing(outer)[compiled.inside(outer)])]
    kernels, owner = outer.launched()
    order = np.lexsort((kernels.start_ns, kernels.stream, kernels.device))
    kernels, owner = kernels[order], owner[order]
    eager = ~kernels.launch.inside(compiled)
    pointwise = kernels.name.matches(families.POINTWISE) & ~kernels.name.matches(families.INDEXED)
    breaks = ~pointwise | ~np.append(False, pointwise[:-1])
    for column in (owner, kernels.stream, kernels.device):
        breaks |= starts_of_runs(column)
    run = np.cumsum(breaks) - 1
    copied = kernels.op.name.one_of("aten::copy_")  # to an input that the compiled code changes
    uncompiled = np.bincount(run, weights=eager & pointwise & ~copied)
    chosen = pointwise & (np.bincount(run) >= _SHORT)[run] & (uncompiled > 0)[run]
    return kernels[chosen], run[chosen]
