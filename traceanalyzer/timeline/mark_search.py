"""Which rows of the CPU lane mark the steps or stand in for them, and the iterations within a mark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Ns, Rows, numbered
from traceanalyzer.model.containment import nearest_reaching
from traceanalyzer.model.schema import CALL_CATEGORIES
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace, codes, matching, texts_of
from traceanalyzer.timeline import names as patterns
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting
from traceanalyzer.timeline.synchronisation import SyncCalls

# vLLM: requests in prefill and in decode, as execute_context_2(6144)_generation_3(3) or execute_32_context_0(..)_...
_CONTEXT = regex(r"^execute_.*?context_(\d{1,9})\(.*?\)_generation_(\d{1,9})\(")
# vLLM before it counted so: requests that are new, and others, which may still be in prefill: execute_new_2_cached_3
_NEW = regex(r"^execute_new_(\d{1,9})_cached_(\d{1,9})$")
# SGLang: step[DECODE bs=64 ..], step[EXTEND bs=2 toks=14721 ..]; ATOM: prefill[..], decode[bs=117/128 ..]
_BRACKETS = regex(r"^(?:step\[(\w+)|(prefill|decode)\[)")
_BATCH = regex(r"\bbs=(\d{1,9})")
# Tokens in prefill and in decode: of vLLM as above, on ROCm execute_32_context_1(sq32sk99..)_generation_..; of SGLang
_TOKENS = regex(r"^execute_.*?context_\d+\((?:sq)?(\d{1,9}).*?\)_generation_\d+\((?:sq)?(\d{1,9})")
_ALL_TOKENS = regex(r"\btoks=(\d{1,9})")
# Sums over requests of queries (sq) and keys (sk): sq32sk99sqsq32sqsk99 of vLLM, g_sk=99 of SGLang, sk=99 of ATOM
_SUMS = regex(r"(?<![a-z])(sqsq|sqsk|sq|sk)=?(\d{1,15})")
# vLLM with an early patch of TraceLens, prefill alone: tokens, sum of their squares: execute_context_1(888_788544)_...
_SQUARES = regex(r"^execute_context_\d+\((\d{1,15})_(\d{1,15})\)_generation_0\(0\)$")
_MOST_PAIRS = 2**42  # of a step: damaged marks have more; one prompt of 3 million tokens has as many


def phase_and_batch(name: str) -> tuple[str | None, int]:
    """("prefill", "decode", "mixed" or what the engine calls it; batch size); None and -1 where the name is silent."""
    if cached := _NEW.match(name):
        new, old = int(cached[1]), int(cached[2])
        return "new and cached" if new and old else "new" if new else "cached", new + old
    if context := _CONTEXT.match(name):
        prefills, decodes = int(context[1]), int(context[2])
        phase = "mixed" if prefills and decodes else "prefill" if prefills else "decode"
        return phase, prefills + decodes
    brackets = _BRACKETS.match(name)
    if not brackets:
        return None, -1
    phase = (brackets[1] or brackets[2]).lower()
    batch = _BATCH.search(name)
    return "prefill" if phase == "extend" else phase, int(batch[1]) if batch else -1


def prompt_and_new_tokens(name: str) -> tuple[int, int]:
    """Tokens of prompts that the step reads, and new tokens that it computes; 0 where the name is silent."""
    if tokens := _TOKENS.match(name):
        return int(tokens[1]), int(tokens[2])
    every = _ALL_TOKENS.search(name)
    count = int(every[1]) if every else 0
    return {"prefill": (count, 0), "decode": (0, count)}.get(phase_and_batch(name)[0] or "", (0, 0))


@dataclass(frozen=True, slots=True)
class Attended:
    """Sums over the requests of a serving step, at least: queries, their keys, and pairs that a causal mask keeps."""

    queries: int  # 0 where the name is silent
    keys: int
    pairs: int


def attended(name: str) -> Attended | None:
    """What a step attends to; None where its name has no sums, as most marks, or the step has no requests."""
    # vLLM's `detailed_trace_annotation`, SGLang's `detailed_annotations`, ATOM's `ATOM_ENABLE_DETAILED_ANNOTATION=1`.
    sums: Counter[str] = Counter()
    if squares := _SQUARES.match(name):
        tokens, squared = int(squares[1]), int(squares[2])
        # A prompt whose beginning is in the cache has more keys.
        sums.update(sq=tokens, sk=tokens, sqsq=squared, sqsk=squared)
    elif patterns.SERVING_MARK.match(name):
        for key, value in _SUMS.findall(name):
            sums[key] += int(value)
    # The last query of a request sees all of its keys, each one before it one less.
    pairs = sums["sqsk"] - (sums["sqsq"] - sums["sq"]) // 2
    known = sums["sk"] and sums["sqsq"] and 0 < pairs < _MOST_PAIRS
    return Attended(sums["sq"], sums["sk"], pairs) if known else None


FROM_THE_START = ("window", "Optimizer.step")  # kinds whose first mark begins with the recording
SERVING = "serving step"  # kind of the marks of a server
_MIN_COVER = 0.5  # of the window: the minimum that a repeated annotation must cover to count as the step; chosen
_NUMBER = regex(r"\d+")
_NO_MARKS = "no step marks: the whole window counts as one step; call prof.step() to get steps"
_MOST_DIGITS = 18  # of a step number that surely fits 64 bits; another counts from 0


@dataclass(frozen=True, slots=True)
class Marks:
    """Steps as they are marked; at an `open_end` the last one ends with the recording, for want of a mark."""

    kind: str
    source: str
    number: Ns
    start_ns: Ns
    end_ns: Ns
    names: tuple[str, ...] = ()  # a serving engine's marks, (steps,), and empty for others
    open_end: bool = False


def find_marks(trace: Trace, nesting: Nesting, start: int, end: int) -> Marks:
    """The first kind of mark that the trace has; the window [start, end) as one step where it has none."""
    annotations = _Annotations.of(trace, nesting, np.flatnonzero(nesting.annotation), end)
    begins, ends, names = annotations.outermost(patterns.STEP_MARK)
    if len(begins):
        digits = enumerate(_NUMBER.findall(name)[-1] for name in names)
        numbers = [int(text) if len(text) <= _MOST_DIGITS else place for place, text in digits]
        number = np.array(numbers, np.int64)
        return Marks("ProfilerStep", "steps are ProfilerStep marks", number, begins, ends)
    begins, ends, names = annotations.outermost(patterns.SERVING_MARK)
    if len(begins):
        source = f"steps are the server's own marks ({names[0]})"
        return _until_the_next(SERVING, source, begins, int(ends[-1]), tuple(names))
    # Runs of compiled code are ops.
    compiled = matching(trace.lanes.cpu, "name", patterns.COMPILED_REGION.match) & (nesting.thread >= 0)
    regions = _Annotations.of(trace, nesting, np.flatnonzero(compiled), end)
    return (
        _optimizer(annotations, start, end)
        or _repeated(annotations, start, end)
        or _begun_by(annotations, patterns.DATA_LOADING, "a data loader's batch", end)
        or _begun_by(regions, patterns.COMPILED_REGION, "a compiled region", end)
        or _until_the_next("window", _NO_MARKS, np.array([start]), end)
    )


def _optimizer(annotations: _Annotations, start: int, end: int) -> Marks | None:
    """From one optimizer's step to the next."""
    _, ends, _ = annotations.outermost(patterns.OPTIMIZER_MARK)
    source = "no ProfilerStep marks: a step reaches from one Optimizer.step's end to the next"
    return _until_the_next("Optimizer.step", source, np.append(start, ends[:-1]), end) if len(ends) > 1 else None


