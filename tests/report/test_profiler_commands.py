"""Commands of other profilers for what a trace leaves open."""

import gzip
import json
import re
import shlex
from dataclasses import replace

import pytest

from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import Trace, diagnose, load
from traceanalyzer.model.step_times import RECORDING
from traceanalyzer.render.text.report import render_text

TANH = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#1}, int>(int)"
)


def commands(trace: Trace) -> dict[str, list[str]]:
    """Rule -> words of the command of its first finding that has any."""
    named: dict[str, list[str]] = {}
    for finding in diagnose(trace).findings:
        if finding.profiler_command:
            named.setdefault(finding.rule, shlex.split(finding.profiler_command, comments=True))
    return named


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def five_steps() -> Trace:
    """Steps of 10 ms, each with three tanh kernels, the second of op `aten::big` and 6 ms long."""
    made = TraceBuilder()
    ms, number = 1_000_000, 0
    for step in range(5):
        begin = step * 10 * ms
        made.step(step, begin, 10 * ms)
        for place, (name, dur) in enumerate((("aten::tanh", 100_000), ("aten::big", 6 * ms), ("aten::tanh", 100_000))):
            number += 1
            at = begin + place * 50_000
            made.op(name, at, 40_000)
            made.launch("cudaLaunchKernel", at + 5_000, 5_000, number)
            made.kernel(begin + 200_000 + (0, 110_000, 6_200_000)[place], dur, number, name=TANH)
    return made.load()


def test_ncu_skips_ten_steps_and_the_launches_before_in_the_step() -> None:
    words = commands(five_steps())["hotspot"]
    assert words[0] == "ncu"
    assert value(words, "--kernel-name") == "regex:vectorized_elementwise_kernel.*tanh_kernel"
    assert (value(words, "--launch-skip"), value(words, "--launch-count")) == ("31", "1")
    assert words[-2:] == ["python", "PROGRAM.py"]


def test_ncu_reads_the_sections_that_occupancy_needs() -> None:
    words = commands(load(FIXTURES / "low-occupancy" / "bad.json.gz"))["low-occupancy"]
    assert value(words, "--kernel-name") == "regex:tensor_kernel_scan_innermost_dim"
    assert value(words, "--launch-skip") == "30"
    assert [words[n + 1] for n, word in enumerate(words) if word == "--section"] == [
        "SpeedOfLight",
        "LaunchStats",
        "Occupancy",
    ]


def launched_in_last_step(fixture: str, pattern: str) -> list[tuple[str, float]]:
    """Name and duration (us) of the kernels that match, by the raw events, in the order of their launches."""
    raw = json.loads(gzip.decompress((FIXTURES / f"{fixture}.json.gz").read_bytes()))["traceEvents"]
    annotations = [e for e in raw if e.get("cat") == "user_annotation"]
    step = max((e for e in annotations if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    calls = {e["args"]["correlation"]: e["ts"] for e in raw if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    kernels = [
        (calls[e["args"]["correlation"]], e["name"], e["dur"])
        for e in raw
        if e.get("cat") == "kernel" and e["args"]["correlation"] in calls and re.search(pattern, e["name"])
    ]
    return [(name, dur) for ts, name, dur in sorted(kernels) if step["ts"] <= ts <= step["ts"] + step["dur"]]


@pytest.mark.parametrize(
    ("fixture", "rule", "per_step", "place", "count"),
    [
        ("low-occupancy/bad", "low-occupancy", 3, 0, 3),
        ("one-hot/bad", "hotspot", 2, 1, 1),
        ("fft-length/bad", "hotspot", 36, 8, 5),
    ],
)
def test_ncu_measures_the_longest_kernel_of_the_raw_events(
    fixture: str, rule: str, per_step: int, place: int, count: int
) -> None:
    words = commands(load(FIXTURES / f"{fixture}.json.gz"))[rule]
    launched = launched_in_last_step(fixture, value(words, "--kernel-name").removeprefix("regex:"))
    assert len(launched) == per_step
    assert int(value(words, "--launch-skip")) == 10 * per_step + place
    assert int(value(words, "--launch-count")) == count
    measured = launched[place : place + count]
    assert len(measured) == count
    assert {name for name, _ in measured} == {max(launched, key=lambda one: one[1])[0]}


def test_nsys_records_a_second_of_steps_and_the_clocks() -> None:
    trace = load(FIXTURES / "kernel-variance" / "bad.json.gz")
    (command,) = [f.profiler_command for f in diagnose(trace).findings if f.rule == "kernel-variance"]
    assert "--capture-range=cudaProfilerApi --capture-range-end=stop --gpuctxsw=true" in command
    assert command.endswith("cudaProfilerStart() before step 10 and .cudaProfilerStop() after step 297; needs root")


def test_the_recorded_command_is_measured() -> None:
    trace = load(FIXTURES / "far-from-bound" / "bad.json.gz")
    extra = {**trace.meta.extra, RECORDING: {"command": ["train.py", "--name", "two words"]}}
    words = commands(replace(trace, meta=replace(trace.meta, extra=extra)))["far-from-bound"]
    assert words[-4:] == ["python", "train.py", "--name", "two words"]


def test_a_line_of_python_needs_no_other_profiler() -> None:
    host = diagnose(FIXTURES / "host-gap" / "bad.json.gz").findings
    with_line = [f for f in host if f.rule == "host-gap" and ".py(" in f.message]
    assert [f.profiler_command for f in with_line] == [""] * len(with_line)


@pytest.mark.parametrize(
    "dialect", ["torch 2.8 to 2.11 on ROCm", "torch 2.8 to 2.11 on XPU", "torch 2.12 or later on MTIA"]
)
def test_other_vendors_have_other_profilers(dialect: str) -> None:
    trace = load(FIXTURES / "low-occupancy" / "bad.json.gz")
    assert commands(replace(trace, meta=replace(trace.meta, dialect=dialect))) == {}


def test_verbose_text_and_brief_have_the_command_on_one_line() -> None:
    report = diagnose(FIXTURES / "low-occupancy" / "bad.json.gz")
    command = report.findings[0].profiler_command
    assert f"   $ {command}" in render_text(report, width=80, verbose=True).splitlines()
    assert f"- If the code does not explain it, measure: `{command}`" in report.brief().splitlines()
