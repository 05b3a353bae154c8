"""Backward through parameters that no optimizer has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import grouped
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import Drop
from traceanalyzer.roofline.signatures import signatures_of
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.embedding_tables import tensors
from traceanalyzer.rule.evidence import told
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.rule.views.selection import Mask
from traceanalyzer.timeline.names import OPTIMIZER_MARK


@dataclass(frozen=True, slots=True)
class Limits:
    min_unused_share: float = limit(
        0.75, "of the gradients: a frozen part is most of a model, and a few may have other uses"
    )
    min_steps: int = limit(2, "once may be an optimizer that waits for more gradients")


_NODE = "autograd::engine::evaluate_function"
_LEAF = r"^torch::autograd::AccumulateGrad$"
_CHANGES = r"^aten::(_foreach_|_fused_)?(add|sub|lerp|addcmul|addcdiv|copy|adam|adamw|sgd|adagrad)_$"
_NEVER = np.iinfo(np.int64).max
_OPAQUE = r"CompiledFunction|^triton_|^Torch-Compiled|^## Call"


@rule(since="0.2", claims=Claims.PATTERN, min_share=0.02, limits=Limits)
def unused_gradient(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Backward computes gradients that no optimizer uses.

    What it looks for: parameters that get a gradient in every step, of shapes that no op of any optimizer's step has,
    and nothing else outside of backward writes to; three quarters of all gradients or more. Counted is what the engine
    does after the last gradient that the optimizer does use: it serves the others alone. Mostly, these gradients are
    never cleared, and each is added to the last step's.
    Why it costs: backward of a layer takes twice the time of its forward, and keeps its activations until then.
    Bad: AdamW(head.parameters()) on a backbone that requires gradients. Good: backbone.requires_grad_(False).
    How sure: high where the gradients are never cleared. Frozen layers of the same shapes as trained ones are not
    told from them, so the rule says less than there is.
    When it is wrong: an optimizer that sees flattened or sharded copies of the parameters: so the rule does not judge
    steps of several ranks, nor of compiled or captured optimizers, or of those whose kernels have no op
    or which take more than about 30 tensors at once, whose shapes are not recorded.
    Source: "Locally disabling gradient computation" in PyTorch's notes on autograd; measured on an H200.
    """
    leaves = calls[calls.is_op & calls.name.matches(_LEAF)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(leaves) == 0 or len(marks) == 0:
        return
    if len(work.of_kind("communication")):
        raise Unavailable("other ranks take part: an optimizer may have shards of the parameters")
    if not _readable(calls, work, marks) or (leaves.text("input_dims").code < 0).any():
        raise Unavailable("the shapes that the optimizer works on are not recorded")
    used = _used(calls, leaves, marks)
    if _steady(leaves, used, marks, limits):
        yield _hits(calls, _needless(calls, leaves, used), leaves, used)


def _hits(calls: Calls, needless: Calls, leaves: Calls, used: Mask) -> Hits:
    adds = calls[calls.is_op & calls.name.one_of("aten::add_")].parent.distinct()
    kept = np.isin(leaves[~used].rows, adds.rows).all()
    spent, owner = needless.launched()
    return Hits(
        at=needless,
        lost=Lost.all_of(spent, owner),
        fix=Drop(needless.rows),
        message="{unused} of {gradients} gradients a step belong to parameters that no optimizer has"
        + (" and are never cleared" if kept else "")
        + ": what backward computes for them alone takes {gpu} of GPU time, mostly in {nodes}",
        advice="Call requires_grad_(False) on what is frozen, or run its forward under torch.no_grad().",
        confidence=Confidence.HIGH if kept else Confidence.MEDIUM,
        evidence={
            **told(spent),
            "unused": round((~used).sum() / len(np.unique(leaves.step))),
            "gradients": round(len(leaves) / len(np.unique(leaves.step))),
            "nodes": _plain(needless[owner].name.sums(spent.dur_ns)),
            "gpu_ns": spent.total_ns,
        },
    )  # fmt: skip


def _plain(nodes: dict[str, int]) -> dict[str, int]:
    return {name.removeprefix(f"{_NODE}: "): ns for name, ns in nodes.items()}


def _writing(calls: Calls) -> Calls:
    """What the program itself calls to change tensors: a conversion's own copy_ changes nothing that was there."""
    return calls[calls.is_op & ~calls.parent.op.there & calls.name.matches(_CHANGES)]


def _readable(calls: Calls, work: Work, marks: Calls) -> bool:
    """Whether all that changes parameters is by ops whose shapes were recorded; those of long lists are not."""
    own, lists = work[work.launch.owner(marks) >= 0], _writing(calls)
    lists = lists[lists.name.matches("^aten::_")]
    _, signatures = signatures_of(work.events.trace, np.append(own.op.rows, lists.rows))
    opaque = own.in_graph | own.op.name.matches(_OPAQUE)
    return len(own) > 0 and all(any(one.dims) for one in signatures) and not opaque.any()


def _used(calls: Calls, leaves: Calls, marks: Calls) -> Mask:
    """Gradients of a shape that an optimizer has, or that something outside of backward changes."""
    called = calls[
        calls.is_op & ~calls.parent.op.there
    ]  # a conversion's own copy_ changes nothing that was there
    writing = called[called.name.matches(_CHANGES)]
    stepping = calls[calls.is_op & calls.inside(marks)]
    changing = writing.joined((writing, stepping))
    _, signatures = signatures_of(calls.events.trace, changing.rows)
    shapes = {shape for one in signatures for shape in tensors(one)}
    number, signatures = signatures_of(calls.events.trace, leaves.rows)
    return np.array([not set(tensors(one)) or not shapes.isdisjoint(tensors(one)) for one in signatures])[
        number
    ]


def _steady(leaves: Calls, used: Mask, marks: Calls, limits: Limits) -> bool:
    """Whether every step with gradients has an optimizer's step, some gradients for it and many more for none."""
    steps, of = np.unique(leaves.step, return_inverse=True)
    share = np.bincount(of, ~used) / np.bincount(of)
    stepped = np.isin(steps, marks.step).all() and (steps >= 0).all()
    enough = ((share >= limits.min_unused_share) & (share < 1)).all()
    return bool(stepped and enough and len(steps) >= limits.min_steps)


def _needless(calls: Calls, leaves: Calls, used: Mask) -> Calls:
    """What the engine does for unused gradients alone: after the last used one of its step, up to the last of all."""
    nodes = calls[calls.name.matches(f"^{_NODE}")]
    nodes = nodes[~nodes.parent.inside(nodes)]
    both = zip((leaves.step, leaves.thread), (nodes.step, nodes.thread), strict=True)
    number, _ = grouped([np.concatenate(pair) for pair in both])
    of_leaf, of_node = number[: len(leaves)], number[len(leaves) :]
    last_used = np.full(number.max() + 1, _NEVER)
    last_used[of_leaf[used]] = -1
    np.maximum.at(last_used, of_leaf[used], leaves.start_ns[used])
    last = np.full(len(last_used), -1)
    np.maximum.at(last, of_leaf, leaves.start_ns)
    after = (nodes.start_ns > last_used[of_node]) & (nodes.start_ns <= last[of_node])
    return nodes[after | np.isin(np.arange(len(nodes)), leaves[~used].owner(nodes))]
