"""The one way from texts and numbers to HTML: whatever a trace holds becomes characters, never markup."""

import base64
import html
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from os.path import commonprefix
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from traceanalyzer.model.short_names import plain_kernel, short_kernel
from traceanalyzer.model.units import format_bytes, format_ns, format_offset, format_share
from traceanalyzer.render.data.encode import to_json
from traceanalyzer.render.words.escape import joined_units, printable, shortened

Html = Markup  # safe to be put into a page
_STYLES = ("report.css", "drawings.css", "timeline.css", "media.css")  # a later one overrules those before it


_MARGIN = re.compile(r"^ +|^ *//.*\n", re.MULTILINE)
_LINE_END = re.compile(r"\s*\n\s*")  # parts of a page are written on many lines, and are none

# The first has what the others share.
_SCRIPTS = ("base", "copy", "flame", "tables", "cards")
_TIMELINE = ("timeline_model", "timeline_draw", "timeline_panel", "timeline")
_HEAD, _BESIDE = 24, 10  # characters kept of the beginning, and before where two names part
LONGEST = 400  # characters of a name: those of generated kernels have thousands
_EMPTY = frozenset({"rect", "line", "path", "circle", "br", "input", "meta", "use"})
_PART = re.compile(r"(::|[/_])(?=\w)")  # none of these is in an escape such as &lt;

# Unit -> how a number of it is written; what a page says and what a test expects.
UNITS: dict[str, Callable[[Any], str]] = {
    "ns": format_ns,
    "bytes": format_bytes,
    "share": format_share,
    "percent": lambda share: f"{min(max(round(100 * share), 0), 99)}",  # no fix saves all of a step
    "count": lambda count: f"{count:,}",
    "number": lambda number: rounded(number) if isinstance(number, float) else str(number),
    "rate": lambda rate: f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}",
    "offset": format_offset,
    "text": lambda text: said(text, 4 * LONGEST),
}


@cache
def template(name: str) -> str:
    return files("traceanalyzer.render.html").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    return "\n".join(map(template, _STYLES))


def script() -> str:
    """The whole script, without what only its readers need: margins, and comments on lines of their own."""
    whole = "\n".join(template(f"scripts/{name}.js") for name in (*_SCRIPTS, *_TIMELINE))
    return _MARGIN.sub("", whole)


def head(title: object, styles: str, scripts: str = "") -> Html:
    """What stands before a page's body; `scripts` are the only ones that may run, as the content policy names them."""
    return filled("head.html", title=title, style=Html(styles), scripts=Html(scripts))


def filled(name: str, **slots: object) -> Html:
    """A template with its slots filled; what is put in is escaped, unless it is `Html`."""
    return Html(_environment().get_template(name).render(slots))


def part(name: str, *values: object, **named: object) -> Html:
    """A macro of a template: `cards.fault` is `fault` in parts/cards.html."""
    file, _, macro = name.partition(".")
    return Html(getattr(_environment().get_template(f"parts/{file}.html").module, macro)(*values, **named))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        finalize=lambda value: "" if value is None else escaped(value),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    shared = (code, kernel_names, number, pointer, prose, quoted, said, format_ns)
    environment.globals |= {function.__name__: function for function in shared}
    environment.globals["attributes"] = lambda **values: attributes_of(values)
    environment.globals["percent"] = lambda share: f"{round(100 * share):+d} %".replace("-", "\N{MINUS SIGN}")
    environment.globals["time"] = lambda ns: joined_units(format_ns(ns))
    return environment


def _source(name: str) -> str:
    text = template(name)
    return _LINE_END.sub("", text) if name.startswith("parts/") else text


def told_apart(names: Sequence[str], longest: int) -> list[str]:
    """Each name in at most `longest` characters; those that would look alike with the part in which they differ."""
    shown = [shortened(name, longest) for name in names]
    alike = _alike(shown, names)
    return [said(_apart(name, alike[text], longest)) for text, name in zip(shown, names, strict=True)]


