"""In a program under `traceanalyzer record`: a session whose steps are found, and which ends with the program."""

from __future__ import annotations

import atexit
import json
import os
import sys

from .notes import NOTHING, STARTED, Notes
from .options import Options
from .session import Session
from .steps import Watch, watch

VARIABLE = "TRACEANALYZER_RECORD"
"""The environment variable that holds the `Options` as JSON."""

_recorder: Recorder | None = None


class Recorder:
    """The session of this process. A forked child gets its own unless its parent has steps already."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._watch: Watch = watch(self.step, self.restart, options.every_call_of)
        self._process = os.getpid()
        self.session = self._new_session()

    def _new_session(self) -> Session:
        session = Session(self._options)
        session.doubt = lambda: self._watch.doubt
        session.at_close = self._watch.remove
        return session

    def step(self, unit: str) -> None:
        if self.session.closed or not self._records():
            return
        self.session.graphs = self._watch.graphs
        self.session.step(unit)

    def restart(self, already: int) -> bool:
        """Another kind of event is a step after all; False where it is too late."""
        return self._records() and self.session.restart(already)

    def close(self) -> None:
        """The process ends. One without any step, such as a launcher, is silent."""
        if os.getpid() == self._process and self.session.seen:
            self.session.close()

    def _records(self) -> bool:
        """Whether this process may record: not a forked child whose parent's profiler may be running."""
        if os.getpid() == self._process:
            return True
        if self.session.seen:
            self.session.closed = True
            return False
        self._process = os.getpid()
        self.session.at_close = lambda: None
        self.session.leave()
        self.session = self._new_session()
        Notes(self._options.notes).tell(STARTED, "forked")
        from multiprocessing import util

        util.Finalize(None, self.close, exitpriority=100)  # such children run no exit handlers
        return True


def start_from_environment() -> None:
    """Hook into torch of this process, as the environment variable says."""
    global _recorder
    options = Options(**json.loads(os.environ[VARIABLE]))
    notes = Notes(options.notes)
    notes.tell(STARTED, "torch is imported")
    try:
        _recorder = Recorder(options)
    except Exception as error:  # the program comes first
        notes.tell(NOTHING, str(error))
        return
    atexit.register(_recorder.close)


def end_process() -> None:
    """The last exit handler. With a failed device the profiler's own cleaning up would crash a process that fails."""
    kind = getattr(sys, "last_type", None)
    if _recorder is None or not _recorder.session.device_failed or kind in (None, SystemExit):
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(1)
