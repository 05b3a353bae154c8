"""Comparison -> one HTML file: verdict, waterfall, both steps on one axis, a flame graph of the difference, tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.result import Comparison, Word
from traceanalyzer.render.html.comparison_drawings import difference_flame, fall_drawing, strips_drawing
from traceanalyzer.render.html.markup import Html, number, pointer, prose, quoted, scrolled, tag, together
from traceanalyzer.render.html.templates import filled, head, style, template
from traceanalyzer.version import __version__

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
