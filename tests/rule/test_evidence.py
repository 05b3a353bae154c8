"""The words that rules share for GPU work, and what a remedy needs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.trace_builder import TraceBuilder
from traceanalyzer import rules as rules_package
from traceanalyzer.idle.causes import TEXTS
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.advice import FEATURES, adapt_to_recording
from traceanalyzer.rule.evidence_texts import (
    called_names,
    called_ops,
    conversion_of,
    differentiated_twice,
    gpu_time_evidence,
    kernel_times,
    largest_shapes,
    named_ops,
    op_times,
    shapes_in_words,
)
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.backward_nodes import recomputed_ops


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ([[8, 512], [8, 512]], "8x512"),
        ([[8, 512], [512], [8, 512]], "8x512, 512"),
        ([[4], [3], [4], [2], [1]], "4, 3, 2"),
        ([[], [8, 512]], "8x512"),
    ],
)
def test_equal_shapes_are_said_once_in_order(dims: list[list[int]], said: str) -> None:
    trace = TraceBuilder(record_shapes=1)
    trace.op("aten::add", 0, 5_000, external_id=1, **{"Input Dims": dims})
    trace.launch("cudaLaunchKernel", 100, 1_000, correlation=1, external_id=1)
    trace.kernel(10_000, 4_000, correlation=1, external_id=1)
    assert largest_shapes(Analysis(trace.load()).index(Work)) == said


@pytest.mark.parametrize(
    ("types", "said"),
    [
        (["c10::BFloat16", "float"], "from float32 to bfloat16"),
        (["long int", "c10::Half", "float"], "from float16 to long int"),
        (["double", "c10::Half", "float", "int"], "from float16 to float64"),
        (["c10::Float8_e4m3fn", "c10::BFloat16"], "from bfloat16 to Float8_e4m3fn"),
        (["float"], ""),
        ([], ""),
    ],
)
def test_a_conversion_is_from_the_second_to_the_first_tensor(types: list[str], said: str) -> None:
    assert conversion_of(types) == said


def test_kernels_of_one_short_name_are_joined_longest_first() -> None:
    """Of work without an op the op of the same kernel elsewhere, or else the kernel."""
    trace = TraceBuilder()
    for number, (op, kernel, dur) in enumerate(
        (
            ("aten::mm", "void gemm<float>(int)", 40),
            ("aten::add", "void plus<float, 1>(int)", 30),
            ("aten::add", "void plus<float, 2>(int)", 20),
            (None, "void plus<float, 2>(int)", 5),
            (None, "void other<float>(int)", 1),
        )
    ):
        if op is not None:
            trace.op(op, number * 10_000, 5_000)
            trace.launch("cudaLaunchKernel", number * 10_000 + 100, 1_000, number + 1)
        trace.kernel(100_000 + number * 50_000, dur * 1_000, number + 1, name=kernel)
    work = Analysis(trace.load()).index(Work)
    assert list(kernel_times(work).items()) == [("plus", 55_000), ("gemm", 40_000), ("other", 1_000)]
    assert list(op_times(work).items()) == [("aten::add", 50_000), ("aten::mm", 40_000)]
    assert list(named_ops(work).values()) == ["aten::mm", "aten::add", "aten::add", "aten::add", "other"]
    assert gpu_time_evidence(work[work.dur_ns < 10_000])["ops"] == {"plus": 5_000, "other": 1_000}


def test_recorded_shapes_and_lines_end_the_sentence() -> None:
    trace = TraceBuilder(record_shapes=1)
    trace.op("aten::add", 0, 5_000, **{"Input Dims": [[8, 512], [8, 512]], "Call stack": "net.py(3): forward"})
    trace.launched((100, 1_000), (10_000, 4_000), 1)
    trace.op("aten::mul", 6_000, 5_000)
    trace.launched((6_100, 1_000), (20_000, 4_000), 2)
    work = Analysis(trace.load()).index(Work)
    assert gpu_time_evidence(work[:1])["where"] == ", for inputs of shape 8x512, from net.py(3): forward"
    assert gpu_time_evidence(work[1:])["where"] == ""


US = 1_000
Nested = tuple[str, int | None]  # op, its number


class Nests(TraceBuilder):
    """Ops within ops, the last of which launches a kernel, one nest every 100 us."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def nest(self, *ops: Nested, kernel: str = "void k<float>(int)", launches: bool = True, **last: Any) -> None:
        at = 100 * US * self.made
        self.made += 1
        for depth, (name, number) in enumerate(ops):
            args = {} if number is None else {"Sequence number": number}
            more = last if depth == len(ops) - 1 else {}
            self.op(name, at + depth * US, (60 - 2 * depth) * US, **args, **more)
        if launches:
            if ops:
                self.launch("cudaLaunchKernel", at + 20 * US, US, self.made)
            self.kernel(at + 30 * US, 10 * US, self.made, name=kernel)

    def all_work(self) -> Work:
        return Analysis(self.load()).index(Work)


