"""Compares the snapshots of two sides, and notes what makes them hard to compare."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.compared_rows import FLOORS, PRODUCT_FLOOR, ComparedRow, compared_row, corrected
from traceanalyzer.comparison.formatting import SILENT, signed_percent
from traceanalyzer.comparison.jobs import job_notes, rank_changes, slowest
from traceanalyzer.comparison.matching import RUNGS, Pair, matched
from traceanalyzer.comparison.reasons import changed_functions_note, fault_changes, reasons
from traceanalyzer.comparison.region_changes import region_changes
from traceanalyzer.comparison.result import (
    Axes,
    Comparison,
    DeviceAxis,
    RankChange,
    Row,
    StepAxis,
    Verdict,
    Waterfall,
    Word,
)
from traceanalyzer.comparison.snapshot import TABLES, Captures, Side, Snapshot, Source, rows_of
from traceanalyzer.comparison.step_axis import changed_calls, counted, program_changed, step_axis
from traceanalyzer.comparison.waterfall import waterfall_of
from traceanalyzer.model.units import format_ns, percent
from traceanalyzer.rule.evidence_texts import shapes_in_words

Both = tuple[Snapshot, Snapshot]
_SETTLE = "record 3 more captures of each, in processes of their own"
# Of the step, that two groups must gain and lose for it to be said that one ate the other; chosen.
_OPPOSED = 0.05


def verdict_of(
    axes: Axes, because: tuple[str, ...], inputs: str, identical: bool, sides: Both, waterfall: Waterfall | None
) -> Verdict:
    """What is said of the step; `inputs` says in what the two had other inputs, `identical` if all is the same."""
    step = axes.step
    if identical:
        why = "the recordings are the same to the nanosecond"
        return Verdict(Word.IDENTICAL, 0.0, why, "", (), f"identical: {why}")
    if step is None:
        why = f"no GPU work in {_names(sides, lambda side: side.step is None)}"
        return Verdict(Word.UNKNOWN, None, why, "record both with a GPU", because, f"unknown: {why}")
    times = f"{formatting.times(step.base_ns, step.new_ns)} a step ({signed_percent(step.difference)})"
    # All that is known of a side is one step, a large part of which is a cold start.
    cold = _names(sides, lambda one: one.steps == 1 and any("cold-start" in each.rules for each in one.faults))
    if inputs:
        why, settle = inputs, "record both with the same inputs"
    elif sides[0].marked != sides[1].marked:
        why, settle = "steps are marked on one side only", "call prof.step() once an iteration on both"
    elif cold:
        why = f"the one step of {cold} is a cold start"
        settle = "record both after a warm-up, several steps each"
    else:
        return _of_step(axes, step, because, times, waterfall)
    return Verdict(Word.UNKNOWN, None, why, settle, because, f"unknown: {why}; {times}")


def _names(sides: Both, chosen: Callable[[Snapshot], bool]) -> str:
    return " and ".join(name for name, side in zip(("BASE", "NEW"), sides, strict=True) if chosen(side))


def _of_step(axes: Axes, step: StepAxis, because: tuple[str, ...], times: str, waterfall: Waterfall | None) -> Verdict:
    changed = program_changed(axes.exact)
    silent = not changed and (axes.device is None or axes.device.word is Word.SAME)
    if step.word in (Word.SLOWER, Word.FASTER):
        why = _why(step)
        return Verdict(step.word, None, why, "", because, f"{step.word}: {times}; {why}")
    opposed = _opposed(waterfall)
    if step.word is Word.SAME or silent:
        # What is not excluded: with captures enough the farther end of the interval, else where the GPU sets the pace
        # what its kernels tell, else what steps do.
        resolution = PRODUCT_FLOOR if {step.base_bound, step.new_bound} == {"gpu"} else step.needed
        if step.low is not None and step.high is not None:
            resolution = max(abs(step.low), abs(step.high))
        within = max(resolution, abs(step.difference))
        why = _why_same(step, silent) + opposed
        settle = "" if step.low is not None else f"to see less, {_SETTLE}"
        return Verdict(Word.SAME, within, why, settle, because, f"same within {percent(within)}: {times}; {why}")
    what = "the program changed" if changed else "its work changed"
    why = f"{what}, but one recording per side cannot show differences below {percent(step.needed)}{opposed}"
    return Verdict(Word.UNKNOWN, None, why, _SETTLE, because, f"unknown: {times}; {why}")


def _why(step: StepAxis) -> str:
    if step.low is not None:
        return f"{step.captures[0]} and {step.captures[1]} captures, {_interval(step)}"
    kind = "as timed" if step.measured else "as recorded"
    kind = "predicted without the profiler" if step.predicted else kind
    if abs(step.difference) > step.needed or step.difference < -step.needed / (1 + step.needed):
        least = percent(step.needed)
        return f"{kind}; recordings of one program differ by {least} at most in nine of ten"
    return f"{kind}; work on the GPU explains it"


def _interval(step: StepAxis) -> str:
    return f"interval {signed_percent(step.low or 0.0)} to {signed_percent(step.high or 0.0)}"


def _why_same(step: StepAxis, silent: bool) -> str:
    if step.low is not None:
        return _interval(step)
    if silent:
        return "launches, work, waits and times of kernels are the same; the rest is noise of one recording a side"
    return "the difference is no larger than noise"


def _opposed(waterfall: Waterfall | None) -> str:
    if waterfall is None:
        return ""
    least = _OPPOSED * max(waterfall.base_ns, 1)
    groups = sorted(waterfall.groups.items(), key=lambda item: item[1][2])
    (gained, (*gained_ns, gain)), (lost, (*lost_ns, loss)) = groups[0], groups[-1]
    if gain > -least or loss < least:
        return ""
    return (
        f". Nothing gained, because {gained} gives {format_ns(-gain)} ({formatting.times(*gained_ns)})"
        f" and {lost} takes {format_ns(loss)} ({formatting.times(*lost_ns)})"
    )


_OTHER_INPUTS = 0.3  # of the GPU time of both sides in ops that got other sizes as often as before; chosen
_AS_OFTEN = 0.02  # of all pieces of work, by which their number may differ; chosen
_PACE = 0.05  # of another pace of the host that is worth a note; chosen


def other_inputs(rows: Sequence[ComparedRow], sides: Both) -> str:
    """In what the two had other inputs: a sentence, empty where they had not."""
    base, new = sides
    if base.phase != new.phase or base.batch != new.batch:
        return f"the steps are of {_step(base)} and of {_step(new)}"
    total = sum(one.row.total_ns for one in rows)
    other = [one for one in rows if one.other_inputs]
    own = sum(one.row.total_ns for one in other)
    # Both do as many pieces of work, so that only sizes differ.
    counts = [sum(one.row.sides[side].count for one in rows) for side in (0, 1)]
    as_often = abs(counts[0] - counts[1]) <= _AS_OFTEN * max(counts, default=0)
    if not other or own < _OTHER_INPUTS * total or not as_often:
        return ""
    lead = max(other, key=lambda one: (one.row.total_ns, one.row.op)).row
    assert lead.base is not None
    assert lead.new is not None
    got, gets = (shapes_in_words(side.shapes.partition(" | ")[0]) for side in (lead.base, lead.new))
    return f"other shapes: {lead.op} got {got} and gets {gets}"


def _step(side: Snapshot) -> str:
    return f"{side.phase or 'no phase'}" + f" with {side.batch} requests" * (side.batch is not None)


def notes_of(base: Snapshot, new: Snapshot, pace: float) -> list[str]:
    """GPU, versions, what was recorded, what marks steps, and the host's pace, where they differ."""
    notes = []
    if base.gpus != new.gpus:
        notes.append(f"other GPU: {', '.join(base.gpus) or 'unknown'} and {', '.join(new.gpus) or 'unknown'}")
    for name in sorted(base.versions.keys() | new.versions.keys()):
        versions = base.versions.get(name), new.versions.get(name)
        if versions[0] != versions[1] and all(versions):
            notes.append(f"other {name}: {versions[0]} and {versions[1]}")
    if base.step_kind != new.step_kind:
        notes.append(f"steps are marked by {base.step_kind} and by {new.step_kind}")
    elif not base.marked:
        notes.append("nothing marks steps: each recording counts as one step")
    only = set(base.recorded) ^ set(new.recorded)
    if only:
        notes.append(f"recorded on one side only: {', '.join(sorted(only))}")
    if abs(pace - 1) > _PACE:
        what = f"{pace:.2f} times as long in NEW"
        notes.append(f"host: what both do took {what}; both steps are predicted for a host between the two")
    return notes


