"""Which package the frames of a call stack belong to: the program's own, or a library that it calls."""

from __future__ import annotations

from collections.abc import Sequence

from traceanalyzer.model.text_queries import regex
from traceanalyzer.timeline.calls_and_work import Calls

# torch cuts what is on sys.path off a file's name, so that a package's begins with its folder.
_PACKAGE = regex(r"(?:^|/(?:site|dist)-packages/)([^/(]+)/")


def caller_of(calls: Calls, line: str) -> str | None:
    """The user's own frame that calls the package of `line`; None where that is where the program began."""
    found = calls[calls.line.one_of(line)]
    if len(found) == 0:
        return None
    frames = found.events.user_code.stack_at(int(found.start_ns[0]), int(found.thread[0]))
    if not frames or frames[0] != line or in_its_own(frames):
        return None
    return next(frame for frame in frames if home_of(frame) == home_of(frames[-1]))


def in_its_own(frames: Sequence[str]) -> bool:
    """Whether the innermost frame is in the package that the outermost is in, or in none."""
    return package_of(frames[0]) in (None, home_of(frames[-1]))


def home_of(frame: str) -> str:
    """What a program's own files have in common with where it begins: the package, or the folder."""
    return package_of(frame) or frame.partition("(")[0].rpartition("/")[0]


def package_of(frame: str) -> str | None:
    """The package of `path.py(12): function`; None of a script, or of a file that was not found on sys.path."""
    found = _PACKAGE.search(frame.partition("(")[0])
    return None if found is None else found[1]
