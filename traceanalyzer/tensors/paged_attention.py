"""What attention over a paged cache computes and reads at least, from the sums in the marks of serving engines.

The op gets queries, new keys and values. The lengths of the sequences are on the device and in the mark's name.
"""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct, pick
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.tensors.ops.costs import ARITHMETIC, OpCost
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.mark_search import Attended, attended
from traceanalyzer.timeline.nesting import Nesting

PAGED = "vllm::unified_attention_with_output"
_CACHES = "_C_cache_ops::reshape_and_cache_flash"
# Names of TensorRT-LLM's kernels tell whether a window, chunk or selection limits what a query sees; Triton's do not.
_WHOLE = regex(r"^fmhaSm\d+\w*PagedKv(Causal|Dense)P\d")
_WINDOW = regex(r"^fmhaSm\d+\w*PagedKvSlidingOrChunked")
NARROWEST_BYTES = 1  # of an element in the cache, where its type is not recorded: fp8, recorded on a B200


def paged_costs(
    trace: Trace, nesting: Nesting, work: DeviceWork, number: Rows, signatures: list[Signature]
) -> dict[int, OpCost]:
    """Mean cost of the calls of each signature, at least; none where the lengths of one call are not known.

    Where a window limits what a query sees, its width is not recorded: each query sees itself at least. `number` is
    the signature of each entry of `work`.
    """
    found = {}
    for which in (place for place, op in enumerate(signatures) if op.name == PAGED):
        entries = np.flatnonzero(number == which)
        kernels = Texts.column(trace.lanes.gpu, "name", work.row[entries])
        whole, window = (distinct(work.op[entries[kernels.matches(kind)]]) for kind in (_WHOLE, _WINDOW))
        calls = distinct(work.op[entries])
        if not len(whole) or len(np.union1d(whole, window)) < len(calls):
            continue
        seen = list(_attended(trace, nesting, calls))
        try:
            item = next((op.item_bytes(2) for op in signatures if op.name == _CACHES), NARROWEST_BYTES)
            found[which] = _mean(signatures[which], seen, np.isin(calls, window).tolist(), item)
        except (LookupError, ValueError):
            continue
    return found


def _attended(trace: Trace, nesting: Nesting, calls: Rows) -> Iterator[Attended | None]:
    """By the last mark that begins before each call, if the call lies in it."""
    rows = np.flatnonzero(nesting.annotation)
    name = Texts.column(trace.lanes.cpu, "name", rows)
    sums = {code: attended(str(name.names[code])) for code in name.occurring()}
    marks = rows[np.isin(name.code, [code for code, found in sums.items() if found])]
    marks = marks[np.argsort(nesting.start_ns[marks], kind="stable")]
    code_of = dict(zip(rows.tolist(), name.code.tolist(), strict=True))
    around = pick(marks, np.searchsorted(nesting.start_ns[marks], nesting.start_ns[calls], side="right") - 1)
    for call, mark in zip(calls.tolist(), around.tolist(), strict=True):
        inside = mark >= 0 and nesting.end_ns[call] <= nesting.end_ns[mark]
        yield sums[code_of[mark]] if inside else None


def _mean(op: Signature, seen: list[Attended | None], window: list[bool], item_bytes: int) -> OpCost:
    """Of (query, key, value, output): rows of a token, heads and width each."""
    (rows, heads, width), (_, kv_heads, _), value_width = op.shape(0), op.shape(1), op.shape(2)[-1]
    each = heads * (width * op.item_bytes(0) + value_width * op.item_bytes(3))
    flops = moved = 0
    for one, narrow in zip(seen, window, strict=True):
        # A part of a batch, or rows of a draft model: the mark is not of this call.
        if one is None or one.queries > rows:
            raise LookupError("no sums")
        pairs, keys = (one.queries, one.queries) if narrow else (one.pairs, one.keys)
        flops += 2 * heads * (width + value_width) * pairs
        moved += one.queries * each + keys * kv_heads * (width + value_width) * item_bytes
    return OpCost("paged attention", flops // len(seen), moved // len(seen), ARITHMETIC.get(op.types[0]))
