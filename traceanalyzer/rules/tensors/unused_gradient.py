"""Backward through parameters that no optimizer updates."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from traceanalyzer.model.arrays import Rows, distinct
from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, gpu_time_evidence, rule
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.signatures import Shape, signatures_of, tensors
from traceanalyzer.timeline.names import OPTIMIZER_MARK

_LEAF = r"^torch::autograd::AccumulateGrad$"
_BACKWARD = r"^autograd::engine|^torch::autograd|Backward\d*$"
# Writes to gradients or parameters, of which the program itself may call some.
_WRITES = r"^aten::(_foreach_zero|_foreach_copy|zero|fill|copy|add|sub|mul|lerp|addcmul|addcdiv)_$"
# Ops over lists that read each parameter once; their kernels have one block for each 65,536 elements of a tensor.
_UPDATES, _SGD = r"^aten::(_fused_|_foreach_addcdiv_$)", "aten::_foreach_add_"
_LIST_KERNEL, _BLOCK_ELEMENTS = "multi_tensor_apply_kernel", 65_536


class Limits:
    min_steps: int = 2
    """reported only if there are at least this many passes; with one, an optimizer may still wait for more gradients"""
    min_unused_share: float = 0.75
    """without shapes: reported only if at least this share of the gradients is unused, as with a frozen
    backbone; chosen"""


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.02, limits=Limits)
def unused_gradient(calls: Calls, work: Work, flow: Flow | None, limits: Limits) -> Iterator[Hits]:
    """Backward computes gradients that no optimizer uses.

    What it looks for: backward passes that go on after the last parameter that the next optimizer step updates.
    There are two cases:
    - nothing ever clears the other gradients, and each step adds to them, as with a backbone that is not trained
      and not frozen, or with the network of a perceptual loss;
    - another pass makes them anew for an optimizer of their own, and clears these. An example is the loss of a
      discriminator on images that are not detached from their generator.

    The cost is the part of the backward pass that is needed only for unused gradients.
    Why it costs: the backward pass of a layer takes twice the time of its forward pass. The layer's
    activations stay in memory until its backward pass has run.
    Bad: AdamW(head.parameters()) on a backbone that requires gradients; a discriminator's loss on images that are not
    detached from their generator. Good: backbone.requires_grad_(False); discriminator(images.detach()).
    With an execution trace, computed-unused shows this by the ids of tensors, and this rule is silent.
    How sure: the updated parameters are identified by their number and sizes. Confidence is high if the gradients
    are never cleared, else medium. Without shapes, only the first case is found, with medium confidence: gradients that
    each pass makes anew are updated, and the last ones of every pass are added to those of the step before.
    When it is wrong: an optimizer works on flattened or sharded copies of the parameters.
    Source: "Locally disabling gradient computation" in PyTorch's notes on autograd; measured on an H200.
    """
    leaves = calls[calls.is_op & calls.name.matches(_LEAF)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(leaves) == 0 or len(marks) == 0 or flow is not None:
        return
    if len(work.of_kind("communication")):
        raise Unavailable("other ranks take part: an optimizer may hold shards of the parameters")
    known = bool((leaves.text("input_dims").code >= 0).all())
    passes = passes_of(calls, work, leaves, marks)
    # Passes that go on to gradients which another pass makes anew for an optimizer of their own.
    made_anew = {each.updated_anew for each in passes} - {()}
    anew = [each for each in passes if known and each.updated and each.shapes[each.updated :] in made_anew]
    unused = anew or (_never_cleared(passes) if known else _added_to(passes, limits.min_unused_share))
    if len(unused) < limits.min_steps:
        return
    others = leaves[np.concatenate([each.leaves[each.updated :] for each in unused])]
    if not _are_written(calls, marks, others):
        yield _hits(calls, leaves, unused, others, anew=bool(anew), known=known)


@dataclass(frozen=True)
class Pass:
    """One backward pass, and what the optimizers update before the next one.

    Attributes:
        leaves: int64 (gradients,), positions in time.
        added: for each gradient, whether it was added to the one before.
        blocks: of the kernels that update parameters; 0 if unknown.
    """

    leaves: Rows
    shapes: tuple[Shape, ...]
    added: tuple[bool, ...]
    blocks: int

    @cached_property
    def updated(self) -> int:
        """Number of the first gradients that the optimizers update, without shapes of those made anew; 0 if unknown."""
        if not any(self.shapes):
            return self.added.index(True) if True in self.added else 0
        ends = list(accumulate(map(_blocks_of, self.shapes)))
        return ends.index(self.blocks) + 1 if self.blocks in ends else 0

    @cached_property
    def updated_anew(self) -> tuple[Shape, ...]:
        """Shapes of the gradients that are added to none before, if the optimizers update these alone."""
        fresh = tuple(shape for shape, added in zip(self.shapes, self.added, strict=True) if not added)
        return fresh if sum(map(_blocks_of, fresh)) == self.blocks else ()


def _blocks_of(shape: Shape) -> int:
    """Blocks of a kernel over lists for a tensor of this shape."""
    return -(-math.prod(shape) // _BLOCK_ELEMENTS)


def passes_of(calls: Calls, work: Work, leaves: Calls, marks: Calls) -> list[Pass]:
    """Backward passes in time: between two of them, the optimizer's thread calls an op of its own."""
    others = calls[calls.is_top_op & np.isin(calls.thread, marks.thread) & ~calls.name.matches(_BACKWARD)]
    adding = calls[calls.is_op & calls.name.one_of("aten::add_")].parent.distinct().rows
    order = np.argsort(leaves.start_ns, kind="stable")
    groups = np.split(
        order, np.flatnonzero(np.diff(np.searchsorted(np.sort(others.start_ns), leaves.start_ns[order]))) + 1
    )
    blocks = _updated_blocks(work, marks, leaves.start_ns[[group[0] for group in groups]])
    which, signatures = signatures_of(leaves.events.trace, leaves.rows)
    first = [next(iter(tensors(op)), ()) for op in signatures]
    passes = []
    for group, updated_blocks in zip(groups, blocks.tolist(), strict=True):
        shapes = tuple(first[code] for code in which[group].tolist())
        added = tuple(np.isin(leaves.rows[group], adding).tolist())
        passes.append(Pass(group, shapes, added, updated_blocks))
    return passes


