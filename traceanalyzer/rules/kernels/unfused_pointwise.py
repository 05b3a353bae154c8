"""Chains of pointwise kernels that one kernel could do."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, starts_of_runs
from traceanalyzer.model.shapes import elements_of, shapes_of
from traceanalyzer.replay.rewrites import Fuse
from traceanalyzer.rule import Claims, Confidence, Hits, LostTime, Work, rule
from traceanalyzer.rule.evidence_texts import called_ops, differentiated_twice, gpu_time_evidence
from traceanalyzer.rule.idioms import Idiom, idiom_of
from traceanalyzer.tensors.signatures import shape_text
from traceanalyzer.timeline import kernel_families as families
from traceanalyzer.timeline.kernel_chains import KernelChains

_WHY = "Inductor makes one kernel of it"
_COMPILE = f"put the chain under {{torch.compile}}: {_WHY}"
_PAIRS = (
    "If the chain combines each row of one tensor with each row of another, use a matrix product or torch.cdist, "
    "which write no pairs; record_shapes=True shows it."
)
_OF_PAIRS = (
    "Use a matrix product or torch.cdist, or put the chain under {{torch.compile}}: {} are broadcast to {} in memory."
)
# A result with this many times the elements of each input has an element for each pair of rows.
_PAIR_TIMES = 8
# Distinct inputs of ops, most time first, among which a broadcast is looked for.
_MAX_INPUTS = 5
_LOSS = r"cross_entropy|nll_loss|log_softmax|NllLoss|LogSoftmax"
_SCORES = (
    "First check whether many labels of the loss are ignored (-100) or masked: those positions need no scores, so "
    "select the others before the last layer. Then "
)
# A kernel that is not vectorized has a broadcast or strided input.
_BROADCASTS = r"(?<!\w)elementwise_kernel<"
# Ops that are shown of a sequence.
_NAMED = 12
_NAMED_IN_MESSAGE = 6
# Sequences that are shown.
_KINDS = 5
# Letters that are shown of a sequence: kernels without ops have long names.
_LETTERS = 120


class Limits:
    min_kernels: int = 3
    """reported only if a chain has at least this many pointwise kernels of the same size; two are often a
    product and its bias"""
    kernels_per_fused_kernel: int = 10
    """for the saving: one Inductor kernel replaces at most this many kernels; torch 2.11"""
    min_gpu_share: float = 0.03
    """reported only if fusion saves at least this share of GPU time; any eager step has a few such chains"""
    whole_share: float = 0.25
    """a kernel that takes less than this share of the time of the chain's longest kernel is regarded as
    working on a smaller tensor"""
    loss_share: float = 0.3
    """the finding names a loss over classes if this loss takes at least this share of the time of the chains; chosen"""
    min_classes: int = 1_000
    """a loss is regarded as a loss over classes if there are at least this many classes, such as the tokens
    of a vocabulary; chosen"""
    usual_share: float = 0.10
    """a saving below this share of the step is info, because healthy eager models have such chains, too (they
    take up to 9 % of the step, H200)"""


@rule(since="0.1", claims=Claims.PATTERN, limits=Limits)
def unfused_pointwise(work: Work, chains: KernelChains, limits: Limits) -> Iterator[Hits]:
    """Pointwise kernels in a row that could be one fused kernel.

    What it looks for: eager elementwise kernels in a row (a chain), over the same number of elements. A
    reduction between the kernels belongs to the chain, as in a norm written by hand.
    Why it costs: each kernel reads its inputs from memory and writes its result back. A fused kernel keeps
    the values in registers, and reads and writes memory once.
    Bad: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps) in eager mode. Good: F.rms_norm,
    F.gelu, or the function under torch.compile.
    How sure: kernels and their order are recorded. Confidence is medium if shapes are not recorded: sizes
    then come from the kernels' grids.
    When it is wrong: neighbouring kernels do not read each other's results. A compiler then fuses only
    kernels that share inputs.
    Saving: one fused kernel replaces up to ten kernels of a chain. The shortest of the ten
    shows how long it takes to read and write memory once. The fused kernel does this once, so its predicted
    time is that of the shortest.
    Source: "Performance Tuning Guide: fuse pointwise operations" of PyTorch; measured on an H200.
    """
    long = chains.longer_than(limits.min_kernels - 2)
    every = work[long.entry]
    reduced = closing_reductions(every, long.chain, long.whole, limits.whole_share)
    enough = np.bincount(long.chain, weights=long.whole | reduced)[long.chain] >= limits.min_kernels
    for device in distinct(every.device[enough]).tolist():
        chosen = (every.device == device) & enough
        number = np.cumsum(starts_of_runs(long.chain[chosen])) - 1
        busy_ns = work[work.device == device].total_ns
        hits = _hits(every[chosen], number, (long.whole | reduced)[chosen], long.sized, busy_ns, limits)
        pairs = f" {_PAIRS}" * bool(not long.sized and reduced[chosen].any())
        hits = replace(hits, advice=hits.advice + pairs + differentiated_twice(work))
        lost_ns = int((hits.losses().end_ns - hits.losses().start_ns).sum())
        if lost_ns >= limits.min_gpu_share * busy_ns:
            yield hits


def _hits(pieces: Work, chain: Rows, whole: Mask, sized: bool, busy_ns: int, limits: Limits) -> Hits:
    (texts, of_first), part = sequences(pieces, chain), equal_parts(chain, limits.kernels_per_fused_kernel)
    largest = first_ops(next(iter(texts), ""))
    idiom = idiom_of("kernels", list(texts)[:1])
    # The loss after a log-softmax reads one value of each row, so that no row is written.
    by_row = pieces.name.matches(families.SOFTMAX_OF_ROWS) & ~pieces.name.matches(families.LOG_SOFTMAX)
    fused = fused_ns(pieces.dur_ns, part, whole, by_row, limits.whole_share)
    remaining = np.minimum(fused / np.maximum(np.bincount(part, weights=pieces.dur_ns), 1), 1.0)
    loss_share = _loss_ns(pieces, limits.min_classes) / max(pieces.total_ns, 1)
    place = (
        "{loss} of this is in the loss over all classes"
        if loss_share >= limits.loss_share
        else f"most of this time is in {'the chain' if ' > ' in largest else 'chains of'} {{largest}}"
    )
    return Hits(
        occurrences=pieces,
        lost=LostTime.excess(pieces, np.asarray(pieces.dur_ns * (1 - remaining[part]), np.int64)),
        fix=Fuse(pieces.entries, part, fused),
        message="chains of pointwise kernels, {number_a_step}, take {gpu} of all GPU work and could be fused; "
        f"{place}{{where}}",
        advice=_pairs_advice(pieces) or _advice(idiom, loss_share >= limits.loss_share),
        confidence=Confidence.HIGH if sized else Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(pieces),
            # The place is that of the sequence that the finding names.
            **{name: gpu_time_evidence(pieces[of_first])[name] for name in ("lines", "where")},
            "gpu_share": pieces.total_ns / max(busy_ns, 1),
            "kernels_in_chains": len(pieces),
            "chains": int(chain[-1]) + 1,
            "sequences": texts,
            "largest": largest,
            "loss_share": loss_share,
            **({"idiom": idiom.name} if idiom else {}),
        },
        normal_share=limits.usual_share,
    )


def _loss_ns(pieces: Work, min_classes: int) -> int:
    """GPU time of losses over at least so many classes."""
    losses = pieces[pieces.outer_op.name.matches(_LOSS)]
    shapes = shapes_of(next(iter(losses.dims.sums(losses.dur_ns)), "")) if len(losses) else []
    return losses.total_ns if any(shape[-1] >= min_classes for shape in shapes[:1]) else 0


def _pairs_advice(pieces: Work) -> str:
    """Advice if a broadcast makes pairs, by the ops that take most time; else empty."""
    for dims in list(pieces.dims.sums(pieces.dur_ns))[:_MAX_INPUTS]:
        inputs = shapes_of(dims)[:2]
        try:
            result = np.broadcast_shapes(*inputs)
        except ValueError:
            continue
        if inputs and elements_of(result) >= _PAIR_TIMES * max(map(elements_of, inputs)):
            return _OF_PAIRS.format(" and ".join(map(shape_text, inputs)), shape_text(result))
    return ""


def _advice(idiom: Idiom | None, of_loss: bool) -> str:
    """The ready-made op for what the chain looks like, else compilation."""
    if of_loss:
        return f"{_SCORES}{_COMPILE}."
    return f"{idiom.fix}, or {_COMPILE}." if idiom else f"Put the chain under {{torch.compile}}: {_WHY}."


def fused_ns(dur: Rows, chain: Rows, whole: Mask, by_row: Mask, least_share: float) -> Floats:
    """Time of each chain's fused kernel, ns: that of its shortest kernel of the whole size; float64 (chains,).

    Args:
        whole: which kernels are of the whole size, if they take at least `least_share` of their chain's longest.
        by_row: which compute a softmax: it reads each row more than once, so that no fused kernel is quicker.
    """
    longest = np.zeros(int(chain.max(initial=-1)) + 1)
    np.maximum.at(longest, chain[whole], dur[whole].astype(np.float64))
    counts = whole & (dur >= least_share * longest[chain])
    shortest = longest.copy()
    np.minimum.at(shortest, chain[counts], dur[counts].astype(np.float64))
    np.maximum.at(shortest, chain[by_row], dur[by_row].astype(np.float64))
    return shortest


def closing_reductions(pieces: Work, chain: Rows, whole: Mask, least_share: float) -> Mask:
    """Which kernels reduce what two kernels computed that begin with a broadcast; bool (kernels,).

    Such a kernel is the last of its chain, and takes about as long (at least `least_share` of the longest): the values
    between are larger than what comes in and what is left. Longer chains may be needed later, as in backward.
    """
    count = np.bincount(chain, weights=whole)
    longest, last = np.zeros(len(count)), np.full(len(count), -1)
    np.maximum.at(longest, chain[whole], pieces.dur_ns[whole].astype(np.float64))
    np.maximum.at(last, chain[whole], np.flatnonzero(whole))
    starts = np.flatnonzero(starts_of_runs(chain))
    pairs = (count == 2) & pieces[starts].name.matches(_BROADCASTS)
    late = (np.arange(len(chain)) > last[chain]) & (pieces.dur_ns >= least_share * longest[chain])
    return np.asarray(~whole & late & pairs[chain])


def equal_parts(chain: Rows, most: int) -> Rows:
    """Long chains cut into equal parts of at most so many kernels; numbers from 0."""
    first = np.flatnonzero(starts_of_runs(chain))
    length = np.bincount(chain)[chain]
    part = (np.arange(len(chain)) - first[chain]) * -(-length // most) // length
    return np.cumsum(starts_of_runs(chain * (most + int(length.max(initial=0)) + 1) + part)) - 1


def sequences(pieces: Work, chain: Rows) -> tuple[dict[str, int], Mask]:
    """(`to > pow > mean > mul`: sequences of ops -> ns, most time first; which pieces are of the first)."""
    ops, edges = called_ops(pieces), np.flatnonzero(starts_of_runs(chain))
    number: dict[bytes, int] = {}
    parts = [part.tobytes() for part in np.split(ops.code, edges[1:])]
    kind = np.array([number.setdefault(part, len(number)) for part in parts])
    time = np.bincount(kind, weights=np.bincount(chain, weights=pieces.dur_ns))
    sums: dict[str, int] = {}
    for which in np.argsort(-time, kind="stable")[:_KINDS].tolist():
        rows = np.flatnonzero(chain == np.argmax(kind == which))
        text = shown([str(name).removeprefix("aten::") for name in ops[rows].values()])
        sums[text] = sums.get(text, 0) + int(time[which])
    return sums, kind[chain] == np.argmax(time)


def first_ops(sequence: str) -> str:
    """The first ops of a sequence, as many as a sentence bears."""
    names = sequence.split(" > ")
    return " > ".join([*names[:_NAMED_IN_MESSAGE], "..."]) if len(names) > _NAMED_IN_MESSAGE + 1 else sequence


def shown(names: list[str]) -> str:
    """The first ones, as many as a reader takes in; of one long name how often it is there."""
    length = np.cumsum([len(name) + 3 for name in names])
    count = max(1, min(_NAMED, int(np.searchsorted(length, _LETTERS))))
    if count == 1 < len(names) and len(set(names)) == 1:
        return f"{names[0]} ({len(names)} in a row)"
    return " > ".join(names[:count]) + (" > ..." if len(names) > count else "")
