"""Two axes: the step without the profiler, corrected for the speed of the host, and counts, which repeat exactly."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from traceanalyzer.comparison.result import CallRow, Counted, DeviceAxis, Row, StepAxis, Word
from traceanalyzer.comparison.snapshot import Captures, Snapshot, StepTime, rows_of
from traceanalyzer.comparison.statistics import log_interval
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.text_queries import regex

# How long these take is the device's.
_WAITING = regex(r"Synchronize|Malloc|Free|HostAlloc|Memcpy|ProfilerStep#")
Ranges = tuple[tuple[float, float], tuple[float, float]]
_ALIKE = math.log(2.5)  # what changed more is another program; chosen
_SHORT_NS = 1_000.0  # added to both: ops of some ns differ by multiples of themselves
_LEAST_SHARE = 0.15  # of the CPU time, to tell the host's pace by; chosen


def host_pace(base: Snapshot, new: Snapshot) -> float:
    """How long what both do took in `new`, as a multiple of `base`; 1 where too little is the same, or hosts differ."""
    if base.gpus != new.gpus or base.versions.get("torch") != new.versions.get("torch"):
        return 1.0
    both = base.tables["host"].merge(new.tables["host"], on=["name", "part"], suffixes=("_base", "_new"))
    both = both[~np.array([bool(_WAITING.search(name)) for name in both["name"]], bool)]
    first, second = (both[f"mean_ns_{side}"].to_numpy(np.float64) for side in ("base", "new"))
    alike = np.abs(np.log((second + _SHORT_NS) / (first + _SHORT_NS))) <= _ALIKE
    count = both[["count_base", "count_new"]].min(axis=1).to_numpy(np.float64)[alike]
    sums = float((first[alike] * count).sum()), float((second[alike] * count).sum())
    hosts = [side.tables["host"] for side in (base, new)]
    totals = [float((host["count"] * host["mean_ns"]).sum()) for host in hosts]
    if min(sums) <= 0 or sums[0] < _LEAST_SHARE * totals[0] or sums[1] < _LEAST_SHARE * totals[1]:
        return 1.0
    return sums[1] / sums[0]


def at_pace(step: StepTime, factor: float) -> int:
    """The step if the CPU were so many times as quick as it was, in ns."""
    if not step.paces or factor == 1.0:
        return step.ns
    paces = np.log([pace for pace, _ in step.paces])
    times = np.log([max(ns, 1.0) for _, ns in step.paces])
    change = np.interp([math.log(factor), 0.0], paces, times)
    return round(step.ns * math.exp(change[0] - change[1]))


# What one recording a side leaves open: predicted steps of one program differ by less in nine of ten pairs.
DEVICE_NOISE = 0.14  # where the GPU sets the pace; noise/, H200: clocks that follow the power
HOST_NOISE = 0.21  # where the CPU does
# Where it does, both at one pace, and the program changed, so that a difference is likely.
CHANGED_NOISE = 0.10

# Of the step's difference that real differences on the device make, for them to explain it; half.
DEVICE_SHARE = 0.5
_LEAST = 0.01  # no step is known better from run to run; noise/
_BY_DEVICE = ("gpu", "communication")
_MANY = 3  # captures a side whose spread is trusted


def step_axis(base: Captures, new: Captures, device: DeviceAxis | None, changed: bool) -> StepAxis | None:
    """Both steps at one pace, and the verdict; None where a side has none. `changed`: whether the program changed."""
    first, second = base.together, new.together
    if first.step is None or second.step is None or first.step.ns <= 0 or second.step.ns <= 0:
        return None
    several = min(len(base), len(new)) >= _MANY
    predicted = first.step.predicted and second.step.predicted
    measured = first.step.measured and second.step.measured
    pace = 1.0 if several or measured or not predicted else host_pace(first, second)
    ns = at_pace(first.step, math.sqrt(1 / pace)), at_pace(second.step, math.sqrt(pace))
    steps = [[spread_steps(one) for one in side.each] for side in (base, new) if several]
    interval = log_interval(*steps) if several else None
    alike = changed and first.recorded == second.recorded
    needed = needed_difference(first.step, second.step, pace, alike)
    if first.gpus != second.gpus:
        needed = max(needed, steps_apart(*sorted((first.step, second.step), key=lambda step: step.ns)))
    if interval is not None:
        word = word_by_interval(interval)
        needed = max((interval[1] - interval[0]) / 2, _LEAST)
    else:
        word = word_by_size(needed, ns, device, (first.step, second.step))
    return StepAxis(
        word=word,
        base_ns=ns[0],
        new_ns=ns[1],
        difference=ns[1] / ns[0] - 1,
        low=None if interval is None else math.expm1(interval[0]),
        high=None if interval is None else math.expm1(interval[1]),
        needed=needed,
        pace=pace,
        predicted=predicted and not measured,
        measured=measured,
        base_recorded_ns=first.step.recorded_ns,
        new_recorded_ns=second.step.recorded_ns,
        base_raw_ns=first.step.ns,
        new_raw_ns=second.step.ns,
        base_cpu_ns=first.step.cpu_ns,
        new_cpu_ns=second.step.cpu_ns,
        base_bound=first.step.bound,
        new_bound=second.step.bound,
        captures=(len(base), len(new)),
    )


def spread_steps(capture: Snapshot) -> list[float]:
    """The capture's predicted step, spread as its recorded ones are."""
    step = capture.step
    assert step is not None
    mean = sum(step.each_ns) / max(len(step.each_ns), 1)
    return [step.ns * each / mean for each in step.each_ns] if mean > 0 else [float(step.ns)]


