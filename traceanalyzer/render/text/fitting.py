"""Sentences cut to a number of lines, where a clause ends, and paths by their last two parts."""

from __future__ import annotations

import re

from traceanalyzer.render.text.page import Page

_PATH = re.compile(r"[^\s(]*/([^\s/]+/[^\s/]+\.pyx?(?:\(\d+\))?)")
_ENDS = re.compile(r"(?<=[.;:,)]) | (?=\()")
_SENTENCES = re.compile(r"(?<=[.;]) ")
_ENOUGH = 0.5  # of the room: a sentence that ends there is better than a clause that ends later


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
) -> None:
    """Put the text in at most so many lines; what is left out shows as three dots.

    Args:
        whole: cut after a sentence wherever one fits, however short: half a sentence of advice is none.
    """
    for shorter in _shorter(short_paths(text), lines * (page.width - indent), 0.0 if whole else _ENOUGH):
        trial = Page(page.width)
        trial.put(shorter, indent=indent, hang=hang)
        if len(trial.lines) <= lines and max(map(len, trial.lines)) <= page.width:
            break
    page.put(shorter, indent=indent, hang=hang, style=style)


def _shorter(text: str, room: int, enough: float) -> list[str]:
    """The text, then ever shorter beginnings of it: those that end with a sentence, clauses, and words.

    Within parentheses it is cut only if all before them is short.
    """
    sentences, clauses, words = (
        [text[: end.start()].rstrip(" .;:,") + " ..." for end in reversed(list(pattern.finditer(text)))]
        for pattern in (_SENTENCES, _ENDS, re.compile(" "))
    )
    long = [one for one in sentences if len(one) > enough * room]
    half = [one for one in clauses if len(one) > _ENOUGH * room and one.count("(") == one.count(")")]
    closed = [one for one in words if len(one) > _ENOUGH * room and one.count("(") == one.count(")")]
    return [text, *long, *half, *closed, *words, text[: max(room // 2, 20)]]
