"""Code that people know by a name, such as GELU written by hand, with what they do about it: a table."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_OPS = re.compile(r"[A-Za-z_]\w*")
_TIMES = re.compile(r"^[\d,]+ x ")
_BACKWARD = re.compile(r"(?:_backward|Backward\d+)?_?$")


@dataclass(frozen=True, slots=True)
class Idiom:
    """One row of the table: what to do, and what finds it: a regular expression `code`, or else ops.

    `ops` occur together, those of `without` do not, and no others than `only` unless that is empty.
    """

    name: str
    fix: str
    code: str = ""
    ops: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()

    def fits(self, text: str) -> bool:
        """Whether a line of Python, or a text with the names of ops, shows it."""
        if self.code:
            return re.search(self.code, text) is not None
        ops = {_BACKWARD.sub("", name) for name in _OPS.findall(_TIMES.sub("", text))}
        lower = ops | {name.lower() for name in ops}
        allowed = not self.only or ops <= self.only
        return self.ops <= lower and not self.without & lower and allowed


@cache
def idiom_table() -> dict[str, Any]:
    """`idioms.toml`."""
    return tomllib.loads(Path(__file__).with_name("idioms.toml").read_text(encoding="utf-8"))


@cache
def idioms(kind: str) -> tuple[Idiom, ...]:
    """The rows for "attention", "kernels" or "calls", the specific before the general."""
    named = ("ops", "without", "only")
    return tuple(
        Idiom(row["name"], row["fix"], row.get("code", ""), *(frozenset(row.get(key, ())) for key in named))
        for row in idiom_table()[kind]
    )


def idiom_of(kind: str, texts: Iterable[str]) -> Idiom | None:
    """The idiom that the first of these texts shows; None of what has no name."""
    return next((one for text in texts for one in idioms(kind) if one.fits(text)), None)
