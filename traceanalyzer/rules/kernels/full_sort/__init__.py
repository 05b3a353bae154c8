"""Tensors that are sorted whole, of which only the first elements are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Floats, Rows, sums_of
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edits import Resize
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.roofline.op_work import shapes_of
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import kernel_times
from traceanalyzer.rules.kernels.full_sort.sorted_tensors import SORTS, Readers, Sorted, most_read
from traceanalyzer.rules.kernels.full_sort.without_shapes import seen_by_kernels
from traceanalyzer.tensors.signatures import signatures_of


@dataclass(frozen=True, slots=True)
class Limits:
    max_used_share: float = limit(
        0.25,
        "reported only if later ops use at most this share of the sorted elements; topk was not measured "
        "with larger shares (H100, torch 2.11)",
    )
    min_row_elements: int = limit(
        4_096,
        "reported only if rows have at least this many elements; 4,096 rows of 1,024 elements take 159 µs "
        "with sort and 134 µs with topk; 4,096 rows of 4,096 elements take 567 µs with sort and 307 µs with"
        " topk; measured on an H100",
    )
    bytes_times: float = limit(
        12.0,
        "used for the predicted saving: topk is predicted to take this many times as long as reading its "
        "input at the memory's peak rate; 11 to 15 times were measured for 102 to 1,720 MB, H100, torch "
        "2.11",
    )
    floor_ns: int = limit(
        45_000,
        "used for the predicted saving: topk is predicted to take at least this time; the shortest measured"
        " times are a little longer (54 µs for 64 rows of 8,400 elements, 70 µs for 64 rows of 32,000 "
        "elements); measured on an H100 with torch 2.11",
    )
    min_bytes: int = limit(
        4_194_304,
        "if shapes are not recorded: a sort is reported only if it has at least this many bytes, because "
        "the length of its rows is not known; chosen",
    )
    few_rows: int = limit(
        16,
        "used for the predicted saving: with fewer rows than this, few_rows_floor_ns replaces floor_ns; "
        "topk takes 75 µs for 16 rows of 128,256 elements, and 114 µs for one row of 1,000,000 elements; "
        "measured on an H100",
    )
    few_rows_floor_ns: int = limit(
        110_000,
        "used for the predicted saving: topk of few rows is predicted to take at least this time; 114 µs "
        "were measured for one row, H100, torch 2.11",
    )
    max_time_share: float = limit(
        0.7,
        "reported only if the predicted time of topk is at most this share of the sort's time; the "
        "prediction is off by up to 25 %, and was measured only on an H100",
    )


@rule(since="0.1", claims=Claims.EVENT, limits=Limits)
def full_sort(trace: Trace, calls: Calls, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """A whole tensor is sorted, and only its first elements are used.

    What it looks for: sorts on the device (sort, argsort, msort) of long rows. Later ops take only the start
    or the end of each sorted row. This part is at most a quarter of the row.
    Why it costs: a sort makes many passes, and each pass reads and writes all values and indices. The passes
    of topk only read and count values, and topk writes only the requested part.
    Bad: scores.argsort(dim=1, descending=True)[:, :200]. Good: scores.topk(200, dim=1).indices.
    How sure: shapes and slice bounds are recorded. The rule reports nothing if another op reads a tensor of
    the shape and dtype of the sorted result, because that op may use all of it.
    Without shapes: the rule reports a sort if the next op has few GPU threads, and so probably takes only a
    part. Confidence is low, because a later op may use the rest.
    When it is wrong: a custom kernel, for which the profiler records no op, reads the whole result. Or equal
    values must keep their order, as in a stable sort.
    Saving: the time of the sort, minus the predicted time of topk.
    Source: torch.topk in PyTorch's documentation; measured on an H100 with torch 2.11: on rows of 200,000
    float32, topk takes a sixth of the time of sort.
    """
    ops = calls[calls.is_op]
    sorts = ops[ops.name.one_of(*SORTS)].outermost()
    spent, owner = sorts.launched()
    if not len(spent):
        return
    number, signatures = signatures_of(trace, sorts.rows)
    results = [Sorted.of(op) for op in signatures]
    taken, gbps = sums_of(owner, spent.dur_ns, len(sorts)), np.ones(len(sorts))
    gbps[owner] = gpus.memory_gbps(spent.device)
    used, needed = np.zeros(len(sorts), np.int64), np.full(len(sorts), np.inf)
    if any(results):
        readers = Readers.of(ops, *signatures_of(trace, ops.rows))
        for of, result in enumerate(results):
            if result is not None and result.length >= limits.min_row_elements:
                own = np.flatnonzero(number == of)
                used[own] = most_read(result, sorts[own], readers)
                size = result.rows, result.bytes
                needed[own] = _topk_ns(*size, used[own] / result.length, taken[own], gbps[own], limits)
    else:
        seen = seen_by_kernels(ops, sorts, spent, owner)
        needed = _topk_ns(seen.rows, seen.bytes, seen.part, taken, gbps, limits)
        needed[seen.bytes < limits.min_bytes] = np.inf
    quick = needed < limits.max_time_share * taken
    if not any(results) and not quick.any():
        raise Unavailable("no shapes recorded: record_shapes=True shows which part of a sort is used")
    part = needed / np.maximum(taken, 1)
    for name in sorts[quick].name.distinct():
        own = np.flatnonzero(quick & sorts.name.one_of(name))
        found = np.isin(owner, own)
        worst = int(own[np.argmax(taken[own] - needed[own])])
        most: dict[str, object] = {"sort_ns": int(taken[worst]), "topk_ns": int(needed[worst])}
        if any(results):
            most |= {"shapes": shapes_of(signatures[int(number[worst])]), "used": int(used[worst])}
        of_own = np.searchsorted(own, owner[found])
        yield _hits(sorts[own], spent[found], of_own, part[owner[found]], most)


def _topk_ns(
    rows: Rows | int, size: Rows | int, part: Floats, taken_ns: Rows, gbps: Floats, limits: Limits
) -> Floats:
    """What topk takes, which sorts what it finds; endless where that is too much of the whole, or nothing is used.

    Args:
        rows: that are sorted each for itself.
        size: bytes of all of them.
        part: of a row that is used.
    """
    # A single row of at most a million elements is so never reported: topk is not faster there.
    floor_ns = np.where(np.asarray(rows) >= limits.few_rows, limits.floor_ns, limits.few_rows_floor_ns)
    finds_ns = floor_ns + limits.bytes_times * size / gbps
    few = (part > 0) & (part <= limits.max_used_share)
    return np.where(few, finds_ns + np.where(few, part, 1.0) * taken_ns, np.inf)


def _hits(sorts: Calls, spent: Work, owner: Rows, part: Floats, evidence: dict[str, object]) -> Hits:
    lines = sorts.line.sums(sorts.dur_ns)
    left_ns = spent.dur_ns * part
    return Hits(
        occurrences=sorts,
        named_by=str(sorts.name.distinct()[0]),
        lost=LostTime.excess(spent, np.asarray(spent.dur_ns - left_ns, np.int64), owner),
        fix=Resize(spent.entries, left_ns),
        message=(
            "{by} sorts all of {shapes} {times_a_step}, in {sort}, but only the first or last {used} of each row "
            "are used: topk needs about {topk}"
            if "shapes" in evidence
            else "{by} sorts whole tensors {times_a_step}, in {sort}, and what follows reads only a part, such as the "
            "first or last elements: then topk needs about {topk}"
        )
        + (", from {lines}" if lines else ""),
        advice="Call torch.topk(x, k), with largest=False for the smallest, and sorted=False if their order "
        "does not matter.",
        confidence=Confidence.MEDIUM if "shapes" in evidence else Confidence.LOW,
        evidence={**evidence, "kernels": kernel_times(spent), "lines": lines},
    )
