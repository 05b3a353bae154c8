"""What communication does, as people call it."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.collectives import collective_of


def collectives_of(work: Work) -> Work:
    """The pieces of work that communicate: those of the marked steps, where steps are marked.

    A device that is behind runs the warm-up's last step within the recording: without its ops, so
    that neither the size of its collectives is known nor how often a step has them.

    Raises:
        Unavailable: there are none.
    """
    every = work.of_kind("communication")
    if len(every) == 0:
        raise Unavailable("no collectives in the trace")
    within = every.step >= 0
    return every[within] if within.any() else every


def collective_names(every: Work) -> Texts:
    """The collective of each, and its process group where it has a name of its own."""
    ops = _known(every)
    groups = every.op.text("group_desc").values()
    kernels = every.name.values()
    names = [
        collective_of(kernel, op) + (f" of {group}" if group and "default" not in group else "")
        for kernel, op, group in zip(kernels, ops, groups, strict=True)
    ]
    distinct, code = np.unique(np.array(names, object), return_inverse=True)
    return Texts(code.astype(np.int64), distinct)


def _known(every: Work) -> list[str | None]:
    """What the op of each is called; where the op is not in the trace, what that of the same kernel is called."""
    ops = every.op.text("collective").or_else(every.op.name).values()
    kernels = every.name.code.tolist()
    same = {kernel: op for kernel, op in zip(kernels, ops, strict=True) if op is not None}
    return [same.get(kernel) if op is None else op for kernel, op in zip(kernels, ops, strict=True)]
