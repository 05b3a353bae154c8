"""`on_trace_ready=traceanalyzer.watch()`: five lines per window on rank 0, of all ranks, beside the training."""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.job.ranks import Reductions
from tests.recorder.programs import REPOSITORY
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.integrations import watching
from traceanalyzer.integrations.watching import MAX_BYTES, Watch, encoded, summary_of, watch

SYNCS, COPIES = (FIXTURES / name / "bad.json.gz" for name in ("implicit-sync", "exposed-copy"))
COST = re.compile(r"it cost (\d+\.\d\d) s, [\d.< ]+ % of the time since the (start|last one)$")


class Recorded:
    """A profiler whose window was recorded on a GPU."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(gzip.decompress(self.path.read_bytes()))


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setattr(watching, "rank_and_world", lambda: (rank, world))


def told(handler: Watch, *windows: Path) -> None:
    for path in windows:
        handler(Recorded(path))
        handler.wait()


def test_each_window_is_five_lines_with_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 1)
    lines: list[str] = []
    handler = watch(log=lines.append)
    told(handler, SYNCS, SYNCS, COPIES)
    assert len(lines) == 15
    first, same, other = lines[:5], lines[5:10], lines[10:]
    for number, block in enumerate((first, same, other), start=1):
        assert block[0].startswith(f"traceanalyzer: window {number}; ")
        assert [line.split()[0] for line in block[1:]] == ["Step", "Limit", "Fix", "Since"]
        printed = COST.search(block[0])
        assert printed is not None
        assert float(printed[1]) == pytest.approx(handler.cost_s[number - 1], abs=0.006)
    assert first[4] == "  Since  this is the first window"
    assert same[4] == "  Since  as in the window before"
    assert "Fix    finding 1: " in other[3]
    assert re.search(r"step recorded \S+ [mu]s, now \S+ ms \([+-]\d+ %\)", other[4])
    assert "; new: A pageable copy of 32.0 MiB runs once a step, host to device" in other[4]
    assert "; gone: " in other[4]


def test_ranks_leave_summaries_in_a_folder_and_rank_0_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(watching, "_CLOCKS_S", 600.0)  # the analysis of rank 1 comes first, and may take long here
    as_rank(monkeypatch, 1, 2)
    told(Watch(tmp_path / "shared", lines.append), SYNCS)
    assert lines == []
    left = list((tmp_path / "shared").iterdir())
    assert [path.name for path in left] == ["rank1.json"]
    assert left[0].stat().st_size < MAX_BYTES
    as_rank(monkeypatch, 0, 2)
    told(Watch(tmp_path / "shared", lines.append), COPIES)
    assert "window 1, 2 of 2 ranks; rank 0 waits least; it cost" in lines[0]
    monkeypatch.setattr(watching, "_OTHERS_S", 0.3)
    summary = json.loads(left[0].read_text())
    left[0].write_text(json.dumps({**summary, "at": summary["at"] - 3600}))
    told(Watch(tmp_path / "shared", lines.append), COPIES)
    assert "window 1, 1 of 2 ranks; rank 0" in lines[5]
    left[0].write_text("{}")
    told(Watch(tmp_path / "shared", lines.append), COPIES)
    assert lines[10:] == ["traceanalyzer: rank 0, window 1 is not reported: KeyError('window')"]


def test_the_rank_that_waits_least_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    window = watching._Window(3, 0, 2, 0.0, "cost 0.1 s", None)
    one = {"lines": {"Step": "of 0"}, "step_ns": 10_000_000, "communication": 0.5, "findings": {"a": "x", "b": "y"}}
    two = {"lines": {"Step": "of 1"}, "step_ns": 12_000_000, "communication": 0.1, "findings": {"c": "z"}}
    lines = watching.told_lines(window, {0: one, 1: two}, {0: one, 1: {**two, "step_ns": 0, "findings": {}}})
    assert lines[0] == "traceanalyzer: window 3, 2 of 2 ranks; rank 1 waits least; it cost 0.1 s"
    assert lines[1:4] == ["  Step   of 1", "  Limit  not known", "  Fix    no finding above info"]
    assert lines[4] == "  Since  step recorded 10.0 ms, now 12.0 ms (+20 %); new: z"


def summary(**changes: object) -> dict[str, object]:
    """What a rank says of a window in which nothing was found."""
    return {"lines": {}, "step_ns": 10_000_000, "communication": 0.5, "findings": {}, **changes}


def since(now: dict[str, object], before: dict[str, object]) -> str:
    """How a window differs from the one before."""
    told_of = watching._Window(2, 0, 1, 0.0, "cost 0.1 s", None)
    return watching.told_lines(told_of, {0: now}, {0: before})[4].removeprefix("  Since  ")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (10_200_000, "as in the window before"),
        (9_800_000, "as in the window before"),
        (10_210_000, "step recorded 10.0 ms, now 10.2 ms (+2 %)"),
        (9_700_000, "step recorded 10.0 ms, now 9.70 ms (-3 %)"),
        (None, "as in the window before"),
    ],
)
def test_step_changes_by_more_than_two_percent_are_reported(now: int | None, said: str) -> None:
    assert since(summary(step_ns=now), summary()) == said


def test_three_new_or_gone_findings_are_named_others_counted() -> None:
    three, five = ({str(number): f"finding {number}" for number in range(count)} for count in (3, 5))
    assert since(summary(findings=three), summary()) == "new: finding 0, finding 1, finding 2"
    assert since(summary(), summary(findings=five)) == "gone: finding 0, finding 1, finding 2 and 2 more"
    assert since(summary(findings=five), summary(findings=three)) == "new: finding 3, finding 4"


def test_of_ranks_that_wait_as_much_the_first_is_told() -> None:
    told_of = watching._Window(1, 0, 3, 0.0, "cost 0.1 s", None)
    assert "3 of 3 ranks; rank 1 waits least" in watching.told_lines(
        told_of, {0: summary(), 2: summary(communication=0.1), 1: summary(communication=0.1)}, {}
    )[0]  # fmt: skip


@pytest.mark.parametrize(
    ("window", "at", "used"), [(2, 1_000, True), (3, 971, True), (1, 1_000, False), (2, 970, False)]
)
def test_summary_of_another_rank_is_of_this_window_or_later(
    window: int, at: int, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_OTHERS_S", 0.01)
    monkeypatch.setattr(watching, "_POLL_S", 0.01)
    exchange = watching.Folder(tmp_path)
    exchange.put("rank1", json.dumps(summary(window=window, at=at)).encode())
    told_of = watching._Window(2, 0, 2, 1_000.0, "cost 0.1 s", exchange)
    assert sorted(told_of.gathered(json.dumps(summary()).encode())) == ([0, 1] if used else [0])


def test_stored_rank_summary_replaces_the_previous_one() -> None:
    class Store(dict[str, bytes]):
        set = dict.__setitem__

        def check(self, keys: list[str]) -> bool:
            return all(key in self for key in keys)

    exchange = watching.JobStore(Store())
    assert exchange.get("rank1") is None
    exchange.put("rank1", b"first")
    exchange.put("rank1", b"second")
    assert exchange.get("rank1") == b"second"
    assert exchange.get("rank2") is None


def test_what_a_killed_training_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = [tmp_path / name for name in ("traceanalyzer-watch-old", "traceanalyzer-watch-new", "others-old")]
    for folder in left:
        folder.mkdir()
        (folder / "window.json").write_text("{}")
    (target := tmp_path / "kept").mkdir()
    (tmp_path / "traceanalyzer-watch-link").symlink_to(target)
    for folder in (left[0], left[2], target):
        os.utime(folder, (0, 0))
    told(watch(log=[].append), SYNCS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept",
        "others-old",
        "traceanalyzer-watch-link",
        "traceanalyzer-watch-new",
    ]


def test_summary_has_recorded_step_and_collective_share(tmp_path: Path) -> None:
    """500 us of compute and an all-reduce of 500 us, 400 us of them waiting, and a pause of 20 us: five times."""
    for rank, trace in Reductions({0: (500,) * 5, 1: (900,) * 5}).traces().items():
        own = summary_of(trace.write(tmp_path / f"rank{rank}.json"))
        assert own["step_ns"] == pytest.approx(1_020_000, rel=0.01)
        assert own["communication"] == pytest.approx((0.49, 0.098)[rank], rel=0.01)
    assert summary_of(SYNCS)["communication"] == 0


def test_a_summary_of_a_window_names_what_is_wrong_and_no_facts() -> None:
    assert list(summary_of(COPIES)["findings"].values()) == [
        "A pageable copy of 32.0 MiB runs once a step, host to device, in step() (moving.py:20)"
    ]


def test_a_window_without_a_device_has_no_step(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50_000)
    own = summary_of(trace.write(tmp_path / "cpu.json"))
    assert (own["step_ns"], own["communication"], own["findings"]) == (None, 0, {})


def test_a_summary_is_small_whatever_was_found() -> None:
    own = summary_of(SYNCS)
    assert 200 < len(encoded(own)) < 5_000
    many = {**own, "findings": {str(n): "x" * 90 for n in range(5_000)}}
    assert len(encoded(many)) <= MAX_BYTES
    assert len(json.loads(encoded(many))["findings"]) > 300


def test_broken_window_is_reported_and_slow_analysis_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank(monkeypatch, 0, 1)
    lines: list[str] = []
    handler = watch(log=lines.append)
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"{}"))
    told(handler, tmp_path / "broken.gz")
    assert len(lines) == 1
    assert lines[0].startswith("traceanalyzer: rank 0, window 1: ")
    handler(Recorded(tmp_path / "missing.gz"))
    assert lines.pop(1).startswith("traceanalyzer: rank 0, window 2 is not written: [Errno 2]")
    for _ in range(2):
        handler(Recorded(SYNCS))
    handler.wait()
    assert lines[1] == "traceanalyzer: window 4 is left out: the one before is still being analysed"
    assert len(lines) == 7


TRAINING = """
import time, torch, torch.distributed as dist, traceanalyzer
from torch.profiler import profile, schedule
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters())
handler = traceanalyzer.watch()
with profile(schedule=schedule(wait=3, warmup=1, active=2, repeat=2), on_trace_ready=handler) as profiler:
    for _ in range(12):
        optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
        handler.wait()
        profiler.step()
dist.barrier()
handler.wait()
del model, optimizer
dist.barrier()
time.sleep(0.5)  # gloo's threads abort a process whose peer leaves before it
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_ranks_reach_rank_0_through_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "train.py"], capture_output=True, text=True, check=False, cwd=tmp_path, env=env, timeout=240
    )
    assert done.returncode == 0, done.stderr
    heads = [line for line in done.stderr.splitlines() if line.startswith("traceanalyzer: ")]
    assert ["2 of 2 ranks" in line for line in heads] == [True, True], done.stderr
    assert done.stderr.count("  Since  ") == 2


def test_cost_of_a_later_window_is_a_share_of_the_time_since(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr(watching.time, "perf_counter", lambda: next(now))
    handler = Watch(None, print)
    assert handler._cost(8.0, 1) == "cost 2.00 s, 20.0 % of the time since the start"
    assert handler._cost(18.0, 2) == "cost 2.00 s, 20.0 % of the time since the last one"
