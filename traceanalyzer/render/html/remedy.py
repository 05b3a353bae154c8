"""A remedy's code: in the advice, and on the rule's page what to write instead of what."""

from __future__ import annotations

import ast
import re

from traceanalyzer.render.html.markup import Html, tag
from traceanalyzer.render.words.escape import joined_units

# What reads like code: `torch.compile(model)`, `non_blocking=True`, `aten::item`.
_CODE = re.compile(
    r"\b[A-Za-z_][\w.]*\([^()\n]*\)|\b[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|\b\w+=(?:True|False|None|\d+)\b"
)
_PAIR = re.compile(r"^Bad:\s(.*?)\sGood:\s(.*?)\.?$(?=\n[A-Z]|\n*\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_CONNECTED = re.compile(r"^(?:or|and)\s+")
_WRITTEN = (ast.Call, ast.Assign, ast.Subscript, ast.With)  # a name alone is nothing to write


def coded(where: str, text: str) -> Html:
    """Advice, with what is code in it as code."""
    shown = joined_units(text)
    parts, done = [], 0
    for found in _CODE.finditer(shown):
        parts += [shown[done : found.start()], tag("code", found.group())]
        done = found.end()
    return tag("span", *parts, shown[done:], data_path=where, data_unit="text")


def explained(page_of_rule: str) -> Html:
    """A rule's page, with what stands between backticks as code."""
    parts = _SPAN.split(page_of_rule)  # every second one is code
    drawn = (tag("code", part) if i % 2 else part for i, part in enumerate(parts))
    return tag("div", *drawn, class_="explained drawn")


def example(page_of_rule: str) -> Html | None:
    """What the rule's page says to write instead of what, a line each, to be copied; None where that is no code."""
    pair = _PAIR.search(page_of_rule)
    bad, good = (code_in(side) for side in pair.groups()) if pair else ((), ())
    if not good:
        return None
    first = "In general: instead of" if bad else "In general: write"
    rows = [copied("" if i else first, tag("code", line), None) for i, line in enumerate(bad)]
    label = "write" if bad else first
    rows += [copied("" if i else label, tag("code", line), line) for i, line in enumerate(good)]
    return tag("div", *rows, class_="example drawn")


def code_in(side: str) -> tuple[str, ...]:
    """Lines of Python in a Bad or Good: between backticks, or else parts that can be parsed; never prose."""
    text = " ".join(side.split()).removesuffix(".")
    pieces = _SPAN.findall(text) or _parts(text)
    return tuple(piece for piece in pieces if _is_code(piece))


def _parts(text: str) -> list[str]:
    """Text between commas and semicolons outside brackets, without `or` and `and` before it."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in ",;":
            parts.append("")
        else:
            parts[-1] += letter
    return [_CONNECTED.sub("", part.strip()) for part in parts]


def _is_code(text: str) -> bool:
    """Whether it is Python that does something; the first line of a block is."""
    for whole in (text, f"{text} ..."):
        try:
            return any(isinstance(node, _WRITTEN) for node in ast.walk(ast.parse(whole)))
        except (SyntaxError, ValueError):
            continue
    return False


def copied(label: str, code: Html, text: str | None) -> Html:
    """A text with a button that copies it."""
    said = f"Copy: {label or text}"
    button = text and tag("button", "Copy", type="button", class_="copy", data_copy=text, aria_label=said)
    return tag("div", tag("span", label, class_="label"), code, button or None, class_="copied")
