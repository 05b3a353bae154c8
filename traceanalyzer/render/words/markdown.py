"""Pipe tables."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.render.words.escape import printable


def to_markdown(titles: Sequence[str], cells: Sequence[Sequence[str]], after: Sequence[str] = ()) -> str:
    """A pipe table: the first column to the left, the others to the right; `after` as lines below."""
    lines = [_line(titles), _line([":--", *["--:"] * (len(titles) - 1)])]
    lines += [_line(row) for row in cells]
    return "\n".join([*lines, *([""] if after else []), *[f"{line}  " for line in after]]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in cells) + " |"
