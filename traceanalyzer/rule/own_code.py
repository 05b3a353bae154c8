"""Where the user's own code called a library, whose line a finding names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from traceanalyzer.model.arrays import Rows
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps

# torch cuts what is on sys.path off a file's name, so that a package's begins with its folder.
_PACKAGE = re.compile(r"(?:^|/(?:site|dist)-packages/)([^/(]+)/")

_LIBRARYS = "This code is in the package {}: call the package less often, with more work in each call."
_MODELS = (
    "Use {{torch.compile}} or a CUDA graph: these run the step without this Python code of the package {}."
)
TORCHS = (
    "This is torch's own code, which with_stack=True slows down: record without it first. If its time stays long, "
    "call it less often, or with fewer and larger tensors."
)


def librarys(found: CallsAfterCpuGaps, function: str) -> str:
    """What to do about stretches of such a function; empty of the program's own."""
    own = found[found.line.one_of(function)]
    if not len(own):
        return ""
    middle_ns = int(own.start_ns[0] + own.dur_ns[0] // 2)
    frames = own.events.user_code.stack_at(middle_ns, int(own.thread[0]))
    foreign = function in frames and not in_its_own(frames[frames.index(function) :])
    if not foreign:
        return ""
    if function.endswith(": forward"):
        return _MODELS.format(package_of(function))
    return _LIBRARYS.format(package_of(function))


def user_frame_hint(
    at: Calls | Work | IdleTime, rows: Rows, evidence: Mapping[str, Any], *, done_there: bool
) -> str:
    """A sentence for the advice; empty where the first of `lines` is in the package that the program began in.

    Args:
        at, rows: the occurrences, and which of them the finding has.
        done_there: whether what the library does is to be changed, not only how it runs.
    """
    lines = evidence.get("lines")
    line = next(iter(lines), "") if isinstance(lines, Mapping) else ""
    calls = at[rows] if isinstance(at, Calls) else at[rows].launch
    own = caller_of(calls, line) if package_of(line) else None
    if own is None:
        return ""
    avoid = " Look for an argument that avoids this, or call it less often." * done_there
    return f" The op is called by the package {package_of(line)}, which your code calls in {own}.{avoid}"


def caller_of(calls: Calls, line: str) -> str | None:
    """The user's own frame that calls the package of `line`; None where that is where the program began."""
    found = calls[calls.line.one_of(line)]
    if len(found) == 0:
        return None
    frames = found.events.user_code.stack_at(int(found.start_ns[0]), int(found.thread[0]))
    if not frames or frames[0] != line or in_its_own(frames):
        return None
    return next(frame for frame in frames if _home(frame) == _home(frames[-1]))


def in_its_own(frames: Sequence[str]) -> bool:
    """Whether the innermost frame is in the package that the outermost is in, or in none."""
    return package_of(frames[0]) in (None, _home(frames[-1]))


def _home(frame: str) -> str:
    """What a program's own files have in common with where it begins: the package, or the folder."""
    return package_of(frame) or frame.partition("(")[0].rpartition("/")[0]


def package_of(frame: str) -> str | None:
    """The package of `path.py(12): function`; None of a script, or of a file that was not found on sys.path."""
    found = _PACKAGE.search(frame.partition("(")[0])
    return None if found is None else found[1]
