"""Traces that the reader's tests are made from."""

from tests.support.trace_builder import TraceBuilder

NASTY = 'void f<int>(A{}) [with T = "x\\\\y"], {"ph": "X"},\n  },\n  {\n "quoted", ]} µs'


def everything() -> TraceBuilder:
    """Every kind of event that torch writes, and names that look like JSON."""
    trace = TraceBuilder(record_shapes=1, distributedInfo={"rank": 3, "world_size": 8})
    for step in range(3):
        at = step * 1_000_000 + 7
        trace.step(step, at, 900_003)
        trace.python(f"train.py({step}): step", at, 950_000, python_id=step + 1, parent=step or None)
        dims = {"Input Dims": [[8, step], []], "Input type": ["float", "Scalar"], "Sequence number": step}
        op = trace.op("aten::addmm", at + 1_000, 50_000, external_id=50 + step, **dims)
        trace.op(NASTY, at + 2_000, 10_000, **{"Concrete Inputs": ["", f"{step}.5", "[]"]})
        correlation = 100 + op
        trace.launch("cudaLaunchKernel", at + 3_000, 4_000, correlation, external_id=50 + step)
        trace.event(ph="s", id=correlation, pid=1000, tid=1000, ts=at / 1000, cat="ac2g", name="ac2g")
        trace.kernel(at + 10_000, 70_001, correlation, name=NASTY, external_id=50 + step, mystery={"a": [1]})
        trace.event(ph="f", id=correlation, pid=0, tid=7, ts=at / 1000, cat="ac2g", name="ac2g", bp="e")
        trace.memcpy(at + 90_000, 5_000, correlation + 1, stream=20)
        trace.memset(at + 99_000, 1_001, correlation + 2, device=1)
        trace.gpu_annotation(f"ProfilerStep#{step}", at + 10_000, 94_000, external_id=1)
        trace.overhead("Buffer Flush", at + 200_000, 80_000)
        trace.memory(at + 5_000, 512 * (step + 1), allocated=4096, reserved=2 << 20)
        work = {"cat": "mtia_insight", "name": "later", "pid": 0, "tid": 7}
        trace.event(ph="X", ts=at / 1000, dur=1.5, **work, args={"device": 0, "stream": 7})
    trace.event(ph="M", name="thread_name", pid=1000, tid=1000, ts=0.0, args={"name": "thread 1000 (python)"})
    span = {"cat": "Trace", "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"}
    trace.event(ph="X", ts=0.5, dur=3_000.0, **span, args={"Op count": 0})
    trace.event(ph="i", s="g", name="Record Window End", pid="", tid="", ts=3_000.125)
    return trace