def _repeated(annotations: _Annotations, start: int, end: int) -> Marks | None:
    """An annotation of the user that repeats, but for numbers in its name, and covers most of the window."""
    plain, names = _numberless(annotations.name.names)
    no_steps = (patterns.is_compilation, patterns.DATA_LOADING.search, patterns.COMMUNICATION_MARK.match)
    left_out = annotations.name.meets(lambda name: any(meets(name) for meets in no_steps))
    code = plain[annotations.name.code]
    rows = np.argsort(code, kind="stable")
    rows = rows[~left_out[rows]]
    begins, ends, code = annotations.start_ns[rows], annotations.end_ns[rows], code[rows]
    outermost = nearest_reaching(ends, begins + 1, code) < 0
    begins, ends, code = begins[outermost], ends[outermost], code[outermost]
    alike, whole = Counter(plain.tolist()), dict(zip(plain.tolist(), annotations.name.names, strict=True))
    shown = [whole[place] if alike[place] == 1 else name for place, name in enumerate(names)]
    cover = np.bincount(code, weights=ends - begins, minlength=len(names))
    repeated = np.bincount(code, minlength=len(names)) > 1
    best = min(np.flatnonzero(repeated), key=lambda place: (-cover[place], shown[place]), default=None)
    if best is None or cover[best] < max(_MIN_COVER * (end - start), 1):
        return None
    name, chosen = shown[best], code == best
    source = f"no ProfilerStep marks: steps are the annotation {name!r}"
    return _until_the_next(name, source, begins[chosen], int(ends[chosen][-1]))


