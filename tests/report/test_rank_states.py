"""Ranks between two questions, and the processes that have them."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.job.ranks import Reductions, job_of
from tests.report import report_samples as samples
from tests.report.pools import Here
from tests.report.report_samples import MS
from tests.report.test_cost_items import steps_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.job.ranks import JobView
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable, UnreadableTrace
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.step_times import GIVEN, RECORDING
from traceanalyzer.model.trace import Damage, Trace
from traceanalyzer.read.folders import layout_of
from traceanalyzer.read.load import load_file
from traceanalyzer.report import rank_report, rank_states
from traceanalyzer.report.job_replay import InJob, Said
from traceanalyzer.report.rank_pool import Elsewhere, Lost, Task, in_pool
from traceanalyzer.report.rank_report import Brief, whole_findings
from traceanalyzer.report.rank_states import Call, RankFile, States, used_bytes
from traceanalyzer.runtime.processes import ProcessEnded, Processes, Worker

US = 1_000
ASKED: Counter[tuple[str, str]] = Counter()
Begun = Callable[[int | None], States]
EVEN = {0: (500,) * 4, 1: (700,) * 4, 2: (600,) * 4}


def seen(analysis: Analysis, own: Any, shared: Any) -> tuple[Any, ...]:
    """What the rank knows of itself, and what it is given."""
    meta, window = analysis.trace.meta, analysis.window.asked_ns
    ASKED[Path(meta.source).name, str(own)] += 1
    length = None if window is None else window[1] - window[0]
    return meta.rank, len(meta.damage), length, own, shared


def refusing(analysis: Analysis, own: Any, _: Any) -> int:
    if own:
        raise Unavailable("not of this one")
    return 7


def failing(analysis: Analysis, own: Any, _: Any) -> int:
    if own:
        raise UnreadableTrace("gone")
    return 7


def call(own: Any, shared: Any = None) -> Call:
    return Call(seen, pickle.dumps(own), pickle.dumps(shared))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three ranks' files."""
    job_of(Reductions(EVEN), tmp_path)
    ASKED.clear()
    return sorted(map(str, tmp_path.iterdir()))


@pytest.fixture
def begun() -> Iterator[Begun]:
    """Makes `States`; what they put on disk goes at the end."""
    made: list[States] = []

    def states(most_bytes: int | None) -> States:
        made.append(States(most_bytes))
        return made[-1]

    yield states
    for one in made:
        if one._folder is not None:
            one._folder.cleanup()


@pytest.mark.parametrize("most_bytes", [None, 1])
def test_rank_answers_once_and_anew_as_another(files: list[str], begun: Begun, most_bytes: int | None) -> None:
    """Also where it is put on disk after each."""
    states, path = begun(most_bytes), files[0]
    file = RankFile(path, rank=0)
    states.open(file)
    assert states.answer(file, [call(1, "all")]) == (0, 0, None, 1, "all")
    assert states.answer(file, [call(1, "all"), call(2)]) == (0, 0, None, 2, None)
    assert states.answer(file, [call(1, "all"), call(2)]) == (0, 0, None, 2, None)
    assert [ASKED["rank0.json", number] for number in "12"] == [1, 1]
    noted = file._replace(rank=5, note=Damage("skipped", "b.json was skipped", None, 1), turn=1)
    assert states.answer(noted, [call(1), call(2)]) == (5, 1, None, 2, None)
    assert [ASKED["rank0.json", number] for number in "12"] == [2, 2]


def test_a_rank_is_asked_within_its_window(files: list[str]) -> None:
    file = RankFile(files[0], rank=0, window=(0, 300 * US))
    assert States().answer(file, [call(1)])[2] == 300 * US
    assert States().once(file, call(1))[2] == 300 * US
    assert States().once(file._replace(window=None), call(1))[2] is None


