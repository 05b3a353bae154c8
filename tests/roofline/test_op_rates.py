"""What is said of ops by their inputs, device and kernels: counts, order, names, and the limit that is nearest."""

from typing import Any

import pytest

from tests.support.op_calls import BF16, F32, signature
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.roofline.gpus import device_peaks
from traceanalyzer.roofline.op_rates import NO_OP, OpWork, arithmetic_of, shapes_of
from traceanalyzer.tensors.ops.costs import OpCost


def product(size: int, kind: str = BF16) -> dict[str, Any]:
    return {"Input Dims": [[size, size], [size, size]], "Input type": [kind, kind], "Concrete Inputs": ["", ""]}


class Program(TraceBuilder):
    """Calls of ops in turn, each with kernels of its own."""

    number = 0

    def call(self, name: str, inputs: dict[str, Any], *kernels: tuple[str, int], device: int = 0) -> None:
        begin = 20_000 * self.number + 1_000
        self.number += 1
        self.op(name, begin, 9_000, external_id=self.number, **inputs)
        for at, (kernel, took) in enumerate(kernels):
            correlation = 100 * self.number + at
            self.launch("cudaLaunchKernel", begin + 100 + 10 * at, 5, correlation=correlation, external_id=self.number)
            self.kernel(
                begin + 1_000 + 2_000 * at,
                took,
                correlation=correlation,
                external_id=self.number,
                name=kernel,
                device=device,
            )

    def table(self) -> OpWork:
        return Analysis(self.load()).index(OpWork)


def test_call_with_several_kernels_counts_once() -> None:
    program = Program(record_shapes=1)
    program.call("aten::mm", product(64), ("a", 100), ("b", 50))
    program.call("aten::mm", product(64), ("a", 100), ("b", 70))
    program.kernel(500_000, 30, 9_001, name="stray")
    program.kernel(500_100, 30, 9_002, name="stray")
    work = program.table()
    assert [(one.op, one.calls, one.gpu_ns) for one in work.inputs] == [("aten::mm", 2, 320), (NO_OP, 2, 60)]
    assert [row[3:] for row in work.by_kernel] == [("a", 2, 200), ("b", 2, 120), ("stray", 2, 60)]


def test_ops_inputs_and_kernels_begin_with_most_gpu_time() -> None:
    program = Program(record_shapes=1)
    program.call("aten::mm", product(64), ("short", 100))
    program.call("aten::bmm", product(32), ("middle", 250))
    program.call("aten::mm", product(128), ("long", 200))
    work = program.table()
    assert [(one.op, one.shapes) for one in work.inputs] == [
        ("aten::bmm", "32x32, 32x32"),
        ("aten::mm", "128x128, 128x128"),
        ("aten::mm", "64x64, 64x64"),
    ]
    assert work.ops["op"].tolist() == ["aten::mm", "aten::bmm"]
    assert work.ops["gpu_ns"].tolist() == [300, 250]
    assert [row[3] for row in work.by_kernel] == ["middle", "long", "short"]


def test_each_device_has_its_row_and_peaks() -> None:
    a100 = {**H200, "id": 1, "name": "NVIDIA A100-SXM4-80GB"}
    program = Program(devices=(H200, a100), record_shapes=1)
    program.call("aten::mm", product(512), ("gemm", 2_000))
    program.call("aten::mm", product(512), ("gemm", 1_000), device=1)
    work = program.table()
    assert [(one.device, one.calls, one.gpu_ns, one.peak_tflops) for one in work.inputs] == [
        (0, 1, 2_000, 989.5),
        (1, 1, 1_000, 312.0),
    ]
    slow, quick = work.inputs
    assert slow.tflops == pytest.approx(2 * 512**3 / 2_000 / 1e3)
    assert quick.tflops == pytest.approx(2 * slow.tflops)
    assert (slow.gbps, slow.peak_gbps) == (pytest.approx(3 * 512**2 * 2 / 2_000), 4_800.0)
    assert len(work.frame()) == 1  # one op, inputs and kernel


