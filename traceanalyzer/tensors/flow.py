"""Which ops make the values that ops read: the outermost ops of recorded steps, by the ids of their tensors.

`values.py` says what a value is, and which have equal content.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import orjson

from traceanalyzer.model.arrays import Floats, Mask, Rows, distinct, no_rows, places_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.execution_trace import ExecutionTrace
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.trace import Trace
from traceanalyzer.tensors.needed_values import abandoned_ops, diagonal_sizes, steps_of_threads, unread_ops
from traceanalyzer.tensors.ops.table import Kind, op_row
from traceanalyzer.tensors.read_shares import DATA, read_shares
from traceanalyzer.tensors.signatures import signatures_of
from traceanalyzer.tensors.values import LEAF, UNKNOWN_ARGUMENT, Keys, Values, values_of
from traceanalyzer.timeline.backward_nodes import backward_nodes_of, in_hooks
from traceanalyzer.timeline.calls_and_work import Calls
from traceanalyzer.timeline.names import STEP_MARK

_MISSING = "no execution trace (NAME.et.json.gz beside the trace, or --tensors) shows which tensors ops read"
_LONG_CHAIN = 12  # pointwise ops in a row; noise schedules and line searches have fewer; chosen
# Share of the ops with equal shapes, or sizes that changed alike, in two steps that run the same ops. Chosen.
_LEAST_ALIKE = 0.9
_SIZE = regex(r"\d+")
_MOST_NUMBERS = 256  # elements of numbers that the host lists in each step; batches have more; chosen
LAYERS = frozenset({Kind.GEMM, Kind.CONVOLUTION, Kind.NORM, Kind.RECURRENT})
_ANY_STRIDES = frozenset({Kind.GEMM, Kind.ATTENTION, Kind.POINTWISE, Kind.REDUCTION})
_EMBEDDING = "aten::embedding"
_MATRIX_PRODUCTS = frozenset({"aten::mm", "aten::matmul", "aten::bmm", "aten::addmm", "aten::baddbmm"})


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """Ops of the recorded steps, each with the values that it reads and makes.

    Attributes:
        ops: of the trace, in order of thread and start, of steps that the execution trace tells about.
        number: int64 (ops,), the op of `recorded` that each is.
        leaves, leaf_number: the same of the nodes that hand a gradient to its parameter.
        recorded: the execution trace.
        values: of `recorded`.
        view: bool (recorded,), whether an op only looks at its input in another way.
        again: int64 (recorded,), an op of the same step that makes the same and is kept: the first one, or a later one
            if only that has a backward pass; -1 for none.
        guessed: bool (recorded,), whether that holds only if numbers that Python passes are equal, too.
        matrix_again: int64 (recorded,), an earlier op that solved for the same matrix; -1 for none.
        user: int64 (recorded,), the next op, but views, that reads or writes the storage of a view or of a new tensor;
            -1 of none, and of ops that compute.
        constant: bool (recorded,), whether an op computes the same of weights alone in every step.
        stored: bool (recorded,), whether an op of training steps computes the same of the same tensors in every step,
            before the first layer, while other data change, or of a graph.
        unread: bool (recorded,), whether no op reads what it makes, directly or by way of others.
        unread_results: int64 (recorded,), bit i is set if no needed op reads result i of a needed op.
        abandoned: bool (recorded,), which of the unread ones the caller of the step does not read, without backward.
        diagonal: int64 (recorded,), n if an op makes n x n matrices whose diagonals alone are needed; 0 of others.
        read_share: float64 (recorded,), share of its result that later ops need at most, of ops on rows; 1 of others.
        alternative: bool (recorded,), whether each row of later ops needs one of several such results.
    """

    ops: Calls
    number: Rows
    leaves: Calls
    leaf_number: Rows
    recorded: ExecutionTrace
    values: Values
    view: Mask
    again: Rows
    guessed: Mask
    matrix_again: Rows
    user: Rows
    constant: Mask
    stored: Mask
    unread: Mask
    unread_results: Rows
    abandoned: Mask
    diagonal: Rows
    read_share: Floats
    alternative: Mask

    @classmethod
    def build(cls, trace: Trace, calls: Calls) -> Self:
        """Raises Unavailable: there is no execution trace, or its ops are not those of the trace."""
        if (recorded := trace.tensors) is None:
            raise Unavailable(_MISSING)
        rows, number = joined(recorded, calls)
        if not len(rows):
            raise Unavailable("the execution trace is of other steps: no step of the trace runs the same ops")
        values, view, keys = values_of(recorded)
        outer = recorded.outer[number]
        ops = Calls(calls.events, rows[outer])
        leaf = np.array([name == LEAF for name in recorded.names], bool)[recorded.name][number]
        unread, unread_results = unread_ops(recorded, values, view)
        diagonal = diagonal_sizes(recorded, values, view, unread)
        trained = np.zeros(len(recorded), bool)
        trained[number[outer][_trained_ops(calls, ops)]] = True
        again, guessed = computed_again(recorded, values, view, keys, trained)
        shares = read_shares(recorded, values, view, diagonal)
        same = _same_in_each_step(recorded, view, keys)
        return cls(
            ops=ops,
            number=number[outer],
            leaves=Calls(calls.events, rows[leaf]),
            leaf_number=number[leaf],
            recorded=recorded,
            values=values,
            view=view,
            again=again,
            guessed=guessed,
            matrix_again=_matrix_again(values, keys, again),
            user=_users(recorded, values, view),
            constant=_constant(recorded, values, view, same),
            stored=_stored(recorded, values, keys, same),
            unread=unread,
            unread_results=unread_results,
            abandoned=abandoned_ops(recorded, values, unread),
            diagonal=diagonal,
            read_share=shares[0],
            alternative=shares[1],
        )

    def places(self, recorded: Rows) -> Rows:
        """Positions in `ops` of ops of the execution trace; -1 of others, and for -1."""
        return places_of(self.number, len(self.recorded))[recorded]

    def is_closed(self, ops: Calls) -> bool:
        """Whether these ops of the forward pass hand values on to each other, which no other op of forward reads."""
        chosen, reader, value = self._read_in_forward(ops)
        handed = chosen[self.values.producer[value]] & chosen[reader]
        of_passed = np.isin(value, value[handed])
        return bool(handed.any()) and bool(chosen[reader[of_passed]].all())

    def is_read_once(self, ops: Calls) -> bool:
        """Whether one op of the forward pass reads what each of these ops makes, and takes it with any strides."""
        chosen, reader, value = self._read_in_forward(ops)
        of_chosen = chosen[self.values.producer[value]]
        kinds = np.array([op_row(name).kind in _ANY_STRIDES for name in self.recorded.names], bool)
        times = np.bincount(value[of_chosen])
        return bool(times.max(initial=0) == 1 and kinds[self.recorded.name[reader[of_chosen]]].all())

    def _read_in_forward(self, ops: Calls) -> tuple[Mask, Rows, Rows]:
        """(which recorded ops these are, the last for none; op and value of each read in the forward pass)."""
        chosen = np.zeros(len(self.recorded) + 1, bool)
        chosen[self.number[np.isin(self.ops.rows, ops.outer_op.rows)]] = True
        reads = (self.recorded.outer & ~self.view & ~self.recorded.backward)[self.values.reads]
        return chosen, self.values.reads[reads], self.values.read[reads]


def confidence_of(flow: Flow | None, ops: Calls) -> Confidence:
    """High if an execution trace shows that these ops read each other's results alone, else medium."""
    return Confidence.HIGH if flow is not None and flow.is_closed(ops) else Confidence.MEDIUM


