"""Steps as tracks: those of each device, else the marks of the CPU, and none where nothing is marked."""

from __future__ import annotations

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.render.perfetto.overlay import step_tracks

US = 1_000


def loop(*, marked: bool = True, gpu: bool = True) -> TraceBuilder:
    """Three steps of 100 us, with work from 20 us on."""
    trace = TraceBuilder()
    for number in range(3):
        at = 100 * US * number
        if marked:
            trace.step(number + 7, at, 90 * US)
        trace.op("aten::mm", at + 5 * US, 20 * US)
        if gpu:
            trace.launch("cudaLaunchKernel", at + 10 * US, 5 * US, number + 1)
            trace.kernel(at + 20 * US, 30 * US, number + 1)
    return trace


def test_steps_are_those_of_the_device_or_else_of_the_cpu() -> None:
    for gpu, name, lengths in ((True, "Steps: device 0", None), (False, "Steps: CPU", [90 * US] * 3)):
        (track,) = step_tracks(Analysis(loop(gpu=gpu).load()))
        assert (track.name, list(track.names)) == (name, ["Step 7", "Step 8", "Step 9"])
        assert [one["mark"] for one in track.args] == ["ProfilerStep"] * 3
        assert (track.end_ns > track.start_ns).all()
        if lengths:
            assert (track.end_ns - track.start_ns).tolist() == lengths


def test_without_marks_there_are_none() -> None:
    assert list(step_tracks(Analysis(loop(marked=False).load()))) == []
