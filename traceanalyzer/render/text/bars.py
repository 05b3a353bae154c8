"""Where a device's time went: one bar, its parts, and the largest causes of idle time with their ops."""

from __future__ import annotations

from traceanalyzer.model.report import IDLE, DeviceTime
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.text.escape import printable, shortened
from traceanalyzer.render.text.page import Page, bar
from traceanalyzer.report.words import in_words

LARGEST_CAUSES = 5
NAMED_OPS = 3
_GLYPHS = {
    "compute": "█",
    "compute_over_communication": "▓",
    "compute_over_copy": "▚",
    "communication": "▒",
    "copy_h2d": "▼",
    "copy_d2h": "▲",
    "copy_d2d": "◆",
    "copy_p2p": "▶",
    "memset": "░",
    IDLE: "·",
}
_OTHER_GLYPH = "■"


def device_bar(page: Page, time: DeviceTime, *, rank: int | None) -> None:
    """One device's accounting: the bar, a line per class, a line per large cause of idle time."""
    page.blank()
    label = f"device {time.device}" if rank is None else f"rank {rank}, device {time.device}"
    drawn = [(_glyph(name), ns) for name, ns in time.classes_ns.items()]
    page.lines.append(f"{label}  {bar(drawn, page.width - len(label) - 2)}")
    for name, ns in time.classes_ns.items():
        if ns:
            page.sides(f"{_glyph(name)} {in_words(name)}", _amount(ns, time.length_ns), indent=2)
    _causes(page, time)


def _causes(page: Page, time: DeviceTime) -> None:
    """The largest causes of idle time, each with the ops that it befell most, in that order."""
    ops: dict[str, list[str]] = {}
    for part in time.idle_causes:
        ops.setdefault(part.cause.removeprefix(f"{IDLE}:"), []).extend([part.op] if part.op else [])
    for name, ns in sorted(time.idle_ns.items(), key=lambda found: (-found[1], found[0]))[:LARGEST_CAUSES]:
        amount = _amount(ns, time.length_ns)
        text = _named(in_words(name), ops.get(name, [])[:NAMED_OPS], page.width - len(amount) - 6)
        page.sides(text, amount, indent=4)


def _named(cause: str, ops: list[str], room: int) -> str:
    """The cause and as many of its ops as there is room for, the first in any case."""
    for count in range(len(ops), 1, -1):
        text = ", ".join([cause, *ops[:count]])
        if len(printable(text)) <= room:
            return text
    return shortened(printable(", ".join([cause, *ops[:1]])), room)


def _glyph(name: str) -> str:
    return _GLYPHS.get(name, _OTHER_GLYPH)


def _amount(ns: int, total: int) -> str:
    return f"{format_share(ns / total if total else 0.0):>8}  {format_ns(ns):>8}"
