"""Sentences cut to a number of lines, where a clause ends, and paths by their last two parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceanalyzer.render.text.page import Page

_PATH = re.compile(r"[^\s(]*/([^\s/]+/[^\s/]+\.pyx?(?:\(\d+\))?)")
_ENDS = re.compile(
    r"(?<=[.;:,)])(?<!\.\.\.)(?<!its kernels:)(?<!; by op:)(?<!\d\):) (?!and (?:others|elsewhere))"
)
_WORDS = re.compile("(?<! >) (?!> )")  # a chain `add > mul > ...` is one
_SENTENCES = re.compile(r"(?<=[.;])(?<!\.\.\.) ")


def _first_of(parts: re.Match[str]) -> str:
    """The largest part of a list, and that there are others, unless the clause says that it is the largest."""
    clause = re.split("[;,] ", parts.string[: parts.start()])[-1]
    words = set(clause.split())
    others = "elsewhere" if "at" in words else "others"
    return parts[1] + f" and {others}" * (not {"most", "longest", "between"} & words)


# Evidence that a narrow page does without, the first first: all but the largest part of a list, shapes, details.
_EVIDENCE = (
    (re.compile(r"(\(\d+ % of th\w+ [^()]+\))(?:, (?:(?! % of th)[^;])+? \(\d+ %\))+"), _first_of),
    (re.compile(r", for inputs of shapes? [\dx]+(?:, [\dx]+)*"), ""),
    (re.compile(r" \((?!\d+ % of th)[^()]*(?:\([^()]*\)[^()]*)*\)"), ""),
)
_CUT = " (more: --verbose)"
_LEADS_ON = re.compile(
    r"(?:[,;:]? (?:at|in|of|on|by|to|for|from|with|the|an?|and|or|which|that))+$"
)  # not to end with
_ENOUGH = 0.4  # of the room: a clause that ends there is better than a word later


def short_paths(text: str) -> str:
    """`/home/me/env/lib/torch/nn/linear.py(12): forward` as `nn/linear.py(12): forward`."""
    return _PATH.sub(r"\1", text)


def put_fitted(
    page: Page,
    text: str,
    lines: int,
    *,
    indent: int = 0,
    hang: int = 0,
    style: str = "",
    whole: bool = False,
    spare: int = 0,
) -> None:
    """Put the text in at most so many lines: evidence goes first, then the last clauses, and it says so.

    Args:
        whole: a sentence is never cut, even if it takes more lines: half a sentence of advice is none.
        spare: further lines for a text that would be cut without them.
    """
    text = short_paths(text)
    uncut = [text, *_sentences(text)] if whole else list(_without_evidence(text))
    room = [(trial, lines) for trial in uncut] + [(trial, lines + spare) for trial in uncut if spare]
    cut = [] if whole else [(trial, lines + spare) for trial in _shorter(text, lines + spare, page)]
    for trial, most in room + cut:
        own = Page(page.width)
        own.put(trial, indent=indent, hang=hang)
        if len(own.lines) <= most and max(map(len, own.lines), default=0) <= page.width:
            break
    page.put(trial, indent=indent, hang=hang, style=style)


def _sentences(text: str) -> list[str]:
    """Ever shorter beginnings of the text that are whole sentences."""
    return [text[: end.start()] for end in reversed(list(re.finditer(r"(?<=[.]) (?=[A-Z`(]|\w+=)", text)))]


def _without_evidence(text: str) -> Iterator[str]:
    """The text, then with ever fewer details."""
    yield text
    for pattern, kept in _EVIDENCE:
        text = pattern.sub(kept, text)
        yield text


def _shorter(text: str, lines: int, page: Page) -> list[str]:
    """Ever shorter beginnings of it: those that end with a sentence, clauses, and words, never in parentheses."""
    *_, text = _without_evidence(text)
    room = lines * page.width
    sentences, clauses, words = (
        [
            _LEADS_ON.sub("", text[: end.start()].rstrip(" .;:,")) + _CUT
            for end in reversed(list(pattern.finditer(text)))
        ]
        for pattern in (_SENTENCES, _ENDS, _WORDS)
    )
    long = [one for one in (*sentences, *clauses) if len(one) > _ENOUGH * room and _closed(one)]
    closed = [one for one in words if len(one) > _ENOUGH * room and _closed(one)]
    return [*long, *closed, *words, text[: max(room // 2, 20)]]


def _closed(text: str) -> bool:
    return text.count("(") == text.count(")")
