"""Remedies for many launches: a CUDA graph, a compiler, or a larger batch."""

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import distinct, grouped
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.text_queries import regex
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.rewrites import Compile, GraphLaunch
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule import Calls, Confidence, Work
from traceanalyzer.rule.evidence_texts import differentiated_twice
from traceanalyzer.timeline.loops import approximate_loops
from traceanalyzer.timeline.names import OPTIMIZER_MARK

# Ops of a repeat in a message.
_SHOWN = 3
# Fewer repeats may be blocks of a model.
_MIN_REPEATS = 8
# Minimum share of the launches of a part that the message names.
_MOST_NAMED = 0.3
# Ops in blocks of a model. Each block needs the one before.
_LAYERS = r"Backward|attention|softmax|norm|rsqrt|conv"
# Minimum share of the repeats with an op, and of the launches from a line; chosen.
_IN_EACH = 0.5
_POINTWISE = regex(r"elementwise_kernel|elementwise_grid_stride|reduce_kernel|CatArrayBatched")
_GRAPH = (
    "Capture the step in a CUDA graph ({torch.cuda.graph}, or {torch.compile}(mode='reduce-overhead')). This is "
    "possible because every step launches the same kernels on the same grids."
)
_COMPILED = (
    " Most launches come from compiled code: if it has this mode already, TORCH_LOGS=perf_hints prints why no graph is "
    "replayed."
)
_GRAPH_AND_OPTIMIZER = (
    "Capture the step in a CUDA graph with {torch.cuda.graph}, and create the optimizer with capturable=True if it has "
    "this argument. This is possible because every step launches the same kernels on the same grids. It is not enough "
    "to use {torch.compile}(mode='reduce-overhead') for the model: the model's graphs do not contain the optimizer."
)
_ONE_STEP = (
    "If all steps have the same shapes (only one step was recorded, so the trace does not show it), capture them "
    "in a CUDA graph: {torch.cuda.graph}, or {torch.compile}(mode='reduce-overhead'). Else do more with each launch: "
    "a larger batch."
)
_COMPILE = "Compile the model with {{torch.compile}}{}: {:.0f} % of the launches can be fused{}. "
_FIXED_CACHE = " and a KV cache of a fixed size (cache_implementation='static' in generate())"
_GROWING = "; with the present KV cache, which grows by torch.cat, {torch.compile} would compile again for new lengths"
_STATIC = "If all steps have the same shapes, mode='reduce-overhead' puts the other launches{} into a CUDA graph."
_IN_THE_WAY = "A CUDA graph (mode='reduce-overhead') also removes the cost of the launches that remain, once {}."
_BATCH = (
    "Do more with each launch, as with a larger batch (in serving, with more requests at once). A CUDA graph "
    "also helps, but only if {}."
)
STACK = (
    "If the repetitions are independent, as samples or requests are (layers and time steps are not), stack their "
    "inputs and run them as one batch. Repetitions with weights of their own (experts) need a grouped product or bmm."
)
_VLLM = "In vLLM, remove enforce_eager=True: vLLM then captures CUDA graphs itself. "


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a step that launches most."""

    words: str  # `48 repetitions of one sequence of ops (a loop or layers; 31 ops each: aten::mul, ..)`
    launches: int
    share: float  # of all launches of the steps
    layers: bool  # the repeats look like layers of a model
    placed: bool  # the words contain a line or an annotation

    @property
    def evidence(self) -> dict[str, str | int | float]:
        return {"loop": self.words, "loop_launches": self.launches, "loop_part": self.share}


def launching_part(calls: Calls, eager: Work, min_share: float) -> Part | None:
    """The part that launches most `eager` work, as a loop over `min_share` of a thread's ops; None if none does."""
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    outer = outer[~outer.inside(calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)])]
    outer = outer[np.argsort(outer.start_ns, kind="stable")]
    group, _ = grouped([outer.step, outer.thread])
    order = np.argsort(group, kind="stable")
    outer, group = outer[order], group[order]
    loops = approximate_loops(outer.name.code, group, _MIN_REPEATS, min_share)
    if not loops:
        return None
    owner = eager.outer_op.index_of_enclosing(outer)
    launched = np.bincount(owner[owner >= 0], minlength=len(outer))
    first, end, repeats = (np.array([getattr(loop, name) for loop in loops]) for name in ("first", "end", "repeats"))
    before = np.append(0, np.cumsum(launched))
    launches = before[end] - before[first]
    largest = loops[int(np.argmax(launches))]
    # The same loop in other steps, and in backward.
    equal = np.abs(repeats - largest.repeats) <= 1
    members = outer[largest.first : largest.end]
    ops, of_members = round(len(members) / largest.repeats), launched[largest.first : largest.end]
    share = min(int(launches[equal].sum()) / max(len(eager), 1), 1.0)
    # Ops that recur and launch nothing mark no loop of launches.
    counts, by_op = members.name.sums(np.ones(len(members), np.int64)), members.name.sums(of_members)
    names = [name for name in by_op if by_op[name] and counts[name] >= _IN_EACH * largest.repeats]
    if not names or share < _MOST_NAMED:
        return None
    names = names[: min(_SHOWN, max(ops, 1))]
    lines = members.line.or_else(members.annotation).sums(of_members)
    line = next((name for name, count in lines.items() if count > _IN_EACH * int(of_members.sum())), None)
    steps = max(len(distinct(eager.step)), 1)
    each_step = round(int(launches[equal].sum()) / steps)
    several = int(equal.sum()) > len(distinct(group[first[equal]]))
    about = "about " * (each_step % largest.repeats != 0)
    loop_text = (
        f"several sequences of ops, each repeated about {largest.repeats:,} times (loops or layers; in the largest "
        if several
        else f"{about}{largest.repeats:,} repetitions of one sequence of ops (a loop or layers; "
    )
    return Part(
        f"{loop_text}about {ops:,} op{'s' * (ops != 1)} each: {', '.join(names)})" + (f" at {line}" if line else ""),
        each_step,
        share,
        bool(members.name.matches(_LAYERS).any()),
        line is not None,
    )


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy for many launches."""

    name: str  # "graph", "compile" or "batch"
    fix: Edit | tuple[()]  # nothing of a larger batch, which makes no step shorter
    saved: Saving | None  # what these launches cost, however they are avoided; None without replay
    sure: Confidence
    advice: str


def remedy_of(
    eager: Work,
    calls: Calls,
    repeats: bool,
    against: list[str],
    steps: int,
    forecast: Forecast | None,
    min_pointwise_share: float,
    min_compile_share: float,
) -> Remedy:
    """The remedy that the trace supports for `eager` work; `repeats` of a loop that launches it may be independent."""

    def saved(edit: Edit) -> Saving | None:
        return None if forecast is None else forecast.saving([edit])

    graph = GraphLaunch()
    marks = calls[calls.is_annotation & (calls.step >= 0)]
    trained = bool(marks.name.matches(OPTIMIZER_MARK).any())
    exception = " (but not the optimizer's)" if trained else ""
    compiled_code = eager.outer_op.name.matches(r"^Torch-Compiled Region|CompiledFunction")
    if not against and steps > 1:
        advice = (_GRAPH_AND_OPTIMIZER if trained else _GRAPH) + _COMPILED * bool(2 * compiled_code.sum() > len(eager))
        return Remedy("graph", graph, saved(graph), Confidence.HIGH, advice)
    pointwise = eager.name.matches(_POINTWISE) & ~eager.name.matches(r"^triton_|complex<")
    if (share := float(pointwise.sum()) / max(len(eager), 1)) >= min_pointwise_share and not compiled_code.any():
        compiled = Compile(eager.entries[pointwise])
        gain = saved(compiled)
        if gain is None or gain.share >= min_compile_share:
            # transformers appends to its cache of keys and values; stacks show it.
            appends = calls[calls.name.one_of("aten::cat")]
            grows = bool(appends.line.matches(r"transformers/cache_utils\.py").any())
            rest = _IN_THE_WAY.format(", and ".join(against)) if against else _STATIC.format(exception)
            advice = _COMPILE.format(_FIXED_CACHE * grows, 100 * share, _GROWING * grows) + rest
            advice += differentiated_twice(eager)
            return Remedy("compile", compiled, gain, Confidence.MEDIUM, advice)
    if not against:
        return Remedy("graph", graph, saved(graph), Confidence.LOW, _ONE_STEP)
    served = _VLLM * bool(calls.name.matches(r"^vllm::").any() or calls.line.matches(r"^(.*/)?vllm/").any())
    advice = served + f"{STACK} " * repeats + _BATCH.format(", and ".join(against))
    return Remedy("batch", (), saved(graph), Confidence.MEDIUM, advice)
