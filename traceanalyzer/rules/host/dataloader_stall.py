"""The step waits for its next batch."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import distinct, median
from traceanalyzer.model.short_names import function_words
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints, matching
from traceanalyzer.model.units import percent
from traceanalyzer.replay.edits import Drop, DropSpans
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, rule
from traceanalyzer.timeline.activity import Activity
from traceanalyzer.timeline.steps import Steps

NO_LINE = "other code"
_NO_OP = "code outside of ops"
# Instants. A function with a tenth of the time is met 51 times.
_SAMPLES = 512
# Time to take a batch that is ready, without the profiler, in ns; H200 host, torch 2.11.
_NEXT_NS = 150_000.0
_ADVICE = {
    "SingleProcess": "Load in other processes: DataLoader(num_workers={workers}, pin_memory=True, "
    "persistent_workers=True). At present (num_workers=0), every batch is created inside the step.",
    "MultiProcessing": "The workers are too slow: raise num_workers towards the number of CPU cores, make "
    "the transforms cheaper or cache their results, and raise prefetch_factor.",
    "": "Prepare the next batch ahead of the step, in a DataLoader with workers or in another process with a queue.",
}
_ON_DEVICE = (
    "Keep the dataset on the CPU, and copy each batch to the GPU once: tensors on the GPU make each item launch "
    "kernels and copies. Workers cannot load from a GPU."
)
_PREPARED = "First compute what does not depend on chance when the data set is prepared{}, and store it. "
_PRE_TRANSFORM = " (pre_transform= instead of transform=)"
# Of a function's time, in up to three that it calls: then these stand for it. Of the loader's: less is no part; chosen.
_INNER, _MINOR, _NAMED = 0.8, 0.15, 3
# Calls a batch from which on a function runs for each item, and processes at most; chosen.
_ITEMS, _MANY_WORKERS = 4, 16
_LEVELS = 64  # of functions that call each other, from the loader's own on; chosen
_CHANCE = regex(
    r"^aten::(?:rand\w*|uniform_?|normal_?|bernoulli_?|multinomial|native_dropout)$|(?:^|/)random\.py\("
    r"|^<built-in method \w+ of (?:_?random|numpy\.random)\."
)
_ONCE = "Record more steps, to see whether this recurs. If it does: "


class Limits:
    min_wait_ns: int = 200_000
    """shorter waits for a batch are ignored; fetching a batch that is ready takes 50 µs under the profiler
    (measured on the host of an H200)"""
    min_steps_share: float = 0.5
    """waiting is regarded as recurring if at least this share of the steps waits; chosen"""
    min_function_share: float = 0.5
    """the title names functions if they take at least this share of the loader's time together"""
    min_launches: int = 32
    """a loader that launches at least this many kernels and copies a batch works on tensors on the GPU; a
    loader that copies a batch launches one per tensor; chosen"""


