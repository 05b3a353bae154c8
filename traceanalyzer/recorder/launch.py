"""Runs the user's program with the hook in its interpreters, keeps its exit code, and publishes what was recorded."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from .files import Recording, saved_recordings
from .notes import NO_STEP, NOTED, NOTHING, READY, RIVAL, STARTED, STEPPING
from .program import VARIABLE
from .session import METADATA

_HOOK = Path(__file__).parent / "hook"
_PREFIX = ".traceanalyzer-record-"
_POLL_S = 0.2
_POSTPONED_S = 60.0
"""Compression takes CPU time, which the program's steps have for themselves at least until then, or until it ends."""
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT")

Note = dict[str, Any]
Say = Callable[[str], None]


class NoFolder(Exception):
    """The recorder's own folder cannot be created; the cause is an `OSError`."""


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Attributes:
        exit_code: the program's; 128 and the signal where a signal ended it.
        jobs: the traces: of each job those of its ranks, in their order; a process without ranks is a job.
        problem: why nothing was recorded; None where something was.
    """

    exit_code: int
    jobs: tuple[tuple[Path, ...], ...] = ()
    problem: str | None = None
    rivals: tuple[Path, ...] = ()


def command_of(words: Sequence[str]) -> list[str]:
    """The command to run: a script or `-m module` gets the python that comes first on PATH."""
    if words[0] == "-m" or (words[0].endswith(".py") and not os.access(words[0], os.X_OK)):
        return [shutil.which("python") or sys.executable, *words]
    return list(words)


def run(words: Sequence[str], options: dict[str, Any], say: Say) -> Outcome:
    """Run the command to its end. `options` are of `Options`; `say` gets a line when a trace is written.

    Signals that ask the program to end or to save its state are passed on to it.

    Raises:
        NoFolder: there is no place for what the program reports.
        OSError: the command cannot be started.
    """
    folder = os.path.dirname(os.path.abspath(options["path"]))
    _remove_leftovers(folder)
    try:
        notes = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=folder)
    except OSError as error:
        raise NoFolder(folder) from error
    try:
        asked = {**options, "path": os.path.abspath(options["path"]), "notes": notes, "root": os.getpid()}
        reports = _Reports(notes, bool(options.get("force")), say)
        with _forwarded() as (programs, early):
            program = subprocess.Popen(command_of(words), env=_environment(asked))
            programs.append(program)
            for number in early:
                program.send_signal(number)
            while program.returncode is None:
                with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                    program.wait(_POLL_S)
                reports.read()
            reports.end()
        code = program.returncode
        return reports.outcome(128 - code if code < 0 else code)
    finally:
        shutil.rmtree(notes, ignore_errors=True)


def _environment(options: dict[str, Any]) -> dict[str, str]:
    paths = [str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {VARIABLE: json.dumps(options), f"{VARIABLE}_NOTES": options["notes"]}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **ours}


def _remove_leftovers(folder: str) -> None:
    """Folders of commands on this machine that were killed; those of commands that still run stay."""
    for path in Path(folder).glob(f"{_PREFIX}*-*"):
        number = path.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and int(number) != os.getpid() and path.is_dir() and not path.is_symlink():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                shutil.rmtree(path, ignore_errors=True)
            except OSError:  # it runs, and is somebody else's
                continue


@contextlib.contextmanager
def _forwarded() -> Iterator[tuple[list[subprocess.Popen[bytes]], list[int]]]:
    """(the program, once it is put there: signals are passed on to it; signals that came before)."""
    programs: list[subprocess.Popen[bytes]] = []
    early: list[int] = []
    before = {}

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and _in_foreground():
            return  # a terminal sends Ctrl-C to the program, too
        if not programs:
            early.append(number)
        for program in programs:
            program.send_signal(number)

    numbers = [number for name in _FORWARDED if (number := getattr(signal, name, None)) is not None]
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup
    with contextlib.suppress(ValueError):  # not the main thread, which alone gets signals
        before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield programs, early
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether a terminal sends its signals to the process group of this command, and so to the program."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@dataclass
class _Reports:
    """What the program's processes report while it runs, and the files that come of it."""

    folder: str
    force: bool
    say: Say
    notes: list[Note] = field(default_factory=list)
    written: dict[str, Recording] = field(default_factory=dict)  # by final path
    handled: set[str] = field(default_factory=set)  # raw traces
    failed: str | None = None

    def read(self, *, ended: bool = False) -> None:
        """Report what is new, and publish recordings that were handed over, where they are not to be postponed."""
        known = {(note["process"], note["number"]) for note in self.notes}
        self.notes = _read(self.folder)
        for note in self.notes:
            if note["event"] == READY and note["raw"] not in self.handled:
                if ended or time.time() - note["at"] >= _POSTPONED_S:
                    self._publish(saved_recordings(self.folder)[note["raw"]])
            elif note["event"] == NOTED and (note["process"], note["number"]) not in known:
                self.say(note["text"])

    def end(self) -> None:
        """Publish the rest, also of processes that were killed after their recorded steps."""
        self.read(ended=True)
        for raw, recording in saved_recordings(self.folder).items():
            if raw not in self.handled and os.path.exists(raw):
                cut = "the program was killed before steps were timed again"
                self._publish(replace(recording, missing=cut))

    def _publish(self, recording: Recording) -> None:
        self.handled.add(recording.raw)
        try:
            path = recording.publish(METADATA, force=self.force, taken=self.written)
        except OSError as error:
            self.failed = f"{recording.path} cannot be written: {error.strerror or error}"
            return
        finally:
            recording.discard()
        self.written[path] = recording
        for text in recording.told(path):
            self.say(text)

    def outcome(self, exit_code: int) -> Outcome:
        traces = dict.fromkeys(note["path"] for note in self.notes if note["event"] == RIVAL)
        rivals = tuple(Path(path) for path in traces if os.path.exists(path))
        problem = None if self.written else self.failed or _why_nothing(self.notes, exit_code)
        if self.failed and self.written:
            self.say(self.failed)
        # Ranks of one job together, in their order; every other process by itself.
        ranks = sorted((one.rank, path) for path, one in self.written.items() if one.world > 1)
        alone = [[path] for path, one in self.written.items() if one.world <= 1]
        jobs = [[path for _, path in ranks], *alone]
        return Outcome(exit_code, tuple(tuple(map(Path, job)) for job in jobs if job), problem, rivals)


