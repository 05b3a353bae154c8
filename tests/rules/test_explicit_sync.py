"""Synchronisations that the program calls itself: which calls go with them, and where they are called."""

import pytest

from tests.rules.programs import PINNED_TO_DEVICE, PINNED_TO_HOST, STEP, TO_HOST, US, Program, found
from traceanalyzer import Report, diagnose
from traceanalyzer.model.finding import Finding, Severity


def timing(call: str, *, orders: bool = False, line: str | None = None, steps: int = 5) -> Finding:
    """Steps of two quick kernels, an event that takes the CPU 60 us to record, and a synchronisation of 20 us."""
    program = Program()
    for number in range(steps):
        program.step(number)
        for _ in range(2):
            program.kernel(dur=10 * US)
        program.trace.launch("cudaEventRecord", program.now, 60 * US, 7_000 + number)
        if orders:
            program.trace.launch("cudaStreamWaitEvent", program.now + 62 * US, US, 8_000 + number)
        if line:
            program.trace.python(line, program.now + 64 * US, 34 * US, python_id=number + 1)
        program.trace.launch(call, program.now + 70 * US, 20 * US, 9_000 + number)
        program.now += 100 * US
        program.kernel(dur=10 * US)
    (one,) = found(program.trace, "long-device-sync")
    return one


@pytest.mark.parametrize(
    ("call", "orders", "gone"),
    [
        ("cudaEventSynchronize", False, True),
        ("cudaEventSynchronize", True, False),  # another stream waits for what is recorded
        ("cudaDeviceSynchronize", False, False),
    ],
)
def test_events_that_only_measure_go_with_the_wait_for_them(call: str, orders: bool, gone: bool) -> None:
    one, least = timing(call, orders=orders), timing("cudaDeviceSynchronize")
    assert one.saving is not None
    assert least.saving is not None
    assert (one.saving.step_ns - least.saving.step_ns >= 40 * US) is gone


@pytest.mark.parametrize("line", ["train.py(7): timed", None])
def test_synchronisation_reports_its_line(line: str | None) -> None:
    message = timing("cudaDeviceSynchronize", line=line).message
    assert ("called at train.py" in message) is bool(line)
    assert ("called at" in message) is bool(line)


def waiting(call: str, *, op: str = "", copies: bool = False, busy: bool = False) -> list[Finding]:
    """Five steps of a kernel, a call of 200 us after it that may be in an op or copy, and a kernel."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel(dur=(600 if busy else 100) * US)
        at = program.now
        if op:
            program.trace.op(op, at, 210 * US)
        program.trace.launch(call, at + 2 * US, 200 * US, 9_000 + number)
        if copies:
            start = program.device + 3 * US
            program.trace.memcpy(start, 20 * US, 9_000 + number, name=TO_HOST, size=1 << 20)
            program.device = start + 20 * US
        program.now += 212 * US
        program.kernel()
    return found(program.trace, "long-device-sync")


def test_waits_in_ops_and_copies_are_not_explicit() -> None:
    (bare,) = waiting("cudaStreamSynchronize")
    assert (bare.count, bare.evidence["waited_ns"]) == (5, 5 * 200 * US)
    assert waiting("cudaStreamSynchronize", op="aten::cudnn_convolution") == []
    assert waiting("cudaMemcpyAsync", copies=True) == []
    assert waiting("cudaStreamSynchronize", busy=True) == []


def test_the_profilers_own_wait_is_not_counted() -> None:
    """It waits for the device after the last op, when it stops."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel()
        program.trace.launch("cudaDeviceSynchronize", program.now, 150 * US, 9_000 + number)
        program.now += 150 * US
        program.kernel()
    program.trace.launch("cudaDeviceSynchronize", 5 * STEP + 20 * US, 10 * US, 9_100)
    (one,) = found(program.trace, "long-device-sync")
    assert (one.count, one.evidence["waited_ns"]) == (5, 5 * 150 * US)


def test_line_that_waits_longest_is_first() -> None:
    program, number = Program(), 0
    for step in range(4):
        program.step(step)
        for line, wait in (("often.py(3): log", 30), ("often.py(3): log", 30), ("once.py(9): end", 300)):
            number += 1
            program.kernel(dur=10 * US)
            program.trace.python(line, program.now, (wait + 4) * US, python_id=number)
            program.trace.launch("cudaDeviceSynchronize", program.now + 2 * US, wait * US, 9_000 + number)
            program.now += (wait + 6) * US
        program.kernel(dur=10 * US)
    (one,) = found(program.trace, "long-device-sync")
    lines = list(one.evidence["lines"].items())
    assert lines == [("once.py(9): end", 4 * 300 * US), ("often.py(3): log", 4 * 60 * US)]


