"""Comparison -> one HTML file: verdict, waterfall, both steps on one axis, a flame graph of the difference, tables."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.result import Comparison, Row, Waterfall, Word
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html import markup
from traceanalyzer.render.html.markup import Html, number, part, pointer, prose, quoted, said, tag
from traceanalyzer.version import __version__

_WIDTH = 1000
_BAR, _LINE = 18, 24
_SHOWN_PARTS = 14
_BEFORE = 2  # times what changed, of the step that is drawn before it
_LABELS = 330  # px of the waterfall's names
_VALUES = 90
_LETTER = 6.4  # px
_FLAMES = 60  # boxes of each level
_ROWS, _PARTS = 40, 20
_NO_STRIP = "A baseline file, or a recording without work, has no step to draw."
_at = partial(pointer, "compare")
_SIDES = ("base", "new")


def _svg(height: float, label: str, drawn: Sequence[Html], class_: str) -> Html:
    box = f"0 0 {_WIDTH} {height:.0f}"
    svg = tag("svg", *drawn, viewBox=box, role="img", aria_label=label, class_=class_)
    return tag("figure", svg, class_="drawn")


def _text(x: float, y: float, text: str, room: float, anchor: str = "start") -> Html:
    letters = int(room / _LETTER)
    shown = tag("text", said(text, max(letters, 0)), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
    return shown if letters > 2 else Html("")


def _box(x: float, y: float, width: float, class_: str, title: str, height: float = _BAR) -> Html:
    shape = {"x": f"{x:.2f}", "y": f"{y:.1f}", "width": f"{max(width, 0.5):.2f}", "height": f"{height:.0f}"}
    return tag("rect", tag("title", title), class_=class_, **shape)


def fall_drawing(fall: Waterfall) -> Html:
    """The step of BASE, what is added and taken off, the step of NEW."""
    parts = [part for part in fall.parts if part.delta_ns]
    steps = [(f"{part.group}: {part.name}", part.delta_ns) for part in parts[:_SHOWN_PARTS]]
    rest = sum(part.delta_ns for part in parts[_SHOWN_PARTS:])
    steps += [(f"{len(parts) - _SHOWN_PARTS} other parts", rest)] if parts[_SHOWN_PARTS:] else []
    levels = list(accumulate((delta for _, delta in steps), initial=fall.base_ns))
    least, most = min(levels), max(levels)
    low, high = least - _BEFORE * (most - least), most
    if low <= 0 or low == least:  # else what changed is to be seen, also where it is little of the step
        low, high = min(0, least), max(most, 1)
    scale = (_WIDTH - _LABELS - _VALUES) / max(high - low, 1)

    def at(ns: float) -> float:
        return _LABELS + (ns - low) * scale

    whole = max(low, 0)
    lines = [("BASE", whole, fall.base_ns, "whole-step", format_ns(fall.base_ns))]
    for (name, delta), before in zip(steps, levels, strict=False):
        low_ns, high_ns = sorted((before, before + delta))
        kind = "longer" if delta > 0 else "shorter"
        lines.append((name, low_ns, high_ns, kind, formatting.signed_ns(delta)))
    lines.append(("NEW", whole, fall.new_ns, "whole-step", format_ns(fall.new_ns)))
    drawn: list[Html] = []
    for y, (name, begin, end, kind, value) in zip(range(0, len(lines) * _LINE, _LINE), lines, strict=True):
        box = _box(at(begin), y, (end - begin) * scale, kind, f"{name}: {value}")
        drawn += [_text(0, y + 13, name, _LABELS - 10), box, _text(_WIDTH, y + 13, value, _VALUES, "end")]
    drawing = _svg(len(lines) * _LINE, "waterfall from the step of BASE to that of NEW", drawn, "fall")
    note = tag("p", "The axis does not begin at zero.", class_="note") if low > 0 else None
    return tag("div", drawing, note)


def strips_drawing(found: Comparison) -> Html | None:
    known = [(name, strip) for name, strip in zip(("BASE", "NEW"), found.strips, strict=True) if strip]
    if not known:
        return None
    longest = max(strip.length_ns for _, strip in known)
    y, drawn = 0.0, []
    for name, strip in known:
        drawn.append(_text(0, y + 12, f"{name}, recorded {format_ns(strip.length_ns)}", _WIDTH))
        boxes, scale = y + 18, _WIDTH / max(longest, 1)
        height = _LINE * (max((piece.stream for piece in strip.pieces), default=0) + 1)
        drawn.append(_box(0, boxes, strip.length_ns * scale, "ground", "the step", height))
        for piece in strip.pieces:
            kind = "copy" if piece.kind.startswith("copy") else piece.kind
            title, x = f"{piece.name}, {format_ns(piece.dur_ns)}", piece.start_ns * scale
            drawn.append(_box(x, boxes + piece.stream * _LINE, piece.dur_ns * scale, f"b b-{kind}", title))
        y += height + 36
    caption = "The step of median length as recorded, with the profiler; one line a stream."
    left = sum(strip.left_out for _, strip in known)
    caption += f" {left} short pieces are not drawn." * bool(left)
    drawing = _svg(y, "a step of both recordings", drawn, "strip fall")
    return tag("div", drawing, tag("p", caption, class_="note drawn"))


def difference_flame(found: Comparison) -> Html:
    """Work by what the user called and op; as wide as the longer side, coloured by what became of it."""
    groups: dict[str, list[Row]] = {}
    for row in found.rows:
        groups.setdefault(row.label, []).append(row)
    widths = {label: sum(max(_sides(row)) for row in rows) for label, rows in groups.items()}
    scale = _WIDTH / max(sum(widths.values()), 1.0)
    drawn, x = [], 0.0
    for label in sorted(groups, key=lambda label: (-widths[label], label))[:_FLAMES]:
        rows = sorted(groups[label], key=lambda row: (-max(_sides(row)), row.op, row.kind))
        base, new = (sum(side) for side in zip(*map(_sides, rows), strict=True))
        told = [row.word for row in rows if row.word not in formatting.SILENT]
        word = Word.SAME if not told else Word.SLOWER if new > base else Word.FASTER
        drawn += _flame_box(x, 0, widths[label] * scale, label, (base, new), word)
        inner = x
        for row in rows[:_FLAMES]:
            width = max(_sides(row)) * scale
            drawn += _flame_box(inner, _LINE, width, row.op, _sides(row), row.word)
            inner += width
        x += widths[label] * scale
    legend = "As wide as the longer side. Red: longer or new; green: shorter or gone; grey: within noise."
    drawing = _svg(2 * _LINE, "GPU time and its difference", drawn, "flames")
    return tag("div", drawing, tag("p", legend, class_="note"))


def _sides(row: Row) -> tuple[float, float]:
    base, new = (0.0 if work is None else work.ns for work in (row.base, row.new))
    return base, new


def _flame_box(x: float, y: float, width: float, name: str, ns: tuple[float, float], word: Word) -> list[Html]:
    title = f"{name}: {formatting.times(*ns)} a step, {word}"
    return [_box(x, y, width, f"change-{word}", title), _text(x + 3, y + 13, name, width - 6)]


def render_comparison_page(found: Comparison) -> bytes:
    """The page as UTF-8; the same comparison gives the same bytes, and the page has no script."""
    names = [(side.names or ("recording",))[0] for side in (found.base, found.new)]
    title = f"{found.verdict.word}: {names[0]} and {names[1]}, traceanalyzer compare"
    shown = (quoted(_at(side, "names", 0), name) for side, name in zip(_SIDES, names, strict=True))
    return markup.filled(
        "comparison.html",
        head=markup.head(title, markup.style() + markup.template("comparison.css")),
        version=__version__,
        heading=part("comparison.heading", *shown),
        verdict=part("comparison.verdict", found.verdict, partial(_at, "verdict")),
        axes=part("comparison.axes", list(_axes(found)), formatting.changed(found)),
        waterfall=_waterfall(found),
        strips=strips_drawing(found) or tag("p", _NO_STRIP),
        flame=difference_flame(found),
        rows=_rows(found),
        faults=_faults(found),
        notes=part("comparison.notes", found.notes, [one for one in found.rungs.items() if one[1] > 0], _at),
    ).encode("utf-8", "backslashreplace")


def _axes(found: Comparison) -> Iterator[tuple[object, ...]]:
    for name, key, axis in (("Step", "step", found.axes.step), ("GPU work", "device", found.axes.device)):
        if axis is not None:
            fields = [f"{side}_ns" for side in _SIDES]
            values = [number(_at("axes", key, field), getattr(axis, field), "ns") for field in fields]
            yield name, *values, quoted(_at("axes", key, "word"), axis.word), ""
    for i, one in enumerate(found.axes.exact):
        if one.word in (Word.MORE, Word.FEWER):
            at = partial(_at, "axes", "exact", i)
            values = [number(at(side), getattr(one, side), "number") for side in _SIDES]
            yield one.counter, *values, quoted(at("word"), one.word), ", ".join(one.where)


def _table(label: str, titles: Sequence[str], lines: Sequence[Sequence[object]]) -> Html:
    return part("shared.table", label, titles, lines, "compared")


def _waterfall(found: Comparison) -> Html:
    fall = found.waterfall
    if fall is None:
        return tag("p", "One side has no step.")
    lines = []
    for i, one in enumerate(fall.parts[:_PARTS]):
        at = partial(_at, "waterfall", "parts", i)
        values = [number(at(key), getattr(one, key), "ns") for key in ("base_ns", "new_ns", "delta_ns")]
        lines.append((quoted(at("group"), one.group), quoted(at("name"), one.name, "code"), *values))
    ends = [number(_at("waterfall", key), getattr(fall, key), "ns") for key in ("base_ns", "new_ns")]
    return part("comparison.waterfall", *ends, fall_drawing(fall), lines, len(fall.parts) - _PARTS)


def _rows(found: Comparison) -> Html:
    lines: list[tuple[object, ...]] = []
    shown = [(i, row) for i, row in enumerate(found.rows) if row.word not in formatting.SILENT]
    for i, row in shown[:_ROWS]:
        at, works = partial(_at, "rows", i), zip(_SIDES, (row.base, row.new), strict=True)
        sides = [work and number(at(side, "ns"), work.ns, "ns") for side, work in works]
        outer = tag("code", quoted(at("outer"), row.outer)) if row.outer not in ("", row.op) else ""
        note = prose(at("note"), row.note) if row.note else ""
        delta = number(at("delta_ns"), row.delta_ns, "ns")
        op = tag("code", quoted(at("op"), row.op))
        lines.append((op, outer, quoted(at("word"), row.word), *sides, delta, note))
    titles = ("work", "in", "verdict", "BASE a step", "NEW a step", "of the step", "what else")
    return _table("rows", titles, lines) if lines else tag("p", "None, beyond noise.")


def _faults(found: Comparison) -> Html:
    lines = []
    for i, fault in enumerate(found.faults):
        at = partial(_at, "faults", i)
        texts = [quoted(at(key), getattr(fault, key)) for key in ("status", "title")]
        shares = [(key, getattr(fault, key)) for key in ("said_share", "got_share")]
        cells = ("" if share is None else number(at(key), share, "share") for key, share in shares)
        lines.append((*texts, *cells))
    titles = ("status", "fault", "said", "got")
    return _table("faults", titles, lines) if lines else tag("p", "None on either side.")
