"""Backward through parameters that no optimizer updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import Mask
from traceanalyzer.replay.edits import Drop, DropWork, Edit
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, LostTime, Unavailable, Work, limit, rule
from traceanalyzer.rule.evidence import shapes_in_words, told
from traceanalyzer.rules.kernels.unused_gradient import unused_parameters as parameters
from traceanalyzer.rules.kernels.unused_gradient.beyond_trained import beyond_trained
from traceanalyzer.rules.kernels.unused_gradient.discarded import discarded
from traceanalyzer.rules.kernels.unused_gradient.never_cleared import made_for, never_cleared
from traceanalyzer.timeline.names import OPTIMIZER_MARK

_LEAF = r"^torch::autograd::AccumulateGrad$"

_UNRECORDED = "the shapes that the optimizer works on are not recorded"
_UNUSED = "belong to parameters that no optimizer updates"
_KEPT = f"{_UNUSED} and that nothing clears"
_ALONE = f"{_UNUSED}, and backward goes on for them alone"
_CLEARED = "are cleared before any optimizer reads them"
_ADDED = "are added to the gradients of the step before, because no optimizer's zero_grad() clears them"


@dataclass(frozen=True, slots=True)
class Limits:
    min_unused_share: float = limit(
        0.75,
        "for the first case: reported only if at least this share of the gradients is unused, because a "
        "frozen backbone has most of the parameters; a few gradients that no optimizer reads may have "
        "another use",
    )
    min_steps: int = limit(
        2,
        "reported only if there are at least this many steps; with one step, an optimizer may still wait "
        "for more gradients",
    )


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.02, limits=Limits)
def unused_gradient(calls: Calls, work: Work, limits: Limits) -> Iterator[Hits]:
    """Backward computes gradients that no optimizer uses.

    What it looks for: parameters that get a gradient in every step, though no optimizer uses this
    gradient. There are four cases:
    - most gradients are unused, as with a backbone that is not trained and not frozen;
    - a few parameters before the frozen layers, such as a position embedding, still require gradients, which
      no optimizer uses. The backward pass runs through all frozen layers only to reach them;
    - the program never clears unused gradients, and each step adds to them. An example is a perceptual loss,
      if its network is not frozen;
    - a backward pass also computes gradients of another network, and the program discards them. An example is
      an actor's loss, which computes gradients of the critics.

    The cost is the part of the backward pass that is needed only for unused gradients.
    Why it costs: the backward pass of a layer takes twice the time of its forward pass. The layer's
    activations stay in memory until its backward pass has run.
    Bad: AdamW(head.parameters()) on a backbone that requires gradients; a discriminator's loss on images that
    are not detached from their generator; an actor's loss through critics that require gradients. Good:
    backbone.requires_grad_(False); discriminator(images.detach()); critics that are frozen while the actor's
    loss is computed.
    How sure: confidence is high if the gradients are never cleared, else medium.
    When it is wrong: an optimizer works on flattened or sharded copies of the parameters.
    Source: "Locally disabling gradient computation" in PyTorch's notes on autograd; measured on an H200.
    """
    leaves = calls[calls.is_op & calls.name.matches(_LEAF)]
    marks = calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)]
    if len(leaves) == 0 or len(marks) == 0:
        return
    if len(work.of_kind("communication")):
        raise Unavailable("other ranks take part: an optimizer may hold shards of the parameters")
    if (leaves.text("input_dims").code < 0).any():
        raise Unavailable(_UNRECORDED)
    added = np.isin(leaves.rows, calls[calls.is_op & calls.name.one_of("aten::add_")].parent.distinct().rows)
    pass_of = parameters.passes_of(calls, marks, leaves)
    gone = discarded(calls, work, leaves, marks, added, pass_of, limits.min_steps)
    if len(np.unique(leaves.step[gone])) >= limits.min_steps:
        yield _made(calls, work, leaves, gone, marks, _CLEARED)
        return
    recorded, used = parameters.updates_are_recorded(calls, work, marks), np.zeros(len(leaves), bool)
    if recorded:
        # told by shapes: unused gradients shaped as those of trained layers are not found
        used = parameters.used_by_optimizers(calls, leaves, marks)
        if _steady(leaves, used, marks, limits):
            yield _hits(calls, leaves, used, marks, _KEPT if added[~used].all() else _UNUSED)
            return
    beyond = beyond_trained(calls, work, leaves, marks, added, pass_of, used, limits.min_steps)
    if beyond.any():
        yield _hits(calls, leaves, ~beyond, marks, _ALONE)
        return
    kept = never_cleared(calls, leaves, marks, added, pass_of, limits.min_steps)
    if kept.any() and not (recorded and used[kept].all()):
        yield _made(calls, work, leaves, kept, marks, _ADDED)
    elif not recorded:
        raise Unavailable(_UNRECORDED)


def _hits(calls: Calls, leaves: Calls, used: Mask, marks: Calls, why: str) -> Hits:
    needless = parameters.for_unused_alone(calls, leaves, used, marks)
    return _told(leaves, used, needless, needless.launched()[0], (Drop(needless.rows),), why)


def _made(calls: Calls, work: Work, leaves: Calls, unused: Mask, marks: Calls, why: str) -> Hits:
    alone = parameters.for_unused_alone(calls, leaves, ~unused, marks)
    spent, dropped, needless = made_for(calls, work, leaves, unused, alone)
    beside = spent[~spent.launch.inside(dropped)]
    fix: tuple[Edit, ...] = (Drop(dropped.rows),)
    if len(beside):
        fix = (*fix, DropWork(beside.entries))
    return _told(leaves, ~unused, needless, spent, fix, why)


def _told(leaves: Calls, used: Mask, needless: Calls, spent: Work, fix: tuple[Edit, ...], why: str) -> Hits:
    steps = len(np.unique(leaves.step))
    owner = spent.launch.index_of_enclosing(needless)
    named = {"of_shapes": _of_shapes(leaves[~used])} if why == _ALONE else {}
    return Hits(
        occurrences=needless,
        lost=LostTime.all_of(spent, owner),
        fix=fix,
        message=f"{{unused}} of {{gradients}} gradients a step{'{of_shapes}' * len(named)} {why}"
        ": computing them takes {gpu_a_step} on the GPU, in {nodes}",
        advice="Call requires_grad_(False) on frozen parameters. If no trained layer comes before them, run their "
        "forward under torch.no_grad()"
        + (", or detach() the inputs of another part's loss." if why == _CLEARED else "."),
        confidence=Confidence.HIGH if why in (_KEPT, _ADDED) else Confidence.MEDIUM,
        evidence={
            **told(spent),
            **named,
            "unused": round((~used).sum() / steps),
            "gradients": round(len(leaves) / steps),
            "nodes": {
                name.removeprefix(f"{parameters.NODE}: "): ns
                for name, ns in needless[owner].name.sums(spent.dur_ns).items()
            },
            "gpu_ns": spent.total_ns,
        },
    )


def _of_shapes(leaves: Calls) -> str:
    """Part of a sentence that names their shapes; empty where there are many."""
    shapes = [shapes_in_words(dims) for dims in leaves.text("input_dims").sums(leaves.dur_ns)]
    return f" (of shapes {', '.join(shapes)})" if len(shapes) < 4 else ""


def _steady(leaves: Calls, used: Mask, marks: Calls, limits: Limits) -> bool:
    """Whether every step with gradients has an optimizer's step, some gradients for it and many more for none."""
    steps, of = np.unique(leaves.step, return_inverse=True)
    share = np.bincount(of, ~used) / np.bincount(of)
    stepped = np.isin(steps, marks.step).all() and (steps >= 0).all()
    enough = ((share >= limits.min_unused_share) & (share < 1)).all()
    return bool(stepped and enough and len(steps) >= limits.min_steps)