def word_by_interval(interval: tuple[float, float]) -> Word:
    low, high = interval
    if low > 0 and high > math.log1p(_LEAST):
        return Word.SLOWER
    if high < 0 and low < -math.log1p(_LEAST):
        return Word.FASTER
    return Word.SAME


def needed_difference(base: StepTime, new: StepTime, pace: float, changed: bool) -> float:
    """How far two steps must be apart, with fewer than three captures a side."""
    if base.bound in _BY_DEVICE and new.bound in _BY_DEVICE:
        return DEVICE_NOISE
    return CHANGED_NOISE if changed and pace != 1.0 else HOST_NOISE


def steps_apart(quicker: StepTime, slower: StepTime) -> float:
    """How far steps of two machines must be apart for their intervals to be: errors of one host do not cancel out."""
    return quicker.high_ns / quicker.ns * slower.ns / max(slower.low_ns, 1) - 1


def word_by_size(needed: float, ns: tuple[int, int], device: DeviceAxis | None, steps: Sequence[StepTime]) -> Word:
    difference = math.log(ns[1] / ns[0])
    word = Word.SLOWER if difference > 0 else Word.FASTER
    if abs(difference) > math.log1p(needed):
        return word
    quicker = steps[0] if word is Word.SLOWER else steps[1]
    if device is None or device.word is not word or quicker.bound not in _BY_DEVICE:
        return Word.UNKNOWN  # only where the quicker one has no idle time to give must the other take longer
    explained = abs(device.real_ns) >= DEVICE_SHARE * abs(ns[1] - ns[0])
    return word if explained and abs(difference) > math.log1p(_LEAST) else Word.UNKNOWN


_ROUNDING = 1e-9
_PLACES = 3  # of a counter that are named
_KEYS = ["counter", "outer", "op", "name"]
_KINDS = {"kernels": "compute", "memsets": "memset", "collectives": "communication"}
MINOR = ("ops",)  # counters that count no work and no wait: they alone make no other program


def counted(base: Snapshot, new: Snapshot, calls: Sequence[CallRow], rows: Sequence[Row]) -> tuple[Counted, ...]:
    """All counters of both sides, and where those that changed did; none where neither did work on a GPU."""
    result = []
    for row, ranges in _of_both(base, new, "totals", ["counter"]):
        comparable = is_comparable(row.counter, base, new)
        word = count_word(ranges, (row.count_base, row.count_new)) if comparable else Word.UNKNOWN
        where = most_changed(row.counter, calls, rows) if word in (Word.MORE, Word.FEWER) else ()
        result.append(Counted(row.counter, row.count_base, row.count_new, *ranges, word, where))
    return tuple(result)


def is_comparable(counter: str, base: Snapshot, new: Snapshot) -> bool:
    """Whether both recordings tell the counter: FLOPs need shapes."""
    return counter != "FLOPs" or ("shapes" in base.recorded) == ("shapes" in new.recorded)


def _of_both(base: Snapshot, new: Snapshot, name: str, keys: list[str]) -> Iterator[tuple[Any, Ranges]]:
    """(row of a table of both sides, least and most of each side); 0 on a side without the row."""
    if base.tables[name].empty and new.tables[name].empty:
        return  # pandas cannot join two tables without a row
    groups = (side.tables[name].groupby(keys, as_index=False) for side in (base, new))
    first, second = (group[["count", "least", "most"]].sum() for group in groups)
    both = first.merge(second, on=keys, suffixes=("_base", "_new"), how="outer").sort_values(keys)
    for row in rows_of(both.fillna(0.0)):
        yield row, ((row.least_base, row.most_base), (row.least_new, row.most_new))


def count_word(ranges: Ranges, means: tuple[float, float]) -> Word:
    """More or fewer where the numbers of single steps do not overlap; unknown where they do and differ."""
    (least, most), (new_least, new_most) = ranges
    slack = _ROUNDING * max(abs(most), abs(new_most))
    if new_least > most + slack:
        return Word.MORE
    if new_most < least - slack:
        return Word.FEWER
    return Word.SAME if abs(means[0] - means[1]) <= slack else Word.UNKNOWN


def most_changed(counter: str, calls: Sequence[CallRow], rows: Sequence[Row]) -> tuple[str, ...]:
    result: dict[str, float] = {}
    for call in calls:
        if call.counter == counter:
            name = call.outer or call.call
            result[name] = result.get(name, 0.0) + call.new - call.base
    copies = f"copy_{counter.split()[0]}" if counter.endswith(("copies", "bytes")) else ""
    kind = _KINDS.get(counter) or copies
    for row in rows:
        if row.kind == kind:
            change = row.sides[1].count - row.sides[0].count
            result[row.label] = result.get(row.label, 0.0) + change
    changed = sorted((name for name, by in result.items() if by), key=lambda name: (-abs(result[name]), name))
    return tuple(changed[:_PLACES])


def changed_calls(base: Snapshot, new: Snapshot) -> tuple[CallRow, ...]:
    """Calls that one side makes more often, by op; the largest difference first."""
    result = []
    for row, ranges in _of_both(base, new, "calls", _KEYS):
        word = count_word(ranges, (row.count_base, row.count_new))
        if word in (Word.MORE, Word.FEWER):
            names = row.counter, row.op, short_ops(row.outer), row.name
            result.append(CallRow(*names, row.count_base, row.count_new, word))

    def rank(call: CallRow) -> tuple[Any, ...]:
        return call.counter in MINOR, -abs(call.new - call.base), call.counter, call.outer, call.call

    return tuple(sorted(result, key=rank))


def program_changed(counters: Sequence[Counted]) -> bool:
    """Whether the two do different things: other counts of calls, work, or waits."""
    return any(one.word in (Word.MORE, Word.FEWER) and one.counter not in MINOR for one in counters)
