"""Chains of pointwise kernels that one kernel could do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Rows, numbered, starts_of_runs
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.rewrites import Fuse
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.evidence import called_ops, told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.kernel_chains import KernelChains

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    min_kernels: int = limit(3, "pointwise kernels over one size; two are often a product and its bias")
    per_fused_kernel: int = limit(
        10, "kernels that one fused kernel stands for at most; Inductor, torch 2.11"
    )
    min_gpu_share: float = limit(0.03, "of GPU time that fusion saves; the ends of any eager step have some")
    whole_share: float = limit(
        0.25, "of the longest kernel of a chain: what is shorter works on something smaller"
    )


@rule(since="0.2", claims=Claims.PATTERN, limits=Limits)
def unfused_pointwise(work: Work, chains: KernelChains, limits: Limits) -> Iterator[Hits]:
    """Pointwise kernels in a row that one fused kernel could do.

    What it looks for: three or more eager elementwise kernels over the same number of elements, one after the other on
    a stream within one step; a reduction among them, as in a norm written by hand, belongs to the chain.
    Why it costs: each kernel reads its inputs from memory and writes its result back; fused, the values stay in
    registers, and memory is passed over once.
    Bad: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps) in eager mode. Good: F.rms_norm, F.gelu, or the
    function under torch.compile.
    How sure: kernels and order are recorded; sizes are those of the recorded shapes, else of the grids. Loops over
    parameters in an optimizer and compiled kernels are left out.
    When it is wrong: where neighbours do not depend on each other, a compiler fuses them as far as they share inputs.
    Saving: a kernel as long as the shortest of the chain over the whole size, for every ten of them.
    Source: "Performance Tuning Guide: fuse pointwise operations" of PyTorch; measured on H200 pairs.
    """
    long = chains.longer_than(limits.min_kernels - 1)
    every = work[long.entry]
    for device in np.unique(every.device).tolist():
        chosen = every.device == device
        number = np.cumsum(starts_of_runs(long.chain[chosen])) - 1
        hits = _hits(every[chosen], number, long.whole[chosen], long.sized, limits)
        lost_ns = int((hits.losses().end_ns - hits.losses().start_ns).sum())
        if lost_ns >= limits.min_gpu_share * work[work.device == device].total_ns:
            yield hits


def _hits(found: Work, chain: Rows, whole: np.ndarray, sized: bool, limits: Limits) -> Hits:
    texts, count = _texts(found, chain), int(chain[-1]) + 1
    chain = _parts(chain, limits.per_fused_kernel)
    fused = _fused(found.dur_ns, chain, whole, limits)
    total = np.bincount(chain, weights=found.dur_ns)
    kept = np.minimum(fused / np.maximum(total, 1), 1.0)
    return Hits(
        at=found,
        lost=Lost.excess(found, np.asarray(found.dur_ns * (1 - kept[chain]), np.int64)),
        fix=Fuse(found.entries, chain, fused),
        message="{kernels_in_chains} pointwise kernels in {chains} chains that one kernel each could do, {spent} in "
        "all: {sequences}{where}",
        advice=_advice(next(iter(texts), "")),
        confidence=Confidence.HIGH if sized else Confidence.MEDIUM,
        evidence={
            **told(found),
            "spent_ns": found.total_ns,
            "kernels_in_chains": len(found),
            "chains": count,
            "sequences": texts,
        },
    )


def _fused(dur: Rows, chain: Rows, whole: np.ndarray, limits: Limits) -> Floats:
    """How long each chain's fused kernel takes, ns; float64 (chains,)."""
    longest = np.zeros(int(chain.max(initial=-1)) + 1)
    np.maximum.at(longest, chain[whole], dur[whole].astype(np.float64))
    counts = whole & (dur >= limits.whole_share * longest[chain])
    shortest = longest.copy()
    np.minimum.at(shortest, chain[counts], dur[counts].astype(np.float64))
    return shortest


def _parts(chain: Rows, most: int) -> Rows:
    """Long chains cut into equal parts, of which each becomes one kernel; numbers from 0."""
    first = np.flatnonzero(starts_of_runs(chain))
    length = np.bincount(chain)[chain]
    part = (np.arange(len(chain)) - first[chain]) * -(-length // most) // length
    return np.cumsum(starts_of_runs(chain * (most + int(length.max(initial=0)) + 1) + part)) - 1


def _texts(found: Work, chain: Rows) -> dict[str, int]:
    """`to > pow > mean > mul`: sequences of ops -> ns, most time first."""
    ops, total = called_ops(found), np.bincount(chain, weights=found.dur_ns)
    codes, used = numbered(ops.code)
    first = np.flatnonzero(starts_of_runs(chain))
    place = np.arange(len(chain)) - first[chain]
    salt = np.random.default_rng(0).integers(1, 2**62, (len(used),))
    key = np.zeros(len(first), np.int64)
    np.add.at(key, chain, salt[codes] * (2 * place + 1))  # wraps around: equal sequences have equal keys
    _, one, kind = np.unique(key, return_index=True, return_inverse=True)
    time = np.bincount(kind, weights=total)
    ends = np.append(first[1:], len(chain))
    sums: dict[str, int] = {}
    for which in np.argsort(-time, kind="stable")[:5].tolist():
        rows = np.arange(first[one[which]], ends[one[which]])
        text = " > ".join(str(name).removeprefix("aten::") for name in ops[rows].values()[:12])
        sums[text] = sums.get(text, 0) + int(time[which])
    return sums


_WHY = "Inductor makes one kernel of it"
_COMPILE = f"put the chain under torch.compile: {_WHY}"
_REMEDIES = (
    (("rsqrt", "mean"), "Use F.rms_norm or F.layer_norm for the norm written by hand"),
    (("tanh", "pow"), "Use F.gelu(x, approximate='tanh')"),
    (("sigmoid", "mul"), "Use F.silu, or F.glu, for the gate"),
)


def _advice(sequence: str) -> str:
    """The ready-made op for what the chain looks like, else compilation."""
    ops = sequence.split(" > ")
    named = next((remedy for wanted, remedy in _REMEDIES if all(one in ops for one in wanted)), None)
    return f"{named}, or {_COMPILE}." if named else f"Put the chain under torch.compile: {_WHY}."
