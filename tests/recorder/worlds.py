"""A torch whose profiler, clock and devices only note what a session does to them, and when."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceanalyzer.recorder.session import Options, Session

SMALL = {"skip": 4, "timed": 6, "steps": 3}
"""With these and no execution trace, counted from 0: timed from the end of step 4 to that of 10, the profiler's warm-up
is 11 and 12, recorded are 13 to 15, timed again from the end of 19 to that of 25."""

STEP_MS = 10.0


class World:
    """What a session does to torch, each with the number of the step that has just ended, from 0.

    Attributes:
        times_ms: of the next steps; then each takes `STEP_MS`.
        fails: what raises instead of being done.
    """

    def __init__(self) -> None:
        self.now = -1
        self.clock_s = 100.0
        self.did: list[tuple[str, int]] = []
        self.asked: dict[str, Any] = {}
        self.times_ms: list[float] = []
        self.capturing = False
        self.device_failed = False
        self.rank_and_world = (0, 1)
        self.fails: str | None = None

    def note(self, what: str) -> None:
        self.did.append((what, self.now))
        if self.fails == what:
            raise RuntimeError("no room")

    def when(self, what: str) -> list[int]:
        return [step for name, step in self.did if name == what]

    def run(self, recording: Session, steps: int) -> None:
        for _ in range(steps):
            self.now += 1
            self.clock_s += (self.times_ms.pop(0) if self.times_ms else STEP_MS) / 1e3
            recording.step("optimizer step")

    def synchronize(self, device: int) -> None:
        if self.device_failed:
            raise RuntimeError("device-side assert triggered")


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


class Monitor:
    """Measures nothing."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self) -> None:
        self.world.note("measure")

    def step(self) -> None:
        """Nothing is read."""

    def stop(self) -> dict[str, Any]:
        self.world.note("measured")
        return {"loader": None}

    def drop(self) -> None:
        self.world.note("measure no more")


class Rivals:
    """Profilers of the program: `begin()` and `end()` are what the program does."""

    def __init__(self, world: World) -> None:
        world.rivals = self  # type: ignore[attr-defined]
        self.active = self.seen = False
        self.traces: list[str] = []
        self.starting: Any = None
        self.observing: Any = None

    @contextmanager
    def recorder_acts(self) -> Iterator[None]:
        yield

    def running(self) -> bool:
        return self.active

    def begin(self) -> None:
        self.active = self.seen = True
        self.starting()

    def end(self, path: str) -> None:
        self.active = False
        self.traces.append(path)


class Tensors:
    """An execution trace of three steps, the first of which is warm-up."""

    def __init__(self, world: World, folder: str) -> None:
        self.world, self.left = world, 3
        self.path = os.path.join(folder, "tensors.json")

    def start(self) -> None:
        self.world.note("observe")

    def step(self) -> bool:
        self.left -= 1
        return not self.left

    def finish(self) -> None:
        self.world.note("observed")

    def merged(self) -> str:
        Path(self.path).write_text('{"nodes": []}')
        return self.path

    def drop(self) -> None:
        self.world.note("observe no more")


def session_in(folder: Path, *, notes: bool = True, **options: Any) -> Session:
    """A session that reports to a folder, or to standard error; its trace is `t.json`."""
    (folder / "notes").mkdir(exist_ok=True)
    where = {"notes": str(folder / "notes")} if notes else {}
    usual = {**SMALL, "tensors": False, "max_wait": 0, **where}
    return Session(Options(str(folder / "t.json"), **{**usual, **options}))


def reported(folder: Path) -> list[dict[str, Any]]:
    """What the command reads of this process."""
    lines = (folder / "notes" / f"{os.getpid()}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def metadata_of(folder: Path) -> dict[str, Any]:
    """Of the recording that was handed over to the command."""
    (about,) = (folder / "notes").glob("*.about.json")
    metadata: dict[str, Any] = json.loads(about.read_text())["metadata"]
    return metadata


def files_in(folder: Path) -> list[str]:
    """All but what is reported."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl")
