"""The table as it is printed: order, notes, and unusual traces."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.matmul_traces import matmuls
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli.app import run
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.text.table import TableSize, render_table
from traceanalyzer.torch_table.key_averages import KeyAverages, device_name, key_averages, shapes_text
from traceanalyzer.torch_table.printed import printed_table, sorted_rows, table_notes

COLUMNS = {
    "cpu_time_total": "cpu_us",
    "self_cpu_time_total": "self_cpu_us",
    "cuda_time_total": "device_us",
    "self_xpu_time_total": "self_device_us",
    "cpu_memory_usage": "cpu_bytes",
    "self_cpu_memory_usage": "self_cpu_bytes",
    "privateuse1_memory_usage": "device_bytes",
    "self_cuda_memory_usage": "self_device_bytes",
}


def rows(**largest: int) -> pd.DataFrame:
    """Rows of 1 everywhere but for these: column -> which row has 2 there."""
    columns = {name: [1, 1, 1] for name in (*COLUMNS.values(), "calls")}
    for name, at in largest.items():
        columns[name][at] = 2
    return pd.DataFrame({"name": ["a", "b", "c"], **columns})


@pytest.mark.parametrize("sort_by", COLUMNS)
def test_requested_order_has_the_largest_first(sort_by: str) -> None:
    others = dict.fromkeys(COLUMNS.values(), 0) | {COLUMNS[sort_by]: 1, "calls": 1}
    assert sorted_rows(rows(**others), sort_by)["name"].tolist() == ["b", "a", "c"]
    assert sorted_rows(rows(**others), None)["name"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(("sort_by", "column"), [("cpu_time", "cpu_us"), ("cuda_time", "device_us")])
def test_times_without_total_are_of_one_call(sort_by: str, column: str) -> None:
    assert sorted_rows(rows(**{column: 1}), sort_by)["name"].tolist() == ["b", "a", "c"]
    assert sorted_rows(rows(**{column: 1}, calls=1), sort_by)["name"].tolist() == ["a", "b", "c"]
    assert sorted_rows(rows(calls=2), sort_by)["name"].tolist() == ["a", "b", "c"]


def test_unannotated_device_work_stands_below_the_table() -> None:
    trace = TraceBuilder()
    trace.annotation("forward", 0, 100)
    trace.op("aten::mm", 10, 40)
    trace.launch("cudaLaunchKernel", 20, 10, 1, external_id=2)
    trace.kernel(200, 30, 1, external_id=2)
    trace.memset(300, 5, 2)
    trace.gpu_annotation("forward", 200, 105, external_id=1)
    table = printed_table(key_averages(trace.load()))
    assert (round(table.self_cpu_us * 1_000), round(table.self_device_us * 1_000)) == (100, 35)
    assert (table.has_device_time, table.has_memory, table.device) == (True, False, "CUDA")


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cuda_runtime", "CUDA"),
        ("xpu_runtime", "XPU"),
        ("mtia_runtime", "MTIA"),
        ("hpu_op", "HPU"),
        ("privateuse1_runtime", "PRIVATEUSE1"),
        ("user_annotation", None),
        ("overhead", None),
    ],
)
def test_the_device_is_called_by_what_was_recorded_of_it(category: str, name: str | None) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 100)
    trace.op("other", 200, 100, category=category)
    loaded = trace.load()
    assert device_name(loaded) == name
    assert key_averages(loaded).device == name


@pytest.mark.parametrize(
    ("device_type", "cpu", "device"), [(0, 64, 0), (2, 64, 0), (1, 0, 64), (6, 0, 64), (20, 0, 64), (3, 0, 0)]
)
def test_memory_is_the_cpus_or_the_devices(device_type: int, cpu: int, device: int) -> None:
    trace = TraceBuilder(profile_memory=1)
    trace.op("aten::empty", 0, 100)
    trace.op("aten::inner", 40, 20)
    trace.memory(50, 64, device_type=device_type)
    table = key_averages(trace.load()).rows.set_index("name")
    assert table.loc["aten::inner", ["cpu_bytes", "device_bytes"]].tolist() == [cpu, device]
    assert table.loc["aten::empty", ["cpu_bytes", "device_bytes"]].tolist() == [cpu, device]
    assert table.loc["aten::empty", ["self_cpu_bytes", "self_device_bytes"]].tolist() == [0, 0]


US = 1_000


def built(**header: Any) -> TraceBuilder:
    """An op and a kernel, with the profiler's own mark of when it began."""
    trace = TraceBuilder(**header)
    lane = {"pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"}
    trace.event(ph="X", cat="Trace", ts=0.0, dur=500.0, **lane)
    trace.op("aten::mm", 10_001, 50 * US)
    trace.launched((20_001, 5 * US), (80_001, 50 * US), 1)
    return trace