def joined(recorded: ExecutionTrace, calls: Calls) -> tuple[Rows, Rows]:
    """(rows of `trace.cpu`, the recorded op that each is), by thread and start.

    A thread's step is joined to the recorded step of the same number that runs the same ops on the same shapes, else to
    any that does, else to one where few shapes differ but for sizes that became others everywhere, as those of data
    that grows. Ops amid the step that depend on its data, as a loader's, are left out; so are steps of several threads.
    """
    ops = calls[calls.is_op].in_order()
    marks = calls[calls.is_annotation & calls.name.meets(STEP_MARK.search)]
    step_of = np.searchsorted(np.sort(marks.start_ns), ops.start_ns, side="right") - 1
    number, signatures = signatures_of(ops.events.trace, ops.rows)
    shaped = any(op.dims for op in signatures)
    texts: dict[str, int] = {}

    def numbered(each: Iterable[str]) -> Rows:
        return np.array([texts.setdefault(text, len(texts)) for text in each], np.int64)

    shapes = numbered(_shapes(op.dims) if shaped else "" for op in signatures)
    kinds = np.stack([numbered(op.name for op in signatures), shapes])[:, number]
    shapes = numbered(text if shaped else "" for text in recorded.shape_texts)[recorded.shapes]
    recorded_kinds = np.stack([numbered(recorded.names)[recorded.name], shapes])
    steps = list(steps_of_threads(recorded.step, recorded.thread))
    theirs, equal = [recorded_kinds[:, rows] for _, rows in steps], dict[bytes, list[int]]()
    for at, there in enumerate(theirs):
        equal.setdefault(there.tobytes(), []).append(at)
    names = list(texts)
    thread = [int(recorded.thread[rows[0]]) for _, rows in steps]
    pairs = [(no_rows(), no_rows())]
    for step, places in steps_of_threads(step_of, ops.thread):
        here = kinds[:, places]
        candidates = equal.get(here.tobytes(), range(len(steps)))
        ends = {at: _equal_ends(here[0], theirs[at][0]) for at in candidates}
        whole = {at: ends[at][0] == len(places) == len(steps[at][1]) for at in candidates}
        best_first = sorted(ends, key=lambda at: (not whole[at], -sum(ends[at]), steps[at][0] != step, at))
        best = next((at for at in best_first if _alike(names, here[1], theirs[at][1], *ends[at])), None)
        if best is None:
            continue
        rivals = [at for at in best_first if whole[at] == whole[best] and thread[at] != thread[best]]
        if not any(_alike(names, here[1], theirs[at][1], *ends[at]) for at in rivals):
            rows, (first, last) = steps[best][1], ends[best]
            joined_parts = [np.append(part[:first], part[len(part) - last :]) for part in (places, rows)]
            pairs.append((ops.rows[joined_parts[0]], joined_parts[1]))
    return np.concatenate([each for each, _ in pairs]), np.concatenate([each for _, each in pairs])


