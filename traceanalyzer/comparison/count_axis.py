"""The exact axis: counts per step repeat in each run, so one recording a side is enough."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.comparison.compared_rows import label_of
from traceanalyzer.comparison.result import CallRow, Counted, Row, Word
from traceanalyzer.comparison.snapshot import Snapshot, rows_of
from traceanalyzer.model.short_names import short_ops

_ROUNDING = 1e-9
_PLACES = 3  # of a counter that are named
_KEYS = ["counter", "outer", "op", "name"]
_KINDS = {"kernels": "compute", "memsets": "memset", "collectives": "communication"}
MINOR = ("ops",)  # counters that count no work and no wait: they alone make no other program


def counted(
    base: Snapshot, new: Snapshot, calls: Sequence[CallRow], rows: Sequence[Row]
) -> tuple[Counted, ...]:
    """All counters of both sides, and where those that changed did; none where neither did work on a GPU."""
    if base.tables["totals"].empty and new.tables["totals"].empty:
        return ()  # pandas cannot join two tables without a row
    both = base.tables["totals"].merge(
        new.tables["totals"], on="counter", suffixes=("_base", "_new"), how="outer"
    )
    both = both.fillna(0.0).sort_values("counter")
    result = []
    for row in rows_of(both):
        ranges = (row.least_base, row.most_base), (row.least_new, row.most_new)
        word = (
            count_word(ranges, (row.count_base, row.count_new))
            if is_comparable(row.counter, base, new)
            else Word.UNKNOWN
        )
        where = most_changed(str(row.counter), calls, rows) if word in (Word.MORE, Word.FEWER) else ()
        result.append(Counted(str(row.counter), row.count_base, row.count_new, *ranges, word, where))
    return tuple(result)


def is_comparable(counter: str, base: Snapshot, new: Snapshot) -> bool:
    """Whether both recordings tell the counter: FLOPs need shapes."""
    return counter != "FLOPs" or ("shapes" in base.recorded) == ("shapes" in new.recorded)


def count_word(ranges: tuple[tuple[float, float], tuple[float, float]], means: tuple[float, float]) -> Word:
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
    kind = _KINDS.get(counter) or (
        "copy_" + counter.split()[0] if counter.endswith(("copies", "bytes")) else ""
    )
    for row in rows:
        if row.kind == kind:
            change = (row.new.count if row.new else 0.0) - (row.base.count if row.base else 0.0)
            result[label_of(row)] = result.get(label_of(row), 0.0) + change
    changed = sorted((name for name, by in result.items() if by), key=lambda name: (-abs(result[name]), name))
    return tuple(changed[:_PLACES])


def changed_calls(base: Snapshot, new: Snapshot) -> tuple[CallRow, ...]:
    """Calls that one side makes more often, by op; the largest difference first."""
    if base.tables["calls"].empty and new.tables["calls"].empty:
        return ()
    tables = [
        side.tables["calls"].groupby(_KEYS, as_index=False)[["count", "least", "most"]].sum()
        for side in (base, new)
    ]
    both = tables[0].merge(tables[1], on=_KEYS, suffixes=("_base", "_new"), how="outer")
    numbers = [name for name in both.columns if name not in _KEYS]
    both[numbers] = both[numbers].fillna(0.0)
    result = []
    for row in rows_of(both):
        word = count_word(
            ((row.least_base, row.most_base), (row.least_new, row.most_new)), (row.count_base, row.count_new)
        )
        if word in (Word.MORE, Word.FEWER):
            outer = short_ops(str(row.outer))
            result.append(
                CallRow(
                    str(row.counter), str(row.op), outer, str(row.name), row.count_base, row.count_new, word
                )
            )
    result.sort(
        key=lambda call: (
            call.counter in MINOR,
            -abs(call.new - call.base),
            call.counter,
            call.outer,
            call.call,
        )
    )
    return tuple(result)


def program_changed(counters: Sequence[Counted]) -> bool:
    """Whether the two do different things: other counts of calls, work, or waits."""
    return any(
        counter.word in (Word.MORE, Word.FEWER) and counter.counter not in MINOR for counter in counters
    )
