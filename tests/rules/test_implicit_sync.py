"""Ops that wait for a value: which are told, by what name, and what they are told from."""

import pytest

from tests.rules.programs import PINNED_TO_HOST, TO_DEVICE, US, Program, deciding, found
from traceanalyzer import Severity


def reading(ops: tuple[str, ...] = ("aten::item", "aten::_local_scalar_dense"), name: str = PINNED_TO_HOST) -> Program:
    """Five steps of kernels, each with a value that is copied in the middle."""
    program = Program()
    for number in range(5):
        program.step(number)
        for _ in range(3):
            program.kernel()
            program.copy(name, 4, 2 * US, ops)
            program.kernel()
    return program


@pytest.mark.parametrize(
    ("ops", "by", "cause"),
    [
        (("aten::item", "aten::_local_scalar_dense"), "aten::item", "read-back"),
        (("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"), "aten::is_nonzero", "branch"),
        (("aten::masked_select", "aten::index", "aten::nonzero"), "aten::masked_select", "boolean-mask"),
        (("aten::unique_consecutive",), "aten::unique_consecutive", "data-dependent-size"),
        (("aten::bincount", "aten::item"), "aten::bincount", "data-dependent-size"),
        *(
            ((f"aten::{op}",), f"aten::{op}", cause)
            for cause, ops in {
                "boolean-mask": ("index", "index_put_", "_index_put_impl_"),
                "data-dependent-size": ("nonzero", "where", "argwhere", "_unique2", "repeat_interleave"),
                "branch": ("equal", "allclose"),
                "copy-to-host": ("_to_copy", "copy_", "cpu", "clone"),
                "read-back": ("_local_scalar_dense",),
                "inside-op": ("linalg_solve",),
            }.items()
            for op in ops
        ),
        (("aten::to", "aten::_to_copy", "aten::copy_"), "aten::to", "copy-to-host"),
        (("torchvision::nms",), "torchvision::nms", "inside-op"),
        (("Torch-Compiled Region: 0/0", "aten::item"), "aten::item", "read-back"),
        (("autograd::engine::evaluate_function: IndexBackward0", "aten::item"), "aten::item", "read-back"),
        (
            ("autograd::engine::evaluate_function: IndexBackward0", "aten::_index_put_impl_"),
            "aten::index",
            "boolean-mask",
        ),
    ],
)
def test_the_op_that_the_user_called_is_named(ops: tuple[str, ...], by: str, cause: str) -> None:
    (read,) = found(reading(ops).trace, "implicit-sync")
    assert (read.by, read.cause, read.count, read.steps) == (by, cause, 15, 5)
    assert read.cost_ns > 0
    assert ("scatter_add_" in read.advice) == (by == "aten::bincount")


def test_upload_of_a_value_differs_from_a_read() -> None:
    (sent,) = found(reading(("aten::to", "aten::copy_"), TO_DEVICE).trace, "implicit-sync")
    assert (sent.by, sent.cause) == ("aten::to", "copy-to-device")


@pytest.mark.parametrize(("count", "goes"), [(15, 0.15), (20, 0.45)])
def test_many_tensors_of_numbers_can_be_one(count: int, goes: float) -> None:
    """torch.tensor(number, device="cuda") after each kernel: of few the waits go, of many all ops."""
    program = Program()
    for number in range(5):
        program.step(number)
        for _ in range(count):
            program.kernel(dur=2 * US)
            program.trace.op("aten::empty", program.now, 10 * US)
            program.now += 10 * US
            program.copy(TO_DEVICE, 4, 2 * US, ("aten::to", "aten::copy_"))
            program.trace.op("aten::lift_fresh", program.now, 10 * US)
            program.now += 10 * US
    (sent,) = found(program.trace, "implicit-sync")
    assert sent.advice.startswith("Make a tensor of constants once") == (count == 20)
    assert sent.saving is not None
    assert sent.saving.share == pytest.approx(goes, abs=0.05)


def test_a_blocking_copy_call_of_rocm_is_a_read_back() -> None:
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        at, program.correlation = program.now, program.correlation + 1
        program.trace.op("aten::item", at, 130 * US)
        program.trace.op("aten::_local_scalar_dense", at + US, 128 * US)
        program.trace.launch("hipMemcpyWithStream", at + 5 * US, 120 * US, program.correlation)
        start = program.device + 3 * US
        program.trace.memcpy(start, 2 * US, program.correlation, name="Memcpy DtoH (Device -> Host)", size=4)
        program.now, program.device = at + 140 * US, start + 2 * US
        program.kernel()
    (read,) = found(program.trace, "implicit-sync")
    assert (read.by, read.count) == ("aten::item", 4)


@pytest.mark.parametrize("call", ["cudaEventSynchronize", "cudaDeviceSynchronize"])
def test_waiting_in_an_op_without_a_copy_reads_nothing_back(call: str) -> None:
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        program.trace.op("aten::cudnn_convolution", program.now, 300 * US)
        program.trace.launch(call, program.now + 5 * US, 280 * US, 90_000 + number)
        program.now += 300 * US
        program.kernel()
    assert found(program.trace, "implicit-sync") == []


