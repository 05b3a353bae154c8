"""The table of unusual traces: no CPU rows, other devices, damaged shapes, long paths, nothing at all."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.matmul_traces import matmuls
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import run
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.text.table import TableSize, render_table, table_markdown
from traceanalyzer.torch_table.key_averages import KeyAverages, key_averages, shapes_text
from traceanalyzer.torch_table.printed import printed_table, sorted_rows, table_notes


def only_uncounted() -> Trace:
    trace = TraceBuilder()
    trace.op("aten::is_leaf", 0, 10)
    return trace.load()


def test_the_index_is_the_plain_table() -> None:
    trace = matmuls().load()
    assert Analysis(trace).index(KeyAverages).rows.equals(key_averages(trace).rows)


def test_a_trace_of_the_gpu_alone_has_device_rows_only() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 70, correlation=1)
    averages = key_averages(trace.load())
    assert averages.rows["device_ns"].tolist() == [70]
    assert averages.self_cpu_total_ns == 0
    assert (
        render_table(printed_table(averages), TableSize()).splitlines()[-1] == "Self CUDA time total: 0.070us"
    )


@pytest.mark.parametrize(("marks", "inside"), [((5, 6), 6), ((6, 5), 5), ((), 5)])
def test_opless_calls_are_on_the_last_step_marks_thread(marks: tuple[int, ...], inside: int) -> None:
    """Without marks it is the thread with the number of the process, 5."""
    trace = TraceBuilder()
    for number, tid in enumerate(marks):
        trace.step(number, 1_000 * number, 10, pid=5, tid=tid)
    for tid in (5, 6):
        trace.op(f"aten::on{tid}", 10_000, 1_000, pid=5, tid=tid)
    trace.launch("cudaFree", 10_100, 300, correlation=1, pid=5, tid=7)
    own = key_averages(trace.load()).rows.set_index("name")["self_cpu_ns"]
    assert {tid: own[f"aten::on{tid}"] for tid in (5, 6)} == {11 - inside: 1_000, inside: 700}


def test_calls_without_any_op_run_on_the_first_thread() -> None:
    trace = TraceBuilder()
    trace.launch("cudaMalloc", 0, 100, correlation=1, pid=5, tid=6)
    trace.launch("cudaFree", 20, 10, correlation=2, pid=5, tid=7)
    rows = key_averages(trace.load()).rows.set_index("name")
    assert rows.loc["cudaMalloc", "self_cpu_ns"] == 90


def test_empty_table_is_an_error_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    averages = key_averages(only_uncounted())
    assert (
        render_table(printed_table(averages), TableSize())
        == table_markdown(printed_table(averages), TableSize())
        == ""
    )
    built = TraceBuilder()
    built.op("aten::is_leaf", 0, 10)
    assert run(["table", str(built.write(tmp_path / "trace.json"))]) == 2
    assert "no events to make a table of" in capsys.readouterr().err


def test_xpu_calls_name_the_device() -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.launch("urEnqueueKernelLaunch", 10, 20, correlation=1, category="xpu_runtime")
    trace.kernel(50, 40, correlation=1, external_id=1)
    averages = key_averages(trace.load())
    assert averages.device == "XPU"
    assert averages.rows["device_type"].tolist() == ["CPU", "CPU", "XPU"]
    assert "Self XPU time total: 0.040us" in render_table(
        printed_table(averages, "self_xpu_time_total"), TableSize()
    )


@pytest.mark.parametrize(
    ("dims", "shown"),
    [
        ("[[2,3],[]]", "[[2, 3], []]"),
        ("[[[2,3],[4]],[5]]", "[[], [5]]"),
        ("[[2,", "[]"),
        ('{"a":1}', "[]"),
        ("[7]", "[[]]"),
    ],
)
def test_shapes_are_printed_as_torch_prints_them(dims: str, shown: str) -> None:
    assert shapes_text(dims) == shown


def test_without_python_rows_there_are_no_stacks() -> None:
    averages = key_averages(matmuls().load(), by_stack=2)
    assert all(stack == [] for stack in averages.rows["stack"])
    assert "Source Location" not in render_table(printed_table(averages), TableSize())


@pytest.mark.parametrize("outer_first", [True, False])
def test_longer_of_two_frames_starting_together_calls(outer_first: bool) -> None:
    """In whichever order they are recorded; what begins at the same time on another thread calls neither."""
    trace = TraceBuilder(with_stack=1)
    frames = [("outer", 300, 1000), ("inner", 100, 1000), ("elsewhere", 500, 7)]
    for number, (name, dur, tid) in enumerate(frames if outer_first else frames[::-1]):
        trace.python(name, 0, dur, python_id=number + 1, tid=tid)
    trace.op("aten::in_both", 50, 20)
    trace.op("aten::in_outer", 200, 20)
    trace.op("aten::on_the_other", 50, 20, tid=7)
    stack = key_averages(trace.load(), by_stack=3).rows.set_index("name")["stack"]
    assert stack["aten::in_both"] == ["inner", "outer"]
    assert stack["aten::in_outer"] == ["outer"]
    assert stack["aten::on_the_other"] == ["elsewhere"]


def test_long_paths_are_cut_from_the_left() -> None:
    trace = TraceBuilder(with_stack=1)
    trace.python("a/very/long/path/" * 8 + "train.py(3): step", 0, 200, python_id=1)
    trace.op("aten::mm", 50, 100)
    line = render_table(printed_table(key_averages(trace.load(), by_stack=1)), TableSize()).splitlines()[3]
    assert line.rstrip().endswith("train.py(3): step")
    assert "  ..." in line


def test_memory_of_the_cpu_alone_has_no_device_columns() -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 100)
    trace.memory(50, 3_000_000, device_type=0, device=-1)
    header, _, row = render_table(printed_table(key_averages(trace.load())), TableSize()).splitlines()[1:4]
    assert "CUDA Mem" not in header
    assert row.split()[-5:] == ["2.86", "MB", "2.86", "MB", "1"]


@pytest.mark.parametrize(
    ("ns", "shown"), [(1_500_000_000, "1.500s"), (2_500_000, "2.500ms"), (900, "0.900us")]
)
def test_times_have_torchs_units(ns: int, shown: str) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, ns)
    assert f"Self CPU time total: {shown}" in render_table(
        printed_table(key_averages(trace.load())), TableSize()
    )


def test_exact_rows_sort_by_any_of_torchs_names() -> None:
    rows = key_averages(matmuls().load()).rows
    for name in ("cuda_time", "cpu_time", "self_xpu_time_total", "cuda_memory_usage", "count"):
        assert len(sorted_rows(rows, name)) == len(rows)
    assert sorted_rows(rows, "cuda_time")["name"].iloc[0] == "ProfilerStep*"


def test_damage_is_among_the_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = matmuls().to_json()
    path = tmp_path / "cut.json"
    path.write_bytes(content[: int(len(content) * 0.8)])
    assert run(["table", str(path)]) == 0
    assert "note: the file is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dialect", "noted"), [("torch 2.4 to 2.7", 1), ("torch 2.4 to 2.7, ROCm", 1), ("torch 2.8", 0)]
)
def test_tables_of_old_recorders_are_noted(dialect: str, noted: int) -> None:
    trace = matmuls().load()
    old = replace(trace, meta=replace(trace.meta, dialect=dialect))
    assert sum(f"recorded with {dialect}" in note for note in table_notes(old, key_averages(old))) == noted


def test_progress_is_shown_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("traceanalyzer.cli.loading.SILENT_S", 0.0)
    assert run(["ops", str(matmuls().write(tmp_path / "trace.json"))]) == 0
    assert "events" in terminal.getvalue()