_REAL_SHARE = 0.01  # of the GPU time: less is no difference, however sure; noise/


def compared(base: Side, new: Side) -> Comparison:
    """What changed from one side to the other: of each at least one capture of at least one rank."""
    sides = _by_rank(base), _by_rank(new)
    pair = slowest(sides[0]), slowest(sides[1])
    chosen = sides[0][pair[0]], sides[1][pair[1]]
    ranks = rank_changes(*sides) if max(map(len, sides)) > 1 else ()
    sources = [_source(*side) for side in zip((base, new), sides, pair, strict=True)]
    return _of_pair(*chosen, sources, ranks, job_notes(*sides, ranks))


def _by_rank(side: Side) -> dict[int | None, Captures]:
    every = {rank for capture in side for rank in capture}
    ranks = sorted(every, key=lambda rank: -1 if rank is None else rank)
    return {rank: Captures.of([capture[rank] for capture in side if rank in capture]) for rank in ranks}


def _source(side: Side, by_rank: Mapping[int | None, Captures], rank: int | None) -> Source:
    one = by_rank[rank].together
    names = tuple(sorted({snapshot.source for capture in side for snapshot in capture.values()}))
    recorded = one.gpus, one.versions, one.recorded, one.steps, one.step_kind
    return Source(names, len(side), tuple(by_rank), rank, *recorded)


