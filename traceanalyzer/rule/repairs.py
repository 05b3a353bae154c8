"""What a repair looks like in code, what it requires, and what it could change: a table of examples by rule."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from traceanalyzer.model.finding import Finding


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
    table = tomllib.loads(Path(__file__).with_name("repairs.toml").read_text(encoding="utf-8"))
    return tuple(Repair(**row.pop("fits"), **row) for row in table["repair"])


def repair_of(finding: Finding) -> Repair | None:
    """The first row that fits the finding; None where the table has none."""
    return next((row for row in repairs() if row.fits(finding)), None)