def _updated_blocks(work: Work, marks: Calls, starts_ns: Rows) -> Rows:
    """Blocks of the kernels that update parameters between each pass and the next, int64 (passes,)."""
    kernels = work[work.name.matches(_LIST_KERNEL)]
    owner = kernels.launch.index_of_enclosing(marks)
    kernels, owner = kernels[owner >= 0], owner[owner >= 0]
    place = np.searchsorted(starts_ns, marks.start_ns[owner], side="right") - 1
    adam, sgd = (
        np.bincount(place[chosen & (place >= 0)], kernels.blocks[chosen & (place >= 0)], len(starts_ns))
        for chosen in (kernels.op.name.matches(_UPDATES), kernels.op.name.one_of(_SGD))
    )
    # Adam counts its steps with the op that is the update of SGD.
    return np.where(adam > 0, adam, sgd).astype(np.int64)


def _never_cleared(passes: Sequence[Pass]) -> list[Pass]:
    """All passes, if they are alike and each adds its last gradients to those of the step before."""
    # Gradients of the first step may be from before the recording.
    first, *later = passes
    expected = tuple(place >= first.updated for place in range(len(first.shapes)))
    alike = all((each.shapes, each.updated, each.added) == (first.shapes, first.updated, expected) for each in later)
    return [*passes] if later and alike and 0 < first.updated < len(first.shapes) else []


def _added_to(passes: Sequence[Pass], least: float) -> list[Pass]:
    """The later passes, if an optimizer steps between them and each adds the same last gradients to those before."""
    later = passes[1:]
    stepped = all(each.blocks for each in passes[:-1])
    if not stepped or len({each.added for each in later}) != 1 or not all(later[0].added[later[0].updated :]):
        return []
    return [*later] if 0 < later[0].updated <= (1 - least) * len(later[0].added) else []


def _are_written(calls: Calls, marks: Calls, leaves: Calls) -> bool:
    """Whether the program itself writes to tensors of such shapes, or to lists of shapes that were not recorded."""
    writes = calls[calls.is_top_op & calls.name.matches(_WRITES) & ~calls.inside(marks)]
    _, signatures = signatures_of(calls.events.trace, writes.rows)
    shapes = {shape for op in signatures_of(calls.events.trace, leaves.rows)[1] for shape in tensors(op)}
    if not shapes and len(writes) >= len(leaves):
        return True
    return any(("foreach" in op.name and not any(op.dims)) or shapes & set(tensors(op)) for op in signatures)


def _hits(calls: Calls, leaves: Calls, passes: Sequence[Pass], unused: Calls, *, anew: bool, known: bool) -> Hits:
    """What the engine does after the last gradient of a pass that is used."""
    nodes = calls[calls.name.matches(f"^{ENGINE}")].outermost()
    begins = leaves.start_ns[[each.leaves[each.updated - 1] for each in passes]]
    ends = leaves.start_ns[[each.leaves[-1] for each in passes]]
    place = np.searchsorted(begins, nodes.start_ns) - 1
    needless = nodes[(place >= 0) & (nodes.start_ns <= ends[place]) & np.isin(nodes.thread, leaves.thread)]
    spent, owner = needless.launched()
    return Hits(
        occurrences=needless,
        lost=LostTime.all_of(spent, owner),
        fix=Drop(needless.rows),
        message="{unused} of {gradients} gradients a step "
        + (
            "are cleared before any optimizer reads them"
            if anew
            else "belong to parameters that no optimizer updates and that nothing clears"
        )
        + ": computing them takes {gpu_a_step} on the GPU, in {nodes}",
        advice="detach() the inputs of another part's loss."
        if anew
        else "Call requires_grad_(False) on frozen parameters. If no trained layer comes before them, run their "
        "forward under torch.no_grad().",
        confidence=Confidence.HIGH if known and not anew else Confidence.MEDIUM,
        evidence={
            **gpu_time_evidence(spent),
            "unused": round(len(unused) / max(len(distinct(unused.step)), 1)),
            "gradients": round(len(leaves) / max(len(distinct(leaves.step)), 1)),
            "nodes": {name.removeprefix(ENGINE): ns for name, ns in needless[owner].name.sums(spent.dur_ns).items()},
            "gpu_ns": spent.total_ns,
        },
    )
