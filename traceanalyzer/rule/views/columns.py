"""Columns of the frames as views look them up by name."""

from __future__ import annotations

from traceanalyzer.model.schema import FRAMES
from traceanalyzer.rule.views.selection import meant

_TEXT = {
    frame.name: {column.name: column.storage.interned for column in frame.columns}
    for frame in FRAMES.values()
}


def check_column(frame: str, column: str, *, text: bool) -> None:
    """Raises ValueError where a frame has no column of that name, or one of numbers where texts are asked for."""
    if _TEXT[frame].get(column) is text:
        return
    known = [name for name, is_text in _TEXT[frame].items() if is_text is text]
    what = "texts" if text else "numbers"
    hint = meant(str(column), known) or f"; there are {', '.join(known)}"
    raise ValueError(f"trace.{frame} has no {what} {column!r}{hint}")
