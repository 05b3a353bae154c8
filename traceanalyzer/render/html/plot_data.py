"""Times of steps and kernels and the memory curve as few points: enough to be drawn, and true at every point."""

from dataclasses import dataclass

import numpy as np

from traceanalyzer.allocator.memory_view import NO_LINE, DeviceMemory, MemoryView
from traceanalyzer.idle.accounting import CLASSES, Accounting
from traceanalyzer.idle.causes import CAUSES, Idle
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.arrays import Floats, Rows, distinct, grouped, median, pick, sums_of
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import floats, ints, matching
from traceanalyzer.rule.views import Work
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.kernel_families import family_of, on_tensor_cores
from traceanalyzer.timeline.names import DATA_LOADING
from traceanalyzer.timeline.repeated_kernels import RepeatedKernels, steps_of_place, usual_at_place
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.steps import Steps

MOST_STRETCHES = 8
MOST_STEPS = 240
# What a step consists of: work of the GPU by its kind, then what the CPU does while the GPU is idle.
_WORK = {"communication": "communication", "copy": "copy", "memset": "memset", "compute": "kernel"}
STEP_PARTS = ("kernel", "communication", "copy", "memset", "runtime", "data loading", "CPU op", "other")
MOST_KERNELS = 20
MOST_POINTS = 480  # of a curve: more do not change how it looks; chosen
MOST_OWNERS = 12
OPS_OF_STEP = 3


@dataclass(frozen=True, slots=True)
class Stretch:
    """A gap on a device: of its longest piece the cause `idle:...`, the op or call to name, and the user's line."""

    device: int
    start_ns: int
    end_ns: int
    cause: str
    op: str | None
    step: int | None
    line: str | None = None


def longest_stretches(analysis: Analysis, most: int = MOST_STRETCHES) -> tuple[Stretch, ...]:
    """Longest first, of those that lie in the window."""
    idle, steps = analysis.index(Idle), analysis.index(Steps)
    inside = (idle.start_ns >= steps.window_start_ns) & (idle.end_ns <= steps.window_end_ns)
    pieces = np.flatnonzero(inside)
    order = pieces[np.lexsort((pieces, -idle.dur_ns[pieces], idle.gap[pieces], -idle.gap_dur_ns[pieces]))]
    _, first = np.unique(idle.gap[order], return_index=True)
    chosen = order[np.sort(first)[:most]]
    row = np.where(idle.op[chosen] >= 0, idle.op[chosen], idle.row[chosen])
    names = Texts.column(analysis.trace.lanes.cpu, "name", row).values()
    lines = analysis.index(Events).user_code.around(row).values()
    stretches = []
    for piece, op, line in zip(chosen.tolist(), names, lines, strict=True):
        whole, device = idle.gap == idle.gap[piece], int(idle.device[piece])
        start, end = int(idle.start_ns[whole].min()), int(idle.end_ns[whole].max())
        edges = steps.bounds_ns.get(device) if steps.marked else None
        at = -1 if edges is None else int(np.searchsorted(edges, start, side="right")) - 1
        number = int(steps.number[at]) if 0 <= at < len(steps) else None
        named = op and str(op), number, line and str(line)
        stretches.append(Stretch(device, start, end, f"idle:{CAUSES[idle.cause[piece]]}", *named))
    return tuple(stretches)


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step: its parts by `STEP_PARTS`, the ops with most GPU time that it launched, the cause of most idle time."""

    number: int
    ns: int
    parts_ns: dict[str, int]
    ops: tuple[tuple[str, int], ...] = ()
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class StepSeries:
    """Steps of a device; where there are too many, the longest of each run of `together`."""

    device: int
    median_ns: int
    together: int
    steps: tuple[StepTime, ...]


@dataclass(frozen=True, slots=True)
class KernelSpread:
    """How much the executions of one kernel with one grid of `blocks` differ from step to step.

    `least`, `p10`, `p90` and `most` are their times over the median at their place of the step, so that kernels that
    do other work elsewhere in the step do not count as spread.
    """

    name: str
    least: float
    p10: float
    p90: float
    most: float
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Executions of one kernel, with their share of the time of all kernels.

    Theoretical occupancy and the share of the SMs that have a block are means over time, None where not recorded.
    """

    name: str
    family: str
    count: int
    total_ns: int
    share: float
    tensor_cores: bool
    occupancy_pct: float | None
    sm_share: float | None
    spread: KernelSpread | None = None


