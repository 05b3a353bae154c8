"""Layers that work on equal rows: what was expanded or repeated before them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from traceanalyzer.roofline.results import result_of
from traceanalyzer.rule import Calls
from traceanalyzer.rule.loops import step_edges
from traceanalyzer.rules.kernels.encoded_copies.copies import FAR, Copied, read_by
from traceanalyzer.rules.kernels.encoded_copies.rows_read import BY_ROW, Ops, rows_read, types_read
from traceanalyzer.tensors.signatures import Signature, tensors
from traceanalyzer.timeline.names import VIEWING_OP

_BROADCASTS = re.compile(r"^aten::(expand|expand_as|broadcast_to|repeat|repeat_interleave|tile)$")
_REPEATS = ("aten::repeat", "aten::repeat_interleave")


def equal_rows(
    ops: Calls, number: list[int], signatures: Sequence[Signature], min_times: float
) -> Iterator[tuple[str, Copied, list[int]]]:
    """(op that makes copies, what it makes, positions of ops that work on equal rows)."""
    makers = {result_of(op): op.name for op in signatures if _BROADCASTS.search(op.name)}
    seeds = [_of_strides(op, min_times) or _repeated(op, min_times) for op in signatures]
    edges, done, known = step_edges(ops), -1, Ops.of(number, signatures)
    seen: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for at in np.flatnonzero(np.array([one is not None for one in seeds], bool)[number]).tolist():
        copied = seeds[number[at]]
        if copied is None or at <= done:
            continue
        group = int(np.searchsorted(edges, at, side="right"))
        low, high = max(edges[group - 1], at - FAR), min(edges[group], at + FAR)
        key = at - low, tuple(number[low:high])
        if key not in seen:
            seen[key] = [place - at for place in rows_read(known, at, low, high, copied)]
        members = [at + place for place in seen[key]]
        if members:
            members += _in_later_blocks(known, members, edges[group])
            done = max(members)
            yield makers.get(copied.shape, "aten::expand"), copied, members


def _of_strides(op: Signature, min_times: float) -> Copied | None:
    """Rows that an op reads, of which strides say that each is there several times; None where one input has others."""
    if not BY_ROW.search(op.name) or not op.strides or op.name == "aten::cat":
        return None
    wanted = read_by(op)
    shape = max(wanted, key=math.prod, default=())
    repeated = set(range(1 - len(shape), -1)) | {-len(shape)} if len(shape) > 1 else set()
    for at, sizes in enumerate(op.dims):
        if sizes not in [list(one) for one in wanted]:
            continue
        steps = op.stride(at)
        if steps is None:
            return None
        repeated -= {i for i in repeated if len(sizes) >= -i and sizes[i] > 1 and steps[i] > 0}
    times, rows = math.prod(shape[i] for i in repeated), math.prod(shape[:-1])
    enough = times >= min_times and shape[-1] > 1
    return Copied(0, rows, rows // times, shape) if enough else None


def _repeated(op: Signature, min_times: float) -> Copied | None:
    """Rows that an op writes several times, or numbers, each of which may become a row."""
    shape = result_of(op) if op.name in _REPEATS else None
    source = next(iter(tensors(op)), ())
    if not shape or not source:
        return None
    wide = shape[-1] == source[-1] > 1
    if op.name == "aten::repeat" and not wide:
        return None
    end = -1 if wide else None
    rows, items = math.prod(shape[:end]), math.prod(source[:end])
    return Copied(1, rows, items, shape) if rows >= min_times * items else None


def _in_later_blocks(ops: Ops, members: Sequence[int], end: int) -> list[int]:
    """Positions in blocks of a network that repeat the first one's ops and read the same condition.

    Args:
        members: positions of the ops that are known to work on equal rows.
        end: of the thread's step.
    """
    number, last = ops.number, members[-1]
    for at, first in enumerate(members):
        later = _next(number, number[first], last + 1, end)
        size, found, begin = later - first, list[int](), later
        while begin + size <= end and number[begin : begin + size] == number[first:later]:
            found += [place - first + begin for place in members[at:]]
            begin += size
        if found:
            return found if _is_condition(ops, first, range(last + 1, later)) else []
    return []


def _next(number: Sequence[int], which: int, begin: int, end: int) -> int:
    try:
        return number.index(which, begin, end)
    except ValueError:
        return end


def _is_condition(ops: Ops, first: int, rest: range) -> bool:
    """Whether a block reads a condition first, and not what the block before it has made.

    Args:
        rest: positions of what follows in its block.
    """
    op = ops.signatures[ops.number[first]]
    shape = next(iter(read_by(op)))
    for place in reversed(rest):
        which = ops.number[place]
        if ops.made[which] == shape and not VIEWING_OP.search(ops.signatures[which].name):
            kind = ops.types[which]
            return ops.modulates(first) or (kind is not None and kind not in types_read(op, shape))
    return True
