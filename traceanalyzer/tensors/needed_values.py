"""Which ops and results of an execution trace are needed: by other ops, by backward, or beyond the trace."""

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.model.arrays import Mask, Rows, Value, distinct, grouped, no_rows
from traceanalyzer.model.execution_trace import Access, ExecutionTrace, Layout
from traceanalyzer.model.text_queries import regex
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.values import Values

_MOST_RESULTS = 32  # results of an op that are told apart
_NODE = regex(r"Backward\d*$")
_CHOLESKY = frozenset({"aten::linalg_cholesky", "aten::linalg_cholesky_ex", "aten::cholesky"})
_PRODUCTS = frozenset({"aten::matmul", "aten::bmm", "aten::mm"})
_TRIANGULAR = _CHOLESKY | {"aten::tril", "aten::triu", "aten::diag_embed"}
# Of triangular matrices these make a triangular one. One triangular factor is enough for a product of elements.
_SUMS = frozenset({"aten::add", "aten::sub", "aten::neg", "aten::clone", "aten::to", "aten::contiguous"})
_SCALED = frozenset({"aten::mul", "aten::div"})
_MOST_OPS = 8  # ops from a triangular matrix to the factor; a head has a few; chosen


def unread_ops(recorded: ExecutionTrace, values: Values, view: Mask) -> tuple[Mask, Rows]:
    """(which ops make what no needed op reads, bool; bit i for unread result i of the others, int64), (recorded,) both.

    Results are in storages that were freed, or gradients that nobody takes. What lasts beyond the trace, what leaves
    the device, what backward has saved, and what an op of a library does is needed.
    """
    outer, lasting = recorded.outer & ~view, values.on_cpu | (values.replaced == len(recorded))
    known = np.array([name.startswith("aten::") for name in recorded.names], bool)[recorded.name]
    gradient = np.append(recorded.backward, False)[values.producer]
    taken = np.zeros(len(gradient), bool)
    taken[values.read[~recorded.backward[values.reads] & recorded.outer[values.reads]]] = True
    # Without an optimizer, somebody else reads the gradients.
    needed_value = lasting & ~gradient if (taken & gradient).any() else lasting | gradient
    needed = ~known | _saved_for_backward(recorded)
    needed[_last_without_backward(recorded, values)] = True
    for op in np.flatnonzero(outer)[::-1].tolist():
        made = values.made_by(op)
        needed[op] |= not len(made) or bool(needed_value[made].any())
        if needed[op]:
            needed_value[values.read_by(op)] = True
            # Writing to a part leaves the others.
            needed_value[values.overwritten_by(op)] = True
    parts = _unread_results(recorded, values, outer & needed, needed_value)
    return as_step_before(recorded, outer & ~needed), as_step_before(recorded, parts)


def _unread_results(recorded: ExecutionTrace, values: Values, chosen: Mask, needed_value: Mask) -> Rows:
    """For each chosen op, bit i is set if its result i is not needed; int64 (recorded,)."""
    storages: dict[tuple[int, int], int] = {}
    is_result = (recorded.access == Access.RESULT) & chosen[recorded.op] & (recorded.position < _MOST_RESULTS)
    columns = (recorded.op, recorded.storage, recorded.position)
    for op, storage, position in zip(*(column[is_result].tolist() for column in columns), strict=True):
        storages[op, storage] = 1 << position
    parts = np.zeros(len(recorded), np.int64)
    for place in np.flatnonzero(chosen[values.results] & ~needed_value[values.made]).tolist():
        op, value = int(values.results[place]), int(values.made[place])
        parts[op] |= storages.get((op, int(values.storage[value])), 0)
    return parts


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
    return as_step_before(recorded, result)


def _saved_for_backward(recorded: ExecutionTrace) -> Mask:
    """Outermost ops that add a node of backward which runs: of those with its number, the last one of a step."""
    node = np.array([bool(_NODE.search(name)) for name in recorded.names])[recorded.name]
    forward = np.flatnonzero(~recorded.backward & ~node & (recorded.sequence >= 0))
    forward = forward[np.isin(recorded.sequence[forward], recorded.sequence[node])]
    number, first = grouped([column[forward] for column in (recorded.sequence, recorded.step, recorded.thread)])
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, number, forward)
    # Functions in Python save what they like.
    result = (recorded.function >= 0) & np.isin(recorded.function, recorded.sequence[node])
    result[recorded.outermost()[last]] = True
    return result


def _last_without_backward(recorded: ExecutionTrace, values: Values) -> list[int]:
    """The op with the last result of each step that has no backward pass: the caller may have dropped it."""
    trained = distinct(recorded.step[recorded.backward])
    steps = recorded.step[values.results]
    last = np.append(np.flatnonzero(np.diff(steps)), len(steps) - 1) if len(steps) else no_rows()
    ops: list[int] = values.results[last[~np.isin(steps[last], trained)]].tolist()
    return ops


# What is needed of a value, other than the diagonal of its matrices of n x n elements, which is n.
_NOTHING, _ALL = 0, -1
_TAKE_DIAGONAL = frozenset({"aten::diag", "aten::diagonal_copy", "aten::trace"})
_BY_ELEMENT = frozenset({Kind.POINTWISE, Kind.COPY, Kind.CREATION})


