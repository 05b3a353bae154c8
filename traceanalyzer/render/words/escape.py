"""The one way from names in a trace to characters on a page: nothing in them moves the cursor or changes colours."""

from collections.abc import Sequence

from traceanalyzer.model.text_queries import regex

# Invisible; breaks `@name`, which notifies people, and addresses, which become links.
_JOINER = "\N{WORD JOINER}"
_LIVE = regex(r"@(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)")
_MARKS = {ord(mark): f"\\{mark}" for mark in "\\`*_[]#|"} | {ord("<"): "&lt;", ord(">"): "&gt;"}
JOINED = "\N{NO-BREAK SPACE}"  # stands for a space at which no line ends
_UNIT = regex(r"(?<=\d) (?=(?:%|x|B|[KMGT]i?B|[kMGTP]?FLOP|GB/s|TFLOP/s|[mµn]?s)(?![\w/]))")


def to_markdown(titles: Sequence[str], cells: Sequence[Sequence[str]], after: Sequence[str] = ()) -> str:
    """A pipe table: the first column to the left, the others to the right; `after` as lines below.

    Cells are plain text, in which no mark counts; titles and `after` are Markdown.
    """
    lines = [_line(titles), _line([":--", *["--:"] * (len(titles) - 1)])]
    lines += [_line([plain_markdown(cell) for cell in row]) for row in cells]
    return "\n".join([*lines, *([""] if after else []), *[f"{line}  " for line in after]]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def plain_markdown(text: str) -> str:
    """A text in which nothing is a mark of Markdown or HTML, notifies anybody, or becomes a link."""
    return _LIVE.sub(lambda live: live[0] + _JOINER, printable(text)).translate(_MARKS)


def printable(text: str) -> str:
    """What is no visible character shows as its escape, `\\x1b`, and any white space as a space.

    That covers control characters, marks that change the direction of writing, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character.isprintable() or character == JOINED:
        return character
    return " " if character.isspace() else ascii(character)[1:-1]


def shortened(text: str, width: int) -> str:
    """The text in at most `width` characters, without its middle where it is longer."""
    if len(text) <= width:
        return text
    kept = max(width - 1, 2)
    return text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]


def joined_units(text: str) -> str:
    """The text with numbers and their units held together: no line ends in `12` of `12 %`."""
    return _UNIT.sub(JOINED, text)
