"""A layer that narrows comes after upsampling, and could come before."""

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.rule import Calls, Claims, Hits, Work, rule
from traceanalyzer.rule.slow_work import slow_work
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops

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
    """reported only if the result of upsampling has at least this many times the elements of its input"""


@rule(since="0.1", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits, causes=("upsampled",))
def late_projection(
    calls: Calls, work: Work, inputs: WorkInputs, flow: Flow | None, limits: Limits
) -> Iterator[Hits]:
    """A layer that reduces the channels runs after upsampling, not before.

    What it looks for: a 1x1 convolution that at least halves the number of channels, and is
    the only op that reads an upsampled tensor.
    Why it costs: upsampling is linear and treats each channel alike. So the other order gives the same
    result. If the layer comes first, all later work has fewer channels.
    Bad: classifier(interpolate(x, size)). Good: interpolate(classifier(x), size).
    How sure: names, shapes and order of ops are recorded. The trace does not show which tensor an op reads,
    so confidence is medium. With an execution trace that shows it, confidence is high.
    When it is wrong: a custom kernel, which the trace does not show as an op, also reads the layer's input.
    Saving: the time of upsampling shrinks with the number of channels, that of the layer with the pixels.
    Source: calculated, not measured: (A X) W = A (X W).
    """
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
            message="{maker} makes {by} with {wide} channels, and then a linear layer leaves {narrow} of {wide}: {gpu} "
            "of all GPU work in work that could be {times} times narrower{where}",
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
