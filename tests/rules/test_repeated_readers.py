"""What reads a tensor that was written several times takes less, too, where it waits for memory."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, NVJET, US, Op, found, program
from traceanalyzer import Finding

MOVED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int, int)"
)
FLASH = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16"
HEADS, WRITTEN, READ = [32, 8, 4, 2048, 128], [8388608, 1048576, 262144, 128, 1], [2097152, 262144, 0, 128, 1]
KEYS, BYTES = [32, 32, 2048, 128], 32 * 32 * 2048 * 128 * 2  # 112 us at 4,800 GB/s


def copy(read: list[int] = READ) -> Op:
    types = [BF16, BF16, "Scalar"]
    return Op("aten::copy_", MOVED, 500, [HEADS, HEADS, []], types, strides=[WRITTEN, read, []])


def attention(keys: list[int], dur: int = 250, queries: int = 1) -> Op:
    """Attention of each head's last token to all keys: twice 112 us of bytes."""
    query = [keys[0], keys[1], queries, keys[3]]
    scalars = ["", "", "", "", "False", "", "", "", "", "", "False"]
    types = [BF16, BF16, BF16]
    return Op("aten::_cudnn_attention_forward", FLASH, dur, [query, keys, keys], types, scalars=scalars)


def product(left: list[int], right: list[int], dur: int = 125) -> Op:
    return Op("aten::bmm", NVJET, dur, [left, right], [BF16, BF16])


SCORES = product([1024, 1, 128], [1024, 128, 2048])
VALUES = product([1024, 1, 2048], [1024, 2048, 128])


def repetition(ops: list[Op]) -> Finding:
    (one,) = (one for one in found(program(ops), "strided-copy") if one.cause == "repetition")
    return one


def spared(dur: int, copies: int, others: int) -> float:
    """us that an op takes less: of its bytes it reads a quarter, but for the small ones."""
    small = others * 32 * 32 * 2
    return dur * copies * BYTES * 0.75 / (copies * BYTES + small)


def test_attention_reads_each_head_once() -> None:
    one = repetition([copy(), copy(), attention(KEYS)])
    saved = spared(250, 2, 2 * 128)
    assert one.cost_ns == pytest.approx(6 * (1_000 + saved) * US, rel=1e-3)
    assert one.evidence["read_ns"] == pytest.approx(6 * saved * US, rel=1e-3)
    assert one.message.endswith(
        ". aten::_cudnn_attention_forward reads all that is written, and takes 1.12 ms longer for it"
    )
    assert one.saving is not None
    assert one.saving.step_ns == pytest.approx((1_000 + saved) * US, rel=0.03)
    assert len(one.occurrences) == 12


def test_only_as_many_inputs_as_were_written_are_read_once() -> None:
    one = repetition([copy(), attention(KEYS)])
    assert one.cost_ns == pytest.approx(6 * (500 + spared(250, 2, 256) / 2) * US, rel=1e-3)


def test_products_of_single_rows_read_keys_and_values_once() -> None:
    one = repetition([copy(), copy(), SCORES, Op("aten::_softmax", "softmax", 5, [[1024, 1, 2048]], [BF16]), VALUES])
    saved = 2 * spared(125, 1, 128 + 2048)
    assert one.cost_ns == pytest.approx(6 * (1_000 + saved) * US, rel=1e-3)


def test_what_is_read_a_second_time_stays() -> None:
    one = repetition([copy(), SCORES, SCORES])
    assert one.cost_ns == pytest.approx(6 * (500 + spared(125, 1, 128 + 2048)) * US, rel=1e-3)