@rule(since="0.1", claims=Claims.EVENT, limits=Limits, causes=("on-device",))
def dataloader_stall(
    calls: Calls, activity: Activity, idle: IdleTime, steps: Steps, forecast: Forecast | None, limits: Limits
) -> Iterator[Hits]:
    """The step waits for its next batch of data.

    What it looks for: idle time of the GPU while the launching thread loads data. The thread is in a
    DataLoader's next(), in a DataPipe, or in an annotation such as load_batch.
    Why it costs: the CPU cannot launch work on a batch before the batch is there.
    If the loader's own ops launch kernels and copies, the dataset lies on the GPU (`on-device`). Then its ops are
    what can go, and its Python code stays.
    With recorded stacks, the finding names the deepest functions that hold most of a batch's time. What they compute
    for each item without random numbers can be computed once, when the data set is prepared.
    Bad: DataLoader(num_workers=0) with images decoded in the step. Good: enough workers, pinned memory and
    prefetching, so that next() returns at once.
    How sure: the time of next() and the GPU's idle time during next() are measured.
    When it is wrong: an annotation named load_batch does something else. Or only a few steps wait, perhaps
    because the workers have just started. A longer recording shows whether the wait recurs.
    Source: PyTorch's performance tuning guide, "Enable asynchronous data loading and augmentation".
    """
    loading = calls[np.isin(calls.rows, activity.rows["data_loading"])]
    outermost = loading[~loading.parent.inside(loading)]
    waits = outermost[outermost.dur_ns >= limits.min_wait_ns]
    for name, same_waits in waits.by(waits.name):
        inside = same_waits.contents()
        names = "".join(inside.name.distinct())
        kind = next((kind for kind in _ADVICE if kind and kind in names), "")
        spent = time_in_ops(same_waits, inside) if kind == "SingleProcess" else {}
        functions = time_in_functions(same_waits, inside) if kind != "MultiProcessing" else {}
        waited = distinct(same_waits.step)
        few = len(waited) < limits.min_steps_share * len(steps)
        once = few and bool((np.diff(waited) == 1).all())  # a few steps in a row
        launched, _ = same_waits.launched()
        on_device = len(launched) >= limits.min_launches * len(same_waits)
        # A loader of tensors on the CPU does without the launches of kernels, and without the ops that copy.
        copies = ~launched.kind.one_of("compute") & launched.op.there
        needless = distinct(np.where(copies, launched.op.rows, launched.launch.rows))
        leaving = DropSpans(same_waits.start_ns, same_waits.end_ns, leaving_ns=_NEXT_NS)
        parts = _title_parts(functions, same_waits.total_ns, limits)
        where = "functions" if parts else "ops" * bool(spent)
        # The recorder slows the loader and the rest of a step by different factors.
        workers = "4 or more" if forecast is None else _workers(forecast.saving([leaving]))
        remedy = _ADVICE[kind].format(workers=workers)
        remedy = _of_functions(remedy, same_waits, inside, functions) if parts else remedy
        yield Hits(
            occurrences=same_waits,
            named_by=name,
            cause="on-device" if on_device else "",
            lost=LostTime.idle_within(idle, same_waits.start_ns, same_waits.end_ns),
            fix=Drop(needless) if on_device else leaving,
            message="{by} leaves the GPU idle for {total_a_step} under the profiler; it takes {typical} each time "
            "(at most {largest}), {in_steps}"
            + (" (the others do not wait)" if once else "")
            + ("; it launches work {number} times a batch" if on_device else "")
            + (f"; the loader spends its time in {{{where}:of the loader's time}}" if where else ""),
            advice=_ONCE * once + (_ON_DEVICE if on_device else remedy),
            evidence={
                "typical_ns": int(median(same_waits.dur_ns)),
                "largest_ns": int(same_waits.dur_ns.max()),
                "wait_ns": same_waits.total_ns,
                "number": round(len(launched) / len(same_waits)),
                "ops": spent,
                "functions": functions,
                **parts,
                "lines": {name: ns for name, ns in functions.items() if name != NO_LINE},
            },
            info=once,
        )


def _workers(saving: Saving) -> str:
    """How many processes load as fast as the steps run: a batch's time over that of the rest of a step."""
    many = saving.share * (_MANY_WORKERS + 1) >= _MANY_WORKERS
    return f"{_MANY_WORKERS} or more" if many else str(int(max(saving.share, 0.0) / (1 - saving.share)) + 1)


def _title_parts(functions: Mapping[str, int], wait_ns: int, limits: Limits) -> dict[str, str]:
    """`46 % of it in encoding.py, 29 % in to_undirected()`, and its begin; empty if they are not most."""
    named = Counter[str]()
    for name, ns in functions.items():
        named[function_words(name).partition(": ")[0]] += ns * (name != NO_LINE)
    del named[NO_LINE]
    first, *others = [f"{percent(ns / wait_ns)} in {name}" for name, ns in named.items()] or [""]
    first = first.replace(" in ", " of it in ", 1)
    mostly = sum(named.values()) >= limits.min_function_share * wait_ns
    return {"parts": ", ".join([first, *others[:1]]), "first_part": first} if mostly else {}