def diagonal_sizes(recorded: ExecutionTrace, values: Values, view: Mask, unread: Mask) -> Rows:
    """n of each op that makes a matrix of n x n elements, or a batch, whose diagonal alone is needed; 0 of others.

    Ops element by element need the diagonals of their inputs. Products need all of their inputs.
    """
    sizes = np.zeros(len(recorded), np.int64)
    needs = np.where(values.on_cpu | (values.replaced == len(recorded)), _ALL, _NOTHING)
    kinds = [op_row(name).kind for name in recorded.names]
    for op in np.flatnonzero(recorded.outer & ~view & ~unread)[::-1].tolist():
        name, kind, made = recorded.names[recorded.name[op]], kinds[recorded.name[op]], values.made_by(op)
        needed = _joint(needs[made].tolist()) or _ALL
        by_element = needed > 0 and kind in _BY_ELEMENT
        if (by_element and not values.elements[made[0]] % needed**2) or (needed > 0 and kind is Kind.GEMM):
            sizes[op] = needed
        begin, end = values.reads_from[op : op + 2]
        for value, (_, elements, layout) in zip(
            values.read[begin:end].tolist(), values.part[begin:end].tolist(), strict=True
        ):
            size = _diagonal_read(elements, recorded.layouts[layout])
            if name in _TAKE_DIAGONAL and elements == math.isqrt(elements) ** 2:
                size = math.isqrt(elements)
            elif size > 0 and values.elements[value] % size**2:
                size = _ALL
            elif by_element and elements % needed**2 == 0 and len(recorded.layouts[layout]) == 1:
                size = needed
            needs[value] = _joint([int(needs[value]), size])
        over = values.overwritten_by(op)
        needs[over] = [_joint([each, needed]) for each in needs[over].tolist()]
    return as_step_before(recorded, sizes)


def _joint(needs: list[int]) -> int:
    """What several readers need of a value."""
    some = {need for need in needs if need != _NOTHING}
    return some.pop() if len(some) == 1 else _ALL if some else _NOTHING


def _diagonal_read(elements: int, layout: Layout) -> int:
    """n of the n x n matrices of which a tensor is the diagonal; `_ALL` if it is none."""
    length, step = layout[-1] if layout else (0, 0)
    batches = all(stride % length**2 == 0 for _, stride in layout[:-1])
    return length if 1 < length == step - 1 and batches else _ALL


def as_step_before(recorded: ExecutionTrace, of_ops: NDArray[Value]) -> NDArray[Value]:
    """The same, with the last step as the one before it, where both run the same ops: nothing shows what it frees."""
    steps = steps_of_threads(recorded.step, recorded.thread)
    parts = {(int(recorded.thread[rows[0]]), step): rows for step, rows in steps}
    last = int(recorded.step.max(initial=-1))
    for (thread, step), rows in parts.items():
        before = parts.get((thread, step - 1))
        if step == last and before is not None and np.array_equal(recorded.name[rows], recorded.name[before]):
            of_ops[rows] = of_ops[before]
    return of_ops


def steps_of_threads(step: Rows, thread: Rows) -> Iterator[tuple[int, Rows]]:
    """(step, positions of its ops in order) of each thread."""
    order = np.lexsort((step, thread))
    edges = np.flatnonzero(np.diff(step[order]) | np.diff(thread[order])) + 1
    for places in np.split(order, edges) if len(order) else ():
        yield int(step[places[0]]), places


def known_factors(recorded: ExecutionTrace, values: Values) -> Mask:
    """Which ops factorise L @ L.T, of which the program has the factor, or a diagonal matrix; bool (recorded,)."""
    known = np.zeros(len(recorded), bool)
    factorises = np.array([name in _CHOLESKY for name in recorded.names], bool)[recorded.name]
    for op in np.flatnonzero(factorises & recorded.outer & ~recorded.backward).tolist():
        read = values.read_by(op)
        known[op] = len(read) > 0 and _has_factor(int(read[0]), recorded, values)
    return known


def _has_factor(value: int, recorded: ExecutionTrace, values: Values) -> bool:
    """Whether a value is a diagonal matrix, or the product of a triangular one with itself."""
    maker = int(values.producer[value])
    name = recorded.names[recorded.name[maker]] if maker >= 0 else ""
    read = values.read_by(maker)
    if name in _PRODUCTS and len(read) == 2 and read[0] == read[1]:
        return _is_triangular(int(read[0]), recorded, values, _MOST_OPS)
    return name == "aten::diag_embed"


def _is_triangular(value: int, recorded: ExecutionTrace, values: Values, most_ops: int) -> bool:
    maker = int(values.producer[value])
    if maker < 0 or not most_ops:
        return False
    name = recorded.names[recorded.name[maker]]
    tensors = [each for each in values.read_by(maker).tolist() if values.elements[each] != 1]
    inputs = (_is_triangular(each, recorded, values, most_ops - 1) for each in tensors)
    scaled = name in _SCALED and any(inputs)
    return scaled or name in _TRIANGULAR or (name in _SUMS and all(inputs))
