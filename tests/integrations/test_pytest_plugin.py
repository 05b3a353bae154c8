"""The plugin in real runs of pytest: a test within its limits, tests beyond them, and one that cannot be counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorder.programs import NO_COMPILER
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.integrations.trace_limits import Uncounted, broken, bytes_of, share_of
from traceanalyzer.model.errors import BadOption

REPOSITORY = Path(__file__).parents[2]
SYNCS = REPOSITORY / "fixtures" / "implicit-sync" / "bad.json.gz"  # 20 launches and 10 read-backs a step
COPIES = REPOSITORY / "fixtures" / "exposed-copy" / "bad.json.gz"

RECORDER = f"""
import gzip, pathlib
class cuda:
    is_available = staticmethod(lambda: False)
class profiler:
    class ProfilerAction: RECORD = None
    class profile:
        def __init__(self, **switches): pass
        def __enter__(self): return self
        def __exit__(self, *error): pass
        def step(self): pass
        def export_chrome_trace(self, path):
            pathlib.Path(path).write_bytes(gzip.decompress(pathlib.Path({str(SYNCS)!r}).read_bytes()))
"""
"""Stands for torch on a machine with a GPU: what it exports was recorded on one."""

TESTS = """
import sys, pytest
assert "traceanalyzer.report" not in sys.modules and "pandas" not in sys.modules

def run(gpu_trace):
    with gpu_trace() as recording:
        recording.step()

@pytest.mark.limit_launches(per_step=20)
@pytest.mark.limit_syncs(10)
@pytest.mark.limit_copies("1 kB")
@pytest.mark.limit_idle("100 %")
@pytest.mark.no_findings("high")
def test_within(gpu_trace): run(gpu_trace)

@pytest.mark.limit_idle("0 %")
@pytest.mark.limit_launches(per_step=19)
def test_launches(gpu_trace): run(gpu_trace)

@pytest.mark.limit_syncs(0)
def test_syncs(gpu_trace): run(gpu_trace)
"""


def run_pytest(folder: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    paths = os.pathsep.join([str(REPOSITORY), str(folder)])
    env = {**os.environ, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugin = ["-p", "traceanalyzer.integrations.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", *plugin, *arguments, "test_it.py"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=env, timeout=240)


def test_limits_pass_and_fail_with_op_line_and_place(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(RECORDER)
    done = run_pytest(tmp_path, TESTS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 passed" in done.stdout
    assert "limit_launches: 20 launches in a step, 19 allowed: aten::mm (10), aten::sum (10)" in done.stdout
    assert "limit_syncs: 10 waits for the device in a step, 0 allowed: aten::_local_scalar_dense" in done.stdout
    assert "capture/workloads/reading_back.py:19" in done.stdout
    assert "limit_idle: idle for " in done.stdout  # all that a test is beyond
    assert "the trace: " in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.slow
def test_without_a_gpu_a_limit_skips_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tests = (
        "import json, pytest, torch\n"
        "@pytest.mark.limit_syncs(0)\ndef test_limit(gpu_trace):\n"
        "    with gpu_trace() as recording:\n        torch.ones(8).sum(); recording.step()\n"
        "def test_steps(gpu_trace, tmp_path):\n    with gpu_trace() as recording:\n"
        "        for _ in range(3): torch.ones(8).sum(); recording.step()\n"
        "    rows = json.loads((tmp_path / 'gpu_trace.json').read_text())['traceEvents']\n"
        "    names = {row['name'] for row in rows}\n"
        "    assert {f'ProfilerStep#{n}' for n in range(3)} <= names\n"
    )
    done = run_pytest(tmp_path, NO_COMPILER + tests, "-rs", "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "no work of a GPU" in done.stdout


def test_each_limit_on_recorded_traces(tmp_path: Path) -> None:
    assert broken(COPIES, "limit_copies", ("1 GB",), {}) == []
    (first, *_) = broken(COPIES, "limit_copies", ("1 kB",), {})
    assert "bytes between host and device in a step, 1,000 allowed" in first
    assert "exposed-copy" in broken(COPIES, "no_findings", ("low",), {})[0]
    assert "exposed-copy" in broken(COPIES, "no_findings", ("high",), {})[0]
    assert broken(SYNCS, "no_findings", ("medium",), {}) == []  # low
    assert "idle for" in broken(SYNCS, "limit_idle", ("0 %",), {})[0]
    assert broken(SYNCS, "not_slower_than", (), {"baseline": str(SYNCS)}) == []
    good = REPOSITORY / "fixtures" / "exposed-copy" / "good.json.gz"
    assert broken(COPIES, "not_slower_than", (str(good),), {}) == [f"not_slower_than: slower than {good}"]


@pytest.mark.parametrize("text", ["1 mb", "much", "", "-1 MB", "1 TB"])
def test_an_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        bytes_of(text)


def test_amounts_and_shares() -> None:
    assert bytes_of("1.5 MB") == 1_500_000
    assert bytes_of(12) == 12
    assert share_of("20 %") == share_of("20%") == 0.2
    for text in ("0.2", "101 %", "%"):
        with pytest.raises(BadOption):
            share_of(text)
    with pytest.raises(BadOption, match="takes one limit"):
        broken(SYNCS, "limit_syncs", (), {})
    assert issubclass(Uncounted, Exception)


def test_of_two_devices_the_one_that_idles_least_keeps_the_limit(tmp_path: Path) -> None:
    """A second one may help out now and then."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    trace.kernel(0, 500_000, 1)
    trace.kernel(0, 100_000, 2, device=1)
    path = trace.write(tmp_path / "two.json")
    assert broken(path, "limit_idle", ("50 %",), {}) == []
    assert broken(path, "limit_idle", ("49 %",), {}) == ["limit_idle: idle for 50% of the window, 49% allowed"]