def _read(folder: str) -> list[Note]:
    """All notes, in the order in which they were first seen: by time, then by process."""
    notes = (
        {**json.loads(line), "process": path.stem, "number": number}
        for path in Path(folder).glob("*.jsonl")
        for number, line in enumerate(path.read_text("utf-8").splitlines(keepends=True))
        if line.endswith("\n")
    )
    return sorted(notes, key=lambda note: (note["at"], note["process"]))


def _why_nothing(notes: Sequence[Note], exit_code: int) -> str:
    reasons = [note for note in notes if note["event"] == NOTHING]
    if reasons:
        reason = max(reasons, key=lambda note: note.get("seen") or 0)
        text = str(reason["text"])
        if exit_code and not reason.get("error"):
            text = text.partition(", and the first recorded step")[0]
        return f"{text} (exit code {exit_code})" if exit_code else text
    if not any(note["event"] == STARTED for note in notes):
        return (
            "no process of the program executed torch, or its python does not read PYTHONPATH "
            "(python -I and -E do not); use traceanalyzer.recorder.profile in the program instead"
        )
    if any(note["event"] == STEPPING for note in notes):
        return (
            f"the program ended with exit code {exit_code} and did not report a recording: "
            "it was killed, or ends by os._exit; let it run for longer, or lower --skip and --timed"
        )
    if exit_code:
        return f"the program ended with exit code {exit_code} before it had a step"
    return NO_STEP
