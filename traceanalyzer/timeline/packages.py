"""Which functions are the program's own, and which a package's."""

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from traceanalyzer.model.text_queries import regex
from traceanalyzer.timeline.calls_and_work import Calls

# torch cuts sys.path off a name, so a package's begins with its folder; generated code is in /tmp/package.module_x.py.
_PACKAGE = regex(r"(?:^|/(?:site|dist)-packages/)([^/(]+)/|^/(?:.*/)?([a-z_]\w*)\.\w[^/]*\.py$")


def caller_of(calls: Calls, line: str) -> str | None:
    """The user's own frame that calls the package of `line`; None where that is where the program began."""
    found = calls[calls.line.one_of(line)]
    if len(found) == 0:
        return None
    frames = found.events.user_code.stack_at(int(found.start_ns[0]), int(found.thread[0]))
    if not frames or frames[0] != line or in_its_own(frames):
        return None
    return next(own_frames(frames), frames[-1])


def in_its_own(frames: Sequence[str]) -> bool:
    """Whether the innermost frame is in the package that the outermost is in, or in none."""
    return package_of(frames[0]) in (None, package_of(frames[-1]))


def own_frames(frames: Sequence[str]) -> Iterator[str]:
    """Frames of the program, without generated files: of no package or the outermost frame's, found as that one was."""
    begin = frames[-1]
    for frame in frames:
        if package_of(frame) in (None, package_of(begin)) and frame.startswith("/") == begin.startswith("/"):
            yield frame


@cache
def known_packages() -> frozenset[str]:
    """Names of packages that users install."""
    text = Path(__file__).with_name("packages.toml").read_text(encoding="utf-8")
    return frozenset(tomllib.loads(text)["known"])


def package_of(frame: str) -> str | None:
    """The package of `path.py(12): function`; None of the program's own files.

    A folder below sys.path is a package if it is a known one, or if the path shows where packages are installed.
    """
    path = frame.partition("(")[0]
    found = _PACKAGE.search(path)
    name = None if found is None else found[1] or found[2]
    return name if name in known_packages() or "-packages/" in path else None
