"""Rows of a comparison from matched work: counts, durations, and whether a difference is more than noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from traceanalyzer.comparison.canonical_names import family_of
from traceanalyzer.comparison.matching import Pair, Parts
from traceanalyzer.comparison.result import Row, Word, WorkSide
from traceanalyzer.comparison.statistics import holm, permutation_p, spread
from traceanalyzer.model.short_names import short_kernel, short_ops
from traceanalyzer.rule.evidence_texts import TYPES, shapes_in_words

Table = Sequence[Any]
"""The rows of a work table with the column `medians`, as `rows_of` gives them."""

_PRODUCTS = ("GEMM", "convolution", "attention")
# Their clock follows the power: matmuls of one program differ by 7 % from process to process; H200.
PRODUCT_FLOOR = 0.08
OTHER_FLOOR = 0.05  # 99 of 100 other kernels of over 5 us differ by less from process to process; H200
FLOORS = {"products": PRODUCT_FLOOR, "others": OTHER_FLOOR}
_TICKS_NS = 500.0  # medians of short kernels differ by so much; H200
_SMALLEST_SHARE = 0.01  # with several captures a side; chosen
_TIMES_SPREAD = 3.0  # standard errors between captures that are more than noise
_MANY = 3  # captures a side whose spread is trusted
_WORK_FLOOR = 0.02  # of regions and families, whose work differs anyway: the total time; chosen
_SAME_COUNT = 1e-6
_NOTED = 44  # characters of a name or of shapes in a note; both sides have them whole


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A row before the tests are corrected; `other_inputs`: the same op got inputs of other sizes as often."""

    row: Row
    tested: bool
    other_inputs: bool


def compared_row(pair: Pair, tables: tuple[Table, Table]) -> ComparedRow:
    """One row, its verdict as if it were the only one."""
    base, new = (work_side(table, parts) for table, parts in zip(tables, (pair.base, pair.new), strict=True))
    some = tables[0] if pair.base else tables[1]
    lead = some[max(pair.base or pair.new, key=lambda row: (some[row].ns, -row))]
    kind = str(lead.kind)
    apart = pair.rung == "family"  # its ops are many, and others on each side
    name = f"{family_of(lead.kernel, kind)} kernels" if apart else lead.op or short_kernel(lead.name)
    note, other_inputs = note_of(base, new, alike=pair.rung not in ("region", "family"))
    outer, region = ("", "") if apart else (short_ops(lead.outer), lead.annotation)
    row = Row(name, outer, region, kind, pair.rung, Word.SAME, "exact", base, new, None, None, 0, note)
    return ComparedRow(*_judged(row, pair, tables), other_inputs)


def corrected(rows: Sequence[ComparedRow], *, comparable: bool) -> list[Row]:
    """The rows with Holm's correction: a test that does not hold among so many is no difference.

    Unless the inputs of both sides are `comparable`, nothing is said of rows that got others.
    """
    kept = iter(holm([one.row.p for one in rows if one.tested]))
    result = []
    for one in rows:
        word = Word.SAME if one.tested and not next(kept) else one.row.word
        result.append(replace(one.row, word=Word.UNKNOWN if one.other_inputs and not comparable else word))
    return result


def work_side(table: Table, parts: Parts) -> WorkSide | None:
    if not parts:
        return None
    own = sorted(parts, key=lambda row: (-table[row].ns, row))
    samples = [float(ns) for row in own for ns in table[row].samples]
    count, ns, exposed_ns = (_sum(table, parts, column) for column in ("count", "ns", "exposed_ns"))
    return WorkSide(
        count,
        ns,
        exposed_ns,
        median_ns=median(samples) if samples else None,
        kernels=tuple(dict.fromkeys(short_kernel(table[row].name) for row in own)),
        shapes=" | ".join(dict.fromkeys(table[row].dims for row in own)),
        types=" | ".join(dict.fromkeys(table[row].types for row in own)),
    )


def _sum(table: Table, parts: Parts, column: str) -> float:
    return float(sum(getattr(table[row], column) * share for row, share in parts.items()))


