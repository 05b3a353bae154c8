"""The parts of the page that are written by hand: `*.html` with slots, `*.css`, `scripts/*.js`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from traceanalyzer.render.html.markup import Html, escaped

_STYLES = ("report.css", "drawings.css", "timeline.css", "media.css")  # a later one overrules those before it


_MARGIN = re.compile(r"^ +|^ *//.*\n", re.MULTILINE)

# The first has what the others share.
_SCRIPTS = ("base", "strips", "copy", "flame", "tables", "cards")
_TIMELINE = ("timeline_model", "timeline_draw", "timeline_panel", "timeline")


@cache
def template(name: str) -> str:
    """One of them."""
    return files("traceanalyzer.render.html").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The whole style sheet."""
    return "\n".join(map(template, _STYLES))


def script() -> str:
    """The whole script, without what only its readers need: margins, and comments on lines of their own."""
    whole = "\n".join(template(f"scripts/{name}.js") for name in (*_SCRIPTS, *_TIMELINE))
    return _MARGIN.sub("", whole)


def head(title: object, styles: str, scripts: str = "") -> Html:
    """What stands before a page's body; `scripts` are the only ones that may run, as the content policy names them."""
    return filled("head.html", {"title": title, "style": Html(styles), "scripts": Html(scripts)})


def filled(name: str, slots: Mapping[str, object]) -> Html:
    """A template with something in each `{{slot}}`; what is put in is never searched for slots itself.

    Raises:
        KeyError: a slot has nothing to go in.
    """
    first, *parts = template(name).split("{{")
    whole = [first]
    for part in parts:
        slot, _, after = part.partition("}}")
        whole += [escaped(slots[slot]), after]
    return Html("".join(whole))