@pytest.mark.parametrize(
    "other",
    [
        attention(KEYS, dur=200),  # quicker than memory: the data is in the cache
        attention(KEYS, dur=900, queries=512),  # bound by arithmetic
        attention([32, 32, 1024, 128], dur=125),  # other data
        attention([32, 32, 4096, 64], dur=250),  # another last size
        product([128, 1, 128], [128, 128, 512 * 32]),  # no row of it
        replace(SCORES, name="aten::_bmm_backward"),
        Op("aten::add", "vectorized_elementwise_kernel<add>", 160, [KEYS, KEYS], [BF16, BF16]),
    ],
)
def test_other_ops_keep_their_time(other: Op) -> None:
    one = repetition([copy(), copy(), other])
    assert one.cost_ns == 6 * 1_000 * US
    assert "read_ns" not in one.evidence


def test_what_reads_first_takes_what_was_written() -> None:
    """Here an addition, whose result attention reads."""
    added = Op("aten::add", "vectorized_elementwise_kernel<add>", 160, [KEYS, [128]], [BF16, BF16])
    assert repetition([copy(), added, attention(KEYS)]).cost_ns == 6 * 500 * US


def test_rows_that_are_repeated_within_a_matrix_are_no_heads() -> None:
    """Each row of a matrix is the same: a product reads it as rows, not as another batch."""
    rows = copy([1048576 // 4, 131072 // 4, 8192, 0, 1])
    assert repetition([rows, SCORES]).cost_ns == 6 * 500 * US


def test_arithmetic_that_takes_as_long_bounds_what_is_saved() -> None:
    """128 queries of each head: 2 x 2 x 32 x 32 x 128 x 2048 x 128 operations at what attention reaches of the peak."""
    one = repetition([copy(), copy(), attention(KEYS, 350, queries=128)])
    compute = 4 * 32 * 32 * 128 * 2048 * 128 / 989.5e6 / 0.40  # us
    assert one.evidence["read_ns"] == pytest.approx(6 * (350 - compute) * US, rel=0.01)


@pytest.mark.parametrize(("dur", "said"), [(447, True), (449, False)])
def test_half_of_the_memorys_rate_tells_what_waits_for_memory(dur: int, said: bool) -> None:
    """Keys and values are 224 us at the peak."""
    assert ("read_ns" in repetition([copy(), copy(), attention(KEYS, dur)]).evidence) is said


def test_repeat_count_equal_to_row_length_is_read_once() -> None:
    """Each of eight heads for 128 queries, in rows of 128: 134 MB, which take 28 us of memory's time."""
    heads, keys = [1, 8, 128, 512, 128], [1, 1024, 512, 128]
    written, read = [67_108_864, 8_388_608, 65_536, 128, 1], [524_288, 65_536, 0, 128, 1]
    one = repetition(
        [
            replace(copy(), dims=[heads, heads, []], strides=[written, read, []]),
            replace(copy(), dims=[heads, heads, []], strides=[written, read, []]),
            attention(keys, dur=62),
        ]
    )
    assert "aten::_cudnn_attention_forward reads all that is written" in one.message
    assert one.evidence["often"] == "128 times"


@pytest.mark.parametrize(
    ("batch", "heads", "dur"),
    [pytest.param(4, 8, 32, id="as many sequences as repeats"), pytest.param(32, 4, 128, id="as many heads"),
     pytest.param(4, 4, 16, id="both"), pytest.param(5, 8, 40, id="neither")],
)  # fmt: skip
def test_repeat_count_equal_to_other_sizes_is_read_once(batch: int, heads: int, dur: int) -> None:
    """Each head for four queries; keys and values take 7/8 of `dur` at 4,800 GB/s, and three quarters go."""
    shape, keys = [batch, heads, 4, 2048, 128], [batch, heads * 4, 2048, 128]
    written = [heads * 1_048_576, 1_048_576, 262_144, 128, 1]
    read = [heads * 262_144, 262_144, 0, 128, 1]
    made = replace(copy(), dims=[shape, shape, []], strides=[written, read, []])
    one = repetition([made, made, attention(keys, dur)])
    assert one.evidence["often"] == "4 times"
    assert one.evidence["read_ns"] == pytest.approx(6 * 0.75 * dur * US, rel=2e-3)
