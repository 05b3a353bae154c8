"""Tables of code: what people know by a name, such as GELU written by hand, and what repairs of findings look like."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from traceanalyzer.model.finding import Finding

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
def toml_table(name: str) -> Mapping[str, Any]:
    """A table of this folder: "features", "idioms", "repairs" or "titles"."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def idioms(kind: str) -> tuple[Idiom, ...]:
    """The rows for "attention", "kernels" or "calls", the specific before the general."""
    named = ("ops", "without", "only")
    return tuple(
        Idiom(row["name"], row["fix"], row.get("code", ""), *(frozenset(row.get(key, ())) for key in named))
        for row in toml_table("idioms")[kind]
    )


def idiom_of(kind: str, texts: Iterable[str]) -> Idiom | None:
    """The idiom that the first of these texts shows; None of what has no name."""
    return next((one for text in texts for one in idioms(kind) if one.fits(text)), None)


@dataclass(frozen=True, slots=True)
class Repair:
    """One row of the table.

    Attributes:
        rule, cause: of the findings that it repairs; no cause for any.
        text: a regular expression that finds something in the finding's title, message or advice.
        code, used: regular expressions for lines of a program: what the repair changes, and what it adds.
        needs, results: the precondition, and what could change in the program's results.
    """

    rule: str
    before: str
    after: str
    needs: str
    results: str = "none"
    cause: str = ""
    text: str = ""
    code: str = ""
    used: str = ""

    def fits(self, finding: Finding) -> bool:
        """Whether it repairs what the finding is about."""
        same = self.rule == finding.rule and self.cause in ("", finding.cause)
        return same and bool(re.search(self.text, f"{finding.title} {finding.message} {finding.advice}"))


def lines_with(pattern: str, program: str) -> list[int]:
    """Numbers, from 1, of the program's lines that have a `code` or `used` of a repair; none for an empty pattern."""
    lines = enumerate(program.splitlines(), 1) if pattern else ()
    return [number for number, line in lines if re.search(pattern, line.partition("#")[0])]


@cache
def repairs() -> tuple[Repair, ...]:
    """All rows, the specific before the general."""
    rows = toml_table("repairs")["repair"]
    return tuple(Repair(**row["fits"], **{name: row[name] for name in row if name != "fits"}) for row in rows)


def repair_of(finding: Finding) -> Repair | None:
    """The first row that fits the finding; None where the table has none."""
    return next((row for row in repairs() if row.fits(finding)), None)
