"""What the page of a comparison draws: the waterfall, a step of each side, and a flame graph of the difference."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.compared_rows import label_of
from traceanalyzer.comparison.result import Comparison, Row, Waterfall, Word
from traceanalyzer.comparison.snapshot import StepStrip
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.html.markup import Html, said, tag

_WIDTH = 1000
_BAR, _LINE = 18, 24
_PARTS = 14
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
    steps = [(f"{part.group}: {part.name}", part.delta_ns) for part in parts[:_PARTS]]
    rest = sum(part.delta_ns for part in parts[_PARTS:])
    steps += [(f"{len(parts) - _PARTS} other parts", rest)] if parts[_PARTS:] else []
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