def test_the_limit_is_the_one_that_the_work_came_nearest_to() -> None:
    program = Program(record_shapes=1)
    program.call("aten::mm", product(2_048), ("gemm", 30_000))
    thin = {"Input Dims": [[4_096, 4], [4, 4]], "Input type": [BF16, BF16], "Concrete Inputs": ["", ""]}
    program.call("aten::mm", thin, ("gemm", 40))
    wide, narrow = program.table().inputs
    assert (wide.limit, wide.why) == ("compute", None)
    assert wide.peak_share == pytest.approx(2 * 2_048**3 / 30_000 / 1e3 / 989.5)
    assert narrow.limit == "memory"
    assert narrow.peak_share == pytest.approx((2 * 4_096 * 4 + 16) * 2 / 40 / 4_800)


def test_steps_are_counted_where_they_are_marked() -> None:
    program = Program(record_shapes=1)
    program.call("aten::mm", product(64), ("gemm", 100))
    assert program.table().steps == 0
    for number in range(3):
        program.step(number, 30_000 * number, 30_000, external_id=900 + number)
    work = program.table()
    assert (work.steps, work.window_ns) == (3, 90_000)
    assert work.ops["share"].tolist() == [pytest.approx(100 / 90_000)]


@pytest.mark.parametrize(
    ("dims", "told"),
    [
        ([[4, 5], [5]], "4x5, 5"),
        ([[4], [], [6]], "4, 6"),
        ([[1], [2], [3], [4]], "1, 2, 3, 4"),
        ([[1], [2], [3], [4], [5], [6]], "1, 2, 3, 4, and 2 more"),
        ([[], []], ""),
    ],
)
def test_shapes_are_written_as_people_do_and_of_many_four(dims: list[Any], told: str) -> None:
    assert shapes_of(signature("cat", dims, [F32] * len(dims))) == told


def test_each_type_of_a_tensor_is_named_once() -> None:
    program = Program(record_shapes=1)
    kinds = [F32, "Scalar", BF16, "", F32, "ScalarList", "TensorList"]
    program.call("aten::lerp", {"Input Dims": [[4]] * 7, "Input type": kinds}, ("lerp", 100))
    assert program.table().inputs[0].dtypes == f"{F32}, {BF16}"


@pytest.mark.parametrize(
    ("arithmetic", "kernels", "told"),
    [
        ("bf16", "ampere_sgemm", "bf16"),
        ("fp64", "tf32", "fp64"),
        (None, "tf32", None),
        ("fp32", "sm90_xmma_gemm_f32f32_tf32f32_f32", "tf32"),
        ("fp32", "cutlass_tensorop_s1688gemm", "tf32"),
        ("fp32", "Cijk_XF32_MT64", "tf32"),
        ("fp32", "ampere_sgemm_32x32", "fp32"),
        ("fp32", "cutlass_simt_SGEMM", "fp32"),
        ("fp32", "sgemm then tf32", "tf32"),
        ("fp32", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n", "fp32"),
        ("fp32", "conv_depthwise2d_forward_kernel", "fp32"),
        ("fp32", "cutlass_80_tensorop_s16816gemm", "tf32"),
        ("fp32", "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1", "fp32"),
        ("fp32", "igemm_fwd_gtcx_nhwc_fp32_bx0", "fp32"),
        ("fp32", "nvjet", None),
    ],
)
def test_kernels_tell_float32_arithmetic(arithmetic: str | None, kernels: str, told: str | None) -> None:
    assert arithmetic_of(OpCost("matmul", 1, 1, arithmetic), kernels) == told


@pytest.mark.parametrize(
    ("name", "inputs", "why"),
    [
        ("aten::mine", {"Input Dims": [[4]], "Input type": ["c10::Odd"]}, "no model for this op and these inputs"),
        ("aten::mine", {}, "no shapes recorded"),
    ],
)
def test_why_nothing_is_known_of_an_op(name: str, inputs: dict[str, Any], why: str) -> None:
    program = Program(record_shapes=1)
    program.call(name, inputs, ("k", 100))
    (found,) = program.table().inputs
    assert (found.why, found.flops, found.bytes, found.peak_share, found.limit) == (why, None, None, None, None)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Tesla V100-PCIE-16GB", ("V100 PCIe", 900.0, 112.0)),
        ("Tesla V100-DGXS-32GB", ("V100 SXM2", 900.0, 125.0)),
        ("Tesla T4", ("T4", 320.0, 65.0)),
        ("NVIDIA A100-PCIE-40GB", ("A100 PCIe 40 GB", 1_555.0, 312.0)),
        ("NVIDIA A100 80GB PCIe", ("A100 PCIe 80 GB", 1_935.0, 312.0)),
        ("NVIDIA A10", ("A10", 600.0, 125.0)),
        ("NVIDIA A10G", ("A10G", 600.0, 70.0)),
        ("NVIDIA A40", ("A40", 696.0, 149.7)),
        ("NVIDIA RTX A6000", ("RTX A6000", 768.0, 154.8)),
        ("NVIDIA GeForce RTX 3090", ("RTX 3090", 936.2, 71.0)),
        ("NVIDIA GeForce RTX 3090 Ti", ("RTX 3090 Ti", 1_008.0, 80.0)),
        ("NVIDIA GeForce RTX 4090", ("RTX 4090", 1_008.0, 165.2)),
        ("NVIDIA GeForce RTX 4090 D", ("RTX 4090 D", 1_008.0, 147.0)),
        ("NVIDIA L4", ("L4", 300.0, 121.0)),
        ("NVIDIA L40S", ("L40S", 864.0, 362.0)),
        ("NVIDIA L40", ("L40", 864.0, 181.0)),
        ("NVIDIA H100 NVL", ("H100 NVL", 3_900.0, 835.5)),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA L400", None),
        ("AMD Instinct MI250", ("MI250, one die", 1_638.4, 181.0)),
    ],
)
def test_similar_names_are_other_devices(name: str, known: tuple[str, float, float] | None) -> None:
    peaks = device_peaks(name)
    assert (peaks and (peaks.name, peaks.gbps, peaks.tflops["fp16"])) == known


