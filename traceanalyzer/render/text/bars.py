"""Places a device's time went: one bar, its parts, and the largest causes of idle time with their ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.text.page import Page, bar, shortened

LARGEST_CAUSES = 5
NAMED_OPS = 3
_GLYPHS = {"compute": "█", "communication": "▓", "copy": "▒", "memset": "░", "idle": "·"}
_OTHER_GLYPH = "░"


def device_bar(page: Page, row: Mapping[str, Any], *, several: bool) -> None:
    """One device's accounting: the bar, a line per class, a line per large cause of idle time."""
    page.blank()
    parts = _classes(row["parts_ns"])
    total = row["end_ns"] - row["start_ns"]
    label = f"rank {row['rank']}, device {row['device']}" if several else f"device {row['device']}"
    drawn = [(_glyph(name), size) for name, size in parts.items()]
    page.lines.append(f"{label}  {bar(drawn, page.width - len(label) - 2)}")
    for name, size in parts.items():
        if size:
            page.sides(f"{_glyph(name)} {_words(name)}", _amount(size, total), indent=2)
    _causes(page, row, total)


def _causes(page: Page, row: Mapping[str, Any], total: int) -> None:
    """The largest causes of idle time, each with the ops that it befell most, in that order."""
    ops: dict[str, list[str]] = {}
    for part in row["idle_causes"]:
        ops.setdefault(part["cause"], []).extend([part["op"]] if part["op"] else [])
    idle = {name: size for name, size in row["parts_ns"].items() if name.startswith("idle")}
    for name in sorted(idle, key=lambda name: (-idle[name], name))[:LARGEST_CAUSES]:
        amount = _amount(idle[name], total)
        text = _named(_words(name), ops.get(name, [])[:NAMED_OPS], page.width - len(amount) - 6)
        page.sides(text, amount, indent=4)


def _named(cause: str, ops: list[str], room: int) -> str:
    """The cause and as many of its ops as there is room for, the first in any case."""
    for count in range(len(ops), 1, -1):
        text = ", ".join([cause, *ops[:count]])
        if len(text) <= room:
            return text
    return shortened(", ".join([cause, *ops[:1]]), room)


def _classes(parts: Mapping[str, int]) -> dict[str, int]:
    """Parts as they are, but with all idle causes in one."""
    classes = {name: size for name, size in parts.items() if not name.startswith("idle")}
    idle = sum(size for name, size in parts.items() if name.startswith("idle"))
    return classes | {"idle": idle}


def _glyph(name: str) -> str:
    return next((glyph for prefix, glyph in _GLYPHS.items() if name.startswith(prefix)), _OTHER_GLYPH)


def _words(name: str) -> str:
    """`idle:late_launch:python` as people say it."""
    return name.removeprefix("idle:").replace("_", " ").replace(":", ": ")


def _amount(size: int, total: int) -> str:
    return f"{format_share(size / total if total else 0.0):>8}  {format_ns(size):>8}"
