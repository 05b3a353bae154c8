"""Calls that take many times what their shapes need: small built traces."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, found, program
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer import Trace, diagnose
from traceanalyzer.model.finding import Confidence, Status

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Arrays>(int)"
BIG = [[4096, 4096], [4096, 4096]]


def test_a_slow_call_is_reported_without_a_reason() -> None:
    index = Op(
        "aten::index_add_",
        "indexFuncLargeIndex",
        3_200,
        [[16], [], [1 << 24], [1 << 24], []],
        [F32, "Scalar", "long int", F32, "Scalar"],
    )
    (one,) = found(program([index]), "far-from-bound")
    assert (one.by, one.confidence) == ("aten::index_add_", Confidence.MEDIUM)
    assert one.evidence["ratio"] > 50
    assert "torch.histc" in one.advice
    near = Op("aten::add", ADD, 60, BIG, [F32, F32])
    assert found(program([near]), "far-from-bound") == []


@pytest.mark.parametrize(("took_us", "said"), [(132_557, True), (1_600, False)])
def test_distances_with_a_block_for_each_pair_of_points(took_us: int, said: bool) -> None:
    """24 clouds of 2,048 points, H200: by cdist's own kernel, or by a product, which moves the result five times."""
    points = [24, 2048, 3]
    cdist = Op(
        "aten::_cdist_forward",
        "void at::native::(anonymous namespace)::cdist_kernel_cuda_impl<float, dists<float>::two>(float*)",
        took_us,
        [points, points, [], []],
        [F32, F32, "Scalar", "Scalar"],
    )
    findings = found(program([cdist]), "far-from-bound")
    assert [("torch.compile" in one.advice, one.evidence["needed_ns"]) for one in findings] == said * [(True, 84_131)]


@pytest.mark.parametrize(("took_us", "said"), [(7_700, True), (150, False)])
def test_equal_indices_that_are_added_one_after_the_other(took_us: int, said: bool) -> None:
    """Relative positions looked up as table[index]: 147,456 rows of 8 go into 32 rows."""
    put = Op(
        "aten::_index_put_impl_",
        "void (anonymous namespace)::indexing_backward_kernel_small_stride<float>(int)",
        took_us,
        [[32, 8], [], [384, 384, 8], [], []],
        [F32, "", F32, "Scalar", "Scalar"],
        scalars=["", "", "", "True", "True"],
    )
    findings = found(program([put]), "far-from-bound")
    assert bool(findings) is said
    if findings:
        assert "F.embedding" in findings[0].advice