def test_counts_are_of_the_largest_step_with_top_ops(tmp_path: Path) -> None:
    """Both ways of copying together."""
    trace, number = TraceBuilder(), 0
    for step in range(6):
        at = step * 1_000_000
        trace.step(step, at, 1_000_000)
        for way, size in (("DtoH (Device -> Pinned)", 500), ("HtoD (Pinned -> Device)", 1_000 + 2_000 * (step == 3))):
            number += 1
            trace.launch("cudaMemcpyAsync", at + number % 2 * 10_000, 5_000, number)
            trace.memcpy(at + number % 2 * 10_000 + 20_000, 2_000, number, name=f"Memcpy {way}", size=size)
        for place, op in enumerate(("aten::once", "aten::twice", "aten::twice")):
            number += 1
            trace.op(op, at + (60 + 20 * place) * 1_000, 10_000)
            trace.launch("cudaLaunchKernel", at + (62 + 20 * place) * 1_000, 5_000, number)
            trace.kernel(at + (200 + 20 * place) * 1_000, 15_000, number)
        number += number % 2
    path = trace.write(tmp_path / "copies.json")
    assert broken(path, "limit_copies", (3_500,), {}) == []
    assert broken(path, "limit_copies", (3_499,), {}) == [
        "limit_copies: 3,500 bytes between host and device in a step, 3,499 allowed"
    ]
    (said,) = broken(path, "limit_launches", (2,), {})
    assert said.startswith("limit_launches: 3 launches in a step, 2 allowed: aten::twice (2), aten::once (1)")


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1B", 1), (" 2 kB ", 2_000), ("3GB", 3e9), ("1.25 MB", 1_250_000), (0, 0)]
)
def test_amounts_are_of_a_thousand(text: str | int, bytes_: float) -> None:
    assert bytes_of(text) == bytes_


@pytest.mark.parametrize(("text", "share"), [("0%", 0.0), ("100 %", 1.0), (" 12.5 % ", 0.125)])
def test_shares_are_of_a_hundred(text: str, share: float) -> None:
    assert share_of(text) == share
    with pytest.raises(BadOption, match="is no share"):
        share_of("100.1 %")


def waiting(folder: Path, waits: int = 7) -> Path:
    """A step in which each of some ops waits for the device, one of them twice as often as the others."""
    trace = TraceBuilder()
    trace.step(0, 0, 1_000_000)
    trace.launch("cudaLaunchKernel", 1_000, 2_000, 1)
    trace.kernel(5_000, 500_000, 1)
    for number in range(waits):
        at = 10_000 + 50_000 * number
        trace.op(f"aten::op{number}", at, 40_000)
        for twice in range(1 + (number == 2)):
            trace.launch("cudaStreamSynchronize", at + 1_000 + 15_000 * twice, 10_000, 100 + 2 * number + twice)
    return trace.write(folder / "waits.json")


def test_of_many_places_the_five_that_have_most_are_named(tmp_path: Path) -> None:
    (said,) = broken(waiting(tmp_path), "limit_syncs", (7,), {})
    assert said.startswith("limit_syncs: 8 waits for the device in a step, 7 allowed: aten::op2 (2), ")
    assert said.count("aten::") == 5
    assert broken(waiting(tmp_path), "limit_syncs", (8,), {}) == []


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("limit_launches", 0),
        ("limit_syncs", 0),
        ("limit_idle", "0 %"),
        ("no_findings", "low"),
        ("not_slower_than", "x"),
    ],
)
def test_without_work_of_a_device_no_limit_can_be_counted(name: str, limit: object, tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 50_000)
    with pytest.raises(Uncounted, match="no work of a GPU was recorded"):
        broken(trace.write(tmp_path / "cpu.json"), name, (limit,), {})


@pytest.mark.parametrize(("severity", "kept"), [("high", True), ("medium", True), ("low", False)])
def test_findings_break_a_limit_that_are_as_severe_or_more(severity: str, kept: bool) -> None:
    """A finding that is low, at a line."""
    said = broken(SYNCS, "no_findings", (severity,), {})
    assert (said == []) is kept
    assert kept or (said[0].startswith("no_findings: implicit-sync: ") and said[0].endswith("reading_back.py:19"))
    with pytest.raises(BadOption, match="is no severity"):
        broken(SYNCS, "no_findings", ("info",), {})


def test_a_line_that_several_findings_name_is_told_once() -> None:
    (said,) = broken(SYNCS, "limit_syncs", (9,), {})
    assert said == (
        "limit_syncs: 10 waits for the device in a step, 9 allowed: aten::_local_scalar_dense (10); "
        "lines: capture/workloads/reading_back.py:19"
    )
