"""What is said of stretches without an op: whose they are, how long, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traceanalyzer.rule.own_code import TORCHS, librarys
from traceanalyzer.rule.views.cpu_gaps import CallsAfterCpuGaps

_WHOLE = (
    0.8  # of a stretch and of the function's call, that lie in one another for it to be the call; a choice
)
_MOST = 0.5  # of the time: the minimum for one function to name the pause; chosen
_LINE = "Move it out of the loop, do it rarely, or hand it to another thread or process."
_SPREAD = (
    "The time is spread over many calls: move what need not run in every step out of the loop. "
    "{torch.compile} or a CUDA graph removes most of the rest."
)
_UNKNOWN = (
    "Record with with_stack=True: the report then names the line. If it names none, the pause is garbage "
    "collection: gc.freeze() after set-up, gc.disable() in the loop."
)
_BETWEEN = ", between {places}: Python or garbage collection (only stacks tell them apart)"


def evidence_of(found: CallsAfterCpuGaps) -> dict[str, Any]:
    """How long the stretches are, and where."""
    return {
        "gap_ns": int(np.median(found.dur_ns)) if len(found) else 0,
        "largest_ns": int(found.dur_ns.max(initial=0)),
        "places": found.place.sums(found.dur_ns),
        "lines": found.line.sums(found.dur_ns),
    }


def told(found: CallsAfterCpuGaps, line: str | None) -> tuple[str, str, dict[str, Any], bool]:
    """(message, advice, evidence, whether the stretches are the function's own calls).

    Args:
        line: the user's function that is open for most of each stretch; None without stacks.
    """
    evidence = evidence_of(found) | {"functions": found.functions() if line else {}}
    calls_ns = found.calls_ns(line, _WHOLE) if line else np.empty(0, np.int64)
    if alone := len(calls_ns) > 0:
        evidence |= {"gap_ns": int(np.median(calls_ns)), "largest_ns": int(calls_ns.max())}
    each = " (median; at most {largest})" if len(found) > 1 else ""
    if alone:
        said = "{by} runs {times_a_step}, {gap}" + (each or " long")
    else:
        said = "{times_a_step} no op runs for {gap}" + each
    advice = (librarys(found, line) if line else "") or _advice(evidence, alone=alone)
    if torchs := found.torchs_part(_MOST):
        return said + f", most of it in {torchs}", TORCHS, evidence, False
    if line and not alone and found.within_ns(line) < _WHOLE * found.total_ns:
        return said + ", more than half of it within {by}", advice, evidence, alone
    return said + _where(evidence, line, alone=alone), advice, evidence, alone


def _where(evidence: Mapping[str, Any], line: str | None, *, alone: bool) -> str:
    inner = evidence["functions"]
    if not line:
        return ", in {lines}" if evidence["lines"] else _BETWEEN
    other = next(iter(inner), line) != line
    if alone:
        return ", with most of that time in {functions}" if other else ""
    return ", within {by}" + (": {functions}" if other or len(inner) > 1 else "")


def _advice(evidence: Mapping[str, Any], *, alone: bool) -> str:
    """What to do about one function, about several that share the time, and where none is known."""
    if not evidence["lines"]:
        return _UNKNOWN
    inner = evidence["functions"]
    most = max(inner.values(), default=0) >= _MOST * sum(inner.values())
    return _LINE if alone or most else _SPREAD