NODE = "autograd::engine::evaluate_function: CheckpointFunctionBackward"


def test_work_has_the_users_op_and_in_nodes_its_own() -> None:
    trace = Nests()
    trace.nest(("aten::linear", None), ("aten::addmm", None))
    trace.nest(("autograd::engine::evaluate_function: MmBackward0", None), ("MmBackward0", None), ("aten::mm", None))
    trace.nest(kernel="void other<float>(int)")
    trace.nest(("mine::aten::fused", None), ("aten::mul", None))  # of a library of the user's
    work = trace.all_work()
    assert called_names(work).values().tolist() == [
        "aten::linear",
        "autograd::engine::evaluate_function: MmBackward0",
        "void other<float>(int)",
        "mine::aten::fused",
    ]
    assert called_ops(work).values().tolist() == ["aten::linear", "aten::mm", "other", "aten::mul"]


def test_collectives_are_named_by_groups() -> None:
    trace = Nests()
    reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
    for group in ("tensor", "data", "tensor"):
        known = {"Collective name": "allreduce", "Process Group Description": group}
        trace.nest(("c10d::allreduce_", None), ("record_param_comms", None), kernel=reduce, **known)
        trace.nest(("aten::mm", None))
    assert called_names(trace.all_work()).values().tolist() == [
        "allreduce of tensor",
        "aten::mm",
        "allreduce of data",
        "aten::mm",
        "allreduce of tensor",
        "aten::mm",
    ]


def test_checkpoint_recomputation_has_its_forward_op() -> None:
    trace = Nests()
    trace.nest((NODE, None), ("CheckpointFunctionBackward", 3), ("aten::linear", 7), ("aten::addmm", 7))
    trace.nest((NODE, None), ("CheckpointFunctionBackward", 3), ("aten::mm", None))
    trace.nest((NODE, None), ("TanhBackward0", 4), ("aten::mul", 9))
    work = trace.all_work()
    assert recomputed_ops(work.events).name.values().tolist() == ["aten::linear"]
    assert called_names(work).values().tolist() == ["aten::linear", NODE, NODE]


@pytest.mark.parametrize(
    ("plain", "again"),
    [
        (("aten::neg", None, True), ["aten::mul"]),  # a gradient is computed beside: a second forward
        (("aten::neg", None, False), []),  # without work it is none
        (("aten::neg", 9, True), []),  # gradients of gradients
    ],
)
def test_node_that_computes_unrecorded_reruns_forward(plain: tuple[str, int | None, bool], again: list[str]) -> None:
    trace = TraceBuilder()
    name, number, launches = plain
    trace.op("MineBackward", 0, 90 * US, **{"Sequence number": 3})
    trace.op("aten::mul", 10 * US, 20 * US, **{"Sequence number": 8})
    trace.op(name, 40 * US, 20 * US, **({} if number is None else {"Sequence number": number}))
    trace.op("autograd::engine::evaluate_function: MulBackward0", 70 * US, 5 * US, **{"Sequence number": 8})
    if launches:
        trace.launch("cudaLaunchKernel", 45 * US, US, 1)
    trace.kernel(60 * US, 10 * US, 1)
    events = Analysis(trace.load()).index(Calls).events
    assert recomputed_ops(events).name.values().tolist() == again


