"""A device-to-device copy that only seeds a matrix product's destination."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.replay.edits import DropWork
from traceanalyzer.rule import Claims, Hits, LostTime, Work, rule
from traceanalyzer.timeline import kernel_families as families


class Limits:
    max_memsets: int = 2
    """at most this many memsets are allowed between the copy and the GEMM; cuBLAS clears one workspace of 4
    bytes (H200, torch 2.11)"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=("seeded-destination",))
def hidden_dtod_copy(work: Work, limits: Limits) -> Iterator[Hits]:
    """An op such as addmm first copies its bias into its output, and then adds the matrix product.

    What it looks for: an op of the addmm family that launches a device-to-device copy and then a GEMM kernel.
    Why it costs: the copy reads and writes a tensor of the output's size before the product starts.
    Bad: torch.addmm(full_matrix, a, b). Good: a 1-D bias, which the GEMM adds at its end (epilogue). Or let
    torch.compile fuse the addition with the next op.
    How sure: the copy and the GEMM belong to one op.
    When it is wrong: no wrong finding is known.
    What it misses: copies inside a CUDA graph, because they have no op.
    Source: cuBLAS adds the product to what is in the output already (beta*C); measured on an H200 with torch 2.11.
    """
    ordered = work.in_order()
    copy, product = _copies_before_gemms(ordered, limits.max_memsets)
    adds = ordered[product].op.outer_op.name.matches(families.ADDS_PRODUCT)
    adds |= ordered[product].op.name.matches(families.ADDS_PRODUCT)
    same = ordered[copy].op.outer_op.rows == ordered[product].op.outer_op.rows
    copy, product = copy[adds & same], product[adds & same]
    copies = ordered[copy]
    for op, moves in copies.by(ordered[product].op.name):
        products = ordered[product[np.isin(copies.entries, moves.entries)]]
        dims = next(iter(products.dims.sums(products.dur_ns)), "")
        yield Hits(
            occurrences=moves,
            named_by=op,
            cause="seeded-destination",
            # while other streams compute, a copy costs nothing
            lost=LostTime.uncovered(moves, work.of_kind("compute")),
            fix=DropWork(moves.entries),
            message="{by} copies its bias (the argument named input) into its output before the GEMM, {times_a_step}, "
            "{moved_a_step}; the copies take {total_a_step}{shapes}",
            advice="If it is a bias, pass it with one dimension: the GEMM's epilogue adds it. If it is a whole matrix "
            "that is not read again, add the product in place (matrix.addmm_). Or use torch.mm, and add the matrix "
            "afterwards: {torch.compile} can fuse the addition with the next op.",
            evidence={
                "moved_bytes": int(moves.bytes.sum()),
                "gemm": next(iter(products.name.sums(products.dur_ns)), ""),
                "gemm_ns": products.total_ns,
                "shapes": f"; shapes {dims}" if dims else "",
            },
            related=(products,),
        )


def _copies_before_gemms(ordered: Work, max_memsets: int) -> tuple[np.ndarray, np.ndarray]:
    """(positions of copies, positions of the next GEMM on their stream after at most a few memsets)."""
    kind, name = ordered.kind, ordered.name
    memset = kind.one_of("memset")
    gemm = kind.one_of("compute") & name.meets(families.is_gemm)
    copy = np.flatnonzero(kind.one_of("copy_d2d") & ordered.op.there)
    last = len(ordered) - 1
    product = np.minimum(copy + 1, last)
    for _ in range(max_memsets):
        product = np.where(memset[product], np.minimum(product + 1, last), product)
    same = (ordered.stream[copy] == ordered.stream[product]) & (ordered.device[copy] == ordered.device[product])
    seeds = gemm[product] & same & ordered.op.there[product]
    return copy[seeds], product[seeds]