def _equal_ends(here: Rows, there: Rows) -> tuple[int, int]:
    """How many of the first ops of two steps, and of the last ones after these, have equal names."""
    least = min(len(here), len(there))
    if least < _LEAST_ALIKE * max(len(here), len(there)):
        return 0, 0
    first = int(np.append(here[:least] != there[:least], True).argmax())
    rest = least - first
    return first, int(np.append(here[::-1][:rest] != there[::-1][:rest], True).argmax())


def _alike(texts: Sequence[str], here: Rows, there: Rows, first: int, last: int) -> bool:
    """Whether most shapes of the first and last ops of two steps are equal, but for sizes that changed everywhere."""
    least = _LEAST_ALIKE * max(len(here), len(there))
    if first + last < least:
        return False
    before, after = (np.append(ops[:first], ops[len(ops) - last :]) for ops in (here, there))
    pairs, start, count = np.unique(before * len(texts) + after, return_index=True, return_counts=True)
    order = np.argsort(start)
    sizes = []
    for pair, times in zip(pairs[order].tolist(), count[order].tolist(), strict=True):
        old, new = divmod(pair, len(texts))
        if (each := _sizes(texts[old], texts[new])) is not None:
            sizes.append((each, times))
    votes = Counter[tuple[str, str]]()
    for each, times in sizes:
        for size in each:
            votes[size] += times
    becomes = dict(size for size, _ in reversed(votes.most_common()))
    return bool(sum(n for each, n in sizes if all(becomes[old] == new for old, new in each)) >= least)


@lru_cache(maxsize=4_096)  # steps mostly have the same pairs of shapes
def _sizes(old: str, new: str) -> list[tuple[str, str]] | None:
    """Sizes of a shape and what they are in the other one; None if the shapes have other dimensions."""
    if _SIZE.split(old) != _SIZE.split(new):
        return None
    return list(zip(_SIZE.findall(old), _SIZE.findall(new), strict=True))


