"""Which part of a step launches: a loop of ops, a line of the user's, an annotation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.arrays import grouped
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.names import OPTIMIZER_MARK
from traceanalyzer.timeline.rough_loops import RoughLoops

_SHOWN = 3  # ops of a repeat that are named
_LEAST = 8  # repeats: fewer are as likely blocks of a model
_MOST_NAMED = 0.3  # of the launches that a part must have to be named
_LAYERS = r"Backward|attention|softmax|norm|rsqrt|conv"  # ops of blocks of a model, each of which needs the one before
_IN_EACH = 0.5  # of the repeats that an op must be in, and of the launches that a line must have; chosen


@dataclass(frozen=True, slots=True)
class Part:
    """What launches most of a step.

    Attributes:
        words: a noun phrase, `48 repetitions of one sequence of ops (a loop or layers; 31 ops each: aten::mul, ..)`.
        repeats: of a loop, else 0.
        launches: of a step.
        share: of all launches of the steps.
        layers: whether the repeats look like layers of a model.
        placed: whether the words say where: a line or an annotation.
    """

    words: str
    repeats: int
    launches: int
    share: float
    layers: bool
    placed: bool

    @property
    def evidence(self) -> dict[str, str | int | float]:
        """What a finding says of it."""
        return {"loop": self.words, "loop_launches": self.launches, "loop_part": self.share}


def launching_part(calls: Calls, eager: Work, min_share: float) -> Part | None:
    """The part that launches most, None where nothing stands out.

    Args:
        calls: all of them.
        eager: the kernels of the steps that no graph launched.
        min_share: of a thread's ops that a loop covers at least.
    """
    outer = calls[calls.is_top_op & (calls.step >= 0)]
    outer = outer[~outer.inside(calls[calls.is_annotation & calls.name.matches(OPTIMIZER_MARK)])]
    loop = _loop(outer, eager, min_share) if len(outer) else None
    return loop if loop is not None and loop.share >= _MOST_NAMED else None


def _loop(outer: Calls, eager: Work, min_share: float) -> Part | None:
    outer = outer[np.argsort(outer.start_ns, kind="stable")]
    group, _ = grouped([outer.step, outer.thread])
    order = np.argsort(group, kind="stable")
    outer, group = outer[order], group[order]
    loops = RoughLoops.of(outer.name.code, group, _LEAST, min_share)
    if len(loops) == 0:
        return None
    owner = eager.outer_op.index_of_enclosing(outer)
    launched = np.bincount(owner[owner >= 0], minlength=len(outer))
    sums = np.append(0, np.cumsum(launched))
    each = sums[loops.last + 1] - sums[loops.first]
    steps = max(len(np.unique(eager.step)), 1)
    best = int(np.argmax(each))
    alike = np.abs(loops.repeats - loops.repeats[best]) <= 1  # the same in other steps, and in backward
    total = int(each[alike].sum())
    members = np.arange(int(loops.first[best]), int(loops.last[best]) + 1)
    names = outer.name[members].sums(launched[members])
    repeats, ops = int(loops.repeats[best]), round(len(members) / int(loops.repeats[best]))
    often = outer.name[members].sums(np.ones(len(members), np.int64))
    shown = [name for name in names if names[name] and often[name] >= _IN_EACH * repeats]
    if not shown:  # what comes once a repeat launches nothing: it is no loop of what does
        return None
    shown = shown[: min(_SHOWN, max(ops, 1))]
    own = outer[members]
    lines = own.line.or_else(own.annotation).sums(launched[members])
    line = next(
        (name for name, count in lines.items() if count > _IN_EACH * int(launched[members].sum())), None
    )
    where = f" at {line}" if line else ""
    several = int(alike.sum()) > len(np.unique(group[loops.first[alike]]))
    whole = round(total / steps) % repeats == 0
    whose = (
        f"several sequences of ops, each repeated about {repeats:,} times (loops or layers; in the largest "
        if several
        else f"{'about ' * (not whole)}{repeats:,} repetitions of one sequence of ops (a loop or layers; "
    )
    return Part(
        f"{whose}about {ops:,} op{'s' * (ops != 1)} each: {', '.join(shown)}){where}",
        repeats,
        round(total / steps),
        min(total / max(len(eager), 1), 1.0),
        bool(own.name.matches(_LAYERS).any()),
        line is not None,
    )
