"""The parts of the page that are written by hand: `*.html` with slots, `*.css`, `scripts/*.js`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from traceanalyzer.render.html.markup import Html, escaped

_STYLES = ("report.css", "drawings.css", "timeline.css", "media.css")  # a later one overrules those before it


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
    """The whole script."""
    return "\n".join(template(f"scripts/{name}.js") for name in (*_SCRIPTS, *_TIMELINE))


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
