"""Functions of the user's code and of its libraries: how long a step is in them, and which ones a program lost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceanalyzer.comparison.names import plain_name
from traceanalyzer.comparison.snapshot import Snapshot
from traceanalyzer.comparison.tables import Chosen
from traceanalyzer.model.arrays import Rows, grouped, pick
from traceanalyzer.model.units import format_ns
from traceanalyzer.timeline.steps import Steps
from traceanalyzer.timeline.user_code import UserCode

_EXPLAINED = 0.5  # of the recorded step's difference, that calls of functions must take to be named; half


def functions_of(code: UserCode, steps: Steps, chosen: Chosen) -> Mapping[tuple[str, str], float]:
    """(function without its line, the function that calls it) -> ns a step; nothing where Python was not recorded.

    Only functions that every chosen step calls.
    """
    place = chosen.place[steps.at_cpu(code.start_ns)]
    place[code.start_ns >= steps.cpu_end_ns[-1]] = -1
    caller = pick(code.code, code.caller)
    own = np.flatnonzero((place >= 0) & (code.code != caller))  # a function that calls itself is called once
    if len(own) == 0:
        return {}
    pair, first = grouped([code.code[own], caller[own]])
    ns = np.bincount(pair, weights=(code.end_ns - code.start_ns)[own]) / chosen.count
    always = _in_every_step(code.code[own], place[own], chosen.count)
    found: dict[tuple[str, str], float] = {}
    for at, time in zip(own[first].tolist(), ns.tolist(), strict=True):
        if code.code[at] in always:
            of = int(caller[at])
            key = (
                plain_name(str(code.names[code.code[at]])),
                plain_name(str(code.names[of])) if of >= 0 else "",
            )
            found[key] = found.get(key, 0.0) + time
    return found


def _in_every_step(function: Rows, step: Rows, steps: int) -> set[int]:
    seen = np.unique(np.stack((function, step)), axis=1)[0]
    functions, count = np.unique(seen, return_counts=True)
    return set(functions[count == steps].tolist())


def functions_told(base: Snapshot, new: Snapshot) -> str:
    """The functions that one side alone calls, where they take half of the difference of the recorded steps.

    Where the other side alone calls functions that take as long, one may have got another name, and nothing is said.
    """
    if not base.functions or not new.functions or base.step is None or new.step is None:
        return ""
    longer = new.step.recorded_ns > base.step.recorded_ns
    only, others = _only(new, base), _only(base, new)
    if not longer:
        only, others = others, only
    ns = sum(only.values())
    needed = _EXPLAINED * abs(new.step.recorded_ns - base.step.recorded_ns)
    if not only or ns < needed or sum(others.values()) > _EXPLAINED * ns:
        return ""
    lead, more = max(only, key=lambda name: (only[name], name)), len(only) - 1
    what = f"{lead} and {more} more are" if more else f"{lead} is"
    return f"{what} {'new' if longer else 'gone'} ({format_ns(ns)} a step as recorded)"


def _only(ours: Snapshot, theirs: Snapshot) -> dict[str, float]:
    """Function -> ns a step, of those that ours alone calls, without what is inside another one of them."""
    known = {name for name, _ in theirs.functions}
    alone = {name for name, _ in ours.functions} - known
    found: dict[str, float] = {}
    for (name, caller), ns in ours.functions.items():
        if name in alone and caller not in alone:
            found[name] = found.get(name, 0.0) + ns
    return found
