"""How deep values may be nested: what is deeper is no trace's, and writing it as JSON again would fail."""

from __future__ import annotations

from typing import Any

MAX_NESTING = 64  # of one value; traces have 4, orjson writes 254, Python's own recursion ends near 1,000


def too_deep(value: Any) -> bool:
    """Whether a parsed JSON value is nested deeper than that; looks at no more levels."""
    level = [value]
    for _ in range(MAX_NESTING):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return False
    return True


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