def test_item_of_a_cpu_tensor_waits_for_nothing() -> None:
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel()
        program.trace.op("aten::item", program.now, 3 * US)
        program.kernel()
    assert found(program.trace, "implicit-sync") == []


def test_gradient_scaler_is_told_from_the_loop_that_logs() -> None:
    program = Program()
    for number in range(4):
        program.step(number)
        program.kernel("aten::_amp_foreach_non_finite_check_and_unscale_")
        for _ in range(2):  # the loop logs the norm, then the scaler asks
            program.copy(PINNED_TO_HOST, 4, 2 * US, ("aten::item", "aten::_local_scalar_dense"))
            program.kernel()
        program.kernel("aten::_amp_update_scale_")
    causes = {one.cause: one.count for one in found(program.trace, "implicit-sync")}
    assert causes == {"loss-scaling": 4, "read-back": 4}


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (("aten::gt", "aten::_is_all_true"), "argument-check"),
        (("aten::gt", "aten::all"), "branch"),
        (("aten::_is_all_true", "aten::mul"), "branch"),
    ],
)
def test_checks_of_arguments_are_told_from_decisions(before: tuple[str, ...], cause: str) -> None:
    (one,) = found(deciding(before).trace, "implicit-sync")
    assert (one.by, one.cause, one.count) == ("aten::is_nonzero", cause, 4)
    assert ("set_default_validate_args(False)" in one.advice) == (cause == "argument-check")


def test_what_another_thread_asked_is_no_check_of_arguments() -> None:
    """The last op of one thread, and the first one of the next."""
    program = Program()
    program.step(0)
    program.kernel()
    at = program.now
    for op in ("aten::is_nonzero", "aten::item"):
        program.trace.op(op, at, 600 * US, tid=1001)
    program.trace.launch("cudaMemcpyAsync", at + 5 * US, 4 * US, 900, tid=1001)
    program.trace.memcpy(at + 500 * US, 2 * US, 900, name=PINNED_TO_HOST, size=1)
    program.trace.launch("cudaStreamSynchronize", at + 10 * US, 495 * US, 901, tid=1001)
    program.now = program.device = at + 700 * US
    program.kernel("aten::_is_all_true")
    (one,) = found(program.trace, "implicit-sync")
    assert (one.by, one.cause) == ("aten::is_nonzero", "branch")


@pytest.mark.parametrize(
    ("after", "cause"), [("", "result"), ("aten::mm", "copy-to-host"), ("Optimizer.step#Adam.step", "copy-to-host")]
)
def test_what_a_step_reads_last_is_its_result_unless_it_trains(after: str, cause: str) -> None:
    program = Program()
    for number in range(5):
        program.step(number)
        for _ in range(3):
            program.kernel()
        if "Optimizer" in after:
            program.trace.annotation(after, program.now, 30 * US)
            program.kernel("aten::_fused_adam_")
        program.copy(PINNED_TO_HOST, 4, 2 * US, ("aten::to", "aten::copy_"))
        program.copy(PINNED_TO_HOST, 4, 2 * US, ("aten::to", "aten::copy_"))
        if after == "aten::mm":
            program.kernel()
    (read,) = found(program.trace, "implicit-sync")
    assert (read.cause, read.count) == (cause, 10)
    assert (read.severity is Severity.INFO) == (cause == "result")


def decoding(before: str = "aten::argmax", after: str = "aten::embedding", *, upload: bool = False) -> Program:
    """Four steps of three passes; each samples tokens, reads them, and looks up those of the next pass."""
    program = Program()
    for number in range(4):
        program.step(number)
        for _ in range(3):
            program.kernel(after, 5 * US)
            program.kernel()
            program.kernel(before, 5 * US)
            program.copy(PINNED_TO_HOST, 64, 2 * US, ("aten::to", "aten::_to_copy", "aten::copy_"))
            if upload:
                program.copy(TO_DEVICE, 64, 2 * US, ("aten::to", "aten::_to_copy", "aten::copy_"), sync=False)
    return program


def causes(program: Program) -> set[str]:
    """Causes of read-backs but of the last one of each step."""
    return {one.cause for one in found(program.trace, "implicit-sync")} - {"result"}


def test_tokens_that_the_next_pass_has_on_the_gpu_are_read_later() -> None:
    (read,) = [one for one in found(decoding().trace, "implicit-sync") if one.cause == "tokens"]
    assert (read.by, read.count) == ("aten::to", 4 * 2)
    assert read.title == "Sampled tokens are read back before the next pass is launched, twice a step"
    assert read.advice.startswith("Launch step n+1 before you read the tokens of step n")


@pytest.mark.parametrize(
    "program",
    [decoding(upload=True), decoding("aten::mean"), decoding(after="aten::linear")],
    ids=["tokens-go-back-up", "a-value-that-is-not-sampled", "an-action-for-an-environment"],
)
def test_other_values_are_no_tokens(program: Program) -> None:
    assert "tokens" not in causes(program)