@pytest.mark.parametrize(("held", "stored"), [(99, 0), (100, 2), (500, 2)])
def test_from_its_limit_on_the_older_half_goes_to_disk(
    files: list[str], begun: Begun, monkeypatch: pytest.MonkeyPatch, held: int, stored: int
) -> None:
    """Of one rank that one; of three the two that were used least recently."""
    states = begun(100)
    monkeypatch.setattr(rank_states, "used_bytes", lambda: 0)
    for path in files:
        states.open(RankFile(path))
    monkeypatch.setattr(rank_states, "used_bytes", lambda: held)
    states.answer(RankFile(files[0]), [call(1)])
    assert sorted(states._stored) == files[1:][:stored]
    alone = begun(100)
    alone.open(RankFile(files[0]))
    assert len(alone._stored) == (held >= 100)


def test_memory_is_that_of_the_process() -> None:
    """What is resident, not all that is mapped; as Linux tells it."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc")
    told = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    assert used_bytes() == pytest.approx(int(told) << 10, rel=0.05)


def test_files_are_read_by_requested_processes_and_cache(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """When a rank is opened, asked by a process that has not read it, and asked once."""
    given: list[tuple[Any, Any]] = []

    def read(path: str, **options: Any) -> Trace:
        given.append((options["jobs"], options["cache"]))
        return load_file(path)

    monkeypatch.setattr(rank_states, "load_file", read)
    for jobs, cache in ((3, True), (1, False)):
        file, opened = RankFile(files[0], rank=0, jobs=jobs, cache=cache), States()
        opened.open(file)
        opened.answer(file, [call(1)])
        States().answer(file, [call(1)])
        States().once(file, call(1))
    assert given == [(3, True)] * 3 + [(1, False)] * 3


def asked(folder: Path, say: Callable[[Elsewhere, JobView | None], Any], **template: Any) -> Any:
    told: list[tuple[str, int, int]] = []
    found = in_pool(Here(), layout_of([folder]), RankFile(**template), say, lambda *one: told.append(one))
    assert [(so_far, many) for _, so_far, many in told[:3]] == [(1, 3), (2, 3), (3, 3)]
    return found


def test_remote_ranks_are_by_number_and_failures_left_out(files: list[str], tmp_path: Path) -> None:
    last = str(Path(files[0]).rename(tmp_path / "z.json"))

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        mine = ranks.each(seen, {rank: f"of {rank}" for rank in ranks.all}, "all")
        some = ranks.each(refusing, {0: True, 1: False, 2: False})
        once = ranks.once(seen, [last], "all")
        return ranks.all, ranks.unranked, mine, some, once

    every, unranked, mine, some, once = asked(tmp_path, say, window=(0, 300 * US))
    assert (every, unranked) == ((0, 1, 2), 0)
    assert mine == {rank: (rank, 0, 300 * US, f"of {rank}", "all") for rank in range(3)}
    assert some == {1: 7, 2: 7}
    assert once == {last: (0, 0, None, None, "all")}


def test_an_error_of_one_rank_is_raised_and_none_is_lost_by_it(files: list[str], tmp_path: Path) -> None:
    lost = []

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        with pytest.raises(UnreadableTrace, match="gone"):
            ranks.each(failing, {0: True, 1: False})
        lost.append(dict(ranks.lost))
        return 1

    assert asked(tmp_path, say) == 1
    assert lost == [{}]


def test_ignored_events_are_noted_once_and_a_copy_is_no_rank(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "copy.json").write_bytes(Path(files[2]).read_bytes())

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        return ranks.each(seen, dict.fromkeys(ranks.all, 1))

    found = in_pool(Here(), layout_of([tmp_path]), RankFile(), say)
    assert {rank: one[1] for rank, one in found.items()} in ({0: 1, 1: 0, 2: 0}, {0: 0, 1: 0, 2: 1})


class Ending(Here):
    """The process that has rank 1 ends as soon as it is asked."""

    def run(self, tasks: Sequence[Task], told: Callable[[Task], None]) -> dict[str, Any]:
        answers = super().run(tasks, told)
        ended = [one.file.path for one in tasks if one.calls and one.file.path.endswith("rank1.json")]
        return answers | {path: Lost("the process ended", where=path) for path in ended}


@pytest.mark.parametrize("silent", [False, True])
def test_a_job_is_begun_again_without_a_rank_that_was_lost(files: list[str], tmp_path: Path, silent: bool) -> None:
    """Even where who asks makes do without its answer; the first of the others has a note."""
    pool, begun = Ending(), []

    def say(ranks: Elsewhere, _: JobView | None) -> Any:
        begun.append(ranks.all)
        with suppress(*[Lost] * silent):
            return ranks.each(seen, dict.fromkeys(ranks.all, 1))

    found = in_pool(pool, layout_of([tmp_path]), RankFile(), say)
    assert begun == [(0, 1, 2), (0, 2)]
    assert found == {0: (0, 1, None, 1, None), 2: (2, 0, None, 1, None)}
    turns = [task.file.turn for task in pool.asked if task.calls]
    assert (turns[0], turns[-1]) == (0, 1)
    assert turns == sorted(turns)


@dataclass
class Memory:
    """What a process of these tests keeps between tasks."""

    most_bytes: int | None
    asked: int = 0


@dataclass(frozen=True)
class Ask:
    """A task: what the process says of itself; some end it."""

    key: str
    ends: str = "never"
    once: bool = False

    def run(self, states: Memory) -> Any:
        if self.ends == "first" and not Path(self.key).exists():
            Path(self.key).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.ends == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.ends == "unpicklable":
            return lambda: None
        if self.ends == "large":
            return bytes(1 << 24)
        states.asked += 1
        print("printed by a process")
        return os.getpid(), states.most_bytes, sys.path, dict(os.environ)

    def questions(self) -> bytes:
        return self.key.encode()


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Two, which may hold 77 bytes each."""
    with closing(Processes(2, f"{__name__}:Memory", 77)) as pool:
        yield pool


