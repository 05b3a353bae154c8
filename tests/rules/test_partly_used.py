"""Tensors of which only a part is used."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, found, program
from tests.support.execution_traces import Call, Tensor, written
from traceanalyzer import Finding, diagnose, load
from traceanalyzer.rules.tensors.partly_used import forms_of
from traceanalyzer.tensors.signatures import Signature

WHOLE, ROW = [8, 512, 32_000], [8, 32_000]
SMALL = "void at::native::reduce_kernel<512, 1, at::native::argmax>(float)"


def op(name: str, dur_us: int, *dims: Any, scalars: tuple[Any, ...] = ()) -> Op:
    """An op on tensors and, after them, numbers; a view where it takes no time."""
    kinds = [F32] * len(dims) + ["Scalar"] * len(scalars)
    texts = [""] * len(dims) + [*map(str, scalars)]
    kernel = SMALL * bool(dur_us)
    return Op(f"aten::{name}", kernel, dur_us, [*dims, *([] for _ in scalars)], kinds, scalars=texts)


HEAD = Op("aten::linear", NVJET, 900, [[8, 512, 1024], [32_000, 1024]], [BF16, BF16])
CAST = op("to", 450, WHOLE, scalars=(6, False))
LAST = op("select", 0, WHOLE, scalars=(1, -1))
ARGMAX = op("argmax", 10, ROW, scalars=(-1,))


def partly_used(*ops: Op) -> list[Finding]:
    return found(program([*ops]), "partly-used")


def test_the_last_position_of_many_is_all_that_is_used() -> None:
    (one,) = partly_used(HEAD, CAST, LAST, ARGMAX)
    assert "takes only 0.2 % of its dimension 1" in one.message
    assert "head(hidden[:, -1:])" in one.advice
    assert one.cost_ns == pytest.approx(6e3 * (900 + 450) * 511 / 512)


@pytest.mark.parametrize(("logits", "rules"), [((3, 3, 3), ["computed-unused"]), ((3, 4, 5), ["partly-used"])])
def test_what_is_read_in_part_is_one_finding(tmp_path: Path, logits: tuple[int, ...], rules: list[str]) -> None:
    """An execution trace shows it if the memory is used anew; else only the shapes do."""
    steps = []
    for storage in logits:
        whole, last = Tensor(storage, (8, 128, 32_000)), Tensor(storage, (8, 32_000), offset=127 * 32_000)
        head = Call("aten::linear", (Tensor(1, (8, 128, 64)), Tensor(2, (32_000, 64))), (whole,))
        cut = Call("aten::select", (whole,), (last,), numbers=(1, -1))
        steps.append([head, head, cut, Call("aten::argmax", (last,), (Tensor(9, (8,)),), numbers=(-1, False))])
    report = diagnose(load(written(tmp_path, steps)), select=["partly-used", "computed-unused"])
    assert [one.rule for one in report.findings] == rules


def test_batches_of_other_lengths_are_of_one_form() -> None:
    heads = [Signature.parsed("aten::linear", f"[[8, {length}, 64], [9, 64]]", None, None) for length in (500, 501)]
    assert forms_of(np.array([0, 1]), heads, np.array([0, 1])) == [("aten::linear", "([8, ?, 64], [9, 64])")] * 2
    assert forms_of(np.array([0]), heads[:1], np.array([0])) == [("aten::linear", "([8, 500, 64], [9, 64])")]


@pytest.mark.parametrize(
    ("cut", "part"),
    [
        (op("slice", 0, WHOLE, scalars=(1, 0, 64, 1)), 64 / 512),
        (op("slice", 0, WHOLE, scalars=(1, -128, 9_223_372_036_854_775_807, 1)), 128 / 512),
        (op("slice", 0, WHOLE, scalars=(1, 0, 512, 4)), 128 / 512),
        (op("narrow", 0, WHOLE, scalars=(1, 0, 64)), 64 / 512),
        (op("select", 0, WHOLE, scalars=(0, 3)), 1 / 8),
        (op("index_select", 5, WHOLE, scalars=(1,)), None),  # how many is not recorded
        (op("slice", 0, WHOLE, scalars=(1, 0, 511, 1)), None),
        (op("slice", 0, WHOLE, scalars=(1, "x", 64, 1)), None),
    ],
)
def test_a_cut_keeps_its_part(cut: Op, part: float | None) -> None:
    costs = [one.cost_ns for one in partly_used(HEAD, cut, ARGMAX)]
    assert costs == ([] if part is None else [pytest.approx(6e3 * 900 * (1 - part))])


@pytest.mark.parametrize(
    "ops",
    [
        [HEAD, op("log_softmax", 100, WHOLE, scalars=(-1,)), CAST, LAST, op("mul", 90, WHOLE, WHOLE)],
        [HEAD, LAST, ARGMAX, op("exp", 90, WHOLE)],
        [HEAD, op("softmax", 100, WHOLE, scalars=(1,)), LAST, ARGMAX],
        [HEAD, op("copy_", 100, WHOLE, WHOLE), LAST, ARGMAX],
        [HEAD, *[op("select", 0, WHOLE, scalars=(1, at)) for at in range(512)], ARGMAX],
        [HEAD, *[op("neg", 1, [9, 9])] * 8, LAST, ARGMAX],
        [HEAD, op("index", 5, WHOLE, scalars=("",)), op("exp", 5, WHOLE)],
        [HEAD, op("index", 5, WHOLE, scalars=("",)), op("exp", 5, [6, 512, 32_000])],
    ],
    ids=["read whole", "later", "across rows", "in place", "many", "far", "index of all", "index of most"],
)
def test_what_is_needed_in_full_is_left_alone(ops: list[Op]) -> None:
    assert partly_used(*ops) == []


def test_parts_that_are_taken_beside_the_cut_count() -> None:
    (one,) = partly_used(HEAD, LAST, op("slice", 0, WHOLE, scalars=(1, 0, 64, 1)), ARGMAX)
    assert one.cost_ns == pytest.approx(6e3 * 900 * (1 - 65 / 512))


def test_slices_of_slices_multiply_their_parts() -> None:
    most, kept = op("slice", 0, WHOLE, scalars=(1, 0, 256, 1)), [8, 256, 32_000]
    (one,) = partly_used(HEAD, most, op("slice", 0, kept, scalars=(1, 0, 64, 1)), ARGMAX)
    assert one.cost_ns == pytest.approx(6e3 * 900 * (1 - 64 / 512))


def test_normalizing_windows_for_their_last_number_is_needless() -> None:
    """The mean of the next step's windows is the next step's."""
    wide, narrow = [64, 512, 48], [64, 512, 1]
    windows = [
        op("mean", 60, wide, scalars=("[-1]", True)),
        op("sub", 200, wide, narrow, scalars=(1,)),
        op("div", 300, wide, narrow),
        op("select", 0, wide, scalars=(2, -1)),
    ]
    (one,) = partly_used(*windows, ARGMAX)
    assert one.cost_ns == pytest.approx(6e3 * 500 * (1 - 1 / 48))
    assert one.advice == "Take the part before aten::sub, and compute only that."
    assert partly_used(*windows, op("mean", 60, wide, scalars=("[-1]", True))) == []


def test_one_channel_of_each_row_is_picked_before_resizing() -> None:
    """What the index takes is not recorded, but the next op reads it."""
    small, large = [100, 80, 28, 28], [100, 80, 112, 112]
    masks = [
        op("conv2d", 300, [100, 256, 28, 28], [80, 256, 1, 1]),
        op("sigmoid", 50, small),
        op("upsample_bilinear2d", 2_000, small, scalars=("", False, "[4., 4.]")),
        op("gt", 400, large, scalars=(0.5,)),
        op("index", 30, large, scalars=("",)),
    ]
    (one,) = partly_used(*masks, op("view", 0, [100, 112, 112], scalars=("[4, 25, 112, 112]",)))
    assert (one.evidence["cut"], one.evidence["kept"]) == ("aten::index", "1.2 %")
    assert one.cost_ns == pytest.approx(6e3 * 2_450 * (1 - 1 / 80))
    assert partly_used(*masks, op("view", 0, [7, 7], scalars=("[49]",))) == []
