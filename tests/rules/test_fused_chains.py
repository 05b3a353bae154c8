"""What one kernel in the place of a chain of pointwise kernels takes."""

from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, US, Op, found, program
from tests.support.pointwise_chains import ADD, ATTENTION, BIG, SMALL, SUM, pointwise

PRODUCT = Op("aten::mm", NVJET, 100)
SLUG = "unfused-pointwise"


@pytest.mark.parametrize(("kernels", "left"), [(3, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_each_ten_kernels_of_a_chain_are_one(kernels: int, left: int) -> None:
    (one,) = found(program([*pointwise(*[BIG] * kernels), PRODUCT]), SLUG)
    assert one.cost_ns == pytest.approx(6 * (kernels - left) * 40 * US, rel=1e-4)


def test_a_long_chain_is_cut_into_equal_parts() -> None:
    """Six and six: two quick kernels of the second half tell nothing of the first one."""
    ops = pointwise(*[BIG] * 12)
    ops[6], ops[11] = (replace(op, dur=20) for op in (ops[6], ops[11]))
    (one,) = found(program([*ops, PRODUCT]), SLUG)
    assert one.cost_ns == pytest.approx(6 * (10 * 40 + 2 * 20 - 40 - 20) * US, rel=1e-4)


@pytest.mark.parametrize(("dur", "fused"), [(9, 40), (10, 10), (30, 30)])
def test_the_fastest_full_size_kernel_sets_the_pass_time(dur: int, fused: int) -> None:
    """Less than a quarter of the longest, 40 us, is no pass over all of it."""
    ops = pointwise(BIG, BIG, BIG, BIG)
    ops[1] = replace(ops[1], dur=dur)
    (one,) = found(program([*ops, PRODUCT]), SLUG)
    assert one.cost_ns == pytest.approx(6 * (120 + dur - fused) * US, rel=1e-4)


def test_the_sequence_that_takes_most_is_named() -> None:
    def chain(*names: str) -> list[Op]:
        return [Op(f"aten::{name}", ADD, 40, BIG, [F32, F32]) for name in names]

    ops = [*chain("exp", "log", "neg"), PRODUCT, *chain("neg", "log", "exp"), PRODUCT] * 2
    (one,) = found(program([*ops, *chain("exp", "log", "neg"), PRODUCT]), SLUG)
    sequences = {"exp > log > neg": 6 * 9 * 40 * US, "neg > log > exp": 6 * 6 * 40 * US}
    assert list(one.evidence["sequences"].items()) == list(sequences.items())
    assert "most of this time is in the chain exp > log > neg" in one.message


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (("pow", "mean", "rsqrt", "mul"), "Use F.rms_norm or F.layer_norm for the norm written by hand"),
        (("pow", "mul", "tanh", "mul"), "Use F.gelu(x, approximate='tanh')"),
        (("sigmoid", "mul", "mul"), "Use F.silu, or F.glu, for the gate"),
        (("sigmoid", "mul", "log", "neg"), "Put the chain under torch.compile"),
        (("tanh", "exp", "neg"), "Put the chain under torch.compile"),
        (("exp", "log", "neg"), "Put the chain under torch.compile"),
    ],
)
def test_what_looks_like_a_ready_made_op_is_told_as_one(names: tuple[str, ...], advice: str) -> None:
    (one,) = found(program([*[Op(f"aten::{name}", ADD, 40, BIG, [F32, F32]) for name in names], PRODUCT]), SLUG)
    assert one.advice.startswith(advice)


@pytest.mark.parametrize("between", [8, 9])
def test_a_few_kernels_may_lie_between_a_product_and_the_softmax(between: int) -> None:
    scale = Op("aten::div", ADD, 20, [[128, 1024, 1024], []], [BF16, "long int"])
    ops = [ATTENTION[0], *[scale] * (between - 1), *ATTENTION[2:], PRODUCT]
    assert bool(found(program(ops), "hand-written-attention")) is (between <= 8)


@pytest.mark.parametrize(
    ("chain", "kernels"),
    [
        pytest.param(pointwise(BIG, BIG, SMALL), 0, id="a product, its bias and a scalar"),
        pytest.param(pointwise(BIG, SMALL, BIG), 0, id="a scalar between"),
        pytest.param(pointwise(BIG, BIG, SMALL, SMALL, SMALL), 0, id="several scalars"),
        pytest.param([*pointwise(BIG, BIG), Op("aten::sum", SUM, 40, BIG)], 0, id="a sum"),
        pytest.param(pointwise(BIG, BIG, BIG), 3, id="three of one size"),
        pytest.param(pointwise(BIG, BIG, SMALL, BIG), 4, id="three of one size and a scalar"),
    ],
)
def test_a_chain_needs_three_kernels_of_one_size(chain: list[Op], kernels: int) -> None:
    """Of each of six steps; where three are of one size, the small ones are fused with them."""
    findings = found(program([*chain, PRODUCT]), SLUG)
    assert [one.evidence["kernels_in_chains"] for one in findings] == [6 * kernels] * bool(kernels)


@pytest.mark.parametrize(("second", "pairs"), [([1, 800, 64], True), ([64], False), ([900, 1, 1], False)])
def test_advice_names_the_broadcast_that_makes_pairs(second: list[int], *, pairs: bool) -> None:
    """A bias or a factor of each row makes a result of its input's size."""
    first, whole = ([900, 1, 64] if pairs else [900, 800, 64]), [900, 800, 64]
    begin = Op("aten::sub", ADD, 40, [first, second], [F32, F32])
    rest = [Op(f"aten::{name}", ADD, 40, [whole], [F32]) for name in ("abs", "exp")]
    (one,) = found(program([begin, *rest, PRODUCT]), SLUG)
    text = "torch.cdist, or put the chain under torch.compile: 900x1x64 and 1x800x64 are broadcast to 900x800x64"
    assert (text in one.advice) is pairs
