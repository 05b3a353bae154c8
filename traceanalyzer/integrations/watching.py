"""A verdict in five lines for every window that torch.profiler records while a job trains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.recorder.process import rank_and_world

_ANALYSIS_S = 300.0  # after which a window is given up; chosen
_OTHERS_S = 60.0  # to wait for the summaries of other ranks; chosen
_POLL_S = 0.1
_CLOCKS_S = 30.0  # by which the clocks of two hosts may differ; chosen
_LEFT_OVER_S = 3_600.0  # after which a window's folder belongs to a training that was killed; chosen
_FOLDER = "traceanalyzer-watch-"
_ALIKE = 0.02  # of a step: it varies by less from window to window; chosen
_NAMED = 3  # findings that came or went

Summary = Mapping[str, Any]
Log = Callable[[str], None]


class Folder:
    """A folder that all ranks see."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, summary: bytes) -> None:
        """Leave one; it is there as a whole or not at all."""
        part = self._path / f".{name}.part"
        part.write_bytes(summary)
        part.replace(self._path / f"{name}.json")

    def get(self, name: str) -> bytes | None:
        path = self._path / f"{name}.json"
        return path.read_bytes() if path.exists() else None


class JobStore:
    """The key-value store of torch.distributed: no collective is needed, and no GPU."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def put(self, name: str, summary: bytes) -> None:
        self._store.set(f"traceanalyzer/{name}", summary)

    def get(self, name: str) -> bytes | None:
        key = f"traceanalyzer/{name}"
        return bytes(self._store.get(key)) if self._store.check([key]) else None


Exchange = Folder | JobStore
"""Where each rank leaves its last summary for rank 0, in place of the one before."""


def watch(folder: str | Path | None = None, log: Log | None = None) -> Watch:
    """A handler for `on_trace_ready`: rank 0 logs five lines per window, of the summaries of all ranks.

    Args:
        folder: that all ranks see, for their summaries; by default they go through torch.distributed.
        log: takes each line; by default they go to standard error.

    Each window is analysed by a process of its own, while the training goes on.
    """
    # What standard error is when a line is printed: programs replace it.
    shown = log or (lambda line: print(line, file=sys.stderr, flush=True))
    return Watch(None if folder is None else Path(folder), shown)


class Watch:
    """Attributes: cost_s: seconds that the training waited for the handler, of each window."""

    def __init__(self, folder: Path | None, log: Log) -> None:
        self.cost_s: list[float] = []
        self._folder, self._log = folder, log
        self._last: Mapping[int, Summary] = {}
        self._ended = time.perf_counter()
        self._thread: threading.Thread | None = None

    def __call__(self, profiler: Any) -> None:
        """A window has been recorded: write it, and have it analysed."""
        began, at = time.perf_counter(), time.time()
        window, (rank, world) = len(self.cost_s) + 1, rank_and_world()
        if self._thread is not None and self._thread.is_alive():
            self.cost_s.append(0.0)
            if rank == 0:
                why = "the one before is still being analysed"
                self._log(f"traceanalyzer: window {window} is left out: {why}")
            return
        try:
            exchange = self._exchange()
            folder, child = _analysed(profiler)
        except (OSError, RuntimeError) as error:  # the training comes first
            self.cost_s.append(time.perf_counter() - began)
            self._log(f"traceanalyzer: rank {rank}, window {window} is not written: {error}")
            return
        told = _Window(window, rank, world, at, self._cost(began, window), exchange)
        self._thread = threading.Thread(target=self._finish, args=(told, child, folder))
        self._thread.start()

    def _cost(self, began: float, window: int) -> str:
        """What the training has waited for this window, as text; it is kept, too."""
        now = time.perf_counter()
        self.cost_s.append(now - began)
        share = format_share((now - began) / (now - self._ended))
        self._ended = now
        return f"cost {now - began:.2f} s, {share} of the time since {'the last one' if window > 1 else 'the start'}"

    def wait(self) -> None:
        """Until the last window is told."""
        if self._thread is not None:
            self._thread.join()

    def _exchange(self) -> Exchange | None:
        """The folder, or the job's store; None where this process is alone."""
        if self._folder is not None:
            return Folder(self._folder)
        job = sys.modules.get("torch.distributed.distributed_c10d")
        return JobStore(job._get_default_store()) if job is not None and job.is_initialized() else None

    def _finish(self, told: _Window, child: subprocess.Popen[bytes], folder: str) -> None:
        """Runs beside the training: collects the summary, and on rank 0 those of the others."""
        try:
            summary, errors = child.communicate(timeout=_ANALYSIS_S)
            if child.returncode:
                said = errors.decode(errors="replace").strip().rpartition("\n")[2]
                self._log(f"traceanalyzer: rank {told.rank}, window {told.number}: {said}")
                return
            summaries = told.gathered(summary)
            if told.rank == 0:
                for line in told_lines(told, summaries, self._last):
                    self._log(line)
                self._last = summaries
        except Exception as error:  # the training comes first
            child.kill()
            self._log(f"traceanalyzer: rank {told.rank}, window {told.number} is not reported: {error!r}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _analysed(profiler: Any) -> tuple[str, subprocess.Popen[bytes]]:
    """A folder with the window's trace, and the process that prints its summary."""
    packages = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    _remove_left_over()
    folder = tempfile.mkdtemp(prefix=_FOLDER)
    path = os.path.join(folder, "window.json")
    try:
        profiler.export_chrome_trace(path)
        return folder, subprocess.Popen(
            [sys.executable, "-P", "-m", "traceanalyzer.integrations.watching", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _remove_left_over() -> None:
    """Folders of trainings that were killed while a window was analysed; nobody else's."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        try:
            left_over = time.time() - folder.lstat().st_mtime > _LEFT_OVER_S and not folder.is_symlink()
        except OSError:  # another rank was quicker
            continue
        if left_over:
            shutil.rmtree(folder, ignore_errors=True)


class _Window(NamedTuple):
    """One recorded window: which, of whom, when, what it cost, and where summaries are exchanged."""

    number: int
    rank: int
    world: int
    at: float
    cost: str
    exchange: Exchange | None

    def gathered(self, own: bytes) -> dict[int, Summary]:
        """rank -> summary, on rank 0 of all that came in time; a summary of an earlier run is too old."""
        summaries: dict[int, Summary] = {self.rank: json.loads(own)}
        if self.exchange is None or self.world <= 1:
            return summaries
        if self.rank:
            known = {**summaries[self.rank], "at": self.at, "window": self.number}
            self.exchange.put(f"rank{self.rank}", json.dumps(known).encode())
            return summaries
        end = time.monotonic() + _OTHERS_S
        while len(summaries) < self.world and time.monotonic() < end:
            for rank in set(range(self.world)) - set(summaries):
                found = self.exchange.get(f"rank{rank}")
                if found is not None and self._in_time(summary := json.loads(found)):
                    summaries[rank] = summary
            time.sleep(_POLL_S)
        return summaries

    def _in_time(self, summary: Summary) -> bool:
        """Whether it is of this window, or of a later one that took its place; not of an earlier run."""
        return bool(summary["window"] >= self.number and summary["at"] > self.at - _CLOCKS_S)


def told_lines(told: _Window, summaries: Mapping[int, Summary], last: Mapping[int, Summary]) -> list[str]:
    """The five lines; the verdict is that of the rank which spends least time in collectives: others wait for it."""
    rank = min(summaries, key=lambda one: (summaries[one]["communication"], one))
    ranks = f", {len(summaries)} of {told.world} ranks; rank {rank} waits least" if told.world > 1 else ""
    lines = summaries[rank]["lines"]
    return [
        f"traceanalyzer: window {told.number}{ranks}; it {told.cost}",
        f"  Step   {lines.get('Step', 'no GPU work in the window')}",
        f"  Limit  {lines.get('Limit', 'not known')}",
        f"  Fix    {lines.get('Fix', 'no finding above info')}",
        f"  Since  {_changes(summaries, last) if last else 'this is the first window'}",
    ]


def _changes(now: Mapping[int, Summary], before: Mapping[int, Summary]) -> str:
    """How the step and the findings of all ranks differ from the window before."""
    sides = now, before
    found, known = ({k: v for one in side.values() for k, v in one["findings"].items()} for side in sides)
    # As recorded: the profiler is the same in both windows, and a prediction would add an error of its own.
    new_ns, old_ns = (max((one["step_ns"] or 0 for one in side.values()), default=0) for side in sides)
    parts = []
    if old_ns and new_ns and abs(new_ns - old_ns) > _ALIKE * old_ns:
        change = f"{100 * (new_ns / old_ns - 1):+.0f} %"
        parts.append(f"step recorded {format_ns(old_ns)}, now {format_ns(new_ns)} ({change})")
    parts.append(_names("new", [name for key, name in found.items() if key not in known]))
    parts.append(_names("gone", [name for key, name in known.items() if key not in found]))
    return "; ".join(filter(None, parts)) or "as in the window before"


def _names(word: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{word}: {', '.join(names[:_NAMED])}{more}"


# A window's summary, which a program of its own makes beside the training.

MAX_BYTES = 50_000
"""Of a summary: 512 ranks send 25 MB."""

_MOST_FINDINGS = 200
_LONGEST = 1_000  # characters of a line of the verdict


def summary_of(path: Path) -> dict[str, Any]:
    """What one rank says: verdict, recorded step in ns, share in collectives, findings above `info` by fingerprint."""
    from traceanalyzer import diagnose
    from traceanalyzer.model.finding import Severity
    from traceanalyzer.read.load import load
    from traceanalyzer.render.data.ci import fingerprint
    from traceanalyzer.render.words.phrases import titled

    report = diagnose(load(path, jobs=1))
    trace = report.traces[0]
    told = [one for one in report.findings if one.severity is not Severity.INFO][:_MOST_FINDINGS]
    parts = [part for device in trace.accounting for part in device.parts_ns.items()]
    waiting = sum(ns for name, ns in parts if name.startswith("communication"))
    return {
        "lines": {label: text[:_LONGEST] for label, text in trace.summary.lines.items()},
        "step_ns": None if trace.step is None else trace.step.traced_ns,
        "communication": waiting / max(sum(ns for _, ns in parts), 1),
        "findings": {fingerprint(one): titled(one) for one in told},
    }


def encoded(summary: dict[str, Any]) -> bytes:
    """The summary as JSON, without its last findings where it is too long."""
    from traceanalyzer.render.data.encode import to_json

    while len(text := to_json(summary)) > MAX_BYTES and summary["findings"]:
        kept = list(summary["findings"].items())[: len(summary["findings"]) // 2]
        summary = {**summary, "findings": dict(kept)}
    return text


def main() -> int:
    """Summarise the trace that the command line names; what is wrong with it goes to standard error."""
    from traceanalyzer.model.errors import TraceAnalyzerError

    if hasattr(os, "nice"):
        os.nice(10)  # the training comes first
    try:
        sys.stdout.buffer.write(encoded(summary_of(Path(sys.argv[1]))))
    except TraceAnalyzerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