@pytest.mark.parametrize("at", [0, 2])
def test_a_single_synchronisation_is_told(at: int) -> None:
    """A kernel ends after 115 us, and the next one, whose op begins at 224 us, starts after 239 us."""
    program = Program()
    for number in range(3):
        program.step(number)
        program.kernel()
        if number == at:
            program.trace.launch("cudaDeviceSynchronize", program.now + 2 * US, 200 * US, 9_000)
            program.now += 202 * US
            program.kernel()
    (one,) = found(program.trace, "long-device-sync")
    assert (one.count, one.cost_ns, one.evidence["waited_ns"]) == (1, 124 * US, 200 * US)


@pytest.mark.parametrize(("pinned", "cause", "saves"), [(True, "read-back", False), (False, "", True)])
def test_a_wait_for_copies_to_the_host_is_needed(pinned: bool, cause: str, saves: bool) -> None:
    """The CPU computes 300 us with what was copied, and only then launches again."""
    program = Program()
    for number in range(5):
        program.step(number)
        program.kernel()
        if pinned:
            program.copy(PINNED_TO_HOST, 1 << 20, 20 * US, ("aten::copy_",), sync=False)
        program.trace.launch("cudaDeviceSynchronize", program.now, 200 * US, 9_000 + number)
        program.now += 200 * US
        program.trace.op("aten::_fused_adamw_", program.now, 300 * US)
        program.now += 310 * US
        program.kernel()
    (one,) = found(program.trace, "long-device-sync")
    assert (one.cause, one.saving is not None) == (cause, saves)
    assert ("Keep the wait" in one.advice) is pinned


def decoding(call: str, host_us: int, *, size: int = 128, upload: int = 128, mark: str = "execute_context") -> Report:
    """Twelve steps: inputs, ten kernels of 60 us, a copy to pinned memory, a wait for it, ten ops of the host."""
    program = Program()
    for number in range(12):
        begin = program.now
        program.copy(PINNED_TO_DEVICE, upload, 2 * US, ("aten::copy_",), sync=False)
        for _ in range(10):
            program.kernel(dur=60 * US)
        program.copy(PINNED_TO_HOST, size, 2 * US, ("aten::to", "aten::copy_"), sync=False)
        end = program.device + 5 * US
        program.trace.launch(call, program.now, end - program.now, 9_000 + number)
        for op in range(10):
            program.trace.op("aten::slice", end + op * host_us * US // 10, 4 * US)
        program.now = end + host_us * US
        program.trace.step(number, begin, program.now - begin - US)
        program.trace.annotation(mark, begin + US, 100 * US)
    return diagnose(program.trace.load())


def read_back(report: Report) -> Finding:
    (one,) = (finding for finding in report.findings if finding.rule == "long-device-sync")
    assert one.cause == "read-back"
    assert one.title.startswith(f"{one.by} waits for a read-back once a step")
    return one


@pytest.mark.parametrize("call", ["cudaEventSynchronize", "cudaStreamSynchronize"])
@pytest.mark.parametrize(("host_us", "then_us"), [(60, 604), (400, 604), (1_800, 1_795)])
def test_next_step_is_launched_before_tokens_are_read(call: str, host_us: int, then_us: int) -> None:
    """Then the step takes what the GPU works, 604 us, or the CPU: its work stays, and only overlaps."""
    report = decoding(call, host_us)
    step, one = report.traces[0].step, read_back(report)
    assert one.advice.startswith("Launch step n+1 before you read the tokens of step n")
    assert step is not None
    assert one.saving is not None
    assert step.unprofiled_ns - one.saving.step_ns == pytest.approx(then_us * US, rel=0.05)
    assert all(fault.findings != (1, 2) for fault in report.traces[0].faults)
    assert (one.severity is Severity.HIGH) is (host_us > 60)


@pytest.mark.parametrize(("size", "mark"), [(1 << 20, "execute_context"), (128, "Optimizer.step#AdamW.step")])
def test_data_and_results_of_training_are_read_before_the_next_step(size: int, mark: str) -> None:
    one = read_back(decoding("cudaEventSynchronize", 60, size=size, mark=mark))
    assert (one.saving, one.advice.startswith("Keep the wait")) == (None, True)