def _until_the_next(
    kind: str, source: str, begins: Ns, end: int, names: tuple[str, ...] = (), *, open_end: bool = True
) -> Marks:
    """Steps from each of the program's own marks to the next: what the host does between them is the program's."""
    return Marks(kind, source, np.arange(len(begins)), begins, np.append(begins[1:], end), names, open_end)


def _begun_by(annotations: _Annotations, wanted: re.Pattern[str], what: str, end: int) -> Marks | None:
    """From each row that has the name of the first one wanted to the next."""
    begins, _, names = annotations.outermost(wanted)
    begins = begins[[name == names[0] for name in names]] if names else begins
    if len(begins) < 2:
        return None
    source = f"no ProfilerStep marks: a step reaches from {what} ({names[0]}) to the next"
    return _until_the_next(names[0], source, begins, end)


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The user annotations of the CPU lane, ordered by start, longest first; ends cut at the recording's."""

    start_ns: Ns
    end_ns: Ns
    name: Texts  # all of whose names occur

    @classmethod
    def of(cls, trace: Trace, nesting: Nesting, rows: Ns, latest: int) -> Self:
        starts = nesting.start_ns[rows]
        ends = np.minimum(nesting.end_ns[rows], np.maximum(latest, starts))
        order = np.lexsort((-ends, starts))
        code, used = numbered(codes(trace.lanes.cpu, "name")[rows])
        return cls(starts[order], ends[order], Texts(code[order], texts_of(trace.lanes.cpu, "name")[used]))

    def outermost(self, wanted: re.Pattern[str]) -> tuple[Ns, Ns, list[str]]:
        """Starts, ends and names of those wanted that lie in no other of them."""
        rows = np.flatnonzero(self.name.matches(wanted))
        rows = rows[nearest_reaching(self.end_ns[rows], self.start_ns[rows] + 1, np.zeros(len(rows), np.int64)) < 0]
        return self.start_ns[rows], self.end_ns[rows], self.name[rows].values().tolist()


_LEAST = 3  # repeats: fewer may be chance, as forward and backward of a net of one layer
_LEAST_ROWS = 8  # of an iteration; shorter ones are loops over tensors, in which a launch is all there is
_LAGS = 8  # times that the rarest row comes in an iteration, at most
_USERS = "ProfilerStep"  # kind of the marks that say where the user called `prof.step()`


