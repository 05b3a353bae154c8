"""Lines of plain text at a given width: wrapping, alignment, bars, colour, ASCII where glyphs are missing."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

NARROWEST, WIDEST = 60, 160
FILE_WIDTH = 80
JOINED = "\N{NO-BREAK SPACE}"  # stands for a space at which no line ends

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "bold": "1", "dim": "2"}
_ASCII = str.maketrans({"█": "#", "▓": "+", "▒": "=", "░": "~", "·": ".", "µ": "u", "×": "x", "…": "."})


def stream_width() -> int:
    """Columns of the terminal, within what a page can have; of files and pipes 80."""
    return min(max(shutil.get_terminal_size((FILE_WIDTH, 24)).columns, NARROWEST), WIDEST)


@dataclass(slots=True)
class Page:
    """Collects lines; `colour` and `ascii_only` are what the stream can show."""

    width: int = 80
    colour: bool = False
    ascii_only: bool = False
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.width = min(max(self.width, NARROWEST), WIDEST)

    def blank(self) -> None:
        """An empty line, unless the page is empty or there is one already."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def put(self, text: str, *, indent: int = 0, hang: int = 0, style: str = "") -> None:
        """Text wrapped to the width; lines after the first are indented by `hang` more."""
        wrapped = textwrap.wrap(
            printable(text),
            self.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_on_hyphens=False,
        )
        self.lines += [self.styled(line.replace(JOINED, " "), style) for line in wrapped]

    def pair(self, label: str, text: str, *, indent: int = 0, width: int = 10) -> None:
        """A label and its text beside it, wrapped below itself."""
        self.put(f"{label:<{width}} {text}", indent=indent, hang=width + 1)

    def sides(self, left: str, right: str, *, style: str = "", indent: int = 0) -> None:
        """Two texts at the two margins; on two lines where one does not hold both."""
        left = printable(left)
        room = self.width - indent - len(right) - 2
        if len(left) <= room:
            padding = " " * (self.width - indent - len(left) - len(right))
            self.lines.append(" " * indent + self.styled(left, "bold") + padding + self.styled(right, style))
            return
        self.put(left, indent=indent, hang=3, style="bold")
        self.lines.append(" " * (self.width - len(right)) + self.styled(right, style))

    def styled(self, text: str, style: str) -> str:
        """The text in a colour, where the stream shows colours."""
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self.colour and style else text

    def text(self) -> str:
        """The page, ending in a newline."""
        whole = "\n".join(line.rstrip() for line in self.lines) + "\n"
        if not self.ascii_only:
            return whole
        return whole.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def printable(text: str) -> str:
    """Names come from the trace: what would move the cursor or change colours shows as an escape."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == JOINED else " " if c.isspace() else ascii(c)[1:-1] for c in text
    )


def bar(parts: Sequence[tuple[str, int]], width: int) -> str:
    """Glyphs in proportion, exactly `width` of them; the remainders go to the largest fractions."""
    total = sum(size for _, size in parts)
    if total <= 0:
        return ""
    exact = [size * width / total for _, size in parts]
    cells = [int(size) for size in exact]
    by_fraction = sorted(range(len(parts)), key=lambda i: (cells[i] - exact[i], i))
    for i in by_fraction[: width - sum(cells)]:
        cells[i] += 1
    return "".join(glyph * count for (glyph, _), count in zip(parts, cells, strict=True))


def shortened(text: str, width: int) -> str:
    """The text in at most `width` characters, without its middle where it is longer."""
    if len(text) <= width:
        return text
    kept = max(width - 1, 2)
    return text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]
