"""Files of other tools are refused, and the refusal says whose they are and what to do with them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.read.raw_events import kernel, of, op
from traceanalyzer.model.errors import NotATrace


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
        (
            [span("__metadata", ph="M"), span("blink.user_timing", ph="I")],
            {},
            "Chrome DevTools",
            "Performance",
        ),
        ([process("/device:GPU:0 (pid 3)"), span(None)], {}, "TensorFlow or JAX", "TensorBoard"),
        ([span("Op")], {}, "TensorFlow or JAX", "TensorBoard"),
        ([process("Ascend Hardware"), process("CANN", 2), span(None)], {}, "msprof", "torch_npu"),
        ([span("FEE")], {"viztracer_metadata": {}}, "VizTracer", "torch.profiler"),
        ([span("nvtx"), span("cuda_api")], {}, "Nsight Systems", "Nsight Systems"),
        (
            [span(None, pid="CPU functions"), span(None, pid="CUDA functions")],
            {},
            "torch.autograd.profiler",
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
    with pytest.raises(
        NotATrace, match=r"of a category that torch\.profiler writes; its categories are comm, gemm"
    ):
        of(span("comm"), span("comm"), span("gemm"))
    with pytest.raises(NotATrace, match="they have no category"):
        of(span(None))


@pytest.mark.parametrize(
    "event", [op(), kernel(), op(cat="python_function"), op(cat="Operator"), op(cat="overhead")]
)
def test_one_category_of_torch_is_enough(event: dict[str, Any]) -> None:
    assert of(event, *[span("mine")] * 50).meta.unknown_categories == {"mine": 50}