def notes(trace: TraceBuilder, *, python_functions: bool = False) -> list[str]:
    loaded = trace.load()
    averages = key_averages(loaded, python_functions=python_functions)
    return [*table_notes(loaded, averages, python_functions=python_functions)]


def test_of_an_exact_table_nothing_is_said() -> None:
    assert notes(built()) == []
    assert notes(built(with_flops=1, record_shapes=1)) == []


@pytest.mark.parametrize(
    ("header", "said"),
    [({"with_flops": 1}, ["FLOPs need shapes, which were not recorded"]), ({"record_shapes": 1}, [])],
)
def test_flops_without_shapes_are_missed(header: dict[str, Any], said: list[str]) -> None:
    assert notes(built(**header)) == said


def test_missing_recording_start_may_change_the_last_digit() -> None:
    trace = built()
    del trace.events[0]
    (note,) = notes(trace)
    assert note.startswith("the file does not say when the recording began")


def test_python_functions_are_counted_where_they_are_left_out() -> None:
    trace = built(with_stack=1)
    for number in range(1_200):
        trace.python(f"a.py({number}): f", 200 * US + number * 10, 5, python_id=number + 1)
    (note,) = notes(trace)
    assert note.startswith("1,200 python_function rows are left out")
    assert notes(trace, python_functions=True) == []


@pytest.mark.parametrize("category", ["cuda_sync", "xpu_sync"])
def test_synchronisation_records_are_told_to_count(category: str) -> None:
    trace = built()
    trace.work(category, "Stream Sync", 140 * US, 10 * US, 0, 7, {"correlation": 9})
    (note,) = notes(trace)
    assert note.startswith("synchronisation records count as time on the device")


def test_each_row_of_communication_is_counted() -> None:
    """Also those of one name, which two callers part."""
    trace = built(with_stack=1)
    for number, caller in enumerate("ab"):
        trace.python(f"{caller}.py(1): f", (200 + 100 * number) * US, 90 * US, python_id=number + 1)
        trace.annotation("nccl:all_reduce", (210 + 100 * number) * US, 10 * US)
    loaded = trace.load()
    for frames, rows in ((0, 1), (1, 2)):
        said = table_notes(loaded, key_averages(loaded, by_stack=frames), python_functions=True)
        (note,) = [one for one in said if "communication" in one]
        assert note.startswith(f"rows of communication ({rows}) are taken to be asynchronous")


@pytest.mark.parametrize("by", ["cpu_time_total", "cuda_time_total", None])
def test_totals_do_not_depend_on_the_order_of_the_rows(by: str | None) -> None:
    table = printed_table(key_averages(built().load()), by)
    assert (round(table.self_cpu_us, 3), round(table.self_device_us, 3)) == (50.0, 50.0)


@pytest.mark.parametrize(("known", "said"), [({}, 0), ({"nanoseconds": True}, 0), ({"nanoseconds": False}, 1)])
def test_whole_microseconds_are_told_where_the_file_has_them(known: dict[str, bool], said: int) -> None:
    loaded = built().load()
    loaded = replace(loaded, meta=replace(loaded.meta, capabilities=known))
    notes_of = table_notes(loaded, key_averages(loaded))
    assert sum("whole microseconds" in note for note in notes_of) == said


def text_of(averages: KeyAverages, by: str | None = None) -> str:
    return render_table(printed_table(averages, by), TableSize())


def test_the_index_is_the_plain_table() -> None:
    trace = matmuls().load()
    assert Analysis(trace).index(KeyAverages).rows.equals(key_averages(trace).rows)


def test_a_trace_of_the_gpu_alone_has_device_rows_only() -> None:
    trace = TraceBuilder()
    trace.kernel(0, 70, correlation=1)
    averages = key_averages(trace.load())
    assert averages.rows["device_ns"].tolist() == [70]
    assert averages.self_cpu_total_ns == 0
    assert text_of(averages).splitlines()[-1] == "Self CUDA time total: 0.070us"


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


def test_empty_table_is_a_command_line_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "Self XPU time total: 0.040us" in text_of(averages, "self_xpu_time_total")


NO_SHAPES = [("[[2,", "[]"), ('{"a":1}', "[]")]


@pytest.mark.parametrize(
    ("dims", "shown"), [("[[2,3],[]]", "[[2, 3], []]"), ("[[[2,3],[4]],[5]]", "[[], [5]]"), *NO_SHAPES, ("[7]", "[[]]")]
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


@pytest.mark.parametrize(("ns", "shown"), [(1_500_000_000, "1.500s"), (2_500_000, "2.500ms"), (900, "0.900us")])
def test_times_have_torchs_units(ns: int, shown: str) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, ns)
    assert f"Self CPU time total: {shown}" in text_of(key_averages(trace.load()))


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