def _shapes(dims: Sequence[Any]) -> str:
    """As `ExecutionTrace.shape_texts`."""
    listed = [shape for shape in dims if isinstance(shape, list) and shape and type(shape[0]) is int]
    return orjson.dumps(listed).decode()


def computed_again(
    recorded: ExecutionTrace, values: Values, view: Mask, keys: Keys, trained: Mask
) -> tuple[Rows, Mask]:
    """(for each op the one of its step that makes the same and is kept, -1 of none; which are the same if numbers are).

    What writes to a tensor counts if that tensor was computed again as well, or has the same content as before. A copy
    that another op overwrites with something else is needed. Numbers of Python are taken to be equal where the op reads
    what was computed again, and in long chains: a loop that changes a number seldom has these.
    """
    again = np.full(len(recorded), -1, np.int64)
    first = _first_of_same(recorded, view, keys)
    guesses = _guesses(recorded, values, keys, first)
    for op in np.flatnonzero(first >= 0).tolist():
        makers = values.producer[values.read_by(op)]
        if 0 < guesses[op] < _LONG_CHAIN and not (again[makers[makers >= 0]] >= 0).any():
            continue
        producers = values.producer[values.overwritten_by(op)]
        if keys.restores[op] or ((producers >= 0).all() and (again[producers] >= 0).all()):
            again[op] = first[op]
    again = _others_than_kept(values, again, trained)
    for op in np.flatnonzero((again >= 0) & ~keys.restores)[::-1].tolist():
        later = values.replaced[values.made_by(op)]
        later = later[(later < len(recorded)) & ~values.freed[values.made_by(op)]]
        if (again[later] < 0).any():
            again[op] = -1
    again[~_feeds_others(values, again >= 0)] = -1
    return again, (again >= 0) & ((guesses > 0) | (guesses[again] > 0))


def _trained_ops(calls: Calls, ops: Calls) -> Mask:
    """Which ops have recorded a node of backward that runs. What hooks of backward run comes too late to be kept."""
    _, recorder = backward_nodes_of(calls, ops)
    trained = np.bincount(recorder[recorder >= 0], minlength=len(ops)) > 0
    return trained & ~in_hooks(calls.events, ops.rows)


def _others_than_kept(values: Values, again: Rows, trained: Mask) -> Rows:
    """For each op the one that is kept in its place, -1 of the kept ones and of those that nothing computes again.

    `again` is the first op that made the same, -1 of none, and `trained` which ops have a backward pass; (ops,).
    """
    every = np.arange(len(again))
    first = np.where(again >= 0, again, every)
    of_pass = _of_trained_pass(values, first, (again >= 0) & ~trained[first], trained)
    kept = every.copy()
    for chosen in (of_pass & ~trained, of_pass & trained):
        kept[first[chosen][::-1]] = every[chosen][::-1]
    result = kept[first]
    return np.where(result == every, -1, result)


def _of_trained_pass(values: Values, first: Rows, later: Mask, trained: Mask) -> Mask:
    """Which of the later ops have a backward pass, or hand values to or from these as the first ops do."""
    chosen = later & trained
    if not chosen.any():
        return chosen
    maker, user = values.producer[values.read], values.reads
    made = maker >= 0
    links = list(dict.fromkeys(zip(maker[made].tolist(), user[made].tolist(), strict=True)))
    of_first = set(links)
    both = [
        link
        for link in links
        if later[link[0]] and later[link[1]] and (int(first[link[0]]), int(first[link[1]])) in of_first
    ]
    for before, after in reversed(both):
        chosen[before] |= chosen[after]
    for before, after in both:
        chosen[after] |= chosen[before]
    return chosen


def _feeds_others(values: Values, chosen: Mask) -> Mask:
    """Which of the chosen ops make what the host or another op reads at last; a benchmark drops what it repeats."""
    feeds = np.append(~chosen | (np.diff(values.results_from) == 0), False)
    writers = np.repeat(np.arange(len(chosen)), np.diff(values.written_from))
    # Who writes to a part leaves the others.
    users, used = np.append(values.reads, writers), np.append(values.read, values.written)
    order = np.argsort(users, kind="stable")[::-1]
    for user, maker in zip(users[order].tolist(), values.producer[used[order]].tolist(), strict=True):
        feeds[maker] |= feeds[user]
    return feeds[:-1]