def _of_functions(remedy: str, waits: Calls, inside: Calls, functions: Mapping[str, int]) -> str:
    """The remedy for a loader that spends its time in these functions."""
    code, every = waits.events.user_code, intervals.union(waits.start_ns, waits.end_ns)
    named = [name for name in functions if name != NO_LINE]
    calls = np.flatnonzero(Texts(code.code, code.names).one_of(*named))
    calls = calls[intervals.covered(every, code.start_ns[calls], code.end_ns[calls]) > 0]
    within = intervals.union(code.start_ns[calls], code.end_ns[calls])
    ops, python = inside.name.matches(_CHANCE.pattern), waits.events.trace.lanes.python
    starts = np.append(inside.start_ns[ops], ints(python, "start_ns")[matching(python, "name", _CHANCE.search)])
    if len(calls) < _ITEMS * len(waits) or intervals.covered(within, starts, starts + 1).any():
        return f"{remedy} {named[0]} itself may be faster with arrays instead of lists and Python loops."
    return _PREPARED.format(_PRE_TRANSFORM * any("torch_geometric/" in name for name in named)) + remedy


def time_in_ops(waits: Calls, inside: Calls) -> dict[str, int]:
    """Op -> ns of its own within the waits, and what lies in no op; empty where no op was recorded."""
    ops = inside[inside.is_op & ~inside.is_annotation]
    if not len(ops):
        return {}
    own_ns = ops.name.sums(ops.self_ns)
    inner = inside[~inside.is_op & ~inside.is_annotation & (inside.parent.op.rows >= 0)]
    calls_ns = inner.op.name.sums(inner.self_ns)  # a call's time is its op's
    return with_rest({op: ns + calls_ns.get(op, 0) for op, ns in own_ns.items()}, waits.total_ns, _NO_OP)


def time_in_functions(waits: Calls, inside: Calls) -> dict[str, int]:
    """The user's deepest functions that hold most of the waits, with what they call -> ns, and the rest.

    Read at instants that lie evenly in all waits; where only ops have stacks, from these; empty without stacks.
    """
    code, reached = waits.events.user_code, np.cumsum(waits.dur_ns)
    if not len(code.start_ns):
        ops = inside[inside.is_op & ~inside.is_annotation]
        lines = ops.line.sums(ops.self_ns)
        return with_rest(lines, waits.total_ns, NO_LINE) if lines else {}
    within = ((np.arange(_SAMPLES) + 0.5) / _SAMPLES * reached[-1]).astype(np.int64)
    row = np.searchsorted(reached, within, side="right")
    innermost = code.open_at(waits.end_ns[row] - (reached[row] - within), waits.thread[row])
    paths = list[list[str]]()
    for frame, start_ns in zip(innermost.tolist(), waits.start_ns[row].tolist(), strict=True):
        path = list[str]()
        while frame >= 0 and code.start_ns[frame] >= start_ns:
            name = str(code.names[code.code[frame]])
            path = path if path[:1] == [name] else [name, *path]  # a function that calls itself is one
            frame = int(code.caller[frame])
        paths.append(path[:_LEVELS])
    deepest = _deepest(paths, 0, _SAMPLES / 2).items()
    lines = {name: waits.total_ns * count // _SAMPLES for name, count in deepest}
    return with_rest(lines, waits.total_ns, NO_LINE) if lines else {}


def _deepest(paths: Sequence[Sequence[str]], level: int, least: float) -> dict[str, int]:
    """How many of the paths are in each of the deepest few functions that hold `least` of them."""
    called = Counter(path[level] for path in paths if len(path) > level)
    largest = {name: count for name, count in called.most_common(_NAMED) if count >= _MINOR * _SAMPLES}
    total = sum(largest.values())
    if level and total < max(least, _INNER * len(paths)):
        return {}
    deeper = Counter[str]()
    for name, count in largest.items():
        inside = [path for path in paths if path[level : level + 1] == [name]]
        deeper.update(_deepest(inside, level + 1, least * count / total) or {name: count})
    return deeper if len(deeper) <= _NAMED else largest


def with_rest(parts: Mapping[str, int], whole_ns: int, rest: str) -> dict[str, int]:
    """The parts and the rest of the whole in ns, largest first. A rest below 1 % is left out."""
    remaining = whole_ns - sum(parts.values())
    every = {**parts, rest: remaining} if remaining * 100 >= whole_ns else dict(parts)
    return dict(sorted(every.items(), key=lambda part: -part[1]))
