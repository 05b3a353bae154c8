"""Where a device's time went: one bar, its parts, and the largest causes of idle time with their ops."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceanalyzer.model.report import IDLE, DeviceTime
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.texts import STANDS_OUT
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.text.page import Page, bar
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.report.words import in_words

_LEGEND = "The outer rows add up to 100 %, the indented ones to the idle time."
LARGEST_CAUSES = 5
NAMED_OPS = 3
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
_OTHER_CAUSES = "other causes"
_LABELS = 22  # columns of the names at least: with these, those of two devices stand below one another


def device_bar(page: Page, time: DeviceTime, *, rank: int | None) -> None:
    """One device's accounting: the bar, a line per class, a line per large cause of idle time."""
    page.blank()
    label = f"shares of recorded time, {f'rank {rank}, ' * (rank is not None)}device {time.device}"
    classes = [(name, ns) for name, ns in time.classes_ns.items() if ns]
    causes = list(_causes(time))
    cells = bar([ns for _, ns in classes], page.width - len(label) - 2)
    drawn = (page.styled(_glyph(name) * n, _style(name)) for (name, _), n in zip(classes, cells, strict=True))
    page.lines.append(f"{label}  {''.join(drawn)}")
    rows = [(in_words(name), name, ns, list[str]()) for name, ns in classes]
    rows += [(cause, "", ns, ops) for cause, ns, ops in causes]
    room = max([_LABELS, *(len(label) for label, *_ in rows)])
    for label, name, ns, ops in rows:
        text = f" {label:<{room}}{_amount(ns, time.length_ns)}"
        text += _named(ops, page.width - len(text) - 5)
        page.lines.append(f"  {page.styled(_glyph(name), _style(name)) if name else ' '}{text}")
    if rank is None and causes:
        page.put(_LEGEND, indent=2, style="dim")


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
        yield _OTHER_CAUSES, rest, []


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
