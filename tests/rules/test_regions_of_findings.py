"""Findings that name the region of code that is responsible, with its share and what its remedy saves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.region_programs import US, CodeProgram
from traceanalyzer import Finding, diagnose


def first_of(program: CodeProgram) -> Finding:
    return diagnose(program.trace.load(), select=["launch-bound", "host-hotspot"]).findings[0]


def with_hook(name: str = "hook", kernel_us: int = 2) -> CodeProgram:
    """Five steps of 20 layers, after each of which a function launches four kernels."""
    program = CodeProgram(kernel_us * US)
    for _ in range(5):
        for _ in range(20):
            program.ops(["aten::linear"] * 3)
            begin = program.now
            program.ops(["aten::mean", "aten::std", "aten::abs", "aten::amax"])
            program.function(name, begin)
        program.end_step()
    return program


def test_a_function_beside_the_layers_is_named_with_its_share() -> None:
    finding = first_of(with_hook())
    assert (finding.rule, finding.cause, finding.by) == ("launch-bound", "region", "train.py(10): hook()")
    assert finding.evidence["region_launches"] == 80
    assert finding.evidence["part_share"] == pytest.approx(4 / 7, abs=0.08)
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(4 / 7, abs=0.08)


def test_a_busy_gpu_does_not_wait_for_a_function() -> None:
    """Kernels of 13 of each 14 us: without the profiler they follow each other."""
    finding = first_of(with_hook(kernel_us=13))
    assert (finding.rule, finding.cause, finding.by) == ("launch-bound", "profiled-only", None)


def with_metric(metric: Callable[[CodeProgram], None]) -> Finding:
    """The first finding of a program whose step calls a module of 20 layers, and then what `metric` adds, in DDP."""
    program = CodeProgram()
    for _ in range(5):
        start = program.now
        for _ in range(20):
            program.ops(["aten::linear", "aten::relu"])
        program.module("Net", start)
        program.function("forward", start)
        metric(program)
        program.module("DistributedDataParallel", start)
        program.function("step", start)
        program.end_step()
    return first_of(program)


def test_one_call_into_a_package_is_named_with_its_caller() -> None:
    def metric(program: CodeProgram) -> None:
        begin = program.now
        program.ops(["aten::topk", "aten::eq", "aten::sum", "aten::div", "aten::max"] * 4)
        program.function("update", begin, "torchmetrics/accuracy.py")

    finding = with_metric(metric)
    assert (finding.cause, finding.by) == ("region", "torchmetrics, called in train.py(10): step()")
    assert finding.evidence["region_launches"] == 20
    assert "step(), mostly in torchmetrics/accuracy.py(10): update()" in finding.message
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(20 / 60, abs=0.08)
    assert finding.saving.low_share <= finding.saving.share / 2


def test_forward_of_a_metric_saves_all_but_its_update() -> None:
    """Of 40 launches 10 are in update(), which stays; one matrix product makes the metric no layer."""

    def metric(program: CodeProgram) -> None:
        begin = program.now
        program.ops(["aten::bincount", "aten::sum"] * 5)
        program.function("update", begin, "torchmetrics/accuracy.py")
        program.ops(["aten::mm", *["aten::clone", "aten::add", "aten::div"] * 9, "aten::add", "aten::div"])
        program.function("forward", begin, "torchmetrics/metric.py")

    finding = with_metric(metric)
    assert finding.evidence["region_launches"] == 40
    assert finding.advice.startswith("Call update() of the metric instead of forward()")
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(30 / 80, abs=0.08)


def test_the_users_call_of_a_package_is_named_with_the_package() -> None:
    def metric(program: CodeProgram) -> None:
        begin = program.now
        program.op("aten::zeros")
        inner = program.now
        program.ops(["aten::linalg_vector_norm", "aten::div"] * 10)
        program.function("grad_norm", inner, "accelerate/grads.py")
        program.function("log_gradients", begin)

    finding = with_metric(metric)
    assert finding.by == "train.py(10): log_gradients()"
    assert "mostly in accelerate/grads.py(10): grad_norm()" in finding.message


@pytest.mark.parametrize(("name", "independent"), [("embed", True), ("forward", False)])
def test_calls_of_one_function_are_in_the_title_of_all_launches(name: str, independent: bool) -> None:
    program = CodeProgram()
    for _ in range(5):
        for _ in range(6):
            begin = program.now
            program.ops(["aten::linear", "aten::relu", "aten::softmax"] * 3)
            program.function(name, begin)
        program.end_step()
    finding = first_of(program)
    assert finding.cause != "region"
    assert f"54 come from 6 calls of {name}() (train.py:10)" in str(finding.title)
    assert finding.advice.startswith("If this code runs once for each of several independent pieces") == independent


def test_weights_that_are_computed_in_a_layer_are_named() -> None:
    program = CodeProgram()
    for _ in range(5):
        start = program.now
        for _ in range(5):
            begin = program.now
            program.ops(["aten::mv", "aten::vdot", "aten::div"])
            program.module("ParametrizationList", begin)
            program.module("_SpectralNorm", begin)
            program.ops(["aten::linear"] * 3)
            program.module("ParametrizedLinear", begin)
        program.module("Net", start)
        program.end_step()
    finding = first_of(program)
    assert finding.by == "parametrized weights (_SpectralNorm)"
    assert finding.evidence["region_launches"] == 15


def test_a_function_inside_a_model_is_a_part_of_it() -> None:
    program = CodeProgram()
    for _ in range(5):
        start = program.now
        program.ops(["aten::linear"] * 20)
        begin = program.now
        program.ops(["aten::mul", "aten::cos", "aten::sin", "aten::add"] * 4)
        program.function("rotate", begin, "transformers/rotary.py")
        program.function("forward", start)
        program.module("Net", start)
        program.end_step()
    assert first_of(program).cause != "region"


def test_repeats_that_are_the_whole_step_are_the_program() -> None:
    program = CodeProgram()
    for _ in range(5):
        program.ops(["aten::mul", "aten::add", "aten::tanh"] * 40)
        program.end_step()
    assert first_of(program).cause == "graph"


def test_repeats_beside_layers_leave_the_work_of_one() -> None:
    program = CodeProgram()
    for _ in range(5):
        program.ops(["aten::linear"] * 40)
        program.ops(["aten::mul", "aten::add", "aten::copy_"] * 30)
        program.end_step()
    finding = first_of(program)
    assert finding.by == "30 x (mul, add, copy_)"
    assert finding.advice.startswith("Update the average with torch._foreach_lerp_")
    assert finding.saving is not None
    assert finding.saving.share == pytest.approx(0.69 * 29 / 30, abs=0.08)


def test_repeats_are_named_with_the_function_around() -> None:
    program = CodeProgram()
    for _ in range(5):
        program.ops(["aten::linear"] * 40)
        begin = program.now
        program.ops(["aten::mul", "aten::add", "aten::copy_"] * 30)
        program.function("update", begin)
        program.end_step()
    assert first_of(program).by == "30 x (mul, add, copy_) in train.py(10): update()"


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        (["aten::eq", "aten::any", "aten::view"], "Treat all values at once instead of a mask for each"),
        (["aten::mul", "aten::select", "aten::max"], "Batch the items"),
        (["aten::mul", "aten::sub", "aten::max"], "If the repeats compute the same values"),
    ],
)
def test_a_function_that_launches_in_blocks_is_a_loop(ops: list[str], words: str) -> None:
    """A block has three quarters of the function's launches; each other op runs once in a row."""

    def metric(program: CodeProgram) -> None:
        begin = program.now
        for count in (32, 16):
            program.ops(ops * count)
            program.ops([f"aten::other{number}" for number in range(24)])
        program.function("update", begin)

    finding = with_metric(metric)
    assert finding.by == "a loop in train.py(10): update()"
    assert (
        finding.title.partition("is in ")[2] == "a loop in update() (train.py:10): the GPU waits for its 192 launches"
    )
    assert ", as in 48 x (" in finding.message
    assert finding.advice.startswith(words)


