"""Built programs on which limits decide that no recording decides: rule -> what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from tests.job.ranks import Reductions
from tests.job.test_programs import other_program
from tests.rules import test_full_sort as sorts
from tests.rules import test_kernel_patterns as patterns
from tests.rules import test_recording as recording
from tests.rules.kernel_programs import BF16, F32, F64, NVJET, SGEMM, US, Op, program
from tests.rules.launches import loop
from tests.rules.loops import loop_of
from tests.rules.more_limit_programs import MORE_PROGRAMS
from tests.rules.programs import Program
from tests.rules.test_collectives import few_and_many, small_ones
from tests.rules.test_copies_and_memory import allocating, converting
from tests.rules.test_cuda_graphs import close, paced, waiting
from tests.rules.test_dataloader_stall import collating
from tests.rules.test_dense_dispatch import einsums, slots
from tests.rules.test_dense_gradient import nearest, recommender
from tests.rules.test_encoded_copies import windows
from tests.rules.test_encoder_in_loop import LOOPS
from tests.rules.test_exchanges import BACK, FORWARD, T, experts, pipeline
from tests.rules.test_explicit_inverse import fitted
from tests.rules.test_far_from_bound import adding, blur
from tests.rules.test_fft_length import ONE as BLUESTEIN
from tests.rules.test_gathered_pairs import crossing
from tests.rules.test_graph_breaks import broken
from tests.rules.test_hard_cases import kernels
from tests.rules.test_host_loops import copied
from tests.rules.test_implicit_sync import reading
from tests.rules.test_listed_pairs import near
from tests.rules.test_masked_attention import attention
from tests.rules.test_needless_work import experts as gated
from tests.rules.test_needless_work import pairs, scores, weights
from tests.rules.test_networks import guided, observed
from tests.rules.test_outside_autocast import HALF, full
from tests.rules.test_padded_replay import served
from tests.rules.test_partly_used import head, select
from tests.rules.test_product_order import linear_attention, orthogonalised
from tests.rules.test_rebuilt_constants import USE, WINDOW, calling
from tests.rules.test_recomputation import anomaly_mode
from tests.rules.test_reordered_work import forecast, propagated, sampled, upsampled
from tests.rules.test_repeated_calls import sent_and_used
from tests.rules.test_scattered_weights import recurrent
from tests.rules.test_sort_without_shapes import sorting
from tests.rules.test_stalled_threads import paused
from tests.rules.test_unchanged_inputs import ANGLES, DEGREES, LAYER, RELU, training
from tests.rules.test_unfused_optimizer import stepping
from tests.support.trace_builder import H200, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.report.diagnosis import analyses_of

Made = TraceBuilder | Trace | Analysis
MS = 1_000 * US
UNKNOWN = {**H200, "name": "Graphics Card 9000"}
CAST = Op("aten::copy_", patterns.CAST, 26, [*patterns.BIG, []], [F32, BF16, "Scalar"])
NCHW = "void at::native::batch_norm_{}_kernel<float>(int)"
DEPTHWISE = "void at::native::conv_depthwise2d_forward_kernel<3, c10::BFloat16>(int)"
DOUBLE = Op("aten::mm", "some_gemm", 300, [[64, 64]] * 2, [F64, F64])
WINOGRAD = "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)"
NARROW = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align2>(Params)"
RADIX = [Op("aten::mm", "nvjet_tst", 20), sorts.sort(shape=[1, 1_000_000], dur=98)]
WIDE = Op("aten::log_softmax", "softmax", 100, [[8, 512, 32_000], []], [BF16, "Scalar"])


def of_rank(traces: Mapping[int, TraceBuilder], rank: int) -> Analysis:
    """One rank of a job, which knows of the others."""
    return dict(analyses_of({number: trace.load() for number, trace in traces.items()}))[rank]


def imbalanced(*compute_us: Sequence[int]) -> Analysis:
    """The rank that computes longest."""
    slowest = max(range(len(compute_us)), key=lambda rank: sum(compute_us[rank]))
    return of_rank(Reductions(dict(enumerate(compute_us))).traces(), slowest)


def throttled(power: float, heat: float) -> Trace:
    """The clock falls, the power beside it is this."""
    powers = [700.0] * 4 + [power] * 3 + [700.0]
    return recording.clocked(clock=recording.DIP, power=powers, heat=[heat] * 8)


def losing(which: Callable[[int], bool]) -> TraceBuilder:
    """Launches of which these have work."""
    return recording.worked(recording.stepped(), which)


def beside(slow: int, *, name: str = NVJET, grid: int = 1_320, other: int = 60) -> TraceBuilder:
    """Six steps of ten kernels of 100 us, one of them slower; half of each time another stream computes."""
    trace, number, at = TraceBuilder(), 0, 0
    for step in range(6):
        begin = at
        for piece in range(10):
            dur = (slow if (step, piece) == (5, 9) else 100) * US
            for stream, launched, length in ((7, at, dur), (13, at + 20 * US, other * US)):
                number += 1
                called = at + (5 if stream == 7 else 12) * US
                trace.op("aten::mm", called - US, 6 * US)
                trace.launch("cudaLaunchKernel", called, 4 * US, number)
                blocks = (grid if stream == 7 else 1_320, 1, 1)
                kernel = name if stream == 7 else "void other(int)"
                trace.kernel(launched + 20 * US, length, number, name=kernel, stream=stream, grid=blocks)
            at += dur + 12 * US
        trace.step(step, begin, at - begin - 1)
    return trace


def early(few: int) -> TraceBuilder:
    """A hundred kernels, of which so many start before their launch."""
    trace = TraceBuilder()
    for number in range(1, 101):
        trace.op("aten::mm", number * 50 * US, 20 * US)
        trace.launch("cudaLaunchKernel", number * 50 * US + 5 * US, 5 * US, number)
        trace.kernel(number * 50 * US + (2 if number <= few else 12) * US, 20 * US, number)
    return trace


def bucketed(elements: int, count: int) -> TraceBuilder:
    """Four steps in which the reducer's hooks reduce so many buckets of so many numbers, each in 100 us."""
    trace, number = TraceBuilder(distributedInfo={"rank": 0, "world_size": 2}), 0
    args: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "Out msg nelems": elements,
    }
    for step in range(4):
        begin = step * 20 * MS
        for piece in range(count):
            number, at = number + 1, begin + piece * 200 * US
            trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 90 * US)
            trace.op("c10d::allreduce_", at + US, 80 * US)
            trace.op("record_param_comms", at + 2 * US, 70 * US, dtype="Float", **args)
            trace.launch("cudaLaunchKernel", at + 5 * US, 5 * US, number)
            trace.kernel(at + 20 * US, 100 * US, number, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        trace.step(step, begin, 19 * MS)
    return trace


def normed(blocks: int) -> Trace:
    """A convolution and a norm of images whose channels come first, a block for each channel."""
    image, conv = [[32, 64, 56, 56]], "sm90_xmma_fprop_implicit_gemm_bf16"
    parts = [NCHW.format(part) for part in ("collect_statistics", "backward", "transform_input")]
    ops = [Op("aten::native_batch_norm", part, 300, image, [F32], grid=blocks) for part in parts]
    convolutions = [Op("aten::cudnn_convolution", kernel, 200, image, [BF16]) for kernel in (conv, DEPTHWISE)]
    return program([*convolutions, *ops], device={**H200, "numSms": 0} if blocks == 150 else H200)


def by_hand(product: str) -> Trace:
    """Product, softmax and product without shapes."""
    softmax = Op("aten::_softmax", patterns.SOFTMAX, 100)
    return program([Op("aten::bmm", product, 200), softmax, Op("aten::bmm", product, 200)])


def spiking() -> TraceBuilder:
    """Six steps that ask the driver for memory once each, the fourth ten times."""
    made = Program()
    for number in range(6):
        made.step(number)
        for _ in range(10 if number == 3 else 1):
            made.trace.op("aten::empty", made.now, 90 * US)
            made.trace.launch("cudaMalloc", made.now + US, 80 * US, 50_000 + made.now // US)
            made.now += 100 * US
        made.kernel()
    return made.trace


def updating(*ops: str, launches: int = 5) -> TraceBuilder:
    """AdamW's updates by lists of tensors."""
    trace = loop([*ops], launches, kernel="void multi_tensor_apply_kernel<float>(int)")
    for step in range(3):
        length = 12 * US * len(ops) * launches
        trace.annotation("Optimizer.step#AdamW.step", step * length, length)
    return trace


PROGRAMS: Mapping[str, Sequence[Callable[[], Made]]] = {
    "allocator-thrash": [lambda: allocating(("cudaMalloc", "cudaFree"), range(6)).trace, spiking],
    "compile": [lambda: broken(["aten::mul"] * 3)],
    "dataloader-stall": [lambda: loop_of(collating)],
    "dense-dispatch": [lambda: program(slots()), lambda: program(einsums())],
    "dense-gradient": [lambda: recommender(110_000, optimizer="Adagrad")],
    "dtype-casts": [
        lambda: program([Op("aten::mm", NVJET, 86), CAST, Op("aten::_softmax", patterns.SOFTMAX, 40)])
    ],
    "exposed-communication": [
        lambda: few_and_many(2_000 * US),
        lambda: imbalanced((500, 300) * 6, (500, 700) * 6),
        lambda: few_and_many(150 * US),
    ],
    "fft-length": [lambda: program([Op("aten::_fft_c2c", BLUESTEIN, 1_600), Op("aten::mm", "sgemm", 2_000)])],
    "float64-math": [
        lambda: program([Op("aten::add", "add", 9, [[64, 64]] * 2, [F32, F64]), DOUBLE], device=UNKNOWN),
    ],
    "full-sort": [lambda: program([*RADIX, sorts.first(8, shape=[1, 1_000_000])]), sorting],
    "hand-written-attention": [lambda: by_hand(NVJET), lambda: by_hand(SGEMM)],
    "host-gap": [lambda: paused("aten::gelu"), lambda: paused("fused_gelu")],
    "host-round-trip": [lambda: converting().trace],
    "idle-experts": [lambda: program(gated(2))],
    "implicit-sync": [
        lambda: reading(("aten::masked_select", "aten::index", "aten::nonzero")).trace,
        lambda: reading().trace,
        copied,
    ],
    "kernel-variance": [
        lambda: kernels([[us] * 10 for us in (100, 100, 100, 105, 105, 112)]),
        lambda: beside(900),
    ],
    "lane-offset": [lambda: early(2)],
    "late-projection": [lambda: program(upsampled()), lambda: program(propagated())],
    "launch-bound": [lambda: loop(["aten::add"], 60, steps=1), lambda: waiting(4), close, lambda: paced(2)],
    "layout-conversion": [lambda: normed(64), lambda: normed(400), lambda: normed(150)],
    "load-imbalance": [
        lambda: imbalanced((900,) * 5, (1_000,) * 5, (1_700,) * 5, (1_100,) * 5),
        lambda: imbalanced((1_000,) * 5, (1_035,) * 5),
        lambda: imbalanced((500, 300) * 6, (500, 700) * 6),
    ],
    "loss-head": [lambda: program(scores(64_000))],
    "low-occupancy": [lambda: beside(100, name="void slow(int)", grid=4)],
    "masked-attention": [lambda: attention([2, 1, 4_096, 4_096])],
    "materialised-pairs": [lambda: program(pairs(1_000)), lambda: program(nearest()), crossing, near],
    "misaligned-gemm": [lambda: program([Op("aten::mm", NARROW, 300)])],
    "needless-collectives": [lambda: small_ones(12)],
    "no-tensor-cores": [
        lambda: program([Op("aten::mm", SGEMM, 300), Op("aten::mm", NVJET, 100)], device=UNKNOWN),
        lambda: program([Op("aten::cudnn_convolution", WINOGRAD, 300)]),
    ],
    "other-program": [lambda: of_rank(other_program(50 * US), 0)],
    "outside-autocast": [lambda: program([HALF, full(100)], device=UNKNOWN)],
    "padded-replay": [lambda: served([300, 500, 700, 200])],
    "partly-used": [
        lambda: program(head(select("", 1, -1), [8, 32_000])),
        lambda: program(
            [*chain.from_iterable([head(select("", 1, -1), [8, 32_000])] * 4), *head(None, [8, 512, 32_000])],
            steps=1,
        ),
    ],
    "pipeline-bubble": [
        lambda: pipeline([FORWARD, FORWARD, BACK, BACK]),
        lambda: pipeline([FORWARD, BACK], compute=600 * US),
    ],
    "product-order": [lambda: program(linear_attention()), lambda: program(orthogonalised())],
    "recomputation": [anomaly_mode],
    "recomputed-prefix": [lambda: program(forecast())],
    "loop-invariant": [lambda one=one: program(one) for one in LOOPS],
    "far-from-bound": [
        lambda: adding(2_000_000, 1, 500, F32, cpu_us=900, step_us=1_000),
        lambda: program([blur(3, (23, 23), 5_000)]),
    ],
    "explicit-inverse": [lambda: program(fitted())],
    "encoded-copies": [lambda: program(windows())],
    "unchanged-inputs": [lambda: training([*DEGREES, ANGLES, LAYER, RELU] * 3).load()],
    "rebuilt-constants": [lambda: calling(*[[*WINDOW, *USE]] * 4)],
    "repeated-calls": [guided, lambda: guided(others=80), lambda: sent_and_used(2), observed],
    "repeated-parameter-work": [lambda: program(weights(8, 1))],
    "scattered-weights": [lambda: recurrent(2)],
    "small-buckets": [lambda: bucketed(1 << 20, 8), lambda: bucketed(1 << 18, 30)],
    "throttling": [lambda: throttled(300.0, 60.0), lambda: throttled(500.0, 88.0)],
    "trace-health": [
        lambda: losing(lambda number: number % 4 != 0),
        lambda: losing(lambda number: number <= 100),
    ],
    "uneven-experts": [lambda: experts([(T, 2 * T), (2 * T, T), (T, 3 * T), (3 * T, T)])],
    "unfused-optimizer": [
        lambda: stepping("Lion", ["aten::mul_", "aten::sign", "aten::add_"], 40),
        lambda: updating(
            *(f"aten::_foreach_{op}_" for op in ("add", "mul", "lerp", "addcmul", "div", "addcdiv"))
        ),
    ],
    **MORE_PROGRAMS,
    "whole-after-topk": [lambda: program(sampled())],
}


def built(name: str) -> Analysis:
    """What `built/<rule>/<number>` names."""
    _, rule, number = name.split("/")
    made = PROGRAMS[rule][int(number)]()
    made = made.load() if isinstance(made, TraceBuilder) else made
    return made if isinstance(made, Analysis) else Analysis(made)