def adding(
    rows: int, width: int, took_us: int, kind: str, *around: str, cpu_us: int = 100, step_us: int = 10_000
) -> Trace:
    """Backward of table[index]: so many rows, each into one of 800,000."""
    trace = TraceBuilder(devices=[H200], record_shapes=1)
    inputs: dict[str, Any] = {
        "Input Dims": [[800_000, width], [], [rows, width], [], []],
        "Input type": [kind, "", kind, "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "", "True", "True"],
    }
    for step in range(4):
        begin = step * step_us * US
        trace.step(step, begin, step_us * US - 1)
        for depth, name in enumerate(around):
            trace.op(name, begin + depth * US, (200 - 2 * depth) * US)
        trace.op("aten::_index_put_impl_", begin + 10 * US, cpu_us * US, **inputs)
        for number, (name, took) in enumerate(((SORTING, took_us // 4), (ADDING, took_us - took_us // 4))):
            at = begin + (20 + 10 * number) * US
            trace.launch("cudaLaunchKernel", at, 5 * US, 2 * step + number)
            trace.kernel(at + 5 * US + number * took_us // 4 * US, took * US, 2 * step + number, name=name)
    return trace.load()


SORTING = "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<int>(int)"
ADDING = "void (anonymous namespace)::indexing_backward_kernel_small_stride<float, 1>(long const*)"


@pytest.mark.parametrize(
    ("rows", "width", "took_us", "kind", "needed_us"),
    [
        pytest.param(4_849_206, 3, 1_200, F32, 148, id="corners of a mesh; index_add_ takes 121 us"),
        pytest.param(2_000_000, 1, 900, F32, 42, id="single numbers"),
        pytest.param(1_000_000, 32, 2_500, BF16, 280, id="bfloat16, which is added number by number"),
    ],
)
def test_sorting_sums_compare_with_sums_that_do_not_sort(
    rows: int, width: int, took_us: int, kind: str, needed_us: int
) -> None:
    (one,) = found(adding(rows, width, took_us, kind), "far-from-bound")
    assert ": it sorts the indices, and adds equal ones one after the other" in one.message
    assert "index_select instead of table[index]" in one.advice
    assert one.cost_ns == pytest.approx(4e3 * (took_us - needed_us), rel=0.02)


@pytest.mark.parametrize(
    ("took_us", "around"),
    [
        pytest.param(400, (), id="wide rows, few of them equal: sorting takes little more"),
        pytest.param(2_000, ("aten::index_add_", "aten::index_put_"), id="deterministic algorithms sort on purpose"),
    ],
)
def test_sums_that_need_sorting_or_lose_little_by_it(took_us: int, around: tuple[str, ...]) -> None:
    assert found(adding(500_000, 64, took_us, F32, *around), "far-from-bound") == []


def test_what_sorts_launches_more_and_its_cpu_time_goes_as_well() -> None:
    """The CPU is the limit: less time on the device alone saves nothing."""
    (one,) = found(adding(2_000_000, 1, 500, F32, cpu_us=900, step_us=1_000), "far-from-bound")
    assert one.saving is not None
    assert one.saving.share > 0.5


HEADS, CAUSAL = [*[[8, 1_024, 16, 64]] * 3, *[[]] * 7], ["True"] * 10


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        pytest.param(
            Op("aten::sum", "reduce", 3_000, [[64, 4_096], []], [F32, "ScalarList"], scalars=["", "[0]"]),
            "Reduce along the dimension that is contiguous in memory",
            id="a sum",
        ),
        pytest.param(
            Op(
                "aten::sum",
                "reduce",
                3_000,
                [[64, 4_096], []],
                [F32, "ScalarList"],
                scalars=["", "[0]"],
                inside="autograd::engine::evaluate_function: AddBackward0",
            ),
            "In backward it sums the gradient of a bias",
            id="a sum in backward",
        ),
        pytest.param(
            Op("aten::_efficient_attention_forward", "efficient", 9_000, HEADS, [BF16] * 3, scalars=CAUSAL),
            "Enable the flash kernel",
            id="attention",
        ),
        pytest.param(
            Op(
                "aten::cudnn_convolution",
                "convolve_sgemm",
                3_000,
                [[8, 32, 128, 256], [4_096, 32, 8, 8], [], []],
                [BF16, BF16, "ScalarList", "ScalarList"],
                scalars=["", "", "[0, 0]", "[8, 8]", "[1, 1]", "1"],
            ),
            "Its stride is its kernel size: cut the input into patches",
            id="patches",
        ),
        pytest.param(
            Op(
                "aten::convolution_backward",
                "void dgrad_engine<__nv_bfloat16, 512, 6, 5, 3, 3, 3, false>(int)",
                12_900,
                [[48, 128, 4_096], [48, 64, 16_384], [128, 64, 21], *[[]] * 8],
                [BF16] * 3,
                scalars=["", "", "", "[128]", "[4]", "[10]", "[1]", "False", "[0]", "1", "[True, True, True]"],
            ),
            "For these sizes cuDNN has no kernel in 16 bit that uses tensor cores",
            id="a convolution without tensor cores",
        ),
        pytest.param(
            Op(
                "aten::add",
                "add",
                3_000,
                [[8, 512, 4_096]] * 2,
                [BF16] * 2,
                strides=[[2_097_152, 1, 512], [2_097_152, 4_096, 1]],
            ),
            "Its input lies transposed in memory",
            id="a transposed sum",
        ),
        pytest.param(
            Op("aten::_flash_attention_forward", "flash_fwd_kernel", 9_000, HEADS, [BF16] * 3, scalars=CAUSAL),
            "The flash kernel runs already",
            id="flash attention",
        ),
    ],
)
def test_what_to_do_depends_on_where_and_how_the_op_runs(op: Op, advice: str) -> None:
    (one,) = found(program([op]), "far-from-bound")
    assert one.advice.startswith(advice)


@pytest.mark.parametrize(("rows", "need"), [(64, "a call so small needs"), (65_536, "its bytes and operations need")])
def test_what_a_call_is_held_against_is_told(rows: int, need: str) -> None:
    (one,) = found(program([Op("aten::roll", "roll", 9_000, [[rows, 256], [], []], [F32])]), "far-from-bound")
    assert f", but {need} only " in one.message
    assert one.evidence["needed_ns"] >= 5_000


def test_of_several_shapes_the_one_whose_calls_take_most_is_told() -> None:
    sizes = (64, 900), (4_096, 3_000)
    ops = [Op("aten::roll", "roll", dur, [[rows, 512], [], []], [F32]) for rows, dur in sizes]
    (one,) = found(program([*ops, ops[0]]), "far-from-bound")
    assert (one.evidence["shapes"], one.evidence["call_ns"]) == ("4096x512", 3_000_000)
    assert one.count == 18


@pytest.mark.parametrize(("slow", "said"), [(4, False), (5, False), (6, True)])
def test_one_slow_call_of_many_is_no_rate_of_the_op(slow: int, said: bool) -> None:
    """Of ten calls of one shape the median decides, of two middle ones the lower."""
    calls = [Op("aten::roll", "roll", 3_000 if n < slow else 30, [[4096, 1024], [], []], [F32]) for n in range(10)]
    findings = found(program(calls, steps=1), "far-from-bound")
    assert bool(findings) is said
    assert all(one.evidence["call_ns"] == 3_000_000 for one in findings)


def test_far_from_bound_needs_shapes() -> None:
    report = diagnose(program([Op("aten::mm", NVJET, 100)]), select=["far-from-bound"])
    assert report.outcomes[0].status is Status.NOT_APPLICABLE
    assert "record_shapes" in (report.outcomes[0].why or "")


@pytest.mark.parametrize(("dur", "said"), [(60, 0), (2_000, 1)])
def test_a_copy_within_the_device_is_held_against_its_bytes(dur: int, said: int) -> None:
    """Of 64 MB, which are read and written at 4.8 TB/s: 28 us."""
    trace = TraceBuilder(record_shapes=1)
    inputs = {"Input Dims": [[4_096, 4_096]] * 2, "Input type": [F32] * 2}
    for step in range(3):
        begin = step * 3_000 * US
        trace.step(step, begin, 3_000 * US)
        trace.op("aten::copy_", begin + 10 * US, 20 * US, **inputs)
        trace.copied((begin + 15 * US, 5 * US), (begin + 30 * US, dur * US), step + 1, size=1 << 26)
    told = list(diagnose(trace.load(), select=["far-from-bound"]).findings)
    assert [(one.by, one.count) for one in told] == [("aten::copy_", 3)] * said


@pytest.mark.parametrize(
    ("inner", "grid", "advice"),
    [
        (2_048, 1_320, "If one dimension is much longer than the others, split the product along it"),
        (2_047, 1_320, "Pad the dimension that is not a multiple of 8"),
    ],
)
def test_only_an_odd_dimension_is_padded(inner: int, grid: int, advice: str) -> None:
    product = Op("aten::mm", NVJET, 9_000, [[2_048, inner], [inner, 2_048]], [BF16, BF16], grid=grid)
    (one,) = found(program([product]), "far-from-bound")
    assert one.advice.startswith(advice)


@pytest.mark.parametrize(
    ("grid", "advice"), [(1_320, "Its blocks fill the device already"), (8, "Give the device more parallel work")]
)
def test_more_rows_are_no_remedy_for_a_full_device(grid: int, advice: str) -> None:
    add = Op("aten::add", ADD, 900, BIG, [F32, F32], grid=grid)
    (one,) = found(program([add]), "far-from-bound")
    assert one.advice.startswith(advice)


SCATTER = "void at::native::_scatter_gather_elementwise_kernel<128, 8, Kernel<true, float, long>::ReduceAdd>(int)"


@pytest.mark.parametrize(
    ("name", "took_us", "reported"),
    [
        pytest.param(SCATTER, 4_700, True, id="adds to few addresses"),
        pytest.param(SCATTER, 150, False, id="adds to many addresses"),
        pytest.param(NVJET, 4_700, False, id="a GEMM, whose grid shows no elements"),
    ],
)
def test_without_shapes_elementwise_kernels_are_judged_by_grid(name: str, took_us: int, reported: bool) -> None:
    """4096 blocks of 128 threads with 8 elements each, of at most 24 bytes: 21 us at 4,800 GB/s."""
    trace = TraceBuilder()
    for step in range(3):
        begin = step * 10_000 * US
        trace.step(step, begin, 9_000 * US)
        trace.op("aten::scatter_add_", begin, 50 * US)
        trace.launch("cudaLaunchKernel", begin + 10 * US, 5 * US, correlation=step + 1)
        shape = {"grid": [4096, 1, 1], "block": [128, 1, 1]}
        trace.kernel(begin + 20 * US, took_us * US, step + 1, name=name, **shape)
    (outcome,) = diagnose(trace.load(), select=["far-from-bound"]).outcomes
    assert outcome.status is (Status.FOUND if reported else Status.NOT_APPLICABLE)
    for finding in diagnose(trace.load(), select=["far-from-bound"]).findings:
        assert (finding.by, finding.evidence["needed_ns"]) == ("aten::scatter_add_", 20_971)
        assert "torch.bincount" in finding.advice


def blur(channels: int, taps: Sequence[int], took_us: int) -> Op:
    """One filter for each channel of 192 images."""
    return Op(
        "aten::_conv_depthwise2d",
        "void at::native::conv_depthwise2d_forward_kernel_generic<float, int>(int)",
        took_us,
        [[192, channels, 246, 246], [channels, 1, *taps], [], [], [], [], []],
        [F32, F32, "ScalarList", "", "ScalarList", "ScalarList", "ScalarList"],
        scalars=["", "", str(list(taps)), "", "[1, 1]", "[0, 0]", "[1, 1]"],
    )


def test_a_wide_blur_of_images_is_far_from_two_passes() -> None:
    (one,) = found(program([blur(3, (23, 23), 5_000)]), "far-from-bound")
    assert "passes in each direction need" in one.message
    assert "one pass multiplies 529 taps, one pass in each direction 46" in one.message
    assert "conv2d(conv2d(x, row), column)" in one.advice


@pytest.mark.parametrize(
    ("channels", "taps", "took_us"),
    [(3, (1, 23), 470), (3, (5, 5), 240), (64, (23, 23), 107_000), (3, (23, 23), 1_600)],
)
def test_small_filters_and_those_of_layers_are_no_blur(channels: int, taps: tuple[int, int], took_us: int) -> None:
    findings = found(program([blur(channels, taps, took_us)]), "far-from-bound")
    assert not any("passes" in one.message for one in findings)
