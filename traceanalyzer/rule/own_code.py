"""Where the user's own code called a library, whose line a finding names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule.views import Calls, IdleTime, Work

# torch cuts what is on sys.path off a file's name, so that a package's begins with its folder.
_PACKAGE = re.compile(r"(?:^|/(?:site|dist)-packages/)([^/(]+)/")


def user_frame_hint(at: Calls | Work | IdleTime, rows: Rows, evidence: Mapping[str, Any]) -> str:
    """A sentence for the advice; empty where the first of `lines` is in the package that the program began in.

    Args:
        at, rows: the occurrences, and which of them the finding has.
    """
    lines = evidence.get("lines")
    line = next(iter(lines), "") if isinstance(lines, Mapping) else ""
    package = package_of(line)
    if package is None:
        return ""
    calls = at[rows] if isinstance(at, Calls) else at[rows].launch
    found = calls[calls.line.one_of(line)]
    if len(found) == 0:
        return ""
    frames = found.events.user_code.stack_at(int(found.start_ns[0]), int(found.thread[0]))
    if not frames or frames[0] != line or _home(frames[-1]) == package:
        return ""
    own = next(frame for frame in frames if _home(frame) == _home(frames[-1]))
    return f" If you cannot change {package}, change the call in {own}."


def _home(frame: str) -> str:
    """What a program's own files have in common with where it begins: the package, or the folder."""
    return package_of(frame) or frame.partition("(")[0].rpartition("/")[0]


def package_of(frame: str) -> str | None:
    """The package of `path.py(12): function`; None of a script, or of a file that was not found on sys.path."""
    found = _PACKAGE.search(frame.partition("(")[0])
    return None if found is None else found[1]