def answers(pool: Processes, *tasks: Ask) -> dict[str, Any]:
    """What is answered, each task told once."""
    told: list[Any] = []
    found = pool.run(tasks, told.append)
    assert sorted(task.key for task in told) == sorted(task.key for task in tasks)
    return found


def test_a_file_stays_with_its_process(processes: Processes) -> None:
    tasks = [Ask(name) for name in "abcdef"]
    first = {key: answer[0] for key, answer in answers(processes, *tasks).items()}
    assert set(first.values()) <= {worker.process.pid for worker in processes.workers}
    for _ in range(3):
        again = answers(processes, *reversed(tasks))
        assert {key: answer[0] for key, answer in again.items()} == first


def test_a_process_begins_without_threads_and_the_current_folder(
    processes: Processes, capfd: pytest.CaptureFixture[str]
) -> None:
    _, most_bytes, path, environment = answers(processes, Ask("a"))["a"]
    assert most_bytes == 77
    assert "" not in path
    assert {environment[name] for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")} == {"1"}
    assert environment["PYTHONSAFEPATH"] == "1"
    assert "PYTHONSAFEPATH" not in os.environ
    assert capfd.readouterr().out == ""


def test_a_process_that_ends_once_begins_again(processes: Processes, tmp_path: Path) -> None:
    found = answers(processes, Ask(str(tmp_path / "flag"), "first"), Ask("b"))
    assert [answer[1] for answer in found.values()] == [77, 77]


def test_a_file_that_ends_its_process_twice_is_lost(processes: Processes, tmp_path: Path) -> None:
    answers(processes, Ask("a"), Ask("b"), Ask("c"))
    found = answers(processes, Ask("b"), Ask("a", "always"), Ask("c"))
    assert isinstance(found["a"], Lost)
    assert found["a"].where == "a"
    assert [found[key][1] for key in "bc"] == [77, 77]


def test_an_idle_process_that_was_killed_is_replaced(processes: Processes) -> None:
    before = answers(processes, Ask("a"))["a"][0]
    os.kill(before, signal.SIGKILL)
    assert answers(processes, Ask("a"))["a"][0] != before


def test_an_answer_that_cannot_be_sent_is_an_error(processes: Processes) -> None:
    assert isinstance(answers(processes, Ask("a", "unpicklable"))["a"], Exception)


def test_an_answer_cut_short_by_its_process_ends_there() -> None:
    """More than a pipe holds: the process is killed while it sends."""
    worker = Worker(f"{__name__}:Memory", 77)
    try:
        worker.submit((Ask("a", "large"),))
        assert worker.connection.poll(60)
        worker.process.kill()
        with pytest.raises(ProcessEnded):
            worker.answers(60)
    finally:
        worker.end()


def test_processes_end_when_their_parent_is_killed() -> None:
    code = (
        "import sys, time; sys.path[:0] = ['.']\n"
        "from tests.report.test_rank_states import Ask, Processes\n"
        "if __name__ == '__main__':\n"
        "    pool = Processes(1, 'tests.report.test_rank_states:Memory')\n"
        "    print(pool.run([Ask('a')], lambda _: None)['a'][0], flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(200):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{worker}/stat").exists() and ") Z " in Path(f"/proc/{worker}/stat").read_text():
            return  # ended; nobody waits for it
        time.sleep(0.05)
    pytest.fail("the process outlives its parent")


@pytest.mark.parametrize(
    ("before_ms", "step_ms", "ns", "unused"),
    [
        (0.9, None, 900 * US, None),
        (0.9, 0.8, 800 * US, GIVEN),
        (0.2, None, None, "the GPU alone is busy for 400 µs of each step"),
        (0.2, 0.8, 800 * US, GIVEN),
        (1.2, None, None, "a step takes only 1.00 ms even with the profiler"),
    ],
)
def test_recorder_time_is_the_step_unless_doubted(
    before_ms: float, step_ms: float | None, ns: int | None, unused: str | None
) -> None:
    """Steps of 1 ms, in which the device works for 400 us."""
    recorded = {RECORDING: {"before_ms": [before_ms], "after_ms": [], "unit": "optimizer step"}}
    trace = TraceBuilder(**recorded)
    for step in range(4):
        trace.step(step, step * MS, MS)
    steps_of(("aten::mm", "gemm", 300, 400), into=trace)
    report = diagnose(trace.load(), step_ms=step_ms)
    (head,) = report.traces
    assert head.step is not None
    assert head.measured is not None
    assert head.measured.unused == unused
    assert head.step.measured is (ns is not None)
    assert ns is None or head.step.unprofiled_ns == ns
    (share,) = [one.evidence["part_share"] for one in report.findings if one.rule == "hotspot"]
    assert share == pytest.approx(400 * US / head.step.unprofiled_ns)


def test_finding_has_the_requested_number_of_occurrences() -> None:
    finding = samples.finding(*(at * 20 * MS for at in range(4)))
    analysis = Analysis(steps_of(("aten::mm", "gemm", 300, 400)).load())
    said: Any = SimpleNamespace(findings=(finding, replace(finding, by="other")))
    analysis.provide(Said(said))
    whole = whole_findings(analysis, {1: 2}, None)
    assert list(whole) == [1]
    assert whole[1].by == "other"
    assert whole[1].occurrences == finding.occurrences[:2]
    assert whole[1].count == 4


@pytest.mark.parametrize(("saved", "share"), [(None, 0.2), (0.1, 0.1), (0.0, 0.0)])
def test_a_finding_is_compared_by_what_it_saves_or_else_costs(saved: float | None, share: float) -> None:
    brief = Brief(0, 0, "host-gap", "late", None, Severity.HIGH, 0.2, 5, saved, fixable=True, fault=0)
    assert brief.share == share


@pytest.mark.parametrize(("busy_us", "bound"), [(960, "gpu"), (700, "cpu")])
def test_open_step_of_an_always_busy_device_is_bound_by_it(
    monkeypatch: pytest.MonkeyPatch, busy_us: int, bound: str
) -> None:
    """Of steps of 1 ms; what the replay leaves open the recording tells."""
    monkeypatch.setattr(rank_report, "_estimates", lambda *_: (samples.estimate(bounds=("gpu", "cpu")), None))
    (head,) = diagnose(steps_of(("aten::mm", "gemm", 30, busy_us)).load()).traces
    assert head.step is not None
    assert head.step.bound == bound


def test_what_only_a_job_or_the_rules_give_is_not_there_before() -> None:
    analysis = Analysis(steps_of(("aten::mm", "gemm", 300, 400)).load())
    for index, why in ((InJob, "not replayed with other ranks"), (Said, "not judged yet")):
        with pytest.raises(Unavailable, match=why):
            analysis.index(index)
