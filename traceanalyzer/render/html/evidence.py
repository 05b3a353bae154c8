"""What a finding's message was made of, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.units import format_share
from traceanalyzer.render.html.amounts import Card
from traceanalyzer.render.html.markup import Html, code, number, quoted, said, scrolled, tag, together

_MOST, _MOST_PARTS = 12, 5  # rows; parts of one sum
_UNITS = {"_ns": "ns", "_bytes": "bytes", "_share": "share"}
_SAID = {"count", "total_ns", "per_step_ns", "share", "steps", "by"}  # above it already
# What the field calls it, where the name alone does not say.
_WORDS = {
    "all_ns": "all collectives",
    "each_ns": "of each, mean",
    "gbps": "GB/s",
    "gpu_ns": "GPU time",
    "gpu_share": "of GPU time",
    "late": "comes last",
    "late_share": "holds up the others, of the step",
    "lines": "functions (first line)",
    "link_gbps": "GB/s of the link",
    "loop_part": "of the launches in the loop",
    "mean_ns": "mean work of all ranks",
    "others_ns": "work of the others",
    "own_ns": "its own work",
    "part_share": "of the step",
    "sms": "multiprocessors",
    "took_ns": "time in these collectives",
    "typical_ns": "typical duration",
}
_SHARES = {"loop_part"}  # whose name does not end so


def evidence(card: Card) -> Html | None:
    """The numbers that the message was made of, by their names."""
    rows = list(_rows(card))[:_MOST]
    if not rows:
        return None
    body = [
        tag("tr", tag("th", said(_in_words(name), 200), scope="row"), tag("td", value))
        for name, value in rows
    ]
    table = tag("table", tag("caption", "Evidence"), *body, class_="evidence")
    return scrolled(f"Evidence of finding {card.index + 1}", table)


def _rows(card: Card) -> Iterator[tuple[str, Html]]:
    """(name, number, text or parts of a sum); lists are left to the JSON."""
    for name, value in card.finding.evidence.items():
        if name in _SAID:
            continue
        if isinstance(value, Mapping):
            if value and all(isinstance(one, int | float) for one in value.values()):
                yield name, _parts(card, value)
        elif isinstance(value, str) and value and not value.startswith(","):  # else a part of the message
            yield name, quoted(card.at("evidence", name), value)
        elif isinstance(value, int | float):
            yield name, number(card.at("evidence", name), value, _unit(name, value))


def _parts(card: Card, sums: Mapping[str, float]) -> Html:
    """The largest parts with their shares; ops lead to their rows."""
    whole = sum(sums.values()) or 1
    largest = sorted(sums.items(), key=lambda part: -part[1])[:_MOST_PARTS]
    parts = (
        tag("li", linked(card, str(name)), " ", tag("data", format_share(value / whole), value=value))
        for name, value in largest
    )
    more = len(sums) - len(largest)
    return tag("ul", *parts, tag("li", f"and {more} more") if more else None, class_="derived")


def linked(card: Card, name: str) -> Html:
    """A name; that of an op in the table of ops leads there."""
    shown = code(said(short_ops(name), 160))
    anchor = card.ops.get(name)
    return tag("a", shown, href=f"#{anchor}") if anchor else together((shown,))


def _in_words(name: str) -> str:
    """`largest_gap_ns` as `largest gap`: its value says the unit."""
    if name in _WORDS:
        return _WORDS[name]
    ends = (name.removesuffix(end) for end in _UNITS if name.endswith(end))
    return next(ends, name).replace("_", " ")


def _unit(name: str, value: float) -> str:
    """By the end of the name, as everywhere."""
    if isinstance(value, bool):
        return "number"
    found = next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)
    if name in _SHARES:
        return "share"
    return found or ("number" if isinstance(value, float) else "count")
