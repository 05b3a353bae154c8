"""Gaps and copies that recur, and those by chance."""

from collections.abc import Sequence

import pytest

from tests.rules.kernel_programs import F32, NVJET, Op, found, program
from tests.rules.loops import Loop, loop_of
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Severity

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
NORM = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float>(long)"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda()::{lambda()#1}>(int)"
SQUARE = [[4096, 4096]]
SHORT_ROWS = Op(
    "aten::native_layer_norm",
    "void vectorized_layer_norm_kernel<float, float>(int)",
    40,
    [[1024, 128], [], [128], [128], []],
    [F32, "ScalarList", F32, F32, "Scalar"],
)
PAID = {
    "far-from-bound": [SHORT_ROWS],
    "strided-copy": [Op("aten::cat", CAT, 30, [[[64, 64], [64, 64]], []], ["TensorList", "Scalar"])],
    "low-occupancy": [Op("aten::native_layer_norm_backward", NORM, 30, grid=16)],
    "unfused-pointwise": [Op("aten::exp", POINTWISE, 15, SQUARE)] * 3,
}


@pytest.mark.parametrize(("product_us", "severity"), [(400, Severity.INFO), (20, Severity.HIGH)])
@pytest.mark.parametrize("slug", PAID)
def test_severity_is_info_while_the_saving_is_usual(slug: str, product_us: int, severity: Severity) -> None:
    (one,) = found(program([*PAID[slug], Op("aten::mm", NVJET, product_us)]), slug)
    assert one.severity is severity
    assert one.saving is not None
    assert one.saving.share > 0.03


@pytest.mark.parametrize(("pause_us", "severity"), [(100, "info"), (800, "high")], ids=["2.5 %", "26 %"])
def test_little_time_between_ops_is_no_first_finding(pause_us: int, severity: str) -> None:
    """A kernel of 2 ms, and Python or other code that takes so much longer."""

    def body(loop: Loop, _: int) -> None:
        loop.launched(kernel_ns=2_000_000)
        loop.pause(1_940_000 + pause_us * 1_000)

    found = {one.cause: one for one in diagnose(loop_of(body), select=["scheduler-gap"]).findings}
    assert found["host-code"].severity == severity
    assert found["host-code"].cost_share < 0.03 or severity == "high"


@pytest.mark.parametrize(
    ("without", "before"),
    [
        pytest.param((), " before aten::mm", id="each before an op"),
        pytest.param((3,), " before aten::mm", id="one before the kernel of a library"),
        pytest.param(range(6), "", id="all before kernels of a library"),
    ],
)
def test_idle_time_is_told_by_the_ops_that_end_it(without: Sequence[int], before: str) -> None:
    """Of six steps those in which a library launches the kernel after the pause, without an op."""

    def body(loop: Loop, number: int) -> None:
        loop.pause(900_000)
        if number in without:
            loop.launches += 1
            loop.launch("cudaLaunchKernel", loop.now, 5_000, loop.launches)
            loop.kernel(loop.now + 10_000, 20_000, loop.launches)
            loop.now += 13_000
        else:
            loop.launched()

    report = diagnose(loop_of(body), select=["scheduler-gap"])
    (found,) = (one for one in report.findings if one.cause == "host-code")
    assert found.count == 6
    assert found.message.startswith(f"in every step, the GPU is idle{before}: the CPU ran Python or other")


@pytest.mark.parametrize(("slow", "told"), [((2, 4), False), ((1, 3, 5), True)])
def test_call_delaying_two_devices_counts_once(slow: tuple[int, ...], told: bool) -> None:
    """Of six steps two, or three: only the latter is most of them, however many devices are idle meanwhile."""

    def body(loop: Loop, number: int) -> None:
        loop.host_op("aten::empty", 2_000_000 if number in slow else 5_000)
        loop.launches += 1
        loop.launch("cudaLaunchKernel", loop.now, 5_000, loop.launches)
        loop.kernel(loop.now + 10_000, 20_000, loop.launches, device=1)
        loop.now += 8_000

    report = diagnose(loop_of(body), select=["scheduler-gap"])
    held = [one for one in report.findings if one.cause == "long-call"]
    assert {one.device: one.steps for one in held} == dict.fromkeys((0, 1), len(slow))
    assert ["one and the same call of the op" in one.message for one in held] == [told] * 2
    assert all("the GPU is idle during aten::empty: " in one.message for one in held)
    assert [one.severity is Severity.INFO for one in held] == [not told] * 2


@pytest.mark.parametrize(("steps", "info"), [(2, False), (3, True)])
def test_calls_delayed_at_changing_places_are_chance(steps: int, info: bool) -> None:
    """Each step but the first of three has another op that takes 2 ms."""
    slow = ["aten::empty", "aten::zeros", "aten::ones"][-steps:]

    def body(loop: Loop, number: int) -> None:
        for op in ("aten::zeros", "aten::ones"):
            loop.host_op(op, 2_000_000 if op == slow[number] else 5_000)

    said = diagnose(loop_of(body, steps), select=["scheduler-gap"]).findings
    (held,) = (one for one in said if one.cause == "long-call")
    assert (held.severity is Severity.INFO) is info
    assert ("one and the same call of the op" in held.message) is not info