def _alike(shown: Sequence[str], names: Sequence[str]) -> dict[str, set[str]]:
    alike: dict[str, set[str]] = {}
    for text, name in zip(shown, names, strict=True):
        alike.setdefault(text, set()).add(name)
    return alike


def kernel_names(names: Sequence[str], longest: int) -> list[str]:
    """Kernels without namespaces and template arguments, as findings name them; those alike with what differs."""
    shown = [short_kernel(name) for name in names]
    known, full = _alike(shown, names), told_apart([plain_kernel(name) for name in names], longest)
    return [said(text) if len(known[text]) == 1 else whole for text, whole in zip(shown, full, strict=True)]


def _apart(name: str, others: set[str], longest: int) -> str:
    """The beginning of a name, and what is left of it where the others part from it; whole where that is no shorter."""
    if len(others) == 1:
        return shortened(name, longest)
    # Of characters, not of parts of a path.
    parted = max(len(commonprefix((name, other))) for other in others if other != name)  # noqa: RUF071
    begin = max(parted - _BESIDE, _HEAD)
    cut = f"{name[:_HEAD]}…{name[begin : begin + longest - _HEAD - 1]}"
    return cut if begin > _HEAD + 1 else name


def rounded(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def said(text: str, longest: int = LONGEST) -> str:
    """The text with what is no visible character as its escape, and without its middle where it is too long."""
    return printable(shortened(text, longest))


def escaped(text: object) -> Html:
    """Text as markup that shows it; markup stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(said(str(text), 4 * LONGEST)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; None among the children is left out, as is an attribute that is None or False.

    `class_` is written `class`, `data_path` is written `data-path`. A value that is `Html` is written as it is: what
    we drew ourselves, and is long.
    """
    written = attributes_of(attributes)
    if name in _EMPTY and not children:
        return Html(f"<{name}{written}>" if name in ("br", "input", "meta") else f"<{name}{written}/>")
    return Html(f"<{name}{written}>{together(children)}</{name}>")


def attributes_of(values: Mapping[str, object]) -> Html:
    """Attributes of an element, each after a blank, as `tag` writes them."""
    written = ""
    for key, value in values.items():
        if value is not None and value is not False:
            written += f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escaped(value)}"')
    return Html(written)


def together(children: Iterable[object]) -> Html:
    return Html("".join(escaped(child) for child in children if child is not None))


def pointer(document: str, *keys: object) -> str:
    """Where a value stands in a JSON document: `diagnose#/findings/0/cost_ns` (RFC 6901 after the #)."""
    parts = (str(key).replace("~", "~0").replace("/", "~1") for key in keys)
    return f"{document}#/{'/'.join(parts)}"


def number(where: str, value: object, unit: str) -> Html:
    """A value of a JSON document: as people read it, with its exact value and its place in that document."""
    return tag("data", UNITS[unit](value), value=to_json(value).decode(), data_path=where, data_unit=unit)


def quoted(where: str, text: str, element: str = "span", **attributes: object) -> Html:
    """A text of a JSON document; a path or a name where the element is `code`."""
    shown = said(text, 4 * LONGEST)
    content = breakable(shown) if element == "code" else shown
    return tag(element, content, data_path=where, data_unit="text", **attributes)


def prose(where: str, text: str, element: str = "span", **attributes: object) -> Html:
    """A sentence of a JSON document, in which numbers stay on one line with their units."""
    return quoted(where, joined_units(text), element, **attributes)


def breakable(text: str) -> Html:
    return Html(_PART.sub(r"\1<wbr>", html.escape(said(text, 4 * LONGEST))))


def code(text: str, *more: object, **attributes: object) -> Html:
    """A name or a command as code, whose line may break within it."""
    return tag("code", breakable(text), *more, **attributes)


def packed(identifier: str, value: object) -> Html:
    """Data for the page's script, deflated; base64 ends no element."""
    text = base64.b64encode(zlib.compress(to_json(value), 9)).decode()
    return Html(f'<script type="text/plain" id="{identifier}">{text}</script>')