@dataclass(frozen=True, slots=True)
class KernelTable:
    """The kernels with most time, all of them as one row, their time on tensor cores, and how many are left out."""

    rows: tuple[KernelRow, ...]
    every: KernelRow
    tensor_share: float
    others: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Blocks alive at the peak that one op on one line allocated; `line` is None where no stacks were recorded."""

    op: str
    line: str | None
    blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """One of `MemoryView.devices` by its highest point in each part of the time, and the largest owners at the peak.

    `others` and `others_bytes` are the number and sum of the other owners, `uses` what the blocks are for, in bytes.
    """

    position: int
    device: str
    peak_bytes: int
    peak_ns: int
    peak_reserved_bytes: int | None
    before_bytes: int
    time_ns: tuple[int, ...]
    allocated_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...] | None
    owners: tuple[Owner, ...]
    others: int
    others_bytes: int
    uses: tuple[tuple[str, int], ...] = ()


def step_series(analysis: Analysis, most: int = MOST_STEPS) -> StepSeries | None:
    """The steps on the first device, at most `most`, None where none are marked."""
    steps, accounting = analysis.index(Steps), analysis.index(Accounting)
    device = min(steps.bounds_ns, default=None)
    if device is None or not steps.marked:
        return None
    inside = (accounting.device == device) & (accounting.step >= 0)
    by_step = np.zeros((len(steps), len(STEP_PARTS)), np.int64)
    for number, named in enumerate(CLASSES[:-1]):
        part = STEP_PARTS.index(next(kind for begins, kind in _WORK.items() if named.startswith(begins)))
        chosen = inside & (accounting.time_class == number)
        by_step[:, part] += sums_of(accounting.step[chosen], accounting.dur_ns[chosen], len(steps))
    idle = inside & (accounting.piece >= 0)
    starts, ends = accounting.start_ns[idle], (accounting.start_ns + accounting.dur_ns)[idle]
    for words, ns in _meanwhile(analysis.index(Events), starts, ends).items():
        by_step[:, STEP_PARTS.index(words)] += sums_of(accounting.step[idle], ns, len(steps))
    durations = steps.durations_ns(device)
    together = -(-len(steps) // most)
    runs = (np.arange(at, min(at + together, len(steps))) for at in range(0, len(steps), together))
    chosen = [int(run[np.argmax(durations[run])]) for run in runs]
    slot = np.full(len(steps), -1, np.int64)
    slot[chosen] = np.arange(len(chosen))
    ops, causes = _largest_ops(analysis, device, slot), _main_causes(analysis, device, slot)
    parts = [{name: ns for name, ns in zip(STEP_PARTS, row, strict=True) if ns} for row in by_step[chosen].tolist()]
    columns = steps.number[chosen].tolist(), durations[chosen].tolist(), parts, ops, causes
    return StepSeries(device, int(median(durations)), together, tuple(map(StepTime, *columns)))


def _meanwhile(events: Events, starts: Rows, ends: Rows) -> dict[str, Rows]:
    """What any thread does in each idle stretch, ns: in a call of the runtime, else loading data, else in an op."""
    nesting, cpu, rows = events.nesting, events.trace.lanes.cpu, events.calls
    category = Texts.column(cpu, "category", rows)
    chosen = {
        "runtime": category.one_of(*CALL_CATEGORIES),
        "data loading": matching(cpu, "name", lambda name: bool(DATA_LOADING.search(name)))[rows],
        "CPU op": category.one_of("cpu_op"),
    }
    spent, before, seen = {}, np.zeros(len(starts), np.int64), np.zeros(len(rows), np.bool_)
    for name, own in chosen.items():
        seen |= own
        spans = intervals.union(nesting.start_ns[rows[seen]], nesting.end_ns[rows[seen]])
        covered = intervals.covered(spans, starts, ends)
        spent[name], before = covered - before, covered
    return spent | {"other": ends - starts - before}


def _largest_ops(analysis: Analysis, device: int, slot: Rows) -> list[tuple[tuple[str, int], ...]]:
    """(name, ns) of the ops with most GPU time, of each step that has a `slot` (steps,); of no op the kernel's name."""
    work = analysis.index(Work)
    work = work[(work.device == device) & (pick(slot, work.step) >= 0)]
    names = work.op.name.or_else(work.name)
    known, code = np.unique(names.code, return_inverse=True)
    sums = _sums(slot[work.step], code, work.dur_ns, int(slot.max()) + 1, len(known))
    order = np.argsort(-sums, axis=1, kind="stable")[:, :OPS_OF_STEP]
    return [
        tuple((str(names.names[known[k]]), int(sums[i, k])) for k in row if sums[i, k])
        for i, row in enumerate(order.tolist())
    ]


def _main_causes(analysis: Analysis, device: int, slot: Rows) -> list[str | None]:
    """Of each shown step the cause of most of its idle time; `slot` as of `_largest_ops`."""
    accounting, idle = analysis.index(Accounting), analysis.index(Idle)
    own = (accounting.device == device) & (pick(slot, accounting.step) >= 0) & (accounting.piece >= 0)
    cause, ns = idle.cause[accounting.piece[own]], accounting.dur_ns[own]
    sums = _sums(slot[accounting.step[own]], cause, ns, int(slot.max()) + 1, len(CAUSES))
    most = zip(sums.argmax(axis=1).tolist(), sums.max(axis=1).tolist(), strict=True)
    return [f"idle:{CAUSES[k]}" if ns else None for k, ns in most]


