"""A layer's weight is computed from parameters in each call."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.replay.edits import DropSpans, Insert
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.lower_bounds import REACHED
from traceanalyzer.rule import (
    Calls,
    Claims,
    Confidence,
    Hits,
    LostTime,
    Unavailable,
    Work,
    limit,
    rule,
)
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import reduce_to
from traceanalyzer.rules.tensors.computed_weight.weight_chains import (
    Chain,
    chains_of,
    matrix,
)
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import Shape, Signature, number_bytes, signatures_of, tensors
from traceanalyzer.tensors.top_ops import with_inputs, without_views

_BACKWARD = r"^autograd::engine|Backward\d*$|^torch::autograd"
_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True)
class Limits:
    min_calls_share: float = limit(
        0.9,
        "a layer is reported only if at least this share of its calls compute the weight; a smaller share "
        "may be chance; chosen",
    )
    max_rank_share: float = limit(
        0.25,
        "a product that makes a weight is regarded as low-rank if its inner size (the columns of B) is at "
        "most this share of the weight's smaller side; chosen",
    )
    min_gpu_share: float = limit(
        0.02,
        "reported only if computing weights takes at least this share of GPU time; chosen",
    )
    passes: float = limit(
        6.0,
        "used for the predicted saving: a layer with narrow matrices (two products and an addition) "
        "reads and writes this many times the bytes of the layer's input and result; 4.8 and 6.0 times were "
        "measured on an H200",
    )
    cpu_ns: int = limit(
        20_000,
        "used for the predicted saving: the additional ops of the narrow products take this CPU time for "
        "each layer, forward and backward together; measured on an H200 with torch 2.11",
    )


@rule(
    since="0.1",
    claims=Claims.WORK,
    specificity=2,
    min_share=0.02,
    limits=Limits,
    causes=("constant", "quantised", "low-rank"),
)
def computed_weight(
    calls: Calls, work: Work, inputs: WorkInputs, gpus: Gpus, limits: Limits
) -> Iterator[Hits]:
    """A layer's weight is computed from parameters in each call.

    What it looks for: linear layers and convolutions whose weight is computed by the ops right before.
    Typical: weight norm, a low-rank update W + B A, a mask, a scale, unpacked quantised weights. In training,
    it looks for W + B A. What a loop computes again within a step is a finding of computed-again.
    Why it costs: in inference, the weight is the same in each call. In training of W + B A (LoRA), only the
    small matrices B and A need gradients. But the backward pass computes the gradient of the whole matrix.
    Bad: F.linear(x, W + s * (B @ A)) in training; weight_norm kept on a model that is used only for
    inference. Good: F.linear(x, W) + s * F.linear(F.linear(x, A), B); remove_parametrizations(layer,
    "weight") after loading.
    How sure: the order of ops and their shapes are recorded. The tensors themselves are not recorded, so
    confidence is medium.
    When it is wrong: what is computed is no weight, but an activation of the same shape. Or the weights
    change between calls.
    Saving: the time of the ops that compute weights. In training with W + B A, also the time of the large
    gradients, minus the time of the two small products with A and B.
    Source: Hu et al., LoRA (2021), section 4.1; torch.nn.utils.parametrize in PyTorch's documentation.
    """
    making = calls.is_top_op & (calls.step >= 0) & ~calls.name.one_of(_LEAF)
    ops, number, signatures = with_inputs(without_views(calls[making]).in_order())
    shaped = any(op.dims for op in signatures)
    chains = chains_of(ops, number, signatures, limits.min_calls_share) if shaped else []
    trained = calls.name.matches(_BACKWARD).any()
    if not shaped:
        raise Unavailable("no shapes recorded: record_shapes=True shows what makes a layer's weight")
    for cause in ("low-rank",) if trained else ("constant", "quantised"):
        of_cause = [chain for chain in chains if trained or chain.packed is (cause == "quantised")]
        if trained:
            of_cause = [
                chain
                for chain in of_cause
                if 0 < chain.rank <= limits.max_rank_share * min(matrix(chain.weight))
            ]
            yield from _low_rank_hits(of_cause, ops, number, signatures, calls, work, inputs, gpus, limits)
        elif of_cause:
            yield from _constant_hits(cause, of_cause, ops, work, limits)


def _constant_hits(cause: str, chains: list[Chain], ops: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    first, last = np.array([chain.first for chain in chains]), np.array([chain.layer for chain in chains]) - 1
    inside = np.zeros(len(ops), bool)
    for chain in chains:
        inside[chain.first : chain.layer] = True
    makes = ops[inside]
    packed = cause == "quantised"
    for pieces, share in work[work.launch.index_of_enclosing(makes) >= 0].device_shares(limits.min_gpu_share):
        layers = len(chains) // max(len(np.unique(ops.step[first])), 1)
        yield Hits(
            occurrences=pieces,
            cause=cause,
            lost=LostTime.all_of(pieces),
            fix=DropSpans(ops.start_ns[first], ops.end_ns[last]),
            message="before {layers} layers a step "
            + ("integers are unpacked to the layer's weight" if packed else "the layer's weight is computed")
            + ", in {ops}, while nothing is trained: the weight is the same each time; {gpu} of all GPU work{where}",
            advice="Use kernels that read the packed weight (torchao or bitsandbytes under {torch.compile}), or unpack "
            "it once if memory allows."
            if packed
            else (
                "Compute the weight once after loading: remove_parametrizations or remove_weight_norm, "
                "merge_and_unload for adapters, or keep the joined parameters."
            ),
            confidence=Confidence.MEDIUM,
            evidence={**gpu_time_evidence(pieces), "layers": layers, "gpu_share": share},
        )


def _low_rank_hits(
    chains: list[Chain],
    ops: Calls,
    number: Rows,
    signatures: list[Signature],
    calls: Calls,
    work: Work,
    inputs: WorkInputs,
    gpus: Gpus,
    limits: Limits,
) -> Iterator[Hits]:
    weights = {chain.weight for chain in chains}
    leaves = calls[calls.name.one_of(_LEAF)]
    whole = {shape for op in signatures_of(calls.events.trace, leaves.rows)[1] for shape in tensors(op)}
    # These matrices are trained as a whole.
    weights -= whole
    chains = [chain for chain in chains if chain.weight in weights]
    if not chains:
        return
    inside = np.zeros(len(ops), bool)
    for chain in chains:
        inside[chain.first : chain.layer] = True
    large = weights | {shape[::-1] for shape in weights}
    rows = {_rows(signatures[number[chain.layer]]) for chain in chains}
    backward = work.outer_op.name.matches(_BACKWARD)
    backward &= inputs.meets(lambda op: _works_on_gradient(op, large, rows))
    chosen = backward | (work.launch.index_of_enclosing(ops[inside]) >= 0)
    for pieces, share in work[chosen].device_shares(limits.min_gpu_share):
        gbps = gpus.memory_gbps(pieces.device[:1])[0]
        moved = sum(limits.passes * _bytes(signatures[number[chain.layer]]) for chain in chains)
        keeps = min(moved / gbps / REACHED["elementwise"] / max(pieces.total_ns, 1), 1.0)
        if share * (1 - keeps) < limits.min_gpu_share:
            continue
        less = reduce_to(pieces, np.asarray(pieces.dur_ns * keeps))
        layers = ops[np.array([chain.layer for chain in chains])]
        yield Hits(
            occurrences=pieces,
            lost=less["lost"],
            fix=(*less["fix"], Insert(layers.rows, limits.cpu_ns)),
            cause="low-rank",
            message="before {layers} layers a step a product of inner size {rank} makes a matrix as large as the "
            "weight, and backward makes its whole gradient: {gpu} of all GPU work{where}",
            advice="Apply the narrow matrices to the activations: F.linear(x, W) + s * F.linear(F.linear(x, A), B). "
            "The result is the same, and backward makes no gradient of the whole matrix.",
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "layers": len(layers) // max(len(np.unique(layers.step)), 1),
                "rank": max(chain.rank for chain in chains),
                "gpu_share": share,
            },
        )


def _rows(layer: Signature) -> int:
    """Rows of a linear layer's input."""
    return math.prod(layer.shape(0)[:-1])


def _bytes(layer: Signature) -> float:
    """Of a linear layer's input and result; as of float32 where types are not recorded."""
    rows, (out, into) = _rows(layer), matrix(layer.shape(1))
    return float(rows * (out + into) * number_bytes(layer))


def _works_on_gradient(op: Signature, large: set[Shape], rows: set[int]) -> bool:
    """Makes the gradient of such a matrix out of that many rows, or works on one without them."""
    shapes = tensors(op)
    if op.name == "aten::mm" and len(shapes) == 2 and shapes[0][1] in rows:
        return (shapes[0][0], shapes[1][1]) in large
    return any(shape in large for shape in shapes) and not any(set(shape) & rows for shape in shapes)
