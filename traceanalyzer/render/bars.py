"""Where a device's time went: one bar, its parts, and the largest causes of idle time with their ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceanalyzer.render.page import Page, bar, shortened
from traceanalyzer.units import format_ns, format_share

LARGEST_CAUSES = 5
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
    causes = row.get("idle_causes", ())[:LARGEST_CAUSES]
    for cause in causes:
        amount = _amount(cause["ns"], total)
        text = _words(cause["cause"]) + (f", {cause['op']}" if cause["op"] else "")
        page.sides(shortened(text, page.width - len(amount) - 8), amount, indent=6)


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
