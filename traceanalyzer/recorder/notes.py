"""What a recorded process reports to `traceanalyzer record`: a file of JSON lines per process."""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from .process import counted, error_name

STARTED = "started"  # torch is imported, and the hooks are in
STEPPING = "stepping"  # a step has ended
READY = "ready"  # a recording lies in the folder
NOTHING = "nothing"  # recorded, with the reason
NOTED = "noted"  # anything else that the user should know
RIVAL = "rival"  # a trace that the program's own profiler wrote

NO_STEP = (
    "no step was found: no optimizer stepped, no CUDA graph was replayed, no backward pass ran, and no module with "
    "parameters was called; name the function that is one step: --every-call-of pkg.module:function"
)
_SILENT = (STARTED, STEPPING, RIVAL)


class Notes:
    """Attributes: folder: of the notes; None where nobody reads them, and standard error is written to instead."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    def tell(self, event: str, text: str, **more: Any) -> None:
        if self.folder is None:
            if event not in _SILENT:
                print(f"traceanalyzer record: {text}", file=sys.stderr, flush=True)
            return
        known = {"event": event, "text": text, "rank": os.environ.get("RANK"), "at": time.time()}
        line = json.dumps({**known, **more})
        try:
            with open(os.path.join(self.folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
        except OSError:  # the command was stopped, and its folder is gone
            pass

    @property
    def abandoned(self) -> bool:
        """Whether the command has ended: nothing is to be written any more."""
        return self.folder is not None and not os.path.isdir(self.folder)

    def workspace(self, path: str) -> str:
        """The folder for files that are not finished: it vanishes with the command, whatever ends the program."""
        if self.folder is not None:
            return self.folder
        folder = os.path.dirname(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        return folder


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
