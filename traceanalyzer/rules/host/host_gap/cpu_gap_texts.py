"""What is said of stretches without an op: whose they are, how long, and what to do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from traceanalyzer.model.containment import running_at
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import codes, ints, texts_of
from traceanalyzer.model.units import format_ns
from traceanalyzer.rule.own_code import TORCHS, librarys
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps

_WHOLE = (
    0.8  # of a stretch and of the function's call, that lie in one another for it to be the call; a choice
)
_MOST = 0.5  # of the time: the minimum for one function to name the pause; chosen
_LINE = (
    "Move this code out of the loop, run it rarely, or run it in another process. Python on another thread would "
    "still hold up the launching thread."
)
_SPREAD = (
    "The time is spread over many calls: move what need not run in every step out of the loop. "
    "{torch.compile} or a CUDA graph removes most of the rest."
)
_UNKNOWN = (
    "Pass with_stack=True when you record: the report then names the line. If it names none, the pause is garbage "
    "collection: call gc.freeze() after set-up and gc.disable() before the loop, and gc.collect() every N steps."
)
_OTHERS = (
    "Only one thread of a process runs Python at a time. Do that work in another process, less often, or in code that "
    "releases the interpreter's lock (GIL)."
)
_WAITS = r"sleep|acquire|_?wait\w*|_?poll|select|_?recv\w*|_?read\w*|join|get|accept|loop"
_SLEEPS = re.compile(
    rf"built-in (function|method) ({_WAITS})\b|: ({_WAITS})$|^(threading|queue|selectors|socket|\w*/?connection)\.py"
)
_HOLDS = 0.7  # of the time in which another thread runs Python while the launching one does nothing; chosen
_APART = 0.25  # of their sum, that the median of stretches times their number may be off to be told; chosen
_CODE = "; this is Python or garbage collection (only stacks show which)"


def evidence_of(found: CallsAfterCpuGaps) -> dict[str, Any]:
    """How long the stretches are, and where."""
    return {
        "gap_ns": int(np.median(found.dur_ns)) if len(found) else 0,
        "largest_ns": int(found.dur_ns.max(initial=0)),
        "places": {_between(place): ns for place, ns in found.place.sums(found.dur_ns).items()},
        "lines": found.line.sums(found.dur_ns),
    }


def _between(place: str) -> str:
    """`between aten::mm and aten::add`, `between two calls of aten::mm`."""
    before, _, after = place.partition(" and ")
    return f"between two calls of {before}" if before == after else f"between {place}"


def told(found: CallsAfterCpuGaps, line: str | None) -> tuple[str, str, dict[str, Any], bool]:
    """(message, advice, evidence, whether the stretches are the function's own calls).

    Args:
        line: the user's function that is open for most of each stretch; None without stacks.
    """
    evidence = evidence_of(found) | {"functions": found.functions() if line else {}}
    calls_ns = found.calls_ns(line, _WHOLE) if line else np.empty(0, np.int64)
    if alone := len(calls_ns) > 0:
        evidence |= {"gap_ns": int(np.median(calls_ns)), "largest_ns": int(calls_ns.max())}
    several = len(found) > 1
    apart = " (median; at most {largest})" * (
        format_ns(evidence["gap_ns"]) != format_ns(evidence["largest_ns"])
    )
    if alone:
        said = "{by} runs {times_a_step} and takes {gap}" + f" each time{apart}" * several
    else:
        each = f"s without ops ({{times_a_step}}) take {{gap}} each{apart}"
        said = "long pause" + each if several else "a long pause without ops takes {gap}, {times_a_step}"
    if not alone and _uneven(found):
        evidence |= {"pauses_ns": found.total_ns}
        said = "long pauses without ops ({times_a_step}) take {pauses_on_average}"
    advice = (librarys(found, line) if line else "") or _advice(evidence, alone=alone)
    if other := _other_thread(found):
        said += "; another thread runs {other} meanwhile" if alone else ", while another thread runs {other}"
        return said, _OTHERS, evidence | {"other": other}, False
    if torchs := found.torchs_part(_MOST):
        return said + f", most of this time in {torchs}", TORCHS, evidence, False
    if line and not alone and found.within_ns(line) < _WHOLE * found.total_ns:
        return said + "; more than half of this time is within {by}", advice, evidence, alone
    return said + _where(evidence, line, alone=alone), advice, evidence, alone


def _uneven(found: CallsAfterCpuGaps) -> bool:
    """Whether the median, times the number of stretches, is far from what they take together."""
    if not len(found):
        return False
    usual_ns = float(np.median(found.dur_ns)) * len(found)
    return abs(usual_ns - found.total_ns) > _APART * found.total_ns


def _where(evidence: Mapping[str, Any], line: str | None, *, alone: bool) -> str:
    inner = evidence["functions"]
    if not line:
        where = f"; {_mostly(evidence['places'])} {{places}}" if len(evidence["places"]) > 1 else ", {places}"
        return ", in {lines}" if evidence["lines"] else where + _CODE
    other = next(iter(inner), line) != line
    if alone:
        return ", with most of that time in {functions}" if other else ""
    return ", within {by}" + (": {functions}" if other else "")


def _mostly(places: Mapping[str, int]) -> str:
    return "mostly" if 2 * max(places.values()) > sum(places.values()) else "partly"


def _advice(evidence: Mapping[str, Any], *, alone: bool) -> str:
    """What to do about one function, about several that share the time, and where none is known."""
    if not evidence["lines"]:
        return _UNKNOWN
    inner = evidence["functions"]
    most = max(inner.values(), default=0) >= _MOST * sum(inner.values())
    return _LINE if alone or most else _SPREAD


def _other_thread(found: CallsAfterCpuGaps) -> str | None:
    """The Python function that other threads run in the middle of most of the stretches; None without stacks."""
    python = found.events.trace.lanes.python
    tid, start = ints(python, "tid"), ints(python, "start_ns")
    middle, spent = (found.start_ns + found.end_ns) // 2, dict[str, int]()
    order = np.argsort(tid, kind="stable")
    order = order[~np.isin(tid[order], found.thread)]
    for rows in np.split(order, np.flatnonzero(np.diff(tid[order])) + 1) if len(order) else ():
        here = np.full(len(middle), tid[rows[0]])
        at = running_at(start[rows], start[rows] + ints(python, "dur_ns")[rows], tid[rows], middle, here)
        names = Texts(np.where(at >= 0, codes(python, "name")[rows[at]], -1), texts_of(python, "name"))
        for name, ns in names.sums(found.dur_ns).items():
            if not _SLEEPS.search(name):
                spent[name] = spent.get(name, 0) + ns
    name, most = max(spent.items(), key=lambda one: one[1], default=("", 0))
    return name if most >= _HOLDS * found.total_ns > 0 else None