def _of_pair(
    base: Captures, new: Captures, sources: list[Source], ranks: tuple[RankChange, ...], notes: list[str]
) -> Comparison:
    first, second = base.together, new.together
    tables = first.tables["work"], second.tables["work"]
    pairs = matched(*tables)
    rows_of_both = rows_of(tables[0]), rows_of(tables[1])
    compared_rows = [compared_row(pair, rows_of_both) for pair in pairs]
    inputs = other_inputs(compared_rows, (first, second))
    rows = corrected(compared_rows, comparable=not inputs)
    calls = changed_calls(first, second)
    counters = counted(first, second, calls, rows)
    changed = program_changed(counters)
    device = device_axis(rows)
    step = step_axis(base, new, device, changed)
    waterfall = None
    if step is not None:
        waterfall = waterfall_of((step.base_ns, step.new_ns), rows, (first, second))
        deltas = [round(row.sides[1].exposed_ns) - round(row.sides[0].exposed_ns) for row in rows]
        rows = [replace(row, delta_ns=delta) for row, delta in zip(rows, deltas, strict=True)]
    order = sorted(rows, key=lambda row: (row.word in SILENT, -abs(row.delta_ns), row.op, row.outer, row.kind))
    told = step is not None and step.word is not Word.UNKNOWN and not inputs
    got = -step.difference if step is not None and told else None
    faults = fault_changes(first.faults, second.faults, got)
    regions = region_changes(first.regions, second.regions)
    because = reasons(faults, order, calls, waterfall, step, changed_functions_note(regions, step))
    axes = Axes(counters, device, step)
    verdict = verdict_of(axes, because, inputs, are_identical(base, new), (first, second), waterfall)
    pace = step.pace if step else 1.0
    return Comparison(
        base=sources[0],
        new=sources[1],
        verdict=verdict,
        axes=axes,
        waterfall=waterfall,
        rows=tuple(order),
        calls=calls,
        faults=faults,
        rungs=rung_shares(pairs, tables),
        ranks=ranks,
        notes=(*notes, *filter(None, [inputs]), *notes_of(first, second, pace)),
        strips=(first.strip, second.strip),
        regions=regions,
    )


def device_axis(rows: Sequence[Row]) -> DeviceAxis | None:
    base, new = (sum(row.sides[side].ns for row in rows) for side in (0, 1))
    if base <= 0 or new <= 0:
        return None
    real = sum(row.sides[1].ns - row.sides[0].ns for row in rows if row.word not in SILENT)
    differs = abs(real) > _REAL_SHARE * base
    word = (Word.SLOWER if real > 0 else Word.FASTER) if differs else Word.SAME
    return DeviceAxis(round(base), round(new), round(real), word, FLOORS)


def rung_shares(pairs: Sequence[Pair], tables: tuple[object, object]) -> Mapping[str, float]:
    times = [table["ns"].to_numpy() for table in tables]  # type: ignore[index]
    total = sum(float(time.sum()) for time in times)
    sums = dict.fromkeys(RUNGS, 0.0)
    for pair in pairs:
        for ns, parts in zip(times, (pair.base, pair.new), strict=True):
            sums[pair.rung] += sum(float(ns[row]) * share for row, share in parts.items())
    return {str(rung): ns / total if total else 0.0 for rung, ns in sums.items()}


def are_identical(base: Captures, new: Captures) -> bool:
    """Whether the recordings say the same to the last nanosecond; not where they say nothing."""
    if len(base) != len(new) or base.together.step is None:
        return False
    return all(
        one.step == other.step and all(one.tables[name].equals(other.tables[name]) for name in TABLES)
        for one, other in zip(base.each, new.each, strict=True)
    )
