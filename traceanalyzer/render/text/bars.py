"""Where a device's time went: one bar, its parts, and the largest causes of idle time with their ops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from traceanalyzer.model.report import IDLE, DeviceTime
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.texts import STANDS_OUT
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.text.page import Page, bar
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.report.words import in_words

Row = tuple[str, str, int, list[str]]  # words, class, ns, ops

_LEGEND = "The outer rows add up to 100 %, the indented ones to the idle time."
LARGEST_CAUSES = 5
NAMED_OPS = 3
_AT_ONCE = "compute_over_"  # a class that people miss where it is no row: "other work" sounds like neither of the two
_MOST = 0.5  # of a cause: what is named beside it has at least this share together
_GLYPHS = {
    "compute": "█",
    "compute_over_communication": "▓",
    "compute_over_copy": "▚",
    "communication": "▒",
    "communication_transfer": "▤",
    "communication_waiting": "◌",
    "copy_h2d": "▼",
    "copy_d2h": "▲",
    "copy_d2d": "◆",
    "copy_p2p": "▶",
    "memset": "░",
    IDLE: "·",
}
_OTHER_GLYPH = "■"
_STYLES = {"compute": "green", "communication": "magenta", "copy": "cyan", "memset": "cyan", IDLE: "dim"}
_LAUNCH = re.compile("(cuda|cu|hip|hipExt)(Module)?Launch")  # the work's own launch says nothing of it
_BEFORE = ("dispatching", "launch-latency")  # causes whose op is the one that the device waited for
OTHER_CAUSES, OTHER_WORK = "other causes", "other GPU work"
_LEAST_SHARE = 0.005  # of the window: less is left out where there is little room
_LEAST_REST = 0.001  # of the window: without less the shares still add up to 100 %
_ROOM_FOR_OTHER = 6  # rows
_LABELS = 22  # columns of the names at least: with these, those of two devices stand below one another


def device_bar(
    page: Page,
    time: DeviceTime,
    *,
    rank: int | None,
    most: int | None = None,
    apart: bool = True,
    also: str = "",
) -> None:
    """One device's accounting: the bar, a line per class, a line per large cause of idle time.

    With `most` so many lines at most: the largest classes, idle time, and its largest causes.

    Args:
        also: what is said below besides the legend.
    """
    if apart:
        page.blank()
    label = f"shares of recorded time, {f'rank {rank}, ' * (rank is not None)}device {time.device}"
    rows = [(in_words(name), name, ns, list[str]()) for name, ns in time.classes_ns.items() if ns]
    causes = [(cause, "", ns, ops) for cause, ns, ops in _causes(time)]
    rows = [*rows, *causes] if most is None else largest_rows(rows, causes, most, time.length_ns)
    classes = [(name, ns) for _, name, ns, _ in rows if name]
    left_ns = time.length_ns - sum(ns for _, ns in classes)
    if left_ns > _LEAST_REST * time.length_ns:  # there was no row for it
        classes.insert(sum(name != IDLE for name, _ in classes), ("other", left_ns))
    cells = bar([ns for _, ns in classes], page.width - len(label) - 2)
    drawn = (page.styled(_glyph(name) * n, _style(name)) for (name, _), n in zip(classes, cells, strict=True))
    page.lines.append(f"{label}  {''.join(drawn)}")
    room = max([_LABELS, *(len(label) for label, *_ in rows)])
    for label, name, ns, ops in rows:
        text = f" {label:<{room}}{_amount(ns, time.length_ns)}"
        text += _named(ops, page.width - len(text) - 5)
        page.lines.append(f"  {page.styled(_glyph(name), _style(name)) if name else ' '}{text}")
    legend = [_LEGEND] * (rank is None and _is_whole(rows, time)) + [also] * bool(also)
    if legend:
        page.put(" ".join(legend), indent=2, style="dim")


def _is_whole(rows: Sequence[Row], time: DeviceTime) -> bool:
    """Whether nothing is left out: neither of the window nor, where there are rows of causes, of idle time."""
    outer_ns, inner_ns = (
        sum(ns for _, name, ns, _ in rows if bool(name) is outer) for outer in (True, False)
    )
    least_ns = _LEAST_REST * time.length_ns
    idle_ns = time.classes_ns.get(IDLE, 0)
    return inner_ns > 0 and time.length_ns - outer_ns <= least_ns and idle_ns - inner_ns <= least_ns


def largest_rows(rows: Sequence[Row], causes: Sequence[Row], most: int, length_ns: int) -> list[Row]:
    """The largest `most` of the classes in their order and then the causes; idle time is one.

    The classes that are left out are one row together, before idle time, so that the shares add up. Where there is
    room for it, the causes beside those shown are one more; if none is shown, there is none more.
    """
    large = [
        row
        for row in (*rows, *causes)
        if row[2] >= (_LEAST_REST if row[1].startswith(_AT_ONCE) else _LEAST_SHARE) * length_ns
        or row[1] == IDLE
    ]
    ranked = sorted(
        (row for row in large if row[0] != OTHER_CAUSES),
        key=lambda row: (not row[1].startswith((IDLE, _AT_ONCE)), -row[2], row[0]),
    )
    rest: list[Row] = []
    for more in range(3):  # rows for the rest of the work and of the causes
        kept = ranked[: most - more]
        rest = _rest(rows, causes, kept, most, length_ns)
        if len(rest) <= more:
            break
    other = [row for row in rest if row[1]]
    shown = [row for row in rows if row in kept]
    idle = next((place for place, row in enumerate(shown) if row[1] == IDLE), len(shown))
    left = [row for row in rest if not row[1]]
    return [*shown[:idle], *other, *shown[idle:], *(row for row in causes if row in kept), *left]


def _rest(
    rows: Sequence[Row], causes: Sequence[Row], kept: Sequence[Row], most: int, length_ns: int
) -> list[Row]:
    """A row for the work that is not kept, and one for the causes, where there are several rows at all."""
    if most < _ROOM_FOR_OTHER:
        return []
    work = sorted((row for row in rows if row not in kept), key=lambda row: -row[2])
    work_ns = sum(row[2] for row in work)
    shown = sum(row in kept for row in causes)
    cause_ns = sum(row[2] for row in causes if row not in kept)
    named = [row[0] for row in work]
    rest: list[Row] = [(OTHER_WORK, "other", work_ns, named)] if work_ns >= _LEAST_REST * length_ns else []
    if rest and not any(row[1] and row[1] != IDLE for row in kept):
        rest = [("GPU work", *rest[0][1:])]
    return rest + ([(OTHER_CAUSES, "", cause_ns, [])] if 0 < shown < len(causes) else [])


def _causes(time: DeviceTime) -> Iterator[tuple[str, int, list[str]]]:
    """The largest causes of idle time, each with the ops that much of it befell, and the rest as one."""
    ops: dict[str, dict[str, int]] = {}
    for part in time.idle_causes:
        cause = part.cause.removeprefix(f"{IDLE}:")
        if part.op and part.ns >= STANDS_OUT * time.idle_ns.get(cause, 0):
            ops.setdefault(cause, {})[part.op] = part.ns
    largest = sorted(time.idle_ns.items(), key=lambda found: (-found[1], found[0]))
    for name, ns in largest[:LARGEST_CAUSES]:
        if ns:
            known = {op: of_op for op, of_op in ops.get(name, {}).items() if not _LAUNCH.match(op)}
            named = list(known)[:NAMED_OPS] if sum(known.values()) >= _MOST * ns else []
            first = [_before(op) for op in named[:1] if name in _BEFORE]
            yield in_words(name), ns, first + named[name in _BEFORE :]
    rest = sum(ns for _, ns in largest[LARGEST_CAUSES:])
    if rest:
        yield OTHER_CAUSES, rest, []


def _before(op: str) -> str:
    """Before the op's kernels the device is idle; the launch of a CUDA graph comes before that."""
    return op if "GraphLaunch" in op else f"before {op}"


def _named(ops: list[str], room: int) -> str:
    names = [printable(short_ops(op)) for op in ops]
    for count in range(len(names), 1, -1):
        text = ", ".join(names[:count])
        if len(text) <= room:
            return f"  {text}"
    return f"  {shortened(names[0], room)}" if names else ""


def _glyph(name: str) -> str:
    return _GLYPHS.get(name, _OTHER_GLYPH)


def _style(name: str) -> str:
    return _STYLES.get(name.partition("_")[0], "")


def _amount(ns: int, total: int) -> str:
    return f"{format_share(ns / total if total else 0.0):>8}  {format_ns(ns):>8}"
