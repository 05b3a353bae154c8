"""What limits the op that takes most of a step, on either side of each decision, with rates worked out by hand."""

import pytest

from tests.rules.kernel_programs import F32, NVJET, US, Op, program
from tests.support.hotspot_programs import ADD, SHAPES, TERA, UNKNOWN, copying, mm, one


@pytest.mark.parametrize(("us", "short"), [(4, True), (5, False)])
def test_kernels_are_short_below_5_us(us: int, short: bool) -> None:
    assert (one(program([Op("aten::op", ADD, us)] * 4)).cause == "latency") is short


@pytest.mark.parametrize(("products", "others", "fused"), [(2, 2, True), (3, 2, False), (1, 3, True), (4, 0, False)])
def test_short_kernels_are_fused_unless_gemms(products: int, others: int, fused: bool) -> None:
    ops = [Op("aten::op", NVJET, 2)] * products + [Op("aten::op", ADD, 2)] * others
    assert one(program(ops)).advice.startswith("Fuse these kernels") is fused


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        (1, "its longest kernel has 1 block for 132 SMs"),
        (2, "its longest kernel has 2 blocks for 132 SMs"),
        (65, "its longest kernel has 65 blocks for 132 SMs"),
        (66, ""),
    ],
)
def test_blocks_are_few_below_half_of_the_multiprocessors(grid: int, told: str) -> None:
    fact = one(program([Op("aten::op", ADD, 200, grid=grid)]))
    assert (fact.cause == "few-blocks") is bool(told)
    assert told in fact.message


@pytest.mark.parametrize(("few_us", "told"), [(200, False), (201, True)])
def test_few_blocks_limit_above_half_of_the_time(few_us: int, told: bool) -> None:
    ops = [Op("aten::op", ADD, few_us, grid=10), Op("aten::op", ADD, 200)]
    assert (one(program(ops)).cause == "few-blocks") is told


def test_few_blocks_name_the_longest_kernel() -> None:
    ops = [Op("aten::op", NVJET, 100, grid=10), Op("aten::op", ADD, 300, grid=20)]
    fact = one(program(ops))
    assert "its longest kernel has 20 blocks" in fact.message
    assert fact.advice.startswith("Give the device more parallel work: more rows")
    products = one(program([Op("aten::op", NVJET, 100, grid=10)]))
    assert "split-K" in products.advice


@pytest.mark.parametrize(
    ("us", "share", "advice"),
    [
        (200, 69, "Limited by arithmetic: a smaller dtype or less work helps most."),
        (180, 77, "Limited by arithmetic, and near the peak"),
    ],
)
def test_gemm_above_half_of_the_peak_is_compute_bound(us: int, share: int, advice: str) -> None:
    fact = one(program([mm(us)]))
    assert fact.cause == "compute"
    assert f"it reaches {TERA / us:,.0f} TFLOP/s, {share} % of the compute peak (990 TFLOP/s)" in fact.message
    assert fact.advice.startswith(advice)


@pytest.mark.parametrize(("us", "cause"), [(277, "compute"), (279, "below-bounds")])
def test_half_of_the_peak_is_near(us: int, cause: str) -> None:
    """It takes 138.9 us at the peak."""
    assert one(program([mm(us)])).cause == cause


def test_a_pass_over_memory_is_told_in_bytes() -> None:
    add = Op("aten::add", ADD, 250, [[8_192, 8_192]] * 2, [F32] * 2)
    fact = one(program([add]))
    rate = 3 * 8_192**2 * 4 / 250_000
    share = 100 * rate / 4_800
    assert f"it reaches {rate:,.0f} GB/s, {share:.0f} % of the memory peak (4,800 GB/s)" in fact.message
    assert fact.advice.startswith("Limited by memory")


def test_of_many_shapes_the_mean_by_time_is_told() -> None:
    """Five products of 200 us and one of 320 us, 24 % of the time: 6 x 138.9 of 1,320 us."""
    ops = [mm(320 if place == 5 else 200, shape) for place, shape in enumerate(SHAPES)]
    fact = one(program(ops))
    assert "on average, its calls reach 63 % of their peak" in fact.message
    assert fact.cause == "compute"
    assert "for inputs of shapes" in fact.message


def test_one_shape_of_a_quarter_of_the_time_stands_for_the_op() -> None:
    ops = [mm(200, shape) for shape in SHAPES[:4]]
    assert f"it reaches {TERA / 200:,.0f} TFLOP/s" in one(program(ops)).message
    ops = [mm(200, shape) for shape in SHAPES[:5]]
    assert "on average" in one(program(ops)).message


def test_next_to_nothing_of_a_peak_is_no_percentage() -> None:
    fact = one(program([Op("aten::add", ADD, 200, [[64, 64]] * 2, [F32] * 2)]))
    assert fact.cause == "below-bounds"
    assert "; it reaches less than 1 % of the memory peak (4,800 GB/s); its kernels" in fact.message


@pytest.mark.parametrize(
    ("op", "rate"),
    [
        (mm(200), "it reaches 687.2 TFLOP/s and 503 GB/s, by the shapes of its inputs"),
        (Op("aten::add", ADD, 400, [[8_192, 8_192]] * 2, [F32] * 2), "it reaches 2,013 GB/s, by the shapes"),
    ],
)
def test_on_an_unknown_device_rates_are_told_without_peaks(op: Op, rate: str) -> None:
    fact = one(program([op], device=UNKNOWN))
    assert fact.cause == ""
    assert rate in fact.message
    assert "ncu" in fact.advice


@pytest.mark.parametrize(("copies", "kernels", "cause"), [(201, 200, "link"), (200, 200, "")])
def test_the_link_limits_what_it_takes_more_than_half_of(copies: int, kernels: int, cause: str) -> None:
    assert one(copying(("copy", copies), ("kernel", kernels))).cause == cause


def test_the_rate_over_the_link_is_that_of_the_copies_alone() -> None:
    fact = one(copying(("copy", 400), ("kernel", 300)))
    rate = f"it reaches {(1 << 20) / 400_000:.2f} GB/s (mean of all its copies) over the link to the host"
    assert rate in fact.message


def test_an_op_before_the_first_step_is_no_part_of_one() -> None:
    fact = one(copying(("kernel", 400), before=5_000))
    assert (fact.evidence["gpu_ns"], fact.count) == (400 * US, 3)
    assert fact.message.startswith("aten::copy_ takes")


def test_of_two_shapes_the_costlier_stands_for_the_op() -> None:
    """The other one is nearer to the peak."""
    fact = one(program([mm(500, SHAPES[1]), mm(200)]))
    assert fact.cause == "below-bounds"
    assert f"it reaches {TERA / 500:,.0f} TFLOP/s, 28 % of the compute peak" in fact.message
    assert "mostly for inputs of shapes 2048x8192, 8192x4096" in fact.message
