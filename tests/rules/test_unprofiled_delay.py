"""Delays that only the recorder measures: recordings of programs with a planted fault, and changed measurements."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import REPOSITORY
from traceanalyzer import Finding, Severity, diagnose, load
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.step_times import RECORDING
from traceanalyzer.read.text.source import is_trace_name
from traceanalyzer.timeline.unprofiled import Unprofiled

RECORDINGS = REPOSITORY / "benchmarks" / "recording" / "traces"
RULE = "unprofiled-delay"

Change = Callable[[dict[str, Any]], None]


def changed(folder: Path, program: str, change: Change) -> Path:
    """The recording of a program with other measurements before and after its recorded steps."""
    document = json.loads(gzip.decompress((RECORDINGS / f"{program}.json.gz").read_bytes()))
    for part in ("before", "after"):
        change(document[RECORDING]["measured"][part])
    (path := folder / "changed.json").write_text(json.dumps(document))
    return path


def delays(path: Path) -> list[Finding]:
    return [finding for finding in diagnose(load(path)).findings if finding.rule == RULE]


@pytest.mark.parametrize(
    ("program", "cause", "severity", "measured"),
    [
        ("garbage", "garbage-collection", Severity.HIGH, 0.789),
        ("second_process", "other-process", Severity.HIGH, 0.567),
        ("alternating", "alternating-steps", Severity.MEDIUM, 0.605),
        ("evaluates", "periodic-steps", Severity.MEDIUM, 0.328),
        ("busy_thread", "competing-thread", Severity.HIGH, 0.986),
        ("slow_loader", "late-batches", Severity.HIGH, 0.343),
    ],
)
def test_the_planted_fault_is_the_first_finding(program: str, cause: str, severity: Severity, measured: float) -> None:
    first = diagnose(load(RECORDINGS / f"{program}.json.gz")).findings[0]
    assert (first.rule, first.cause, first.severity) == (RULE, cause, severity)
    assert first.evidence["measured_share"] == pytest.approx(measured, abs=0.001)


def test_a_healthy_program_has_nothing_above_info() -> None:
    findings = diagnose(load(RECORDINGS / "healthy.json.gz")).findings
    assert {finding.severity for finding in findings} == {Severity.INFO}
    assert RULE not in {finding.rule for finding in findings}


def test_time_of_a_measured_delay_is_no_other_findings_to_save() -> None:
    """Two workers need 42 ms for a batch; a step whose batch is ready takes 24 to 28 ms, and its GPU works for 4 ms."""
    report = diagnose(load(RECORDINGS / "slow_loader.json.gz"))
    delay, launches = (one.saving for one in report.findings[:2])
    assert report.findings[1].rule == "launch-bound"
    assert delay is not None
    assert launches is not None
    step = report.traces[0].step
    assert step is not None
    assert 24e6 <= step.unprofiled_ns - delay.step_ns <= 28.5e6
    assert launches.beyond
    assert delay.share + launches.share < 1
    assert "34 % while data is loaded" in report.traces[0].verdict


def test_a_given_step_waits_for_batches_as_the_measured_one() -> None:
    report = diagnose(load(RECORDINGS / "slow_loader.json.gz"), step_ms=40.0)
    (delay,) = (one for one in report.findings if one.rule == RULE)
    assert delay.saving is not None
    assert delay.saving.share == pytest.approx(0.343, abs=0.02)


def test_kernels_that_another_process_delays_are_one_finding() -> None:
    rules = [one.rule for one in diagnose(load(RECORDINGS / "second_process.json.gz")).findings]
    assert "kernel-variance" not in rules


def test_rare_slow_steps_are_no_part_of_the_measured_step() -> None:
    """Every tenth step evaluates, for 29 ms; the others take 5.1 ms, with the profiler and without."""
    trace = diagnose(load(RECORDINGS / "evaluates.json.gz")).traces[0]
    assert trace.measured is not None
    assert trace.measured.unused is None
    assert trace.measured.ms == pytest.approx(5.08, abs=0.03)
    assert "1 of 6 steps (49 % of the recorded time) does 6.8 times the GPU work" in trace.verdict


LOADER = {"workers": 2, "wait_ms": [0.1, 20.0] * 12, "idle_after": [False, True] * 12}


def test_waits_for_late_batches_are_the_first_finding(tmp_path: Path) -> None:
    """24 steps in 400 ms, of which 12 wait for 20 ms each."""
    path = changed(tmp_path, "healthy", lambda part: part.update(wall_s=0.4, loader=LOADER))
    first = diagnose(load(path)).findings[0]
    assert (first.rule, first.cause, first.severity) == (RULE, "late-batches", Severity.HIGH)
    assert first.evidence["measured_share"] == pytest.approx(0.6)
    waits = "steps wait for batches during 60.0 % of the time without the profiler (12 of 24 steps)"
    assert waits in first.message


@pytest.mark.parametrize(
    "loader",
    [{**LOADER, "workers": 0}, {**LOADER, "idle_after": [False] * 24}, {**LOADER, "wait_ms": [0.2] * 24}, None],
    ids=["no workers", "GPU busy", "ready", "no loader"],
)
def test_waits_that_delay_no_work_are_not_reported(loader: object, tmp_path: Path) -> None:
    path = changed(tmp_path, "healthy", lambda part: part.update(wall_s=0.4, loader=loader))
    assert delays(path) == []


@pytest.mark.parametrize("collecting_ms", [0.0, 190.0])
def test_few_garbage_collections_are_not_reported(collecting_ms: float, tmp_path: Path) -> None:
    """190 ms of 4 s are 4.75 %."""

    def collect(part: dict[str, Any]) -> None:
        part.update(wall_s=4.0, step_ms=[40.0] * 24)
        part["collections"]["ms"] = collecting_ms

    assert delays(changed(tmp_path, "garbage", collect)) == []


@pytest.mark.parametrize(
    "measured",
    [{"lock_ms": 0.07}, {"drained_share": 0.0}, {"threads": [{"name": "metrics", "cpu": 0.2}]}, {"threads": []}],
    ids=["lock is free", "GPU is the limit", "thread idles", "no thread"],
)
def test_a_thread_that_delays_nothing_is_not_reported(measured: dict[str, Any], tmp_path: Path) -> None:
    assert delays(changed(tmp_path, "busy_thread", lambda part: part.update(measured))) == []


def test_a_listed_process_is_named(tmp_path: Path) -> None:
    other = [{"pid": 4711, "bytes": 1, "sm_percent": 40.0}]
    path = changed(tmp_path, "second_process", lambda part: part["gpu"].update(other_processes=other))
    (finding,) = delays(path)
    assert finding.message.startswith("process 4711 of another program uses the GPU, and 5 kernels")


def test_a_process_without_a_known_share_is_not_named(tmp_path: Path) -> None:
    """The driver lists who holds memory; where it does not say how much they compute, kernels must tell."""
    other = [{"pid": 4711, "bytes": 1, "sm_percent": None}]
    path = changed(tmp_path, "second_process", lambda part: part["gpu"].update(other_processes=other))
    (finding,) = delays(path)
    assert finding.message.startswith("the GPU is shared with another process")


def test_a_busy_gpu_alone_is_no_other_process(tmp_path: Path) -> None:
    assert delays(changed(tmp_path, "healthy", lambda part: part["gpu"].update(busy_percent=100.0))) == []


@pytest.mark.parametrize(
    "step_ms",
    [
        [5.0, 5.2] * 12,
        [5.0] * 11 + [40.0] + [5.0] * 12,
        [5.0, 9.0, 5.0, 5.0, 9.0, 5.0, 5.0, 5.0, 5.0, 9.0, 5.0, 9.0] * 2,
        [5.0, 40.0, 7.0, 60.0, 9.0, 90.0] * 4,
        [5.0, 40.0, 5.0],
    ],
    ids=["alike", "once", "no period", "no two kinds", "few"],
)
def test_steps_without_a_pattern_are_not_reported(step_ms: list[float], tmp_path: Path) -> None:
    assert delays(changed(tmp_path, "healthy", lambda part: part.update(step_ms=step_ms))) == []


def test_a_delay_must_be_there_before_and_after(tmp_path: Path) -> None:
    document = json.loads(gzip.decompress((RECORDINGS / "alternating.json.gz").read_bytes()))
    document[RECORDING]["measured"]["after"]["step_ms"] = [5.0] * 24
    (path := tmp_path / "changed.json").write_text(json.dumps(document))
    assert delays(path) == []


@pytest.mark.parametrize(
    "measured",
    [None, {}, {"before": {"step_ms": "fast"}}, {"before": {"step_ms": [None, "5", -1.0]}}],
    ids=["nothing", "no part", "text", "no times"],
)
def test_measurements_that_are_none_are_not_judged(measured: object, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress((RECORDINGS / "healthy.json.gz").read_bytes()))
    document[RECORDING]["measured"] = measured
    (path := tmp_path / "changed.json").write_text(json.dumps(document))
    with pytest.raises(Unavailable, match="no measurements without the profiler"):
        Unprofiled.build(load(path))
    assert delays(path) == []


def test_damaged_measurements_count_as_not_measured(tmp_path: Path) -> None:
    damaged = {"loader": [1], "gpu": "H200", "threads": {"a": 1}, "collections": None, "wall_s": float("nan")}
    path = changed(tmp_path, "healthy", lambda part: part.update(damaged))
    parts = Unprofiled.build(load(path)).parts
    assert [(part.workers, part.collections, part.gpu_busy_share) for part in parts] == [(0, 0, None)] * 2
    assert delays(path) == []


@pytest.mark.parametrize(
    ("name", "is_trace"), [("a.json.gz", True), ("a.et.json.gz", False), ("a.et.json", False), ("get.json", True)]
)
def test_execution_traces_are_no_traces_of_a_folder(name: str, is_trace: bool) -> None:
    assert is_trace_name(f"runs/{name}") is is_trace