def note_of(base: WorkSide | None, new: WorkSide | None, *, alike: bool) -> tuple[str, bool]:
    """(what differs beside time, whether the same op got inputs of other sizes).

    Types and shapes are compared where both sides are one op or kernel, and so `alike`.
    """
    if base is None or new is None:
        return "", False
    notes = []
    if base.kernels != new.kernels:
        notes.append(f"kernel {_shown(base.kernels)} became {_shown(new.kernels)}")
    types = _other_types(base.types, new.types)
    if types and alike:
        inputs = shapes_in_words(_first(base.shapes))
        notes.insert(0, types + f" of {inputs}" * bool(inputs))
    other = bool(base.shapes and new.shapes and base.shapes != new.shapes)
    if other and alike:
        shapes = [shapes_in_words(_first(side.shapes)) for side in (base, new)]
        notes.append(f"shapes {shapes[0]} became {shapes[1]}")
    return "; ".join(notes), other and abs(base.count - new.count) <= _SAME_COUNT


def _shown(kernels: Sequence[str]) -> str:
    text, more = kernels[0], len(kernels) - 1
    return (text if len(text) <= _NOTED else f"{text[: _NOTED - 1]}…") + f" and {more} more" * bool(more)


def _other_types(base: str, new: str) -> str:
    """`bfloat16 became float32`: the first input that has another type."""
    for text, other in zip(_first(base).split(","), _first(new).split(","), strict=False):
        if _type(text) and _type(other) and _type(text) != _type(other):
            return f"{_type(text)} became {_type(other)}"
    return ""


def _type(text: str) -> str:
    bare = text.strip('[]" ').removeprefix("c10::")
    return TYPES.get(bare, bare.lower())


def _first(text: str) -> str:
    return text.partition(" | ")[0]


def _judged(row: Row, pair: Pair, tables: tuple[Table, Table]) -> tuple[Row, bool]:
    """(the row with its verdict, whether a test decided it)."""
    base, new = row.base, row.new
    if base is None or new is None:
        return replace(row, word=Word.NEW if base is None else Word.GONE), False
    if pair.rung in ("region", "family") and row.kind != "communication":
        small = abs(new.ns - base.ns) <= _WORK_FLOOR * max(base.ns, new.ns)
        return replace(row, word=Word.SAME if small else _longer(new.ns > base.ns)), False
    ratio = (new.ns / new.count) / (base.ns / base.count) if base.ns and new.ns else None
    single = len(pair.base) == len(pair.new) == 1
    if single and base.median_ns and new.median_ns:
        ratio = new.median_ns / base.median_ns
    row = replace(row, ratio=ratio)
    if abs(base.count - new.count) > _SAME_COUNT:
        return replace(row, word=_by_count(pair, tables)), False
    if ratio is None or row.kind == "communication":  # a collective's time is mostly others' being late
        return row, False
    first, second = tables[0][next(iter(pair.base))], tables[1][next(iter(pair.new))]
    word = word_by_time(row, ratio, (first.medians, second.medians))
    if base.kernels != new.kernels or not single:
        return replace(row, word=word), False
    p = permutation_p(first.samples, second.samples)
    return replace(row, word=word, axis="device", p=p), True


def _longer(longer: bool) -> Word:
    return Word.SLOWER if longer else Word.FASTER


def _by_count(pair: Pair, tables: tuple[Table, Table]) -> Word:
    """More or fewer, where the numbers of single steps do not overlap."""
    both = list(zip(tables, (pair.base, pair.new), strict=True))
    least, most = ([_sum(*side, column) for side in both] for column in ("least", "most"))
    if most[0] < least[1]:
        return Word.MORE
    return Word.FEWER if most[1] < least[0] else Word.UNKNOWN


def word_by_time(row: Row, ratio: float, medians: tuple[Sequence[float], Sequence[float]]) -> Word:
    assert row.base is not None
    assert row.new is not None
    apart = abs((row.new.median_ns or 0.0) - (row.base.median_ns or 0.0))
    # The share by which one execution must differ: measured where there are captures enough, else as usual.
    if min(map(len, medians)) >= _MANY:
        error = math.sqrt(sum(spread(side) ** 2 / len(side) for side in medians))
        floor = max(_SMALLEST_SHARE, _TIMES_SPREAD * error)
    else:
        products = family_of(row.base.kernels[0], row.kind) in _PRODUCTS
        floor = PRODUCT_FLOOR if products else OTHER_FLOOR
    if abs(math.log(ratio)) <= math.log1p(floor) or apart <= _TICKS_NS:
        return Word.SAME
    return _longer(ratio > 1)