@pytest.mark.parametrize(
    ("op", "twice"), [("TanhBackward0", False), ("TanhBackwardBackward0", True), ("BackwardBackwardHelper", False)]
)
def test_gradients_of_gradients_are_nothing_that_torch_compiles(op: str, twice: bool) -> None:
    trace = Nests()
    trace.nest(("aten::mm", None))
    trace.nest((op, None), ("aten::mul", None))
    said = differentiated_twice(trace.all_work())
    assert ("does not differentiate compiled code twice" in said) is twice
    assert bool(said) is twice


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ("", ""),
        ("[[]]", ""),
        ("[[7],[8,4],[4,7]]", "8x4, 4x7, 7"),  # a bias last
        ("[[1],[2],[3,3],[4,4],[5,5],[6,6]]", "3x3, 4x4, 5x5"),
        ("[[3],[2,2],[3],[2,2]]", "2x2, 3"),
    ],
)
def test_shapes_are_said_in_words_with_vectors_last(dims: str, said: str) -> None:
    assert shapes_in_words(dims) == said


OLD = "torch 1.8 to 1.11"
ROCM = "torch 2.8 to 2.11 on ROCm"


@pytest.mark.parametrize(
    ("advice", "dialect", "needs"),
    [
        ("Pass {fused=True to SGD}", OLD, "2.3"),
        ("Pass {fused=True to SGD}", "torch 2.1 to 2.3", "2.3"),
        ("Pass {fused=True to AdamW}", "torch 2.1 to 2.3", ""),
        ("Use {torch.compile}", OLD, "2.0"),
        ("Use {torch.compile}(mode='reduce-overhead')", OLD, "2.0"),
        ("Use {torch.compile}", "torch 2.12 or later", ""),
        ("Use {torch.compile}", "unknown", ""),
        ("Use {torch.compile}", "", ""),
        ("Use {F.rms_norm}", "torch 2.4 previews of spring 2024", ""),
        ("Use {F.rms_norm}", "torch 2.1 to 2.3", "2.4"),
        ("Use {channels_last}", "torch 2.8 to 2.11", ""),
    ],
)
def test_an_old_torch_may_not_have_it(advice: str, dialect: str, needs: str) -> None:
    beside = f" (needs torch {needs} or later). This was recorded with {dialect}." if needs else "."
    assert adapt_to_recording(f"{advice}.", dialect) == advice.replace("{", "").replace("}", "") + beside


def test_channels_last_takes_a_switch_on_rocm() -> None:
    """Beside the layout, since without the switch it does nothing."""
    told = adapt_to_recording("Use {channels_last}: model.", ROCM)
    assert told.startswith("Use channels_last and PYTORCH_MIOPEN_SUGGEST_NHWC=1: model.")
    assert "MIOPEN" not in adapt_to_recording("Pin the source.", ROCM)


def test_cuptis_switch_is_not_advised_on_rocm() -> None:
    advice = TEXTS["waiting"].advice
    assert "enable_cuda_sync_events" in adapt_to_recording(advice, "torch 2.8 to 2.11")
    there = adapt_to_recording(advice, ROCM)
    assert "cuda" not in there
    assert "rocprofv3" in there


def texts_of(path: Path) -> Iterator[str]:
    """What a module may advise: its texts without docstrings, sources of limits, and reasons for not applying."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    others = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr | ast.Raise)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "limit")
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in others:
            yield node.value


def test_what_an_advice_takes_is_marked() -> None:
    """Else an old torch would be advised what it has not."""
    names = "|".join(map(re.escape, FEATURES))
    bare = re.compile(rf"(?<![{{.\w])(?:{names})(?![\w}}])")
    texts = [text for path in Path(rules_package.__file__ or "").parent.rglob("*.py") for text in texts_of(path)]
    texts += [text.advice for text in TEXTS.values()]
    assert [text for text in texts if bare.search(text)] == []


def test_names_in_braces_are_left_alone() -> None:
    assert adapt_to_recording("Move {lambda(int)#1} out of the loop.", ROCM) == "Move {lambda(int)#1} out of the loop."