def _first_of_same(recorded: ExecutionTrace, view: Mask, keys: Keys) -> Rows:
    """For each op the first one of its step with its key; -1 of the first ones."""
    result = np.full(len(recorded), -1, np.int64)
    first: dict[tuple[int, int], int] = {}
    step, back = recorded.step.tolist(), recorded.backward.tolist()
    for op in np.flatnonzero(recorded.outer & ~view & (keys.key >= 0)).tolist():
        before = first.setdefault((step[op], int(keys.key[op])), op)
        # Backward computes again what checkpointing has dropped.
        if before != op and (not back[op] or back[before]):
            result[op] = before
    return result


def _guesses(recorded: ExecutionTrace, values: Values, keys: Keys, first: Rows) -> Rows:
    """Length of the longest chain of ops, up to a layer, through each op that are the same only if numbers are."""
    length = np.zeros(len(recorded), np.int64)
    layers = np.array([op_row(name).kind in LAYERS for name in recorded.names], bool)[recorded.name]
    links: list[tuple[int, int]] = []
    for op in np.flatnonzero(first >= 0).tolist():
        # A value that both read is the same one.
        read = values.read_by(op)
        read = read[read != values.read_by(int(first[op]))]
        # Single elements that Python writes are seldom constants.
        over = values.overwritten_by(op) if (values.elements[values.made_by(op)] > 1).all() else no_rows()
        makers = values.producer[np.concatenate([read, over])]
        guessed = [int(maker) for maker in makers if maker >= 0 and length[maker]]
        if keys.numbers[op] or guessed:
            length[op] = 1 + (0 if layers[op] else max(length[guessed], default=0))
            links += [(maker, op) for maker in guessed if not layers[op]]
    for maker, op in reversed(links):
        length[maker] = max(length[maker], length[op])
    return length


def _matrix_again(values: Values, keys: Keys, again: Rows) -> Rows:
    """As `Flow.matrix_again`. A benchmark solves for the same right-hand side."""
    result, first = np.full(len(again), -1, np.int64), dict[int, int]()
    repeated = np.append(again >= 0, False)
    for op in np.flatnonzero(keys.matrix >= 0).tolist():
        before = first.setdefault(int(keys.matrix[op]), op)
        value = values.read_by(op)[0]
        same = value == values.read_by(before)[0] or repeated[values.producer[value]]
        if same and keys.key[op] != keys.key[before]:
            result[op] = before
    return result


def _users(recorded: ExecutionTrace, values: Values, view: Mask) -> Rows:
    result, following = np.full(len(recorded), -1, np.int64), dict[int, int]()
    creates = np.array([op_row(name).kind is Kind.CREATION for name in recorded.names], bool)[recorded.name]
    for op in np.flatnonzero(recorded.outer)[::-1].tolist():
        used = values.storage[values.read_by(op)].tolist()
        made = values.storage[values.made_by(op)].tolist()
        if view[op] or creates[op]:
            result[op] = next((following[each] for each in [*made, *used] if each in following), -1)
        if not view[op]:
            following.update(dict.fromkeys([*used, *made], op))
    return result


def _same_in_each_step(recorded: ExecutionTrace, view: Mask, keys: Keys) -> Mask:
    """Which ops compute the same of the same tensors in every step, of several."""
    chosen = np.flatnonzero(recorded.outer & ~view & (recorded.step >= 0) & (keys.key >= 0))
    pairs = np.unique([keys.key[chosen], recorded.step[chosen]], axis=1)
    steps = len(distinct(pairs[1]))
    key, times = np.unique(pairs[0], return_counts=True)
    same = np.zeros(len(recorded), bool)
    same[chosen] = np.isin(keys.key[chosen], key[(times == steps) & (steps > 1)])
    return same


