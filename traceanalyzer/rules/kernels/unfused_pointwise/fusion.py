"""Chains of kernels that one kernel could do: what that would take, and what they are called."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, numbered, starts_of_runs
from traceanalyzer.rule.evidence import called_ops
from traceanalyzer.rule.views import Work

_BROADCASTS = r"(?<!\w)elementwise_kernel<"  # not vectorised: an input is broadcast, or strided
_NAMED = 12  # ops of a sequence
_NAMED_IN_MESSAGE = 6
_KINDS = 5  # sequences
_LETTERS = 120  # of a sequence: kernels without ops have long names


def fused_ns(dur: Rows, chain: Rows, whole: np.ndarray, least_share: float) -> Floats:
    """What each chain's fused kernel takes, ns: what the shortest takes to pass over the whole size; float64 (chains,).

    Args:
        dur, chain, whole: of each kernel; those that are not whole work on something smaller. Of a chain that ends in
            a reduction of the whole size nothing else is written: that reduction is whole, too.
        least_share: of the chain's longest; what is shorter works on something smaller, too.
    """
    longest = np.zeros(int(chain.max(initial=-1)) + 1)
    np.maximum.at(longest, chain[whole], dur[whole].astype(np.float64))
    counts = whole & (dur >= least_share * longest[chain])
    shortest = longest.copy()
    np.minimum.at(shortest, chain[counts], dur[counts].astype(np.float64))
    return shortest


def closing_reductions(found: Work, chain: Rows, whole: np.ndarray, least_share: float) -> np.ndarray:
    """Which kernels reduce what two kernels computed that begin with a broadcast; bool (kernels,).

    Such a kernel is the last of its chain, and takes about as long: the values between are larger than what comes in
    and what is left. Of longer chains it stays open whether their results are needed later, as in backward.

    Args:
        least_share: of the chain's longest; what is shorter reduces something smaller.
    """
    count = np.bincount(chain, weights=whole)
    longest, last = np.zeros(len(count)), np.full(len(count), -1)
    np.maximum.at(longest, chain[whole], found.dur_ns[whole].astype(np.float64))
    np.maximum.at(last, chain[whole], np.flatnonzero(whole))
    starts = np.flatnonzero(starts_of_runs(chain))
    pairs = (count == 2) & found[starts].name.matches(_BROADCASTS)
    late = (np.arange(len(chain)) > last[chain]) & (found.dur_ns >= least_share * longest[chain])
    return np.asarray(~whole & late & pairs[chain])


def equal_parts(chain: Rows, most: int) -> Rows:
    """Long chains cut into equal parts of at most so many kernels; numbers from 0."""
    first = np.flatnonzero(starts_of_runs(chain))
    length = np.bincount(chain)[chain]
    part = (np.arange(len(chain)) - first[chain]) * -(-length // most) // length
    return np.cumsum(starts_of_runs(chain * (most + int(length.max(initial=0)) + 1) + part)) - 1


def sequences(found: Work, chain: Rows) -> dict[str, int]:
    """`to > pow > mean > mul`: sequences of ops -> ns, most time first."""
    ops, total = called_ops(found), np.bincount(chain, weights=found.dur_ns)
    codes, used = numbered(ops.code)
    first = np.flatnonzero(starts_of_runs(chain))
    place = np.arange(len(chain)) - first[chain]
    salt = _spread(np.arange(1, len(used) + 1))
    key = np.zeros(len(first), np.int64)
    np.add.at(key, chain, salt[codes] * (2 * place + 1))  # wraps around: equal sequences have equal keys
    _, one, kind = np.unique(key, return_index=True, return_inverse=True)
    time = np.bincount(kind, weights=total)
    ends = np.append(first[1:], len(chain))
    sums: dict[str, int] = {}
    for which in np.argsort(-time, kind="stable")[:_KINDS].tolist():
        rows = np.arange(first[one[which]], ends[one[which]])
        text = shown([str(name).removeprefix("aten::") for name in ops[rows].values()])
        sums[text] = sums.get(text, 0) + int(time[which])
    return sums


def _spread(numbers: Rows) -> Rows:
    """Numbers far apart for numbers close together; numpy's generators take 20 ms to import."""
    spread: Rows = ((numbers * 0x1E3779B97F4A7C15) ^ (numbers * 0x3F58476D1CE4E5B9 >> 29)) | 1
    return spread


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
