"""Why a recording is missing or incomplete, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from .notes import NO_STEP
from .process import counted, error_name

RIVAL_TEXT = (
    "the program has a profiler of its own, which leaves no room for another; "
    "run it without its profiler, or diagnose the trace that its profiler writes"
)


def why_nothing(seen: int, *, rival: bool, device_failed: bool, unsettled: bool, needed: int) -> str:
    """Why nothing is recorded of `seen` steps, of which `needed` ends the first recorded one."""
    steps = counted(seen)
    if not seen:
        return NO_STEP
    if rival:
        return RIVAL_TEXT
    if device_failed:
        return "the device failed within the recorded steps, so their trace cannot be read"
    if error_name():
        return f"the program failed with {error_name()} after {steps}, before any were recorded"
    if unsettled:
        return f"the program ended after {steps}, and their times had not settled; lower --max-wait"
    return (
        f"the program ended after {steps}, and the first recorded step ends with step {needed}; "
        "lower --skip or --timed, or let it run for longer"
    )


def what_is_missing(seen: int, recorded: int, wanted: int, *, timed_again: bool, rival: bool) -> str | None:
    """What a recording lacks; None where it is whole. Steps: of the program, of the trace, and that it was to have."""
    if recorded == wanted and timed_again:
        return None
    missing = "steps were not timed again after the window"
    if recorded < wanted:
        missing = f"only {recorded} of {wanted} steps were recorded, and {missing}"
    if rival:
        return f"a profiler of the program started, so {missing}"
    how = f"failed with {error_name()}" if error_name() else "ended"
    return f"the program {how} after {counted(seen)}, so {missing}"


def doubts(doubt: str | None, settled: bool, max_wait_s: float) -> Iterator[str]:
    """What the user should know of the steps: what one is, and whether their times settled within `max_wait_s`."""
    if doubt:
        yield f"not sure what a step is: {doubt}; to name it: --every-call-of pkg.module:function"
    if not settled:
        yield f"step times had not settled after {max_wait_s:g} s; raise --max-wait or --skip"
