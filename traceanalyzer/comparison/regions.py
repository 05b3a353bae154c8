"""Where in the program work is launched: the innermost annotation, and the module where Python was recorded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.comparison.names import plain_name, region_name
from traceanalyzer.model.arrays import Rows, grouped, pick
from traceanalyzer.model.containment import nearest_marked, running_at
from traceanalyzer.model.trace import Trace, codes_at, ints, matching, texts_of
from traceanalyzer.timeline.nesting import Nesting

_STEP = "ProfilerStep#"
_MODULE = "nn.Module: "


def regions_of(trace: Trace, nesting: Nesting, rows: Rows) -> tuple[Rows, NDArray[np.object_]]:
    """(number of each row's region, the distinct regions), "" where there is none.

    Args:
        rows: of `trace.cpu`, int64; -1 for none.
    """
    marks = nesting.annotation & ~matching(trace.cpu, "name", lambda name: name.startswith(_STEP))
    annotation = codes_at(
        trace.cpu, "name", nearest_marked(nesting.parent, marks, pick(nesting.parent, rows))
    )
    modules, module = _modules(trace, nesting, rows)
    pair, first = grouped([annotation, module]) if len(rows) else (rows, rows)
    names = texts_of(trace.cpu, "name")
    told = [_told(names, int(annotation[at]), modules, int(module[at])) for at in first.tolist()]
    values = sorted(set(told))
    place = {value: at for at, value in enumerate(values)}
    number = np.array([place[value] for value in told], np.int64)
    return (number[pair] if len(rows) else rows), np.array(values or [""], object)


def _told(
    annotations: NDArray[np.object_],
    annotation: int,
    modules: NDArray[np.object_],
    module: int,
) -> str:
    """`train > nn.Module: Linear_3`."""
    parts = [region_name(str(annotations[annotation]))] if annotation >= 0 else []
    return " > ".join([*parts, plain_name(str(modules[module]))] if module >= 0 else parts)


def _modules(trace: Trace, nesting: Nesting, rows: Rows) -> tuple[NDArray[np.object_], Rows]:
    """(names, of each row the code of the innermost module that is open when it begins, -1 for none)."""
    none = np.full(len(rows), -1, np.int64)
    if not trace.meta.rows.get("python"):
        return np.empty(0, object), none
    python = trace.python
    found = np.flatnonzero(matching(python, "name", lambda name: name.startswith(_MODULE)))
    if len(found) == 0 or len(rows) == 0:
        return np.empty(0, object), none
    start = ints(python, "start_ns")[found]
    end = start + ints(python, "dur_ns")[found]
    tid = ints(python, "tid")[found]
    there = np.flatnonzero(rows >= 0)
    asked = nesting.start_ns[rows[there]], ints(trace.cpu, "tid")[rows[there]]
    inside = running_at(start, end, tid, *asked)
    module = none
    module[there] = codes_at(python, "name", pick(found, inside))
    return texts_of(python, "name"), module
