"""GradScaler: what it costs where bfloat16 would need none."""

import pytest

from tests.rules.programs import Program, found
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Severity, Trace, diagnose, load

CHECK, UPDATE = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"


BESIDE = 0.02  # of the step: what repeats of one program differ by, as the ledger counts truth as within an interval


def test_the_saving_is_that_of_steps_measured_in_turn() -> None:
    """2.36 ms with the scaler and 2.10 ms in bfloat16, in turn in one process on an H200: 10.7 %."""
    trace = load(FIXTURES / "gradient-scaling" / "bad.json.gz")
    assert isinstance(trace, Trace)
    (scaler,) = diagnose(trace, select=["gradient-scaling"]).findings
    assert scaler.saving is not None
    assert scaler.saving.low_share - BESIDE < 0.107 < scaler.saving.high_share + BESIDE
    assert scaler.saving.share == pytest.approx(0.107, abs=0.07)


def scaling(*, capability: tuple[int, int] = (9, 0), between: int = 1, dur: int = 100_000) -> Program:
    """Four steps; the scale is inverted, some ops later the gradients are checked."""
    program = Program()
    major, minor = capability
    program.trace = TraceBuilder(devices=[{**H200, "computeMajor": major, "computeMinor": minor}])
    for number in range(4):
        program.step(number)
        program.kernel(dur=dur)
        for op in ("aten::to", "aten::reciprocal", *["aten::full"] * between, CHECK, "aten::mm", UPDATE):
            program.kernel(op, dur)
    return program


def test_the_ops_on_the_scale_belong_to_it() -> None:
    trace = scaling(between=4).trace.load()
    (whole,) = diagnose(trace, select=["gradient-scaling"]).findings
    alone_only = {"gradient-scaling.max_ops_before": "1"}
    (alone,) = diagnose(trace, select=["gradient-scaling"], settings=alone_only).findings
    assert whole.count == alone.count == 4
    assert whole.saving is not None
    assert alone.saving is not None
    assert whole.saving.step_ns > alone.saving.step_ns > 0
    assert whole.cost_ns >= 4 * 100_000


@pytest.mark.parametrize(("capability", "info"), [((7, 5), True), ((8, 0), False), ((9, 0), False)])
def test_a_device_without_bfloat16_needs_it(capability: tuple[int, int], info: bool) -> None:
    """The A100 (8.0) is the first that has it."""
    (scaler,) = found(scaling(capability=capability).trace, "gradient-scaling")
    assert (scaler.severity is Severity.INFO) is info


@pytest.mark.parametrize(("between", "before"), [(0, 2), (11, 13), (12, 0)])
def test_the_scale_s_conversion_goes_with_its_reciprocal(between: int, before: int) -> None:
    """Ops of 22 us that launch 2 us: the GPU is idle between them, from the conversion to the check's end."""
    (scaler,) = found(scaling(between=between, dur=2_000).trace, "gradient-scaling")
    assert scaler.cost_ns == pytest.approx(4 * (before * 20_000 + 20_000))


@pytest.mark.parametrize(("second", "info"), [((8, 0), False), ((7, 5), True)])
def test_oldest_device_decides_on_the_scaler(second: tuple[int, int], info: bool) -> None:
    program = scaling()
    major, minor = second
    other = {**H200, "id": 1, "computeMajor": major, "computeMinor": minor}
    devices = program.trace.header["deviceProperties"]
    program.trace.header["deviceProperties"] = [*devices, other]
    program.trace.launched((program.now, 2_000), (program.device, 5_000), 9_000, device=1)
    (scaler,) = (one for one in found(program.trace, "gradient-scaling") if one.device == 0)
    assert (scaler.severity is Severity.INFO) is info
    assert scaler.evidence["kernels_ns"] == 4 * 100_000


def test_checks_are_sorted_by_time() -> None:
    """A step without an inverted scale first, and two with: the second conversion is none of the first check's."""
    program = Program()
    for number in range(3):
        program.step(number)
        for op in (*["aten::to", "aten::reciprocal"] * (number > 0), CHECK, "aten::mm", UPDATE):
            program.kernel(op, 2_000)
    (in_order,) = found(program.trace, "gradient-scaling")
    program.trace.events.reverse()
    (reversed_,) = found(program.trace, "gradient-scaling")
    assert in_order.cost_ns == pytest.approx((2 * 3 + 1) * 20_000)
    assert reversed_.cost_ns == in_order.cost_ns
    assert reversed_.saving == in_order.saving


def test_reciprocal_without_conversion_is_not_the_scalers() -> None:
    """As of the first op of a recording."""
    program = Program()
    program.step(0)
    for op in ("aten::reciprocal", CHECK, "aten::mm", UPDATE):
        program.kernel(op, 2_000)
    (scaler,) = found(program.trace, "gradient-scaling")
    assert scaler.cost_ns == pytest.approx(20_000, abs=2_000)
