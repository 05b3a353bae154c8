"""A session whose profiler and clock only note what they are asked, and when."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from traceanalyzer.recorder.session import Options, Session

SMALL = {"skip": 4, "timed": 6, "steps": 3}
"""Steps 4 to 10 are timed, 11 and 12 warm the profiler, 13 to 15 are recorded, and 17 to 23 are timed again."""


class World:
    """What a session does to torch, and when: the number of the step that has just ended, from 0."""

    def __init__(self) -> None:
        self.now = -1
        self.did: list[tuple[str, int]] = []
        self.asked: dict[str, Any] = {}
        self.capturing = False
        self.fails: str | None = None

    def note(self, what: str) -> None:
        self.did.append((what, self.now))
        if self.fails == what:
            raise RuntimeError("no room")

    def when(self, what: str) -> list[int]:
        return [at for name, at in self.did if name == what]

    def run(self, recording: Session, steps: int) -> None:
        for _ in range(steps):
            self.now += 1
            recording.step("optimizer step")


class Profiler:
    """As torch's: its export is a trace without events."""

    def __init__(self, world: World, **asked: Any) -> None:
        self.world = world
        world.asked = asked

    def start(self) -> None:
        self.world.note("start")

    def step(self) -> None:
        self.world.note("step")

    def stop(self) -> None:
        self.world.note("stop")

    def export_chrome_trace(self, path: str) -> None:
        self.world.note("export")
        Path(path).write_text('\n {"traceEvents": [{"name": "a{b"}]}')


class Timer:
    """Two ms a step for each block."""

    def __init__(self, world: World, block: int) -> None:
        self.world, self.block, self.marks = world, block, 0

    def mark(self) -> None:
        self.world.note("mark")
        self.marks += 1

    def step_ms(self) -> list[float]:
        return [2.0] * max(self.marks - 1, 0)


def made(folder: Path, **options: Any) -> Session:
    """A session of 25 steps, whose notes are in a folder."""
    (folder / "notes").mkdir(exist_ok=True)
    return Session(Options(str(folder / "t.json"), notes=str(folder / "notes"), **{**SMALL, **options}))


def told(folder: Path) -> list[dict[str, Any]]:
    """What the command reads of this process."""
    lines = (folder / "notes" / f"{os.getpid()}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def left(folder: Path) -> list[str]:
    return sorted(
        path.name for path in folder.rglob("*") if path.is_file() and path.suffix not in (".jsonl", ".claim")
    )
