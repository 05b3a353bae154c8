"""In a program under `traceanalyzer record`: a session whose steps are found, and which ends with the program."""

from __future__ import annotations

import atexit
import json
import os

from .notes import NOTHING, STARTED, Notes
from .session import Options, Session
from .steps import Watch, watch

VARIABLE = "TRACEANALYZER_RECORD"
"""The environment variable that holds the `Options` as JSON."""


class Recorder:
    """The session of this process. A forked child gets its own unless its parent has steps already."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session = Session(options)
        self._process = os.getpid()
        self._watch: Watch = watch(self.step, self.restart, options.every_call_of)

    def step(self, unit: str) -> None:
        """One step has ended; a fault of the recorder never reaches the program."""
        session = self._session
        if session.closed or (os.getpid() != self._process and not self._take_over()):
            return
        try:
            self._session.graphs = self._watch.graphs
            self._session.step(unit)
        except Exception as error:  # the program comes first
            self._session.give_up(error)

    def restart(self) -> bool:
        """Another kind of event is a step after all; False where it is too late."""
        return self._session.restart()

    def close(self) -> None:
        """The process ends. One without any step, such as a launcher, is silent."""
        if os.getpid() == self._process and self._session.seen:
            self._session.close()

    def _take_over(self) -> bool:
        """Whether this forked child may record: not where its parent's profiler may be running."""
        if self._session.seen:
            self._session.closed = True
            return False
        self._process = os.getpid()
        self._session = Session(self._options)
        Notes(self._options.notes).tell(STARTED, "forked")
        from multiprocessing import util

        util.Finalize(None, self.close, exitpriority=100)  # such children run no exit handlers
        return True


def start_from_environment() -> None:
    """Hook into torch of this process, as the environment variable says."""
    options = Options(**json.loads(os.environ[VARIABLE]))
    notes = Notes(options.notes)
    notes.tell(STARTED, "torch is imported")
    try:
        recorder = Recorder(options)
    except Exception as error:  # the program comes first
        notes.tell(NOTHING, str(error))
        return
    atexit.register(recorder.close)
