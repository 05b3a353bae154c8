"""A layer that narrows comes after upsampling or a sum of gathered rows, and could come before."""

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, rule
from traceanalyzer.rule.slow_work import slow_work
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.projections import projections
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, signatures_of, tensors
from traceanalyzer.tensors.top_ops import top_ops
from traceanalyzer.timeline.backward_nodes import recording_ops

_UPSAMPLING = "aten::upsample_"
_UNCHANGED = r"^aten::(to|_to_copy|contiguous|clone|empty_like|new_empty|dropout)$"
_LAYERS = ("aten::conv1d", "aten::conv2d", "aten::conv3d")
# The layer itself works on fewer pixels if it comes first.
_PRODUCTS = (Kind.GEMM, Kind.CONVOLUTION)


class Limits:
    max_width_share: float = 0.5
    """reported only if the layer's output has at most this share of the channels of its input; with more
    output channels, the other order saves little; chosen"""
    min_times: float = 2.0
    """reported only if the result of upsampling, or of the gather, has at least this many times the elements of its
    input"""


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("upsampled", "aggregated"))
def late_projection(calls: Calls, work: Work, inputs: WorkInputs, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """A layer that narrows its input runs after upsampling or a sum over neighbours, not before.

    What it looks for: a layer that at least halves the width of a tensor that no other op reads. The cause says what
    made the tensor:
    - `upsampled`: upsampling, before a 1x1 convolution;
    - `aggregated`: rows of a graph's neighbours that were gathered, scaled and summed, before a linear layer.
    Why it costs: upsampling is linear and treats each channel alike, as sums over neighbours do with features. So the
    other order gives the same result. If the layer comes first, all later work is narrower.
    Bad: classifier(interpolate(x, size)). Good: interpolate(classifier(x), size).
    Bad: linear(zeros.index_add_(0, target, x[source])). Good: zeros.index_add_(0, target, linear(x)[source]).
    A bias is added after the sum.
    How sure: names, shapes and order of ops are recorded. The trace does not show which tensor an op reads,
    so confidence is medium. With an execution trace that shows it, confidence is high. `aggregated` needs one.
    When it is wrong: a custom kernel, which the trace does not show as an op, also reads the layer's input.
    Saving: the time of upsampling, or of the sums, shrinks with the width, that of the layer with the pixels.
    Source: calculated: (A X) W = A (X W). On an H200, a gather and a sum of 800,000 rows took 6.2 ms of
    512 numbers, and 0.93 ms of 40.
    """
    yield from _upsampled(calls, work, inputs, flow, limits)
    if flow is not None:
        yield from _aggregated(calls, work, flow, limits)


def _aggregated(calls: Calls, work: Work, flow: Flow, limits: Limits) -> Iterator[Hits]:
    number, signatures = signatures_of(calls.events.trace, flow.ops.rows)
    of_op = {op: signatures[which] for op, which in zip(flow.number.tolist(), number.tolist(), strict=True)}
    found = list(projections(flow, of_op, limits.max_width_share, limits.min_times))
    if not found:
        return
    needed = np.ones(len(flow.recorded))
    for one in found:
        needed[list(one.ops)] = one.needed_share
    share = np.append(needed[flow.number], 1.0)
    owner, recorder = work.op.index_of_enclosing(flow.ops), recording_ops(calls, flow.ops, work)
    largest = max(found, key=lambda one: math.prod(one.wide))
    before, after = largest.wide[-1], largest.after
    yield from slow_work(
        work,
        np.minimum(share[owner], share[recorder]),
        confidence=Confidence.HIGH,
        cause="aggregated",
        named_by=shape_text(largest.wide),
        message="{maker} makes {by}, these rows are summed, and then a linear layer leaves {narrow} of {wide} "
        "features; these ops take {gpu} of all GPU work, and could handle {times} times fewer features{where}",
        advice="Apply the linear layer to the rows before they are gathered, and add its bias after the sum. Sum and "
        "layer are linear, so the result is the same up to rounding.",
        evidence={"maker": largest.maker, "wide": before, "narrow": after, "times": before / after},
    )


def _upsampled(calls: Calls, work: Work, inputs: WorkInputs, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    ops, number, signatures = top_ops(calls, "shows how wide tensors are", views=False)
    number = number[~ops.name.matches(_UNCHANGED)]
    cases: dict[Shape, tuple[Signature, int, int]] = {}
    for first, second in set(zip(number[:-1].tolist(), number[1:].tolist(), strict=True)):
        upsamples, layer = signatures[first], signatures[second]
        small, (wide, out) = next(iter(tensors(upsamples)), ()), _widths(layer)
        enough = out <= limits.max_width_share * wide[1] if wide else False
        readers = {which for which, op in enumerate(signatures) if wide in tensors(op)}
        if (
            upsamples.name.startswith(_UPSAMPLING)
            and enough
            and small[:2] == wide[:2]
            and math.prod(wide) >= limits.min_times * math.prod(small)
            and all(which == second or signatures[which].name.startswith("autograd::") for which in readers)
        ):
            cases[wide] = upsamples, wide[1], out
    for wide, (upsamples, before, after) in cases.items():
        small = tensors(upsamples)[0]
        share = [_needed_share(op, small, wide, after / before) for op in inputs.signatures]
        yield from slow_work(
            work,
            np.array(share)[inputs.number],
            flow=flow,
            cause="upsampled",
            named_by=shape_text(wide),
            message="{maker} makes {by} with {wide} channels, and then a linear layer leaves {narrow} of {wide}; these "
            "ops take {gpu} of all GPU work, and could handle {times} times fewer channels{where}",
            advice="Apply the 1x1 convolution before upsampling. Both are linear, so the result is the same.",
            evidence={"maker": upsamples.name, "wide": before, "narrow": after, "times": before / after},
        )


def _widths(layer: Signature) -> tuple[Shape, int]:
    """(shape of the data, channels after it) of a 1x1 convolution; an empty shape for other ops."""
    shapes = tensors(layer)
    if layer.name not in _LAYERS or len(shapes) < 2 or len(shapes[0]) < 3:
        return (), 0
    data, weight = shapes[:2]
    return (data, weight[0]) if data[1:2] == weight[1:2] and set(weight[2:]) <= {1} else ((), 0)


def _needed_share(op: Signature, small: Shape, wide: Shape, narrower: float) -> float:
    """Share of an op's time that is left if the layer comes first."""
    shapes = tensors(op)
    if wide in shapes:
        product = op_row(op.name).kind in _PRODUCTS or "convolution" in op.name
        return math.prod(small) / math.prod(wide) if product else narrower
    sizes = [op.scalars[position] for position in range(1, len(op.scalars))]
    makes = shapes[:1] == [small] and _UPSAMPLING in op.name and str(list(wide[2:])) in sizes
    return narrower if makes else 1.0