def test_code_after_backward_is_named_by_the_function_with_most_of_it() -> None:
    """One matrix product in it, as in a confusion matrix, makes it no layer."""
    program = CodeProgram()
    for step in range(5):
        numbers = range(100 * step, 100 * step + 10)
        for number in numbers:
            program.op("aten::linear", sequence=number)
        for number in reversed(numbers):
            program.node("AddmmBackward0", number)
        program.op("aten::detach")
        begin = program.now
        program.ops(["aten::mm", *["aten::eq", "aten::sum", "aten::add_"] * 8])
        program.function("update", begin, "torchmetrics/metric.py")
        program.op("aten::stack")
        program.end_step()
    finding = first_of(program)
    assert (finding.cause, finding.by) == ("region", "torchmetrics/metric.py(10): update(), after backward")
    assert finding.title.endswith("of the step is in torchmetrics: the GPU waits for its 27 launches")
    assert finding.advice.startswith("Update the metrics every few steps")


@pytest.mark.parametrize("program", ["audio_two", "gae_loop"])
def test_launches_of_a_block_are_its_own_in_steps_that_are_not_replayed(
    shared: Callable[[str], Path], program: str
) -> None:
    """Both recordings have a step that is longer than the others; blocks are looked for in the usual steps."""
    found = diagnose(shared(f"fifth/{program}.bad"), select=["launch-bound"]).findings
    assert [(one.cause, one.severity.value) for one in found] == [("region", "high"), ("small-part", "info")]
    assert str(found[0].by).startswith("64 x (select, ")
