"""Conversions of weights and activations around matrix products."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, among, distinct, places_of
from traceanalyzer.model.texts import Texts
from traceanalyzer.replay.edits import Drop, DropWork, Edit
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, rule
from traceanalyzer.rule.evidence_texts import called_ops, conversion_of, gpu_time_evidence
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.signatures import converts
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline.kernel_chains import KernelChains

# Batch norm converts its own statistics, one number per channel.
_BATCH_NORM = r"^aten::(native|cudnn|miopen)_batch_norm"
# A conversion that launches only the cast is not called if the dtype fits.
_CONVERTS = r"^aten::(to|_to_copy)$"
# Gradients go back to float32 because forward went to bfloat16.
_MIRRORS = r"ToCopyBackward"
# cause -> (what is converted, remedy)
_TEXTS = {
    "": (
        "a tensor is converted right before a matrix product",
        "Keep weights in the product's dtype (model.to(torch.bfloat16), master weights in the optimizer). "
        "torch.autocast converts each trainable weight once per autocast block, so it helps only if several products "
        "use the same weight.",
    ),
    "dequantized": (
        "a weight that has just been dequantized is converted before a matrix product",
        "Write the weights in the product's dtype when they are dequantized (bnb_4bit_compute_dtype=torch.bfloat16 in "
        "bitsandbytes), or use a fused product of quantized weights.",
    ),
    "results": (
        "the result of a matrix product is converted",
        "Convert only the part that is needed (slice first), or let the next op convert: softmax(dtype=torch.float32). "
        "Losses and norms accept the product's dtype and compute in float32.",
    ),
}


class Limits:
    min_gpu_share: float = 0.03
    """in inference, casts are reported only if they take at least this share of GPU time"""
    min_chain_kernels: int = 3
    """the rule unfused-pointwise reports a conversion, and this rule does not, if the conversion is the first
    of at least this many pointwise kernels"""
    min_training_share: float = 0.10
    """in training, casts are reported only if they take at least this share of GPU time; with autocast, casts
    take up to 9 % in healthy models (measured on H200)"""


@rule(since="0.1", claims=Claims.PATTERN, limits=Limits, causes=("results", "dequantized"))
def dtype_casts(work: Work, inputs: WorkInputs, chains: KernelChains, limits: Limits) -> Iterator[Hits]:
    """Weights or activations are converted around matrix products.

    What it looks for: conversions between floating-point dtypes right before a matrix product, convolution or
    attention. Conversions right after such an op have their own finding, `dtype-casts: results`. So have
    conversions of weights that a kernel has just dequantized (`dequantized`). The rule
    float64-math reports conversions from and to float64.
    Why it costs: each conversion reads and writes the whole tensor. The tensor could be stored in the product's dtype.
    Bad: x @ w.bfloat16() with float32 weights in each forward pass; autocast that is entered again for each
    use of a weight. Good: weights in bfloat16, with a float32 copy in the optimizer; one autocast around the
    whole forward pass, which converts each trained weight only once.
    How sure: dtypes or kernel names show a conversion, and the next kernel is the product.
    When it is wrong: training under autocast with weights in float32 needs one conversion of each weight in
    each step. Only further conversions are waste.
    Source: "Automatic Mixed Precision" in PyTorch's documentation.
    """
    compute = work.kind.one_of("compute")
    copies = inputs.meets(lambda op: converts(op) is not None)
    cast = inputs.meets(converts) & compute | work.name.matches(families.CONVERSION) & ~copies
    if not cast.any():
        return
    mirrors = work.outer_op.name.matches(_MIRRORS)
    least = limits.min_training_share if mirrors.any() else limits.min_gpu_share
    statistics = work.op.parent.name.matches(_BATCH_NORM)
    casts = work[cast & ~mirrors & ~statistics]
    neighbors = neighbors_of(work, casts, work[compute & ~cast])
    before, after = (there & neighbor.name.meets(families.is_product) for neighbor, there in neighbors)
    moved = _converting(work[~compute])
    fused = among(casts.entries, np.sort(chains.longer_than(limits.min_chain_kernels - 1).entry))
    quantized, dequantizing = after & neighbors[0][1], neighbors[0][0].name.matches(families.DEQUANTIZATION)
    quantized &= dequantizing
    of_causes = {"": after & ~quantized, "dequantized": quantized, "results": before & ~after & ~fused}
    reader, has_reader = neighbors[1]
    dequantizes = work.name.matches(families.DEQUANTIZATION)
    for cause, chosen in of_causes.items():
        for pieces, share in casts[chosen].device_shares(least):
            read = chosen & has_reader & (casts.device == pieces.device[0]) & (cause == "results")
            readers = called_ops(reader[read]).sums(casts.dur_ns[read])
            writers = work[dequantizes & (work.device == pieces.device[0]) & (cause == "dequantized")]
            yield _hits(cause, pieces, inputs, share, readers, writers, _fix(pieces, moved))


def _converting(work: Work) -> Rows:
    """The outermost `to` around what launched each, -1 where another op did."""
    rows, around = np.full(len(work), -1), work.op
    # copy_ lies in _to_copy, which lies in to.
    for _ in range(3):
        rows = np.where(around.there & around.name.matches(_CONVERTS), around.rows, rows)
        around = around.parent
    return rows


def _fix(pieces: Work, moved: Rows) -> tuple[Edit, ...]:
    """The ops that convert and do nothing else; of all others the work alone."""
    rows = _converting(pieces)
    whole = (rows >= 0) & ~np.isin(rows, moved)
    ops, work = Drop(distinct(rows[whole])), DropWork(pieces.entries[~whole])
    return (*((ops,) if whole.any() else ()), *(() if whole.all() else (work,)))


def _hits(
    cause: str,
    pieces: Work,
    inputs: WorkInputs,
    share: float,
    readers: dict[str, int],
    writers: Work,
    fix: tuple[Edit, ...],
) -> Hits:
    pairs = [conversion_of(op.types) for op in inputs.signatures]
    kinds = Texts(inputs.number[pieces.entries], np.array(pairs, object)).sums(pieces.dur_ns)
    mostly = f" (mostly {next(iter(kinds))})" if next(iter(kinds), "") else ""
    writing = share * writers.total_ns / pieces.total_ns
    what, advice = _TEXTS[cause]
    return Hits(
        occurrences=pieces,
        cause=cause,
        lost=LostTime.all_of(pieces),
        fix=fix,
        message="{times_a_step} "
        + what
        + mostly
        + (", which {readers} reads" if readers else "")
        + ": these conversions take {gpu} of all GPU work{where}"
        + ("; dequantizing takes {writing}, in {writers}" if len(writers) else ""),
        advice=advice,
        confidence=Confidence.MEDIUM,
        evidence={**gpu_time_evidence(pieces), "gpu_share": share, "spent_ns": pieces.total_ns, "conversions": kinds}
        | ({"readers": readers} if readers else {})
        | ({"writers": writers.name.sums(writers.dur_ns), "writing_share": writing} if len(writers) else {}),
    )


def neighbors_of(work: Work, pieces: Work, among: Work) -> tuple[tuple[Work, Mask], tuple[Work, Mask]]:
    """((what ran before each of `pieces`, whether anything did), the same of what came after).

    Args:
        among: what counts as a neighbour, where it is on the same device and stream and of the same step; what is
            neither is passed over.
    """
    ordered = work.in_order()
    place = places_of(ordered.entries, len(work))
    there = np.sort(place[among.entries])
    position = np.searchsorted(there, place[pieces.entries])
    return _neighbor(ordered, there, position - 1, pieces), _neighbor(ordered, there, position, pieces)


def _neighbor(ordered: Work, there: np.ndarray, place: np.ndarray, pieces: Work) -> tuple[Work, Mask]:
    inside = (place >= 0) & (place < len(there))
    if len(there) == 0:
        return pieces, inside
    neighbor = ordered[there[np.clip(place, 0, len(there) - 1)]]
    same = (neighbor.device == pieces.device) & (neighbor.stream == pieces.stream) & (neighbor.step == pieces.step)
    return neighbor, inside & same
