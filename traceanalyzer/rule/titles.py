"""The title of a finding: one sentence that states the problem with its number and the code."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traceanalyzer.model.short_names import short_op, short_ops
from traceanalyzer.model.text_queries import regex
from traceanalyzer.rule.idioms import toml_table
from traceanalyzer.rule.messages import singular

MAX_TITLE, _WITH_PLACE = 100, 130
"""Characters of a title at most, without and with the function at its end: two lines of 80 columns."""
_WIDTHS = (64, 40, 28)  # characters of a name in a title, the more the better
_LIST_WIDTH = 48  # characters of a list of ops
_ANY = "any"
_CODE = regex(r"(?:[^\s(]*/)?([^\s/(]+\.pyx?)\((\d+)\): ([\w.<>]+)(?:\(\))?")
_CLAUSE = regex(r"(?:[;.]|(?<!\)):|,(?= (?:and|which|because|while|although|mostly|most|so|for inputs)\b)) ")
_JOINS = regex(r"(?:and|which|because|while|although|so)\b")  # what follows is no statement without the clause before
_ASIDE = regex(r"(?<! x) \([^()]*(?:\([^()]*\)[^()]*)*\)")
_NAME = regex(r"^\S*(?:::|[._(<]|\d|[a-z][A-Z])")
_LEADS_ON = regex(r"(?:[,;:]? (?:at|in|of|on|by|to|for|from|with|the|an?|and|or|which|that|is|are))+$")
_LOADER = regex(r"^enumerate\(DataLoader\).*")
_NOTHING = regex(r"0(?: ns| %)?(?: a step| in total|$)")


def title_of(rule: str, cause: str, message: str, fields: Mapping[str, str], evidence: Mapping[str, Any]) -> str:
    """The title by the templates of the rule; its first clause where none has room, or all lack a number.

    Templates are by rule and cause, `any` for other causes: one, or several of which the first that has room is taken.
    """
    of_rule = toml_table("titles").get(rule, {})
    every = cause.removesuffix("-once")
    templates = of_rule.get(cause) or of_rule.get(every) or of_rule.get(_ANY) or ()
    every_field = (*_named(evidence), *fields.items())
    known = {name: code_words(value) for name, value in every_field if value is not None}
    known = {name: text for name, text in known.items() if text and not _NOTHING.match(text)}
    lines = evidence.get("lines")
    places = _places(next(iter(lines), ""), evidence) if isinstance(lines, Mapping) else []
    known |= {"place": places[-2 if "caller" in evidence and len(places) > 1 else -1]} if places else {}
    for width in _WIDTHS:
        cut = {name: shortened_name(text, width) for name, text in known.items()}
        for template in [templates] if isinstance(templates, str) else templates:
            try:
                title = singular(template.format_map(cut))
            except KeyError:
                continue
            if len(title) <= MAX_TITLE:
                ends = [_placed(title, place) for place in places] if dominant(lines) else []
                fitting = (end for end in ends if len(end) <= _WITH_PLACE and ".py" not in title)
                return next(fitting, title)
    return first_clauses(message, MAX_TITLE)[0]


def _named(evidence: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields that titles have besides those of messages."""
    for name, value in evidence.items():
        if isinstance(value, Mapping) and value:
            yield f"top_{name}", short_op(next(iter(value)).strip())
        elif isinstance(value, Sequence) and len(value) == 1:
            yield f"only_{name}", f"{value[0]:,}" if isinstance(value[0], int) else str(value[0])
    if region := evidence.get("region"):
        words = code_words(str(region))
        place = words.partition(" in ")[2]
        while not place and " x (" in words and len(words) > _LIST_WIDTH and words.count(", ") > 1:
            words = f"{words.removesuffix(')').removesuffix(', ...').rpartition(', ')[0]}, ...)"
        yield "in_region", f" in {evidence.get('idiom', words)}"
        yield "loop_place", place


def dominant(times: object) -> str:
    """The first of some lines or ops if it has half of their time, or is around others that have more; else empty."""
    if not isinstance(times, Mapping) or not times:
        return ""
    first, most = next(iter(times)), max(times.values())
    return str(first) if 2 * most >= sum(times.values()) or times[first] < most else ""


def _places(line: str, evidence: Mapping[str, Any]) -> list[str]:
    """The function that has most of the finding's time, with the program's that it calls or that calls it, if any."""
    code = _CODE.fullmatch(line)
    callee, caller = (_CODE.fullmatch(str(evidence.get(name))) for name in ("callee", "caller"))
    if code is None:
        return []
    both = [f"{code[3]}() calling {_function(callee)}"] if callee else []
    both += [f"{code[3]}() calling {callee[3]}()"] if callee and callee[3] != code[3] else []
    around = [f"{code[3]}() called by {_function(caller)}"] if caller else []
    return [*both, *around, _function(code), *([_function(caller)] if caller else [])]


def _placed(title: str, place: str) -> str:
    """The title with a place at its end, or where it names that function already."""
    name = f"{place.partition('(')[0]}()"
    return title.replace(name, place, 1) if name in title else f"{title}, in {place}"


def _function(code: re.Match[str]) -> str:
    return f"{code[3]}() ({code[1]}:{code[2]})"


def code_words(value: str) -> str:
    """As people say it: `step() (train.py:45)` of a line, `AdamW.step` of an annotation of torch."""
    plain = short_ops(str(value))
    plain = plain.rpartition("#")[2] if plain.startswith("Optimizer.") else _LOADER.sub("DataLoader", plain)
    return _CODE.sub(_function, plain) if ".py" in plain else plain


def shortened_name(text: str, width: int) -> str:
    """A name without its middle; a phrase stays whole."""
    if len(text) <= width or " " in text:
        return text
    kept = width - 1
    return text[: kept - kept // 2] + "…" + text[len(text) - kept // 2 :]


def first_clauses(message: str, room: int) -> tuple[str, str]:
    """(title, rest) of a message: its first clauses, as many as fill `room`; the rest is empty if all of it fits.

    One that is too long goes without what stands in parentheses, or ends at a word.
    """
    ends = [end for end in _CLAUSE.finditer(message) if is_closed(message[: end.start()])]
    fitting = [end for end in ends if end.start() <= room]
    if len(message) <= room:
        title, rest = message.rstrip("."), ""
    elif fitting:
        title = message[: fitting[0].start()]
        begin = next((end.end() for end in ends if not _JOINS.match(message, end.end())), len(message))
        rest = message[begin:]
    else:
        clause = message[: ends[0].start()] if ends else message
        title, rest = _ASIDE.sub("", clause), message[ends[0].end() :] if ends else ""
        if len(title) > room:
            title = _LEADS_ON.sub("", title[:room].rpartition(" ")[0].rstrip(" ,;:"))
    return _capital(title), _capital(rest)


def _capital(text: str) -> str:
    return text if _NAME.match(text) else text[:1].upper() + text[1:]


def is_closed(text: str) -> bool:
    """Whether the text does not end in parentheses."""
    return text.count("(") == text.count(")")