def _sums(row: Rows, column: Rows, ns: Rows, rows: int, columns: int) -> Rows:
    width = max(columns, 1)
    return sums_of(row * width + column, ns, rows * width).reshape(rows, width)


def kernel_spreads(analysis: Analysis, most: int = MOST_KERNELS) -> tuple[KernelSpread, ...]:
    """Of the kernels with most time, that run in several steps."""
    found = analysis.index(RepeatedKernels)
    found = found[steps_of_place(found) > 1] if len(found) else found
    if not len(found):
        return ()
    ratio = found.dur_ns / np.maximum(usual_at_place(found, 0.5), 1.0)
    sums = sums_of(found.group, found.dur_ns, int(found.group.max()) + 1)
    groups = [group for group in np.argsort(-sums, kind="stable").tolist() if (found.group == group).any()]
    spreads = []
    for own in (found.group == group for group in groups[:most]):
        work = analysis.index(Work)[found.entry[own][:1]]
        least, p10, p90, longest = np.quantile(ratio[own], [0.0, 0.1, 0.9, 1.0]).tolist()
        spreads.append(KernelSpread(str(work.name[0]), least, p10, p90, longest, int(work.blocks[0])))
    return tuple(spreads)


def kernel_table(analysis: Analysis, most: int = MOST_KERNELS) -> KernelTable:
    work, gpu = analysis.index(DeviceWork), analysis.trace.lanes.gpu
    entries = np.flatnonzero(work.kind == KINDS.index("compute"))
    names, dur = Texts.column(gpu, "name", work.row[entries]), (work.end_ns - work.start_ns)[entries]
    if not len(entries):
        raise Unavailable("no kernels in the trace")
    number, first = grouped([names.code])
    total, whole = sums_of(number, dur, len(first)), max(int(dur.sum()), 1)
    occupancy, blocks = (floats(gpu, name)[work.row[entries]] for name in ("occupancy_pct", "blocks_per_sm"))
    spreads: dict[str, KernelSpread] = {}
    for spread in kernel_spreads(analysis, most * 2):
        spreads.setdefault(spread.name, spread)

    def row(name: str, own: Rows) -> KernelRow:
        used, filled = (_mean(column[own], dur[own]) for column in (occupancy, np.minimum(blocks, 1.0)))
        ns = int(dur[own].sum())
        amounts = len(own), ns, ns / whole, on_tensor_cores(name), used, filled
        return KernelRow(name, family_of(name), *amounts, spreads.get(name))

    named = [str(names[position]) for position in first.tolist()]
    largest = np.argsort(-total, kind="stable")[:most].tolist()
    rows = tuple(row(named[place], np.flatnonzero(number == place)) for place in largest)
    tensor = sum(int(total[place]) for place, name in enumerate(named) if on_tensor_cores(name))
    return KernelTable(rows, row("", np.arange(len(entries))), tensor / whole, len(named) - len(rows))


def _mean(values: Floats, weights: Rows) -> float | None:
    known = values > 0  # kernels of thread block clusters are recorded with 0, others with NaN
    return float(np.average(values[known], weights=np.maximum(weights[known], 1))) if known.any() else None


def memory_curves(analysis: Analysis) -> tuple[MemoryCurve, ...]:
    return tuple(_curve(position, one) for position, one in enumerate(analysis.index(MemoryView).devices))


def _curve(position: int, device: DeviceMemory) -> MemoryCurve:
    at, allocated = ints(device.curve, "time_ns"), ints(device.curve, "allocated_bytes")
    chosen, reserved = highest_points(at, allocated), None
    if device.peak_reserved_bytes is not None:
        reserved = tuple(ints(device.curve, "reserved_bytes")[chosen].tolist())
    points = tuple(at[chosen].tolist()), tuple(allocated[chosen].tolist()), reserved
    largest, rest = device.alive.head(MOST_OWNERS), device.alive["bytes"].iloc[MOST_OWNERS:]
    lines = [None if line == NO_LINE else line for line in largest["python"].tolist()]
    owners = map(Owner, largest["op"].tolist(), lines, largest["blocks"].tolist(), largest["bytes"].tolist())
    peak = device.peak_bytes, device.peak_ns, device.peak_reserved_bytes, device.before_bytes
    uses = tuple(zip(device.uses["use"].tolist(), device.uses["bytes"].tolist(), strict=True))
    return MemoryCurve(position, device.device, *peak, *points, tuple(owners), len(rest), int(rest.sum()), uses)


def highest_points(at: Rows, values: Rows) -> Rows:
    """Positions of the highest value in each of `MOST_POINTS` equal parts of the time, the first and the last point."""
    if len(at) <= MOST_POINTS:
        return np.arange(len(at))
    edges = np.linspace(at[0], at[-1], MOST_POINTS + 1)[1:-1]
    part = np.searchsorted(edges, at, side="right")
    order = np.lexsort((np.arange(len(at)), -values, part))
    first = np.append(True, np.diff(part[order]) > 0)
    return distinct(np.concatenate(([0], order[first], [len(at) - 1])))
