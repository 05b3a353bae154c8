"""Which repeats of a loop need the result of the repeat before, and which of their ops do not."""

from collections.abc import Iterable, Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, median
from traceanalyzer.tensors.flow import LAYERS, Flow
from traceanalyzer.tensors.ops.table import op_row

MIN_CHAIN = 2  # ops from one repeat to the next at least that make a loop a chain: a sum of all repeats has 1


def chain_length(flow: Flow, loops: Iterable[Rows]) -> int | None:
    """Ops of each repeat in the longest row of ops that need each other from repeat to repeat; None if unknown.

    It is 0 of repeats that do not need each other, and 1 of a sum of all; a layer counts as `MIN_CHAIN`. `loops` are,
    of each loop, the start of each repeat and the end of the last.
    """
    repeat, loop = _repeats(flow, loops)
    passed, length = _longest_rows(flow, repeat, _links(flow, repeat, loop))
    if not (loop >= 0).any():
        return None
    longest = np.zeros(passed.max() + 1, np.int64)
    np.maximum.at(longest, passed, length)
    return int(median(np.diff(longest))) if len(longest) > 1 else 0


def beside_chain(flow: Flow, loops: Iterable[Rows]) -> Mask:
    """Which ops of loops, as in `chain_length`, no later repeat needs but for a sum of all, bool (ops of the flow,).

    The last repeats of a loop say little: few repeats are left that could need them.
    """
    repeat, loop = _repeats(flow, loops)
    links = reversed(list(_links(flow, repeat, loop)))
    passed, length = _longest_rows(flow, repeat, ((reader, maker) for maker, reader in links))
    beside: Mask = (loop >= 0) & ((passed == 0) | (length < MIN_CHAIN * passed))
    return beside[flow.number]


def _longest_rows(flow: Flow, repeat: Rows, links: Iterable[tuple[int, int]]) -> tuple[Rows, Rows]:
    """(repeats that the row of linked ops to each op has passed, its length), of the row that has passed most."""
    weight = np.where(is_layer(flow), MIN_CHAIN, 1)
    passed, length = np.zeros(len(repeat), np.int64), weight.copy()
    for before, after in links:
        row = passed[before] + (repeat[before] != repeat[after]), length[before] + weight[after]
        passed[after], length[after] = max(row, (passed[after], length[after]))
    return passed, length


def is_layer(flow: Flow) -> Mask:
    """Which recorded ops are layers, bool (recorded,)."""
    layers = np.array([op_row(name).kind in LAYERS for name in flow.recorded.names], bool)
    return layers[flow.recorded.name]


def read_the_same(flow: Flow, ops: Rows, others: Rows) -> bool:
    """Whether each recorded op and its counterpart read a value in common that is not made in the step: weights."""
    step = np.full(len(flow.recorded) + 1, -1)
    step[flow.number] = flow.ops.step
    for one, other in zip(ops.tolist(), others.tolist(), strict=True):
        maker = flow.values.producer[np.intersect1d(flow.values.read_by(one), flow.values.read_by(other))]
        if not ((maker < 0) | (step[maker] != step[one])).any():
            return False
    return True


def _repeats(flow: Flow, loops: Iterable[Rows]) -> tuple[Rows, Rows]:
    """The repeat and the loop of each recorded op, int64 (recorded,), -1 of others."""
    repeat, loop = np.full((2, len(flow.recorded)), -1)
    for number, edges in enumerate(loops):
        place = np.searchsorted(edges, flow.ops.start_ns, side="right") - 1
        inside = (place >= 0) & (place < len(edges) - 1)
        repeat[flow.number[inside]], loop[flow.number[inside]] = place[inside], number
    return repeat, loop


def _links(flow: Flow, repeat: Rows, loop: Rows) -> Iterator[tuple[int, int]]:
    """(op, op of the same or a later repeat of its loop that reads its result), in order of the later ops."""
    values, parts = flow.values, dict[tuple[int, int], list[list[int]]]()
    maker = values.producer[values.read]
    linked = (maker >= 0) & (loop[maker] >= 0) & (loop[maker] == loop[values.reads])
    in_place = np.diff(values.written_from)[maker] > 0
    storage = values.storage[values.read]
    # An op in place links the readers of the part that it reads itself: others write other rows.
    for row in np.flatnonzero(np.isin(values.reads, maker[linked & in_place])).tolist():
        key = int(values.reads[row]), int(storage[row])
        parts.setdefault(key, []).append(values.part[row].tolist())
    for row in np.flatnonzero(linked & in_place).tolist():
        written = parts.get((int(maker[row]), int(storage[row])), ())
        linked[row] = values.part[row].tolist() in written
    return zip(maker[linked].tolist(), values.reads[linked].tolist(), strict=True)
