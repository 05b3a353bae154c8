"""Texts that many slices share: each is written once and then known by a number."""

from __future__ import annotations

from traceanalyzer.render.perfetto.wire import number, sized, text
from traceanalyzer.render.words.escape import printable, shortened

NAME_LENGTH = 200  # characters of a slice's name that tell it from others
VALUE_LENGTH = 10_000  # of a text in its details; names of 100 kB are no use to anybody
_NAMES, _KEYS, _VALUES = 2, 3, 29  # fields of InternedData


def shown_name(name: str) -> str:
    """A name as it is drawn: no control characters, no marks that turn the direction of writing, not too long."""
    return printable(shortened(name, NAME_LENGTH))


def shown_value(value: str) -> str:
    """A text of the details as it is shown."""
    return printable(shortened(value, VALUE_LENGTH))


class Interned:
    """Numbers of texts from 1, and what of them has not been written yet."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}
        self._news: list[bytes] = []

    def name(self, value: str) -> int:
        """Number of a slice's name."""
        return self._number(_NAMES, shown_name(value))

    def key(self, value: str) -> int:
        """Number of the name of a detail."""
        return self._number(_KEYS, shown_name(value))

    def value(self, value: str) -> int:
        """Number of the text of a detail."""
        return self._number(_VALUES, shown_value(value))

    def news(self) -> bytes:
        """InternedData with what was not written yet."""
        content = b"".join(self._news)
        self._news.clear()
        return content

    def _number(self, field: int, value: str) -> int:
        ident = self._known.get((field, value))
        if ident is None:
            ident = self._known[field, value] = len(self._known) + 1
            self._news.append(sized(field, number(1, ident) + text(2, value)))
        return ident
