"""Attention over a paged cache: two requests in decode, 4 heads of queries and 2 of keys, 64 numbers each."""

import pytest

from tests.support.op_calls import BF16
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.tensors.launch_inputs import WorkInputs
from traceanalyzer.tensors.ops.costs import OpCost

WHOLE = "fmhaSm100aKernel_QkvBfloat16OBfloat16H64PagedKvDenseP16VarSeqQ16Kv128"
WINDOW = "fmhaSm100aKernel_QkvBfloat16OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ16Kv128"
SELECTION = "fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvDenseStaticTokenSparseP1VarSeqQ8Kv128"
MARK = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk{keys}sqsq2sqsk{keys})"
QUERY_AND_RESULT = 2 * 4 * 64 * (2 + 2)


def attention_cost(*calls: tuple[str, str], rows: int = 2, cache: str | None = None) -> OpCost | None:
    """Of calls of one op, each by (mark of its step, kernel)."""
    trace = TraceBuilder()
    shapes = [[rows, 4, 64], [rows, 2, 64], [rows, 2, 64], [rows, 4, 64]]
    for number, (mark, kernel) in enumerate(calls, start=1):
        start = 1_000 * number
        trace.annotation(mark, start, 900)
        if cache:
            written = {"Input Dims": [[rows, 2, 64]] * 3, "Input type": [BF16, BF16, cache]}
            trace.op("_C_cache_ops::reshape_and_cache_flash", start + 10, 90, **written)
            trace.launched((start + 20, 10), (start + 50, 10), 100 + number)
        inputs = {"Input Dims": shapes, "Input type": [BF16] * 4}
        trace.op("vllm::unified_attention_with_output", start + 100, 300, **inputs)
        trace.launch("cudaLaunchKernel", start + 150, 10, number)
        trace.kernel(start + 300, 100, number, name=kernel)
    inputs_of = Analysis(trace.load()).index(WorkInputs)
    return next(iter(inputs_of.attention.values()), None)


@pytest.mark.parametrize(("cache", "item_bytes"), [(BF16, 2), ("unsigned char", 1), (None, 1)])
def test_decode_reads_the_keys_and_values_of_its_sequences(cache: str | None, item_bytes: int) -> None:
    """Where nothing tells the type of the cache, it has 8 bits at least."""
    cost = attention_cost((MARK.format(keys=300), WHOLE), cache=cache)
    read = 300 * 2 * (64 + 64) * item_bytes
    assert cost == OpCost("paged attention", 2 * 4 * (64 + 64) * 300, QUERY_AND_RESULT + read, "bf16")


def test_calls_of_the_same_shapes_have_their_mean() -> None:
    """Of 300 and 500 keys; behind a window each query sees itself at least, 2 together."""
    grown = attention_cost((MARK.format(keys=300), WHOLE), (MARK.format(keys=500), WHOLE))
    assert grown is not None
    assert (grown.flops, grown.bytes) == (1_024 * 400, QUERY_AND_RESULT + 256 * 400)
    mixed = attention_cost((MARK.format(keys=300), WHOLE), (MARK.format(keys=300), WINDOW))
    assert mixed is not None
    assert (mixed.flops, mixed.bytes) == (1_024 * 151, QUERY_AND_RESULT + 256 * 151)


@pytest.mark.parametrize(
    ("mark", "kernel"),
    [
        ("execute_context_0(0)_generation_2(2)", WHOLE),
        (MARK.format(keys=300), WINDOW),
        (MARK.format(keys=300), SELECTION),
        (MARK.format(keys=300), "kernel_unified_attention_2d"),
    ],
)
def test_what_neither_mark_nor_kernel_tells_is_unknown(mark: str, kernel: str) -> None:
    assert attention_cost((mark, kernel)) is None


def test_one_call_of_unknown_length_leaves_the_mean_unknown() -> None:
    known = MARK.format(keys=300), WHOLE
    assert attention_cost(known, ("execute_context_0(0)_generation_2(2)", WHOLE)) is None
    assert attention_cost(known, (MARK.format(keys=300), SELECTION)) is None


def test_a_part_of_a_batch_is_not_what_the_mark_tells() -> None:
    """The mark is of two queries."""
    assert attention_cost((MARK.format(keys=300), WHOLE), rows=1) is None
    assert attention_cost((MARK.format(keys=300), WHOLE), rows=8) is not None  # padded to the size of a CUDA graph
