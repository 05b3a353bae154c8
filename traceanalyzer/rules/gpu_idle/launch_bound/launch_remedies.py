"""What takes the launches off a step that waits for them: a CUDA graph, a compiler, or more work in each launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.edits import Edit
from traceanalyzer.replay.rewrites import Compile, GraphLaunch
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.evidence import differentiated_twice
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rules.gpu_idle.launch_bound.capturable import is_compiled
from traceanalyzer.timeline.names import OPTIMIZER_MARK

_POINTWISE = re.compile(r"elementwise_kernel|elementwise_grid_stride|reduce_kernel|CatArrayBatched")

_GRAPH = (
    "Capture the step in a CUDA graph (torch.cuda.graph, or {torch.compile}(mode='reduce-overhead')). This is "
    "possible because every step launches the same kernels on the same grids."
)
_GRAPH_AND_OPTIMIZER = (
    "Capture the step in a CUDA graph with torch.cuda.graph{0}. This is possible because every step launches the same "
    "kernels on the same grids. It is not enough to use {{torch.compile}}(mode='reduce-overhead') for the model: the "
    "model's graphs do not contain the optimizer."
)
_ONE_STEP = (
    "If all steps have the same shapes (only one step was recorded, so the trace does not show it), capture them "
    "in a CUDA graph: torch.cuda.graph, or {torch.compile}(mode='reduce-overhead'). Else do more with each launch: "
    "a larger batch."
)
_COMPILE = "Compile the model with {{torch.compile}}{}: {:.0f} % of the launches can be fused{}. "
_FIXED_CACHE = " and a KV cache of a fixed size (cache_implementation='static' in generate())"
_GROWING = "; with the present KV cache, which grows by torch.cat, {torch.compile} would compile again for new lengths"
_STATIC = (
    "If all steps have the same shapes, mode='reduce-overhead' puts the other launches{} into a CUDA graph."
)
_IN_THE_WAY = (
    "A CUDA graph (mode='reduce-overhead') also removes the cost of the launches that remain, once {}."
)
_BATCH = (
    "Do more with each launch, as with a larger batch (in serving, with more requests at once). A CUDA graph "
    "also helps, but only if {}."
)
STACK = (
    "If the repetitions are independent, as samples or requests are (layers and time steps are not), stack their "
    "inputs and run them as one batch. Repetitions with weights of their own (experts) need a grouped product or bmm."
)
_VLLM = "In vLLM, remove enforce_eager=True: vLLM then captures CUDA graphs itself. "
# torch/optim asks these under capture; the step counters of the others are no tensors, or may stay on the host.
_ASKS = re.compile(r"^Optimizer\.step#(Adam|AdamW|NAdam|RAdam|Adamax|Adadelta|ASGD|Rprop|RMSprop)\.step")


@dataclass(frozen=True, slots=True)
class Remedy:
    """One of them.

    Attributes:
        name: "graph", "compile" or "batch".
        fix: what the remedy does to the program; nothing of a larger batch, which makes no step shorter.
        saved: what the step would be shorter by without these launches, however that is done; None without replay.
        sure: that this is the remedy.
        advice: in the imperative.
    """

    name: str
    fix: Edit | tuple[()]
    saved: Saving | None
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
    """The remedy that the trace supports.

    Args:
        eager: the work in the steps that no graph launched.
        calls: all of them, of which the optimizer's step is one.
        repeats: whether a loop of ops launches most of it, whose repeats may be independent.
        against: conditions for one CUDA graph that the step does not meet yet.
        min_pointwise_share: of the launches, that a compiler must be able to fuse.
        min_compile_share: of the step, that this must save: of its replay only the sign can be trusted.
    """

    def saved(edit: Edit) -> Saving | None:
        return None if forecast is None else forecast.saving([edit])

    graph, trained = GraphLaunch(), _optimizers(calls)
    others = " (but not the optimizer's)" if trained else ""
    if not against and steps > 1:
        return Remedy("graph", graph, saved(graph), Confidence.HIGH, _whole_step(trained))
    pointwise = eager.name.matches(_POINTWISE) & ~eager.name.matches(r"^triton_|complex<")
    if (share := float(pointwise.sum()) / max(len(eager), 1)) >= min_pointwise_share and not is_compiled(
        eager
    ):
        compiled = Compile(eager.entries[pointwise])
        gain = saved(compiled)
        if gain is None or gain.share >= min_compile_share:
            grows = _grows(calls)
            rest = _IN_THE_WAY.format(", and ".join(against)) if against else _STATIC.format(others)
            advice = (
                _COMPILE.format(_FIXED_CACHE * grows, 100 * share, _GROWING * grows)
                + rest
                + differentiated_twice(eager)
            )
            return Remedy("compile", compiled, gain, Confidence.MEDIUM, advice)
    if not against:
        needs = _needs(trained)
        more = f" In a graph use {' and '.join(needs)}." if needs else ""
        return Remedy("graph", graph, saved(graph), Confidence.LOW, _ONE_STEP + more)
    served = _VLLM * bool(calls.name.matches(r"^vllm::").any() or calls.line.matches(r"^(.*/)?vllm/").any())
    advice = served + f"{STACK} " * repeats + _BATCH.format(", and ".join(against))
    return Remedy("batch", (), saved(graph), Confidence.MEDIUM, advice)


def _optimizers(calls: Calls) -> list[str]:
    """What torch calls the optimizers' steps that are within steps, each once."""
    marks = calls[calls.is_annotation & (calls.step >= 0)]
    return sorted(set(marks[marks.name.matches(OPTIMIZER_MARK)].name.distinct()))


def _grows(calls: Calls) -> bool:
    """Whether transformers appends to a cache of keys and values; known with stacks alone."""
    return bool(calls[calls.name.one_of("aten::cat")].line.matches(r"transformers/cache_utils\.py").any())


def _whole_step(optimizers: Sequence[str]) -> str:
    """How to capture it, and what the optimizers within it need for that."""
    if not optimizers:
        return _GRAPH
    needs = " and ".join(_needs(optimizers))
    return _GRAPH_AND_OPTIMIZER.format(f" and {needs}" if needs else "")


def _needs(optimizers: Sequence[str]) -> list[str]:
    return [f"{asks[1]}(..., capturable=True)" for name in optimizers if (asks := _ASKS.match(name))]
