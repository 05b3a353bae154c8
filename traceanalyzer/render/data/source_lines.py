"""Where in the user's program a finding is, and by what it is known again in another run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

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
    lines = finding.evidence.get("lines")
    if not isinstance(lines, Mapping):
        return None
    for text in sorted(lines, key=lambda name: (-lines[name], name)):
        if match := _LINE.match(text):
            return SourceLine(match["file"], int(match["line"]), match["function"])
    return None


def fingerprint(finding: Finding) -> str:
    """32 hexadecimal digits that stay when lines move: of the rule, its cause, what it names, file and function."""
    place = source_line(finding)
    known = [finding.rule, finding.cause, finding.by or ""]
    known += [PurePosixPath(place.file).name, place.function] if place else []
    return hashlib.sha256("\0".join(known).encode("utf-8", "backslashreplace")).hexdigest()[:32]
