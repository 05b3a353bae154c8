"""The cost of logits: the last GEMM, the loss, and their backward."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from traceanalyzer.rule import Claims, Hits, Kind, LostTime, Unavailable, Work, gpu_time_evidence, rule
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Shape, Signature, tensors

_SCORES = "aten::_log_softmax"
_PRODUCT = r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear)$"


class Limits:
    min_classes: int = 1_000
    """reported only if there are at least this many classes, so that they are probably a vocabulary; chosen"""
    min_gpu_share: float = 0.2
    """work on the logits must take at least this share of GPU time; a smaller share is not worth looking at first"""


@rule(since="0.2", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, kind=Kind.QUESTION)
def loss_head(work: Work, inputs: WorkInputs, limits: Limits) -> Iterator[Hits]:
    """The logits of a large vocabulary, and the loss over them, take much of the GPU's time.

    What it looks for: log_softmax over N positions and V classes, and all work on tensors of N times V numbers. This
    work includes the logits (one matrix product), the loss, conversions, and the backward pass of each of these.
    Why it matters: each of these ops handles V numbers for each position, even for padding and ignored labels
    (-100). Ignored labels are not recorded, so the finding is a fact, not a fault, and always info.
    Bad: head and loss are computed for prompt and padding, too. Good: before the head, select the hidden
    states of the positions that have a label. Or use a loss that never writes all logits to memory.
    How sure: shapes and times are recorded. For the share of ignored positions, compute (labels ==
    -100).float().mean(), or, if the loss is multiplied by a mask, 1 - mask.float().mean().
    When it is wrong: another tensor has the sizes N and V, but holds no logits.
    Source: torch.nn.functional.cross_entropy in PyTorch's documentation (ignore_index); measured on an H200.
    """
    if not any(op.dims for op in inputs.signatures):
        raise Unavailable("no shapes recorded: record_shapes=True shows how many classes a loss has")
    masked = {op.shape(0) for op in inputs.signatures if _is_mask(op)}
    for shape in sorted(set(filter(None, (_scores(op, masked, limits) for op in inputs.signatures)))):
        positions, classes = math.prod(shape[:-1]), shape[-1]
        kernels = inputs.meets(partial(_has_sizes, sizes=({positions, classes}, {*shape})))
        for device, part in work[kernels & work.kind.one_of("compute", "copy_d2d")].by_device():
            with_op = work[(work.device == device) & work.op.there]
            share = part.total_ns / max(with_op.total_ns, 1)
            if share >= limits.min_gpu_share:
                yield _hits(part, share, positions, classes)


def _hits(kernels: Work, share: float, positions: int, classes: int) -> Hits:
    product = kernels.op.name.matches(_PRODUCT)
    backward = kernels.outer_op.name.matches(r"Backward\d*$")
    parts = {
        "head": product & ~backward,
        "loss and conversions": ~product & ~backward,
        "backward of the head": product & backward,
        "backward of the loss": ~product & backward,
    }
    spent_ns = {name: kernels[which].total_ns for name, which in parts.items() if which.any()}
    return Hits(
        occurrences=kernels,
        lost=LostTime.none(),
        message="logits of {classes} classes for {positions} positions take {gpu} of all GPU work, forward and "
        "backward, the largest part in {parts}; positions whose label is ignored or masked need no logits, but cost as "
        "much as the others",
        advice="If many labels are ignored (-100; the trace does not show how many), apply lm_head and the loss to the "
        "other positions only: head(hidden[index]), with an index that the collate function makes, or "
        "logits_to_keep of models of transformers if these are the last ones. Check what share is ignored: "
        "(labels == -100).float().mean(), or 1 - mask.float().mean(). "
        f"The {100 * share:.0f} % of all GPU work shrink by this share. If few labels are ignored, use a fused linear "
        "cross entropy, which never writes all logits, or compile the head with the loss.",
        evidence={
            **gpu_time_evidence(kernels),
            "gpu_share": share,
            "classes": classes,
            "positions": positions,
            "parts": dict(sorted(spent_ns.items(), key=lambda part: -part[1])),
        },
        info=True,
    )


def _scores(op: Signature, masked: set[Shape], limits: Limits) -> Shape | None:
    """(positions, classes) or (batch, length, classes) of log_softmax; None for other ops, and for few classes."""
    shape = next(iter(tensors(op)), ()) if op.name == _SCORES else ()
    # (batch, length, classes) only if the program multiplies its loss by a mask
    labelled = len(shape) == 2 or (len(shape) == 3 and shape[:-1] in masked)
    return shape if labelled and shape[-1] >= limits.min_classes else None


def _is_mask(op: Signature) -> bool:
    """True for a product of two tensors with one element per position."""
    shapes = tensors(op)
    return op.name == "aten::mul" and len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 2


def _has_sizes(op: Signature, sizes: Sequence[set[int]]) -> bool:
    """True if an op's tensors have all sizes of one of the sets."""
    op_sizes = {size for shape in tensors(op) for size in shape}
    return any(size_set <= op_sizes for size_set in sizes)
