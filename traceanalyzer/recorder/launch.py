"""Runs the user's program with the hook in its interpreters, keeps its exit code, and collects what was recorded."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .notes import NO_STEP, NOTHING, PARTLY, STARTED, STEPPING, WRITTEN
from .program import VARIABLE

_HOOK = Path(__file__).parent / "hook"
_POLL_S = 0.2

Note = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    Attributes:
        exit_code: its own; 128 and the signal where one ended it.
        written: the traces, by rank.
        problem: why nothing was recorded; None where something was.
    """

    exit_code: int
    written: tuple[Path, ...]
    problem: str | None


def command_of(words: Sequence[str]) -> list[str]:
    """The command to run: a script or `-m module` gets the python that comes first on PATH."""
    if words[0] == "-m" or (words[0].endswith(".py") and not os.access(words[0], os.X_OK)):
        return [shutil.which("python") or sys.executable, *words]
    return list(words)


def run(words: Sequence[str], options: dict[str, Any], say: Callable[[str], None]) -> Outcome:
    """Run the command to its end. `options` are of `Options`; `say` gets a line when a trace is written.

    Raises:
        OSError: the command cannot be started.
    """
    folder = os.path.dirname(os.path.abspath(options["path"]))
    notes = tempfile.mkdtemp(prefix=".traceanalyzer-record-", dir=folder)
    try:
        asked = {**options, "path": os.path.abspath(options["path"]), "notes": notes}
        with subprocess.Popen(command_of(words), env=_environment(asked)) as program:
            told: list[Note] = []
            for _ in _waiting(program):
                told += _tell_new(notes, len(told), say)
        told += _tell_new(notes, len(told), say)
        return _outcome(program.returncode, told)
    finally:
        shutil.rmtree(notes, ignore_errors=True)


def _environment(options: dict[str, Any]) -> dict[str, str]:
    paths = [str(_HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), VARIABLE: json.dumps(options)}


def _waiting(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Again and again until the program ends. Ctrl-C is the program's: it gets the signal, too, and decides."""
    while program.returncode is None:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(_POLL_S)
            yield
        except KeyboardInterrupt:
            continue


def _tell_new(folder: str, known: int, say: Callable[[str], None]) -> list[Note]:
    """Notes that came since; the traces among them are told."""
    new = _read(folder)[known:]
    for note in new:
        if note["event"] in (WRITTEN, PARTLY):
            say(note["text"])
    return new


def _read(folder: str) -> list[Note]:
    """All notes, in the order in which they were first seen: by time, then by process."""
    notes: list[Note] = []
    for path in Path(folder).glob("*.jsonl"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        notes += [{**json.loads(line), "process": path.stem} for line in lines if line.endswith("\n")]
    return sorted(notes, key=lambda note: (note["at"], note["process"]))


def _outcome(code: int, notes: Sequence[Note]) -> Outcome:
    written = {note["path"]: note for note in notes if note["event"] == WRITTEN}
    paths = sorted(written, key=lambda path: (int(written[path]["rank"] or 0), path))
    exit_code = 128 - code if code < 0 else code
    return Outcome(exit_code, tuple(map(Path, paths)), None if paths else _why_nothing(notes, exit_code))


def _why_nothing(notes: Sequence[Note], exit_code: int) -> str:
    reasons = [note for note in notes if note["event"] == NOTHING]
    if reasons:
        return str(max(reasons, key=lambda note: note.get("seen") or 0)["text"])
    if not any(note["event"] == STARTED for note in notes):
        return (
            "no process of the program imported torch, or its python does not read PYTHONPATH "
            "(python -I and -E do not); use traceanalyzer.recorder.profile in the program instead"
        )
    if any(note["event"] == STEPPING for note in notes):
        ended = f"the program ended with exit code {exit_code} and did not report a recording"
        return f"{ended}: it was killed, or ends by os._exit"
    if exit_code:
        return f"the program ended with exit code {exit_code} before it had a step"
    return NO_STEP
