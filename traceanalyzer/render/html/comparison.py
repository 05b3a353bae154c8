"""Comparison -> one HTML file: verdict, waterfall, both steps on one axis, a flame graph of the difference, tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.compared_rows import label_of
from traceanalyzer.comparison.result import Comparison, Row, Waterfall, Word
from traceanalyzer.comparison.snapshot import StepStrip
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import (
    Html,
    filled,
    head,
    number,
    pointer,
    prose,
    quoted,
    said,
    scrolled,
    style,
    tag,
    template,
    together,
)
from traceanalyzer.version import __version__

_WIDTH = 1000
_BAR, _LINE = 18, 24
_SHOWN_PARTS = 14
_BEFORE = 2  # times what changed, of the step that is drawn before it
_LABELS = 330  # px of the waterfall's names
_VALUES = 90
_LETTER = 6.4  # px
_FLAMES = 60  # boxes of each level


def _svg(height: float, label: str, children: Sequence[Html], class_: str) -> Html:
    drawn = tag(
        "svg", *children, viewBox=f"0 0 {_WIDTH} {height:.0f}", role="img", aria_label=label, class_=class_
    )
    return tag("figure", drawn, class_="drawn")


def _text(x: float, y: float, text: str, room: float, anchor: str = "start") -> Html:
    letters = max(int(room / _LETTER), 0)
    return (
        tag("text", said(text, letters), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
        if letters > 2
        else Html("")
    )


def _box(x: float, y: float, width: float, class_: str, title: str, height: float = _BAR) -> Html:
    shape = {"x": f"{x:.2f}", "y": f"{y:.1f}", "width": f"{max(width, 0.5):.2f}", "height": f"{height:.0f}"}
    return tag("rect", tag("title", title), class_=class_, **shape)


def fall_drawing(fall: Waterfall) -> Html:
    """The step of BASE, what is added and taken off, the step of NEW."""
    parts = [part for part in fall.parts if part.delta_ns]
    steps = [(f"{part.group}: {part.name}", part.delta_ns) for part in parts[:_SHOWN_PARTS]]
    rest = sum(part.delta_ns for part in parts[_SHOWN_PARTS:])
    steps += [(f"{len(parts) - _SHOWN_PARTS} other parts", rest)] if parts[_SHOWN_PARTS:] else []
    reached, levels = fall.base_ns, [fall.base_ns]
    for _, delta in steps:
        reached += delta
        levels.append(reached)
    low, high = _axis(levels)
    scale = (_WIDTH - _LABELS - _VALUES) / max(high - low, 1)

    def at(ns: float) -> float:
        return _LABELS + (ns - low) * scale

    whole = max(low, 0)
    lines = [("BASE", whole, fall.base_ns, "whole-step", format_ns(fall.base_ns))]
    for (name, delta), before in zip(steps, levels, strict=False):
        kind = "longer" if delta > 0 else "shorter"
        lines.append(
            (
                name,
                min(before, before + delta),
                max(before, before + delta),
                kind,
                formatting.signed_ns(delta),
            )
        )
    lines.append(("NEW", whole, fall.new_ns, "whole-step", format_ns(fall.new_ns)))
    drawn = []
    for i, (name, begin, end, kind, value) in enumerate(lines):
        y = i * _LINE
        drawn.append(_text(0, y + 13, name, _LABELS - 10))
        drawn.append(_box(at(begin), y, (end - begin) * scale, kind, f"{name}: {value}"))
        drawn.append(_text(_WIDTH, y + 13, value, _VALUES, "end"))
    drawing = _svg(len(lines) * _LINE, "waterfall from the step of BASE to that of NEW", drawn, "fall")
    note = tag("p", "The axis does not begin at zero.", class_="note") if low > 0 else None
    return tag("div", drawing, note)


def _axis(levels: Sequence[int]) -> tuple[int, int]:
    """Least and most of the axis: what changed is to be seen, also where it is little of the step."""
    least, most = min(levels), max(levels)
    low = least - _BEFORE * (most - least)
    return (low, most) if low > 0 and most > least else (min(0, least), max(most, 1))


def strips_drawing(found: Comparison) -> Html | None:
    """A recorded step of each side on one axis; None where neither is kept."""
    known = [
        (name, strip) for name, strip in zip(("BASE", "NEW"), found.strips, strict=True) if strip is not None
    ]
    if not known:
        return None
    longest = max(strip.length_ns for _, strip in known)
    y, drawn = 0.0, []
    for name, strip in known:
        drawn.append(_text(0, y + 12, f"{name}, recorded {format_ns(strip.length_ns)}", _WIDTH))
        boxes, height = _strip(strip, y + 18, _WIDTH / max(longest, 1))
        drawn += boxes
        y += height + 36
    caption = "The step of median length as recorded, with the profiler; one line a stream."
    left = sum(strip.left_out for _, strip in known)
    caption += f" {left} short pieces are not drawn." * bool(left)
    return tag(
        "div",
        _svg(y, "a step of both recordings", drawn, "strip fall"),
        tag("p", caption, class_="note drawn"),
    )


def _strip(strip: StepStrip, y: float, scale: float) -> tuple[list[Html], float]:
    """(the boxes, their height)."""
    streams = max((piece.stream for piece in strip.pieces), default=0) + 1
    drawn = [_box(0, y, strip.length_ns * scale, "ground", "the step", streams * _LINE)]
    for piece in strip.pieces:
        kind = "copy" if piece.kind.startswith("copy") else piece.kind
        title = f"{piece.name}, {format_ns(piece.dur_ns)}"
        drawn.append(
            _box(piece.start_ns * scale, y + piece.stream * _LINE, piece.dur_ns * scale, f"b b-{kind}", title)
        )
    return drawn, streams * _LINE


def difference_flame(found: Comparison) -> Html:
    """Work by what the user called and op; as wide as the longer side, coloured by what became of it."""
    groups: dict[str, list[Row]] = {}
    for row in found.rows:
        groups.setdefault(label_of(row), []).append(row)
    widths = {label: sum(map(_longer, rows)) for label, rows in groups.items()}
    scale = _WIDTH / max(sum(widths.values()), 1.0)
    drawn, x = [], 0.0
    for label in sorted(groups, key=lambda label: (-widths[label], label))[:_FLAMES]:
        rows = sorted(groups[label], key=lambda row: (-_longer(row), row.op, row.kind))
        base, new = (sum(_ns(row, side) for row in rows) for side in ("base", "new"))
        told = [row.word for row in rows if row.word not in formatting.SILENT]
        word = Word.SAME if not told else Word.SLOWER if new > base else Word.FASTER
        drawn += _flame_box(x, 0, widths[label] * scale, label, (base, new), word)
        inner = x
        for row in rows[:_FLAMES]:
            drawn += _flame_box(
                inner, _LINE, _longer(row) * scale, row.op, (_ns(row, "base"), _ns(row, "new")), row.word
            )
            inner += _longer(row) * scale
        x += widths[label] * scale
    legend = "As wide as the longer side. Red: longer or new; green: shorter or gone; grey: within noise."
    return tag(
        "div",
        _svg(2 * _LINE, "GPU time and its difference", drawn, "flames"),
        tag("p", legend, class_="note"),
    )


def _ns(row: Row, side: str) -> float:
    work = row.base if side == "base" else row.new
    return 0.0 if work is None else work.ns


def _longer(row: Row) -> float:
    return max(_ns(row, "base"), _ns(row, "new"))


def _flame_box(
    x: float, y: float, width: float, name: str, ns: tuple[float, float], word: Word
) -> list[Html]:
    title = f"{name}: {formatting.times(*ns)} a step, {word}"
    return [_box(x, y, width, f"change-{word}", title), _text(x + 3, y + 13, name, width - 6)]


_ROWS, _PARTS = 40, 20
_DOCUMENT = "compare"


def render_comparison_page(found: Comparison) -> bytes:
    """The page as UTF-8; the same comparison gives the same bytes, and the page has no script."""
    title = f"{found.verdict.word}: {_name(found, 0)} and {_name(found, 1)}, traceanalyzer compare"
    slots = {
        "head": head(title, style() + template("comparison.css")),
        "version": __version__,
        "heading": _heading(found),
        "verdict": _verdict(found),
        "axes": together(_axes(found)),
        "waterfall": _waterfall(found),
        "strips": strips_drawing(found)
        or tag("p", "A baseline file, or a recording without work, has no step to draw."),
        "flame": difference_flame(found),
        "rows": _rows(found),
        "faults": _faults(found),
        "notes": _notes(found),
    }
    return filled("comparison.html", slots).encode("utf-8", "backslashreplace")


def _name(found: Comparison, side: int) -> str:
    return ((found.base, found.new)[side].names or ("recording",))[0]


def _at(*keys: object) -> str:
    return pointer(_DOCUMENT, *keys)


def _heading(found: Comparison) -> Html:
    names = (
        tag("code", quoted(_at(side, "names", 0), _name(found, at)))
        for at, side in enumerate(("base", "new"))
    )
    base, new = names
    return together(("From ", base, " to ", new))


def _verdict(found: Comparison) -> Html:
    reasons = [
        tag("li", prose(_at("verdict", "because", i), reason))
        for i, reason in enumerate(found.verdict.because)
    ]
    settle = found.verdict.settle
    return together(
        (
            tag("p", tag("strong", prose(_at("verdict", "headline"), found.verdict.headline))),
            tag("ul", *reasons) if reasons else None,
            tag("p", "To settle it: ", prose(_at("verdict", "settle"), settle), ".") if settle else None,
        )
    )


def _axes(found: Comparison) -> Iterator[Html]:
    step, device = found.axes.step, found.axes.device
    lines = []
    for name, axis, key in (("Step", step, "step"), ("GPU work", device, "device")):
        if axis is not None:
            values = [
                number(_at("axes", key, f"{side}_ns"), getattr(axis, f"{side}_ns"), "ns")
                for side in ("base", "new")
            ]
            word = quoted(_at("axes", key, "word"), str(axis.word))
            lines.append((name, *values, word, ""))
    for i, one in enumerate(found.axes.exact):
        if one.word in (Word.MORE, Word.FEWER):
            values = [
                number(_at("axes", "exact", i, side), getattr(one, side), "number")
                for side in ("base", "new")
            ]
            word = quoted(_at("axes", "exact", i, "word"), str(one.word))
            lines.append((one.counter, *values, word, ", ".join(one.where)))
    yield _table("axes", ("a step", "BASE", "NEW", "verdict", "where"), lines)
    if not formatting.changed(found):
        yield tag("p", "No counter differs: launches, work, copies, waits and allocations are the same.")


def _table(label: str, titles: Sequence[str], lines: Sequence[Sequence[object]]) -> Html:
    head = tag("tr", *(tag("th", title, scope="col") for title in titles))
    rows = (tag("tr", *(tag("td", cell) for cell in line)) for line in lines)
    return scrolled(label, tag("table", tag("thead", head), tag("tbody", *rows), class_="compared"))


def _waterfall(found: Comparison) -> Html:
    fall = found.waterfall
    if fall is None:
        return tag("p", "One side has no step.")
    lines = [
        (
            quoted(_at("waterfall", "parts", i, "group"), part.group),
            quoted(_at("waterfall", "parts", i, "name"), part.name, "code"),
            *(
                number(_at("waterfall", "parts", i, key), getattr(part, key), "ns")
                for key in ("base_ns", "new_ns", "delta_ns")
            ),
        )
        for i, part in enumerate(fall.parts[:_PARTS])
    ]
    ends = (
        number(_at("waterfall", "base_ns"), fall.base_ns, "ns"),
        number(_at("waterfall", "new_ns"), fall.new_ns, "ns"),
    )
    table = _table("parts of the step", ("group", "part", "BASE", "NEW", "difference"), lines)
    left = len(fall.parts) - _PARTS
    rest = tag("p", f"{left} smaller parts are in the JSON.", class_="note drawn") if left > 0 else None
    return together(
        (tag("p", ends[0], " and all differences are ", ends[1], "."), fall_drawing(fall), table, rest)
    )


def _rows(found: Comparison) -> Html:
    lines: list[tuple[object, ...]] = []
    for i, row in enumerate(found.rows):
        if row.word in formatting.SILENT or len(lines) >= _ROWS:
            continue
        sides = (
            None if one is None else number(_at("rows", i, side, "ns"), one.ns, "ns")
            for side, one in (("base", row.base), ("new", row.new))
        )
        note = prose(_at("rows", i, "note"), row.note) if row.note else ""
        where = (
            tag("code", quoted(_at("rows", i, "outer"), row.outer)) if row.outer not in ("", row.op) else ""
        )
        lines.append(
            (
                tag("code", quoted(_at("rows", i, "op"), row.op)),
                where,
                quoted(_at("rows", i, "word"), str(row.word)),
                *sides,
                number(_at("rows", i, "delta_ns"), row.delta_ns, "ns"),
                note,
            )
        )
    if not lines:
        return tag("p", "None, beyond noise.")
    return _table(
        "rows", ("work", "in", "verdict", "BASE a step", "NEW a step", "of the step", "what else"), lines
    )


def _faults(found: Comparison) -> Html:
    lines = []
    for i, fault in enumerate(found.faults):
        shares = (
            "" if value is None else number(_at("faults", i, key), value, "share")
            for key, value in (("said_share", fault.said_share), ("got_share", fault.got_share))
        )
        status, title = (quoted(_at("faults", i, key), getattr(fault, key)) for key in ("status", "title"))
        lines.append((status, title, *shares))
    return (
        _table("faults", ("status", "fault", "said", "got"), lines)
        if lines
        else tag("p", "None on either side.")
    )


def _notes(found: Comparison) -> Html:
    notes = [tag("li", prose(_at("notes", i), note)) for i, note in enumerate(found.notes)]
    rungs = [
        together((rung, " ", number(_at("rungs", rung), share, "share"), "; "))
        for rung, share in found.rungs.items()
        if share > 0
    ]
    return together((tag("p", "GPU time matched by ", *rungs), tag("ul", *notes) if notes else None))