def iterations_within(trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork, marks: Marks) -> Marks:
    """The iterations of a single mark, where it consists of nothing else; else the mark.

    `prof.step()` may be called once for ten forward passes. An iteration is what repeats: the same ops, annotations and
    launches in the same order, from the mark's first to its last; around a model's layers, which repeat, too, is more.
    Of several marks the user knows best what a step is; but where they hold different numbers of the same iterations,
    the marks are no unit.
    """
    if not (work.call >= 0).any() or (len(marks.number) > 1 and marks.kind != _USERS):
        return marks
    kinds = _numberless(texts_of(trace.lanes.cpu, "name"))[0][codes(trace.lanes.cpu, "name")]
    held = [rows for rows in _top_level_rows(trace, nesting, syncs, work, marks) if len(rows)]
    periods = {_period(kinds[rows]) for rows in held}
    period = periods.pop() if len(periods) == 1 else 0
    if period == 0 or any((kinds[rows[:period]] != kinds[held[0][:period]]).any() for rows in held):
        return marks
    counts = {len(rows) // period for rows in held}
    what = f"the same {period} ops and launches"
    if len(held) > 1 and len(counts) == 1:
        return replace(marks, source=f"{marks.source}; each holds {counts.pop()} repeats of {what}")
    begins = np.concatenate([nesting.start_ns[rows[::period]] for rows in held])
    whole = "the recording" if marks.kind == "window" else f"the one {marks.kind} mark"
    inside = whole if len(marks.number) == 1 else f"{len(held)} {marks.kind} marks"
    source = f"a step is what repeats {len(begins)} times within {inside}: {what}"
    return _until_the_next("iteration", source, begins, int(marks.end_ns[-1]), open_end=marks.open_end)


def _top_level_rows(trace: Trace, nesting: Nesting, syncs: SyncCalls, work: DeviceWork, marks: Marks) -> list[Rows]:
    """Ops, annotations, launches and waits that lie in nothing but each mark, on the thread that launches most."""
    cpu = trace.lanes.cpu
    launched = work.call[work.call >= 0]
    thread = int(np.bincount(nesting.thread[launched]).argmax())
    wanted = (patterns.LAUNCH, patterns.COPY_CALL, patterns.SYNCHRONISING)
    telling = matching(cpu, "category", CALL_CATEGORIES.__contains__)
    telling &= matching(cpu, "name", lambda name: any(pattern.search(name) for pattern in wanted))
    telling |= nesting.annotation | matching(cpu, "category", "cpu_op".__eq__)
    telling[syncs.row[syncs.profiler]] = False
    rows = nesting.thread_rows[thread].astype(np.int64)
    around = np.append(_around(nesting, marks), True)  # the last stands for no parent
    rows = rows[around[nesting.parent[rows]]]
    free = rows[telling[rows] & ~around[rows]]
    mark = np.searchsorted(marks.start_ns, nesting.start_ns[free], side="right") - 1
    free, mark = free[mark >= 0], mark[mark >= 0]
    inside = nesting.end_ns[free] <= marks.end_ns[mark]
    edges = np.searchsorted(mark[inside], np.arange(1, len(marks.number)))
    return np.split(free[inside], edges)


def _around(nesting: Nesting, marks: Marks) -> Mask:
    """Which rows are annotations that hold a mark, or are one; bool (rows,)."""
    rows = np.flatnonzero(nesting.annotation)
    first = np.searchsorted(marks.start_ns, nesting.start_ns[rows])
    ends = np.append(marks.end_ns, np.iinfo(np.int64).max)
    around = np.zeros(len(nesting.annotation), bool)
    around[rows[nesting.end_ns[rows] >= ends[first]]] = True
    return around


def _numberless(names: Iterable[str]) -> tuple[Rows, tuple[str, ...]]:
    """(code of each name with the numbers in it left aside, those names)."""
    plain = [_NUMBER.sub("#", name) for name in names]
    place = {name: code for code, name in enumerate(dict.fromkeys(plain))}
    return np.array([place[name] for name in plain], np.int64), tuple(place)


def _period(kind: Rows) -> int:
    """Rows of one iteration, where the sequence is iterations and nothing else; 0 where it is not."""
    if len(kind) < _LEAST * _LEAST_ROWS:
        return 0
    dense, _ = numbered(kind)
    counts = np.bincount(dense)
    if counts.min() < _LEAST:
        return 0
    positions = np.flatnonzero(dense == counts.argmin())
    periods = {int(positions[lag] - positions[0]) for lag in range(1, min(_LAGS, len(positions) - 1) + 1)}
    for period in sorted(periods):
        whole = len(kind) % period == 0 and len(kind) >= _LEAST * period
        if whole and np.array_equal(kind[period:], kind[:-period]):
            return period if period >= _LEAST_ROWS else 0
    return 0
