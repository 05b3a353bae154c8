"""A large matrix is inverted, and its inverse is multiplied by a few columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.records import dataclass
from traceanalyzer.replay.edits import Drop
from traceanalyzer.replay.rewrites import Replace
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Work, limit, rule
from traceanalyzer.rule.evidence_texts import gpu_time_evidence
from traceanalyzer.rule.hits import clamp_to_floor, reduce_to
from traceanalyzer.tensors.signatures import Shape, Signature, shape_text, tensors
from traceanalyzer.tensors.top_ops import top_ops

_INVERTS = r"^aten::(linalg_inv(_ex)?|inverse)$"
_FACTORISES = (
    r"^aten::(logdet|det|linalg_det|slogdet|linalg_slogdet|linalg_solve(_ex)?|linalg_lu(_factor)?(_ex)?)$"
)
_PRODUCTS = ("aten::matmul", "aten::mm", "aten::mv", "aten::bmm", "aten::linear", "aten::addmm")
_BACKWARD = r"(^|: )(LinalgInvEx|LinalgInv|Inverse)Backward\d*$"
# LU factors take 2/3 n^3 of the 2 n^3 operations of an inverse.
_FACTOR_SHARE = 1 / 3
# Of a batch's Cholesky: 196 kernels for 1,024 rows; H200, torch 2.11.
_PANEL_ROWS, _PANEL_KERNELS = 16, 3
# Time per row to solve triangles of a batch for one column; 545 to 800 ns on an H200, torch 2.11.
_ROW_NS = 750.0
# CPU time per launch without the profiler, chosen; 9.6 us with it on an H200 host, torch 2.11.
_LAUNCH_NS = 5_000.0


@dataclass(frozen=True, slots=True)
class Limits:
    min_rows: int = limit(
        256,
        "reported only if the matrix has at least this many rows; smaller matrices take little time, or are"
        " inverted in large batches, which are not judged; chosen",
    )
    max_columns_share: float = limit(
        0.25,
        "reported only if the inverse is multiplied by few columns: at most this share of the inverse's "
        "rows; with more columns, solving takes nearly as long as the inverse; chosen",
    )
    near_ops: int = limit(
        8,
        "the product is searched among this many ops after the inverse; views are not counted; chosen",
    )
    min_gpu_share: float = limit(
        0.05,
        "reported only if such inverses take at least this share of GPU time; chosen",
    )
    floor_ns: int = limit(
        2_000,
        "used for the predicted saving: no kernel is predicted to take less than this time, even with few "
        "operations; measured on an H200 with torch 2.11",
    )


@rule(since="0.2", claims=Claims.WORK, specificity=1, min_share=0.03, limits=Limits)
def explicit_inverse(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """A large matrix is inverted, and its inverse is multiplied by a few columns.

    What it looks for: linalg.inv of a large matrix, and soon after it a product of the inverse with a few
    columns. The time that the finding reports also includes other ops that factorise a matrix of this shape,
    such as logdet or solve.
    Why it costs: an inverse takes three times as many operations as a factorisation. Solving for a few
    columns takes little more than the factorisation. For a batch of matrices, inv launches ten times as many
    kernels as Cholesky.
    Bad: torch.linalg.inv(k) @ y, and torch.logdet(k). Good: l = torch.linalg.cholesky(k),
    torch.cholesky_solve(y, l), and 2 * l.diagonal().log().sum(). If k is not symmetric and positive definite:
    lu_factor and lu_solve.
    How sure: only shapes and the order of ops show that the product reads the inverse. So confidence is
    medium.
    When it is wrong: the inverse is kept and used often in later steps.
    Saving: two thirds of the inverse's time, the launches that Cholesky does not need, and all the time of other
    ops that factorise a matrix of this shape, because they are not needed any more. The backward pass is not
    included.
    Source: torch.linalg.inv in PyTorch's documentation: "Consider using torch.linalg.solve() if possible".
    """
    ops, number, signatures = top_ops(calls, "shows how large matrices are", views=False)
    inverts, factorises = ops.name.matches(_INVERTS), ops.name.matches(_FACTORISES)
    shares: dict[Shape, dict[int, float]] = {}
    for place in np.flatnonzero(inverts).tolist():
        shape = next(iter(tensors(signatures[number[place]])), ())
        following = [signatures[which] for which in number[place + 1 : place + 1 + limits.near_ops].tolist()]
        if (
            len(shape) >= 2
            and shape[-1] >= limits.min_rows
            and _has_few_columns(shape, following, limits.max_columns_share)
        ):
            shares.setdefault(shape, {})[place] = _FACTOR_SHARE
    for shape, parts in shares.items():
        same = np.array([tensors(op)[:1] == [shape] for op in signatures], bool)[number]
        again = np.flatnonzero(factorises & same & np.isin(ops.step, ops.step[list(parts)]))
        parts.update(dict.fromkeys(again.tolist(), 0.0))
        yield from _hits(shape, ops, parts, ops[again], work, limits)


def _has_few_columns(shape: Shape, following: list[Signature], share: float) -> bool:
    """Whether the other factor of the first product with a matrix of that shape has few columns."""
    for op in following:
        shapes = tensors(op)
        if op.name in _PRODUCTS and len(shapes) > 1 and shape in shapes[-2:]:
            other = shapes[-2] if shapes[-1] == shape else shapes[-1]
            columns = (other[-1] if shapes[-1] == other else other[-2]) if len(other) > 1 else 1
            return other != shape and columns <= share * shape[-1]
    return False


def _hits(
    shape: Shape, ops: Calls, parts: dict[int, float], again: Calls, work: Work, limits: Limits
) -> Iterator[Hits]:
    order: Rows = np.array(sorted(parts), np.int64)
    remaining = np.array([parts[place] for place in order.tolist()])
    owner = work.outer_op.index_of_enclosing(ops[order])
    chosen = (owner >= 0) & work.kind.one_of("compute")
    for pieces, share in work[chosen].device_shares(limits.min_gpu_share):
        needed = clamp_to_floor(pieces.dur_ns * remaining[owner[pieces.entries]], pieces, limits.floor_ns)
        inverts = ops[order[remaining > 0]]
        yield Hits(
            occurrences=pieces,
            lost=reduce_to(pieces, needed)["lost"],
            fix=(Drop(again.rows), _solved(shape, inverts, pieces)),
            named_by=shape_text(shape),
            message="a matrix of {by} is inverted and multiplied by a few columns"
            + (", and {others} factorises a matrix of that shape again" if len(again) else "")
            + ": {gpu} of all GPU work{where}",
            advice="Factorise once and solve: cholesky() and cholesky_solve() for a symmetric positive definite "
            "matrix, else lu_factor() and lu_solve(). The log-determinant is the sum of the logs of the "
            "factor's diagonal (twice this sum for Cholesky).",
            confidence=Confidence.MEDIUM,
            evidence={
                **gpu_time_evidence(pieces),
                "gpu_share": share,
                "others": ", ".join(sorted(set(map(str, again.name.values())))),
            },
        )


def _solved(shape: Shape, inverts: Calls, work: Work) -> Replace:
    """Factors and a solution in the place of each inverse: in no more kernels than Cholesky has.

    A solution has two triangles, and as many in backward; only those of a batch take long.
    """
    owner = work.launch.index_of_enclosing(inverts)
    launches = int(np.bincount(owner[owner >= 0], minlength=1).max())
    kernels = max(min(launches, _PANEL_KERNELS * shape[-1] // _PANEL_ROWS), 1)
    total = np.bincount(owner[owner >= 0], work.dur_ns[owner >= 0], len(inverts))
    trained = Calls.build(work.events).name.matches(_BACKWARD).any()
    solving = 2 * (1 + trained) * _ROW_NS * shape[-1] * (len(shape) > 2)
    each = np.repeat((total[:, None] * _FACTOR_SHARE + solving) / kernels, kernels, axis=1)
    return Replace(inverts.start_ns, inverts.end_ns, each, kernels * _LAUNCH_NS)
