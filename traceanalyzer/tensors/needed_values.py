"""Which ops and results of an execution trace are needed: by other ops, by backward, or beyond the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Floats, Mask, Rows, Value, distinct, no_rows
from traceanalyzer.model.execution_trace import ExecutionTrace
from traceanalyzer.model.text_queries import regex
from traceanalyzer.tensors.ops.table import op_row
from traceanalyzer.tensors.values import Values

_NODE = regex(r"Backward\d*$")


def unread_ops(recorded: ExecutionTrace, values: Values, view: Mask) -> Mask:
    """Which ops make what no op reads that is needed, in storages that were freed, or in gradients nobody takes.

    What lasts beyond the trace, what leaves the device, what backward has saved, and what an op of a library does is
    needed.
    """
    ops = len(recorded)
    known = np.array([name.startswith("aten::") for name in recorded.names], bool)[recorded.name]
    needed_value = values.on_cpu | (values.replaced == ops)
    gradient = np.append(recorded.backward, False)[values.producer]
    taken = np.zeros(len(gradient), bool)
    taken[values.read[~recorded.backward[values.reads] & recorded.outer[values.reads]]] = True
    # Without an optimizer, somebody else reads the gradients.
    needed_value = needed_value & ~gradient if (taken & gradient).any() else needed_value | gradient
    needed = ~known | _saved_for_backward(recorded)
    needed[_last_without_backward(recorded, values)] = True
    for op in np.flatnonzero(recorded.outer & ~view)[::-1].tolist():
        made = values.made_by(op)
        needed[op] |= not len(made) or bool(needed_value[made].any())
        if needed[op]:
            needed_value[values.read_by(op)] = True
            # Writing to a part leaves the others.
            needed_value[values.overwritten_by(op)] = True
    return _as_step_before(recorded, recorded.outer & ~view & ~needed)


def abandoned_ops(recorded: ExecutionTrace, values: Values, unread: Mask) -> Mask:
    """Which unread ops lead only to results that the caller of the step does not get.

    These are freed and used anew within the step, or at least half of what makes them repeats ops whose results are
    read, as more of the same layers do. Several results of one form may be a list that the step returns.
    """
    if recorded.backward.any():
        return np.zeros(len(recorded), bool)
    ops, needed = np.flatnonzero(unread), recorded.outer & ~unread & ~recorded.backward
    forms = recorded.name * (recorded.inputs.max(initial=0) + 1) + recorded.inputs
    repeats = np.isin(forms, forms[needed])
    makers = values.producer[values.read]
    consumers: dict[int, list[int]] = {}
    for which in np.flatnonzero(unread[values.reads] & (makers >= 0)).tolist():
        consumers.setdefault(int(makers[which]), []).append(int(values.reads[which]))
    leads_to: dict[int, frozenset[int]] = {}
    for op in ops[::-1].tolist():
        reached = frozenset[int]().union(*(leads_to[reader] for reader in consumers.get(op, ())))
        leads_to[op] = reached or frozenset([op])
    ends = sorted(frozenset[int]().union(*leads_to.values()))
    last = np.array([*ends, *_last_without_backward(recorded, values)], np.int64)
    times = Counter(zip(recorded.step[last].tolist(), forms[last].tolist(), strict=True))
    size = Counter(end for reached in leads_to.values() for end in reached)
    repeated = Counter(end for op, reached in leads_to.items() if repeats[op] for end in reached)
    step, lost = np.append(recorded.step, -1), set[int]()
    for end in ends:
        made = values.made_by(end)
        freed = values.freed[made] & (step[values.replaced[made]] == step[end])
        if times[int(step[end]), int(forms[end])] == 1 and (freed.all() or 2 * repeated[end] >= size[end]):
            lost.add(end)
    result = np.zeros(len(recorded), bool)
    result[[op for op, reached in leads_to.items() if reached <= lost]] = True
    return _as_step_before(recorded, result)


def _saved_for_backward(recorded: ExecutionTrace) -> Mask:
    """Outermost ops that add a node of backward which runs: of the ops with its number, the last one of a step.

    An op has the number of the next node, whether or not it adds one.
    """
    node = np.array([bool(_NODE.search(name)) for name in recorded.names])[recorded.name]
    forward = np.flatnonzero(~recorded.backward & ~node & (recorded.sequence >= 0))
    forward = forward[np.isin(recorded.sequence[forward], recorded.sequence[node])]
    order = np.lexsort(
        (forward, recorded.sequence[forward], recorded.step[forward], recorded.thread[forward])
    )
    ordered = forward[order]
    keys = (recorded.thread[ordered], recorded.step[ordered], recorded.sequence[ordered])
    last = np.append(np.any([np.diff(key) != 0 for key in keys], axis=0), True)[: len(ordered)]
    result = np.zeros(len(recorded), bool)
    result[recorded.outermost()[ordered[last]]] = True
    return result


def _last_without_backward(recorded: ExecutionTrace, values: Values) -> list[int]:
    """The op with the last result of each step that has no backward pass: the caller may have dropped it."""
    trained = distinct(recorded.step[recorded.backward])
    steps = recorded.step[values.results]
    last = np.append(np.flatnonzero(np.diff(steps)), len(steps) - 1) if len(steps) else no_rows()
    ops: list[int] = values.results[last[~np.isin(steps[last], trained)]].tolist()
    return ops


def read_shares(recorded: ExecutionTrace, values: Values, view: Mask) -> Floats:
    """Share of the result of each op on rows that later ops need; 1 of other ops, and of what may last.

    An op on rows needs as much of its inputs as others need of its result.
    """
    ops = len(recorded)
    on_rows = np.array([op_row(name).row_wise for name in recorded.names], bool)[recorded.name]
    lasts = (values.replaced == ops) | ~values.freed | values.on_cpu | (values.elements == 0)
    share, needed = np.ones(ops), dict[int, dict[tuple[int, int], float]]()
    for op in np.flatnonzero(recorded.outer & ~view)[::-1].tolist():
        made = values.made_by(op)
        if on_rows[op] and len(made) == 1 and not lasts[made[0]] and not len(values.overwritten_by(op)):
            share[op] = min(sum(needed.get(int(made[0]), {(0, 0): 1.0}).values()), 1.0)
        begin, end = values.reads_from[op : op + 2]
        for value, (offset, elements) in zip(
            values.read[begin:end].tolist(), values.part[begin:end].tolist(), strict=True
        ):
            part = min(elements / max(int(values.elements[value]), 1), 1.0) * share[op]
            parts = needed.setdefault(value, {})
            parts[offset, elements] = max(part, parts.get((offset, elements), 0.0))
    return _as_step_before(recorded, share)


def _as_step_before(recorded: ExecutionTrace, of_ops: NDArray[Value]) -> NDArray[Value]:
    """The same, with the last step as the one before it, where both run the same ops: nothing shows what it frees."""
    parts = {
        (int(recorded.thread[rows[0]]), step): rows
        for step, rows in steps_of_threads(recorded.step, recorded.thread)
    }
    last = int(recorded.step.max(initial=-1))
    for (thread, step), rows in parts.items():
        before = parts.get((thread, step - 1))
        if step == last and before is not None and np.array_equal(recorded.name[rows], recorded.name[before]):
            of_ops[rows] = of_ops[before]
    return of_ops


def steps_of_threads(step: Rows, thread: Rows) -> Iterator[tuple[int, Rows]]:
    """(step, positions of its ops in order) of each thread."""
    order = np.lexsort((np.arange(len(step)), step, thread))
    edges = np.flatnonzero(np.diff(step[order]) | np.diff(thread[order])) + 1
    for places in np.split(order, edges) if len(order) else ():
        yield int(step[places[0]]), places
