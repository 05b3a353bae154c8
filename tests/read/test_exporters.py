"""Files of other tools are refused, and the refusal says whose they are and what to do with them."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.read.raw_events import kernel, of, op
from traceanalyzer import diagnose
from traceanalyzer.model.errors import NotATrace
from traceanalyzer.read.load import load


def span(category: str | None, **fields: Any) -> dict[str, Any]:
    return op(cat=category, name="work", **fields)


def process(name: str, pid: int = 1) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}


@pytest.mark.parametrize(
    ("events", "header", "whose", "what"),
    [
        (
            [span("devtools.timeline"), span("disabled-by-default-v8.cpu_profiler")],
            {},
            "Chrome DevTools",
            "Performance",
        ),
        ([span("toplevel")], {"metadata": {"source": "DevTools"}}, "Chrome DevTools", "Performance"),
        ([span("__metadata", ph="M"), span("blink.user_timing", ph="I")], {}, "Chrome DevTools", "Performance"),
        ([process("/device:GPU:0 (pid 3)"), span(None)], {}, "TensorFlow, JAX or PyTorch/XLA", "xprof"),
        ([span("Op")], {}, "TensorFlow, JAX or PyTorch/XLA", "xprof"),
        ([process("Ascend Hardware"), process("CANN", 2), span(None)], {}, "msprof", "torch_npu"),
        ([process("/device:TPU:0"), span(None, args={"hlo_op": "fusion.1"}), {}], {}, "TensorFlow, JAX", "xprof"),
        ([span("x", pid="mm Core0 CTA3", tid="warp 0")], {}, "Triton's Proton", "inside a kernel"),
        ([span("FEE")], {"viztracer_metadata": {}}, "VizTracer", "torch.profiler"),
        ([span("nvtx"), span("cuda_api")], {}, "Nsight Systems", "Nsight Systems"),
        (
            [span(None, pid="CPU functions"), span(None, pid="CUDA functions")],
            {},
            "torch.autograd.profiler",
            "torch.profiler.profile",
        ),
        (
            [span(None, pid="CPU functions"), span("cpu_to_cuda", ph="s", pid="CPU functions", id=0)],
            {},
            "torch.autograd.profiler with GPU work",
            "torch.profiler.profile",
        ),
    ],
)
def test_other_tools_are_named(events: list[Any], header: dict[str, Any], whose: str, what: str) -> None:
    with pytest.raises(NotATrace) as error:
        of(*events, **header)
    assert f"is a trace of {whose}" in error.value.problem
    assert what in str(error.value.remedy)
    assert "Record it again" not in str(error.value)


def test_a_merged_timeline_is_refused_with_its_categories() -> None:
    with pytest.raises(NotATrace, match=r"has a category of torch\.profiler; its categories are comm, gemm"):
        of(span("comm"), span("comm"), span("gemm"))
    with pytest.raises(NotATrace, match="they have no category"):
        of(span(None))


def test_event_list_with_gpu_work_is_refused() -> None:
    """By the arrows, or by the process of the GPU's rows."""
    theirs = span(None, pid="CPU functions")
    for mark in (span("cpu_to_cuda", ph="s", pid=1, id=0), span(None, pid="CUDA functions")):
        with pytest.raises(NotATrace, match="whose rows have neither device, stream nor launch"):
            of(theirs, mark)
        assert of(op(), {**mark, "cat": None}).meta.rows
    assert of(theirs).meta.dialect == "torch.autograd.profiler"


@pytest.mark.parametrize(
    ("events", "header", "whose"),
    [
        ([span("x")], {"metadata": {"a": "x" * 900, "source": "DevTools"}}, "Chrome DevTools"),
        ([span("x")], {"viztracer_metadata": {}, "note": 1}, "VizTracer"),
        ([span("x"), process("python 3"), process("Markers and Ranges", 2)], {}, "rocprof"),
        ([span("x"), process("CPU HIP API")], {}, "rocprof"),
        ([span("x"), process("worker (TFStreamz)")], {}, "TensorFlow, JAX or PyTorch/XLA"),
        ([span("nvtx")], {}, "Nsight Systems"),
        ([span("v8")], {}, "Chrome DevTools"),
        ([span("x"), process("Renderer")], {}, "Chrome DevTools"),
    ],
)
def test_one_mark_of_another_tool_is_enough(events: list[Any], header: dict[str, Any], whose: str) -> None:
    with pytest.raises(NotATrace, match=re.escape(f"is a trace of {whose}")):
        of(*events, **header)