def test_rates_are_those_of_the_same_inputs() -> None:
    program = Program(record_shapes=1)
    program.call("aten::mm", product(512), ("gemm", 2_000))
    program.call("aten::mm", product(256), ("gemm", 1_000))
    frame = program.table().frame()
    assert frame["shapes"].tolist() == ["512x512, 512x512", "256x256, 256x256"]
    assert frame["tflops"].tolist() == pytest.approx([2 * 512**3 / 2_000 / 1e3, 2 * 256**3 / 1_000 / 1e3])


def test_of_an_op_without_a_model_its_inputs_are_read_once() -> None:
    program = Program(record_shapes=1)
    program.call("aten::mine", {"Input Dims": [[4_000], [50]], "Input type": [F32, BF16]}, ("k", 100))
    (one,) = program.table().inputs
    assert (one.kind, one.flops, one.bytes, one.gbps) == ("inputs", None, 16_100, 161.0)


def test_a_convolution_of_many_taps_is_held_against_its_products() -> None:
    numbers = ["", "", "[0]", "[1]", "[1]", "1"]
    dims = [[1, 1, 16_000], [1, 1, 4_001], [], [], [], []]
    inputs = {"Input Dims": dims, "Input type": [F32, F32, "", "", "", ""], "Concrete Inputs": numbers}
    program = Program(record_shapes=1)
    program.call("aten::cudnn_convolution", inputs, ("conv_sgemm", 5_000))
    assert program.table().inputs[0].flops == 2 * 12_000 * 4_001


def test_link_copies_have_no_device_limit() -> None:
    for name in ("NVIDIA H200", "Some GPU"):
        program = Program(devices=({**H200, "name": name},), record_shapes=1)
        copy = {"Input Dims": [[1_024], [1_024]], "Input type": [F32, F32], "Concrete Inputs": ["", ""]}
        program.call("aten::copy_", copy)
        program.launch("cudaMemcpyAsync", 1_100, 50, correlation=7, external_id=1)
        program.memcpy(3_000, 500, correlation=7, external_id=1, name="Memcpy HtoD (Pageable -> Device)")
        (one,) = program.table().inputs
        assert (one.why, one.limit, one.peak_share) == ("copies between host and device", None, None)
        assert (one.bytes, one.gbps) == (4_096, pytest.approx(4_096 / 500))
