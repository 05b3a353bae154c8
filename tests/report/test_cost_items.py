"""The items of a step and their time, on one device, each worked out by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer.idle.causes import TEXTS
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.report.costs import Cost, fitted_communication, largest_costs
from traceanalyzer.rule.views import IdleTime

US = 1_000
TO_DEVICE = "Memcpy HtoD (Pinned -> Device)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"


def steps_of(
    *pieces: tuple[str, str, int, int], steps: int = 4, device: int = 0, into: TraceBuilder | None = None
) -> TraceBuilder:
    """Steps of 1 ms in which these ops each launch a kernel or a copy; (op, kernel, begin, length) in us."""
    trace, streams = into or TraceBuilder(), {"Memcpy": 9, "ncclDe": 11}
    for step in range(steps):
        at = step * 1_000 * US
        if into is None:
            trace.step(step, at, 1_000 * US)
        for place, (op, kernel, begin, length) in enumerate(pieces):
            number = 1_000 * device + 10 * step + place + 1
            start = at + (20 + 40 * place + 20 * device) * US
            trace.op(op, start, 15 * US)
            copies = kernel.startswith("Memcpy")
            trace.launch("cudaMemcpyAsync" if copies else "cudaLaunchKernel", start + 5 * US, 5 * US, number)
            work = trace.memcpy if copies else trace.kernel
            stream = streams.get(kernel[:6], 7) + 100 * device
            work(at + begin * US, length * US, number, name=kernel, stream=stream, device=device)
    return trace


def costs_of(trace: TraceBuilder, count: int = 100) -> tuple[Cost, ...]:
    return largest_costs(Analysis(trace.load()), count)


def took_us(costs: tuple[Cost, ...]) -> list[tuple[str, str, float]]:
    return [(cost.name, cost.kind, cost.step_ns / US) for cost in costs if cost.kind != "idle"]


def test_ops_are_ordered_by_step_time_then_name() -> None:
    trace = steps_of(
        ("aten::mul", "a", 300, 100),
        ("aten::mm", "b", 400, 200),
        ("aten::add", "c", 600, 60),
        ("aten::add", "d", 660, 40),
    )
    costs = took_us(costs_of(trace))
    assert costs == [("aten::mm", "gpu", 200), ("aten::add", "gpu", 100), ("aten::mul", "gpu", 100)]


def test_overlapped_work_takes_only_the_rest() -> None:
    """Kernels before communication, and both before copies: 50 of 150 us, then 30 of 100."""
    trace = steps_of(
        ("aten::mm", "gemm", 300, 200),
        ("record_param_comms", ALL_REDUCE, 400, 150),
        ("aten::copy_", TO_DEVICE, 480, 100),
    )
    assert took_us(costs_of(trace)) == [
        ("aten::mm", "gpu", 200),
        ("allreduce (exposed communication)", "communication", 50),
        ("host-to-device copies in aten::copy_", "copy", 30),
    ]


def test_of_several_devices_the_first_one_is_told() -> None:
    first = steps_of(("aten::mm", "gemm", 300, 400))
    both = steps_of(("aten::bmm", "gemm", 300, 600), device=1, into=first)
    assert took_us(costs_of(both)) == [("aten::mm", "gpu", 400)]


def test_beyond_the_largest_only_idle_time_is_told() -> None:
    trace = steps_of(("aten::mm", "a", 300, 400), ("aten::mul", "b", 700, 100), ("aten::add", "c", 800, 50))
    (first, *rest) = costs_of(trace, 1)
    assert first.name == "aten::mm"
    assert rest
    assert {cost.kind for cost in rest} == {"idle"}


def test_a_name_with_a_colon_is_quoted() -> None:
    names = [Cost(name, kind, 1.0, 0.1).words for name, kind in _NAMED]
    assert names == ["aten::mm", '"Region: 1"', "idle time while data is loaded"]


_NAMED: Any = (("aten::mm", "gpu"), ("Region: 1", "gpu"), ("while data is loaded", "idle"))


def without() -> Any:
    def index(_: object) -> Any:
        raise Unavailable("no replay")

    return SimpleNamespace(index=index, index_or_none=lambda _: None)


def many(count: int, **fields: Any) -> Any:
    """As `Steps`, as far as it is used here."""

    class Many(SimpleNamespace):
        def __len__(self) -> int:
            return count

    return Many(**fields)


def test_kernels_without_an_op_are_added_up_by_their_short_name() -> None:
    trace = TraceBuilder()
    for step in range(4):
        at = step * 1_000 * US
        trace.step(step, at, 1_000 * US)
        for place, threads in enumerate((128, 512)):
            number = 10 * step + place + 1
            trace.launch("cudaLaunchKernel", at + (20 + 10 * place) * US, 5 * US, number)
            name = f"void at::native::reduce_kernel<{threads}, 1, x>(x)"
            trace.kernel(at + (100 + 200 * place) * US, (100 + place) * US, number, name=name)
    assert took_us(costs_of(trace)) == [("reduce_kernel", "gpu", 201)]


@pytest.mark.parametrize(
    ("bound", "work_ns", "left"),
    [
        ("gpu", 70.0, [20.0, 10.0]),
        ("gpu", 71.0, [58 / 3, 29 / 3]),
        ("wait", 101.0, [0.0, 0.0]),
        ("cpu", 99.0, [20.0, 10.0]),
        ("cpu", 100.0, [0.0, 0.0]),
    ],
)
def test_communication_has_the_room_left_by_the_replay(bound: str, work_ns: float, left: list[float]) -> None:
    known = SimpleNamespace(step=SimpleNamespace(unprofiled_ns=100.0, bound=bound))
    given: Any = SimpleNamespace(index_or_none=lambda _: known)
    assert list(fitted_communication(given, work_ns, {"a": 20.0, "b": 10.0}).values()) == pytest.approx(left)


def test_a_copy_and_an_op_of_one_length_stand_by_their_names() -> None:
    trace = steps_of(("zeta::mul", "a", 300, 100), ("aten::copy_", TO_DEVICE, 500, 100))
    copies = ("host-to-device copies in aten::copy_", "copy", 100)
    assert took_us(costs_of(trace)) == [copies, ("zeta::mul", "gpu", 100)]


def test_idle_time_of_another_device_is_no_cost() -> None:
    """Data is loaded while device 0 works, and only device 1 waits for it."""
    trace = steps_of(("aten::mm", "gemm", 100, 500))
    for step in range(4):
        at = step * 1_000 * US
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        trace.annotation(loader, at + 100 * US, 400 * US)
        trace.op("aten::mul", at + 510 * US, 15 * US)
        trace.launch("cudaLaunchKernel", at + 515 * US, 5 * US, 500 + step)
        trace.kernel(at + 530 * US, 60 * US, 500 + step, name="mul", stream=107, device=1)
    analysis = Analysis(trace.load())
    idle = analysis.index(IdleTime)
    loading = idle[idle.cause.one_of("data-loading")]
    assert len(loading) > 0
    assert set(loading.device.tolist()) == {1}
    costs = largest_costs(analysis, 100)
    assert [cost.name for cost in costs if cost.kind == "gpu"] == ["aten::mm"]
    assert TEXTS["data-loading"].idle not in [cost.name for cost in costs]