def _stored(recorded: ExecutionTrace, values: Values, keys: Keys, same: Mask) -> Mask:
    """As `Flow.stored`. A benchmark repeats its batch; a graph, with scattered sums, is mostly the whole data set."""
    kinds = [op_row(name).kind for name in recorded.names]
    layers, scatters = (
        np.array([kind in chosen for kind in kinds], bool)[recorded.name] for chosen in (LAYERS, {Kind.SCATTER})
    )
    trains = np.isin(recorded.step, distinct(recorded.step[recorded.backward]))
    result = np.append(same & trains & ~layers & ~recorded.backward & ~keys.numbers, False)
    for op in np.flatnonzero(result).tolist():
        makers = values.producer[np.concatenate([values.read_by(op), values.overwritten_by(op)])]
        inside = makers[(makers >= 0) & (recorded.step[makers] == recorded.step[op])]
        result[op] = bool(result[inside].all())
    return result[:-1] & bool((result[:-1] & scatters).any() or _has_new_data(recorded, values))


def _has_new_data(recorded: ExecutionTrace, values: Values) -> bool:
    """Whether the last step reads tensors that the first one does not, and that no op has made: other batches."""
    steps = distinct(recorded.step[recorded.step >= 0])
    if len(steps) < 2:
        return False
    step = recorded.step[values.reads]
    read = (step == steps[-1]) & (values.part[:, 1] > _MOST_NUMBERS) & (values.producer[values.read] < 0)
    drawn = np.array([op_row(name).type == "long int" for name in recorded.names], bool)[recorded.name]
    drawn &= recorded.random & recorded.outer & (recorded.step == steps[-1])
    return bool(drawn.any() or (~np.isin(values.read[read], values.read[step == steps[0]])).any())


def _constant(recorded: ExecutionTrace, values: Values, view: Mask, same: Mask) -> Mask:
    """As `Flow.constant`. Of the tensors, layers read what is made of them as weights only.

    In inference on new data, what is the same in every step is a weight as well, unless a layer reads it as data.
    """
    role = _roles(recorded, values, view, same)
    result = same & (np.diff(values.reads_from) > 0) & (np.diff(values.results_from) > 0)
    of_data = (role & _AS_DATA) > 0
    for op in np.flatnonzero(same).tolist():
        used = np.concatenate([values.read_by(op), values.made_by(op)])
        result[op] &= (role[used] == _WEIGHT).all() and not of_data[used].any() and not len(values.overwritten_by(op))
        of_data[values.made_by(op)] |= of_data[values.read_by(op)].any()
    return result


_WEIGHT, _AS_DATA = 1, 2


def _roles(recorded: ExecutionTrace, values: Values, view: Mask, same: Mask) -> Rows:
    """As what layers read each value: 1 weights, 2 data, 3 both."""
    role = np.zeros(len(values.producer), np.int64)
    kinds = [op_row(name).kind for name in recorded.names]
    # A repeated batch is the same in every step, too.
    mixed = _AS_DATA if recorded.backward.any() or not _has_new_data(recorded, values) else _WEIGHT
    is_layer = [kind in LAYERS or name == _EMBEDDING for kind, name in zip(kinds, recorded.names, strict=True)]
    of_numbers = values.on_cpu & (values.producer < 0)
    ops: list[int] = np.flatnonzero(recorded.outer & ~view).tolist()

    def reads_data(op: int) -> Mask:
        data = DATA.get(recorded.names[recorded.name[op]], 0), UNKNOWN_ARGUMENT
        return np.isin(values.arguments_of(op), data) | (not is_layer[recorded.name[op]])

    for op in ops:
        plain = same[op] and not len(values.overwritten_by(op))
        of_numbers[values.made_by(op)] = plain and of_numbers[values.read_by(op)[reads_data(op)]].all()
    for op in reversed(ops):
        read, data, name = values.read_by(op), reads_data(op), recorded.names[recorded.name[op]]
        layer = is_layer[recorded.name[op]]
        passed = int(np.bitwise_or.reduce(role[values.made_by(op)], initial=0)) if same[op] else 0
        passed = passed or (_AS_DATA if same[op] or layer else mixed)
        role[read[~data]] |= _WEIGHT
        passes = of_numbers[read[data]] | (name in _MATRIX_PRODUCTS or not layer)
        role[read[data]] |= np.where(passes, passed, _AS_DATA)
    return role
