"""Lines of plain text at a given width: wrapping, alignment, bars, colour, ASCII where glyphs are missing."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import click

from traceanalyzer.model.text_queries import regex
from traceanalyzer.render.words.escape import JOINED, joined_units, printable, shortened

NARROWEST, WIDEST = 60, 120
FILE_WIDTH = 80

_WEIGHTS = ("bold", "dim")  # styles that are no colour
_ASCII = str.maketrans("█▓▒▚▼▲◆▶■░▤◌·µ×…", "#%=&v^*>o~+:.ux.") | {ord("±"): "+-"}
_ENDLESS, _NAME = regex(r"(?<!\S)[^\s/]{200,}(?!\S)"), 72  # names of generated kernels; paths stay whole
_FRAME = regex(r"\S+\.py\(\d+\): [\w<>.]+[,;:]?")


def stream_width() -> int:
    """Columns of the terminal, within what a page can have; of files and pipes 80."""
    return min(max(shutil.get_terminal_size((FILE_WIDTH, 24)).columns, NARROWEST), WIDEST)


def stream_height() -> int:
    return shutil.get_terminal_size((FILE_WIDTH, 24)).lines


def as_text(lines: Iterable[str], *, ascii_only: bool = False) -> str:
    """The lines, each without blanks at its end, in characters that the stream can show."""
    whole = "\n".join(line.rstrip() for line in lines) + "\n"
    if not ascii_only:
        return whole
    return whole.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


@dataclass(slots=True)
class Page:
    """Collects lines; `colour` and `ascii_only` are what the stream can show."""

    width: int = 80
    colour: bool = False
    ascii_only: bool = False
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.width = min(max(self.width, NARROWEST), WIDEST)

    def fresh(self) -> Self:
        """An empty page like this one."""
        return replace(self, lines=[])

    def blank(self) -> None:
        """An empty line, unless the page is empty or there is one already."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def put(self, text: str, *, indent: int = 0, hang: int = 0, style: str = "") -> None:
        """Text wrapped to the width; lines after the first are indented by `hang` more."""
        shown = _ENDLESS.sub(lambda name: shortened(name[0], _NAME), printable(text))
        whole = joined_frames(joined_units(shown), self.width - indent - hang)
        wrapped = _wrapped(whole, self.width, indent, hang)
        self.lines += [self.styled(line.replace(JOINED, " "), style) for line in wrapped]

    def pair(self, label: str, text: str, *, width: int = 10, style: str = "") -> None:
        """A label and its text beside it, wrapped below itself."""
        self.put(f"{label:<{width}} {text}", hang=width + 1, style=style)

    def sides(self, left: str, right: str, *, style: str = "", left_style: str = "bold", indent: int = 0) -> None:
        """Two texts at the two margins; a longer left one goes on below, the right one beside its end if it can."""
        lines = list(_wrapped(printable(left), self.width, indent, 3)) or [""]
        if len(lines[-1]) + 2 + len(right) > self.width:
            lines.append("")
        padding = " " * (self.width - len(lines[-1]) - len(right))
        self.lines += [self.styled(line, left_style) for line in lines]
        self.lines[-1] += padding + self.styled(right, style)

    def styled(self, text: str, style: str) -> str:
        if not (self.colour and style and text):
            return text
        return click.style(text, **({style: True} if style in _WEIGHTS else {"fg": style}))

    def text(self) -> str:
        return as_text(self.lines, ascii_only=self.ascii_only)


def joined_frames(text: str, room: int) -> str:
    """The text with `file.py(12): function` held together where it fits on a line."""
    return _FRAME.sub(lambda frame: frame[0].replace(" ", JOINED if len(frame[0]) <= room else " "), text)


def _wrapped(text: str, width: int, indent: int, hang: int) -> Iterator[str]:
    """Lines of the width; only paths are longer where they must be, so that they can be copied."""
    indents: dict[str, Any] = {"initial_indent": " " * indent, "subsequent_indent": " " * (indent + hang)}
    for line in textwrap.wrap(text, width, **indents, break_on_hyphens=False, break_long_words=False):
        if len(line) <= width or "/" in line.split(" ")[-1]:
            yield line
        else:  # a word longer than the page goes on below where it began
            yield from textwrap.wrap(line, width, subsequent_indent=" " * (len(line) - len(line.lstrip())))


def bar(sizes: Sequence[int], width: int) -> list[int]:
    """How many of exactly `width` cells each size gets, in proportion: the remainders go to the largest fractions."""
    total = sum(sizes)
    if total <= 0:
        return [0] * len(sizes)
    exact = [size * width / total for size in sizes]
    cells = [int(size) for size in exact]
    by_fraction = sorted(range(len(sizes)), key=lambda i: (cells[i] - exact[i], i))
    for i in by_fraction[: width - sum(cells)]:
        cells[i] += 1
    return cells
