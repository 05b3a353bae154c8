"""Where in the user's program a finding is, and by what it is known again in another run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from traceanalyzer.model.finding import Finding

_LINE = re.compile(r"^(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.*)$")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of Python: the file as the trace names it, the line from 1, the function."""

    file: str
    line: int
    function: str


def source_line(finding: Finding) -> SourceLine | None:
    """The user's line that most of the finding's time belongs to; None without stacks."""
    return _largest(finding.evidence.get("lines"))


def _largest(lines: Any) -> SourceLine | None:
    if not isinstance(lines, Mapping):
        return None
    timed = {str(name): ns for name, ns in lines.items() if isinstance(ns, int | float)}
    for text in sorted(timed, key=lambda name: (-timed[name], name)):
        if match := _LINE.match(text):
            return SourceLine(match["file"], int(match["line"]), match["function"])
    return None


def fingerprint(finding: Finding) -> str:
    """32 hexadecimal digits that stay when lines move: of the rule, its cause, what it names, file and function."""
    return fingerprint_of(finding.rule, finding.cause, finding.by, finding.evidence.get("lines"))


def fingerprint_of(rule: str, cause: str, by: str | None, lines: Any) -> str:
    """The same of a finding's fields, as they are in the JSON."""
    place = _largest(lines)
    known = [rule, cause, by or ""]
    known += [PurePosixPath(place.file).name, place.function] if place else []
    return hashlib.sha256("\0".join(known).encode("utf-8", "backslashreplace")).hexdigest()[:32]