@pytest.mark.parametrize("category", ["my_nvtx", "loadingx", "a/v8", "Opx", "v8x", "MyOp x", "aFEE"])
def test_a_category_that_merely_holds_such_a_mark_is_nobodys(category: str) -> None:
    with pytest.raises(NotATrace, match=f"its categories are {category}"):
        of(span(category))


@pytest.mark.parametrize("event", [op(), kernel(), op(cat="python_function"), op(cat="Operator"), op(cat="overhead")])
def test_one_category_of_torch_is_enough(event: dict[str, Any]) -> None:
    assert of(event, *[span("mine")] * 50).meta.unknown_categories == {"mine": 50}


def test_ops_of_an_event_list_are_read(tmp_path: Path) -> None:
    """What `prof.events().export_chrome_trace(...)` writes: a bare list without categories."""
    torch = pytest.importorskip("torch")
    with torch.autograd.profiler.profile() as profiled:
        torch.ones(4, 4) @ torch.ones(4, 4)
    profiled.function_events.export_chrome_trace(str(path := tmp_path / "events.json"))
    trace = load(path)
    assert trace.meta.dialect == "torch.autograd.profiler"
    assert trace.meta.unknown_categories == {}
    ops = {event.name: round(event.time_range.elapsed_us() * 1000) for event in profiled.function_events}
    read = trace.cpu[trace.cpu["category"] == "cpu_op"]
    assert dict(zip(read["name"], read["dur_ns"], strict=True)) == ops
    assert "aten::mm" in ops


def npu(number: int) -> list[dict[str, Any]]:
    """An op of torch_npu and its task on the device: texts as times, no category, arrows instead of correlation."""
    at = 1691407123456 + 100 * number
    task = {"Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": number, "connection_id": number}
    arrow = {"name": "async_npu", "cat": "async_npu", "id": str(number)}
    return [
        op(ts=f"{at}.123", dur=50.0, args={"Sequence number": -1}),
        {**arrow, "ph": "s", "pid": 1, "tid": 2, "ts": f"{at}.123"},
        {**arrow, "ph": "f", "pid": 800, "tid": 2, "ts": f"{at + 40}.123"},
        op(cat=None, name="MatMulV2", pid=800, ts=f"{at + 40}.123", dur=30.5, args=task),
    ]


def test_of_an_npu_the_ops_are_read_and_its_tasks_are_named() -> None:
    trace = of(process("Ascend Hardware", 800), *[event for number in range(5) for event in npu(number)])
    assert len(trace.cpu) == 5
    assert trace.cpu["start_ns"].diff().dropna().tolist() == [100_000] * 4
    (told,) = diagnose(trace).traces
    assert told.summary.limit.startswith("not judged: the trace has 5 rows of Ascend NPU (ascend_task)")
    assert "traceanalyzer ops" in told.summary.fix


def test_of_an_hpu_the_reason_is_given() -> None:
    (told,) = diagnose(of(op(), op(cat="hpu_op", name="gemm", pid=0))).traces
    assert told.summary.limit.startswith("not judged: the trace has 1 row of HPU (hpu_op)")


@pytest.mark.parametrize(("many", "shown"), [(5, "c0, c1, c2, c3, c4$"), (6, r"c0, c1, c2, c3, c4, \.\.\.$")])
def test_five_most_frequent_foreign_categories_are_named(many: int, shown: str) -> None:
    events = [span(f"c{at}") for at in range(many) for _ in range(many - at)]
    with pytest.raises(NotATrace) as error:
        of(*reversed(events))
    assert re.search(f"its categories are {shown}", error.value.problem)
