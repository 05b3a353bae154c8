"""Traces without GPU work: where the CPU time goes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose, load
from traceanalyzer.cli.app import cli

Shared = Callable[[str], Path]
US = 1_000


def on_the_cpu() -> TraceBuilder:
    """Two steps of 100 us: 20 us of loading data, 5 x (mul, clamp) of 11 us, and a product of 10 us."""
    trace = TraceBuilder()
    for step in range(2):
        begin = step * 100 * US
        trace.step(step, begin, 100 * US)
        trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 20 * US)
        for number in range(5):
            at = begin + (30 + 11 * number) * US
            trace.op("aten::mul", at, 6 * US)
            trace.op("aten::clamp", at + 6 * US, 5 * US)
        trace.op("aten::mm", begin + 90 * US, 10 * US)
    return trace


def test_the_largest_part_of_the_cpu_time_is_the_limit() -> None:
    (trace,) = diagnose(on_the_cpu().load()).traces
    assert trace.summary.limit == (
        "the CPU: the trace holds no GPU work; the largest part of the recorded step is 5 x (mul, clamp) (55 %)"
    )
    assert trace.summary.fix.startswith(
        "begin with 5 x (mul, clamp); of single ops, aten::mul takes most CPU time (30 %)"
    )
    assert trace.parts_of == "CPU"
    assert trace.parts == pytest.approx({"5 x (mul, clamp)": 0.55, "DataLoader": 0.2, "aten::mm": 0.1, "other": 0.15})


def test_regions_of_a_trace_without_gpu_work_have_recorded_times(tmp_path: Path) -> None:
    path = str(on_the_cpu().write(tmp_path / "trace.json"))
    text = CliRunner().invoke(cli, ["regions", path]).output
    assert text.startswith("Regions of a typical step of 100 µs as recorded, without GPU work\n")
    rows = json.loads(CliRunner().invoke(cli, ["regions", path, "--format", "json"]).output)
    assert (rows["recorded"], rows["step_ns"]) == (True, 100 * US)
    (block,) = [row for row in rows["regions"] if row["kind"] == "block"]
    assert (block["calls"], block["cpu_ns"], block["gpu_ns"]) == (5, 55 * US, 0)


def test_the_first_screen_names_the_largest_region(shared: Shared) -> None:
    screen = CliRunner().invoke(cli, ["diagnose", str(shared("public/hta_cpu_only"))]).output
    assert "step is ## backward ## (80 %)" in screen
    assert "Where the step goes (CPU time by region): ## backward ## 80 %" in screen


def test_a_recording_of_torch_without_a_gpu(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    images = torch.rand(32, 4096)
    torch.stack([((row * 2).clamp(0, 1) - 0.5) / 0.5 for row in images]).mean()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        rows = [((row * 2).clamp(0, 1) - 0.5) / 0.5 for row in images]
        torch.stack(rows).mean()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    (trace,) = diagnose(load(tmp_path / "trace.json")).traces
    assert trace.summary.limit.startswith("the CPU: the trace holds no GPU work; the largest part of")
    blocks = {region.name: region.calls for region in trace.regions if region.name.startswith("32 x")}
    assert blocks == {"32 x (mul, clamp, sub, div)": 32}


def test_the_cpu_s_time_is_split_into_ops_files_waits_and_other_code(tmp_path: Path) -> None:
    trace = on_the_cpu()
    calls = {
        "<built-in function open>": (0, 2),
        "<built-in method read of _io.BufferedReader object at 0x7f>": (2, 4),
        "<built-in method read of _io.BytesIO object at 0x7f>": (6, 4),
        "<built-in method acquire of _thread.lock object at 0x7f>": (10, 5),
    }
    for begin in (0, 100):
        for number, (name, (at, us)) in enumerate(calls.items()):
            trace.python(name, (begin + at) * US, us * US, python_id=begin + number)
    (report,) = diagnose(trace.load()).traces
    assert report.cpu_use == pytest.approx({"ops": 0.65, "files": 0.06, "waits": 0.05, "outside": 0.24})
    assert report.op_threads == 1
    screen = CliRunner().invoke(cli, ["diagnose", str(trace.write(tmp_path / "trace.json"))]).output
    assert "What the CPU does: ops on 1 thread 65 %, files 6 %," in screen
