"""Ranks of a job in the process that has read them: every answer is told by a rank's file and what was asked so far.

So whoever has lost a rank, as a process that was killed, reads the file and is asked again. Once a rank is judged, the
indexes go that only its rules asked for. What has no place in memory is put on disk meanwhile.
"""

import ctypes
import hashlib
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from traceanalyzer.job.ranks import Ask
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Damage, Trace
from traceanalyzer.read.job_ranks import Declared
from traceanalyzer.read.load import add_note, load_file, with_rank
from traceanalyzer.report.diagnosis import Offsets, restricted
from traceanalyzer.report.job_replay import Said
from traceanalyzer.report.rank_report import judged
from traceanalyzer.timeline.steps import Steps

# Small indexes that are asked for after the rules have run.
_LATER = (Steps,)


class Call(NamedTuple):
    """One question to a rank as `Ranks.each` has it, with what is given to this rank and to all, pickled."""

    ask: Ask[Any]
    own: bytes
    shared: bytes


class RankFile(NamedTuple):
    """Where a rank's trace is, and as what it is analysed: `rank` as it declares or is named, `window` from its origin.

    `note` is what was passed over beside it, `turn` how often the job was begun again, without ranks that were lost.
    """

    path: str = ""
    rank: int | None = None
    note: Damage | None = None
    window: Offsets | None = None
    cache: bool = False
    jobs: int = 1
    turn: int = 0


@dataclass(slots=True)
class _State:
    """A rank between two questions: its analysis, how many calls it has answered, and the last answer, pickled."""

    file: RankFile
    analysis: Analysis
    done: int = 0
    last: bytes = b""


@dataclass(slots=True)
class States:
    """The ranks of one process, which holds `most_bytes` of memory before ranks go to disk; None for no limit."""

    most_bytes: int | None = None
    _live: dict[str, Trace | _State] = field(default_factory=dict)
    _stored: dict[str, Path] = field(default_factory=dict)
    _folder: TemporaryDirectory[str] | None = None

    def open(self, file: RankFile) -> Declared:
        """Read a trace, and say of which rank it is. Raises what `load` does."""
        trace = load_file(file.path, jobs=file.jobs, cache=file.cache)
        self._live[file.path] = trace
        self._make_room()
        return replace(Declared.of(trace), source=file.path)  # of a URL with its login

    def answer(self, file: RankFile, calls: Sequence[Call]) -> Any:
        """What the rank answers to the last of the calls, after all before it, or a reason why not."""
        state = self._state(file)
        answer = pickle.loads(state.last) if state.done == len(calls) else None
        for call in calls[state.done :]:
            answer = _answered(state.analysis, call)
            state.last, state.done = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL), state.done + 1
            if call.ask is judged and not isinstance(answer, Unavailable):
                state.analysis.forget(_LATER)
                state.analysis.provide(state.analysis.index(Said).packed())
        self._live[file.path] = state
        self._make_room()
        return answer

    def once(self, file: RankFile, call: Call) -> Any:
        """What a trace answers that is read for this alone. Raises what `load` does."""
        trace = load_file(file.path, jobs=file.jobs, cache=file.cache)
        return _answered(restricted(trace, file.window), call)

    def _state(self, file: RankFile) -> _State:
        known = self._live.pop(file.path, None)
        if known is None and file.path in self._stored:
            stored = self._stored.pop(file.path)
            known = pickle.loads(stored.read_bytes())
            stored.unlink()
        if isinstance(known, _State) and known.file == file:
            return known
        trace = known if isinstance(known, Trace) else load_file(file.path, jobs=file.jobs, cache=file.cache)
        trace = with_rank(trace, file.rank)
        trace = trace if file.note is None else add_note(trace, file.note)
        return _State(file, restricted(trace, file.window))

    def _make_room(self) -> None:
        """Put on disk what was used least recently, half of all at a time."""
        if self.most_bytes is None or used_bytes() < self.most_bytes:
            return
        self._folder = self._folder or TemporaryDirectory(prefix="traceanalyzer-")
        for path in list(self._live)[: (len(self._live) + 1) // 2]:
            stored = Path(self._folder.name) / hashlib.sha256(path.encode()).hexdigest()
            stored.write_bytes(pickle.dumps(self._live.pop(path), pickle.HIGHEST_PROTOCOL))
            self._stored[path] = stored
        with suppress(OSError, AttributeError, TypeError):  # only glibc can be asked to give memory back
            ctypes.CDLL(None).malloc_trim(0)


def _answered(analysis: Analysis, call: Call) -> Any:
    try:
        return call.ask(analysis, pickle.loads(call.own), pickle.loads(call.shared))
    except Unavailable as reason:
        return reason


def used_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
