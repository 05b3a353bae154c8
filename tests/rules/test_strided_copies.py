"""Layout copies, dimension orders and concatenations of strided-copy."""

import json
from dataclasses import replace

import pytest

from tests.rules.kernel_programs import BF16, NVJET, US, Op, begun_later, found, program
from tests.support.trace_builder import content_of, load_bytes

CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
PRODUCT = Op("aten::mm", NVJET, 100)
MOVED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int, int)"
)


def cat(*shapes: list[int]) -> Op:
    """A concatenation of tensors of these shapes."""
    return Op("aten::cat", CAT, 30, [list(shapes), []], ["TensorList", "Scalar"])


def test_growing_cache_differs_from_other_cats() -> None:
    grows = [cat([32, 16, rows, 128], [32, 16, 1, 128]) for rows in (500, 501)]
    (one,) = found(program([*grows, PRODUCT]), "strided-copy")
    assert (one.cause, one.evidence["new"]) == ("growing-buffer", "32x16x1x128")


def test_what_a_cat_writes_to_is_no_input_of_it() -> None:
    into = [
        Op(
            "aten::cat",
            CAT,
            30,
            [[[32, 16, rows, 128], [32, 16, 1, 128]], [], [32, 16, rows + 1, 128]],
            ["TensorList", "Scalar", "float"],
        )
        for rows in (500, 501)
    ]
    (one,) = found(program([*into, PRODUCT]), "strided-copy")
    assert one.cause == "growing-buffer"


@pytest.mark.parametrize(
    "shapes",
    [
        ([32, 64], [32, 64]),
        ([32768, 1024], [32768, 8]),  # a column more for the next product: nobody appends to the result
        ([32, 1024], [1024]),
        ([32, 1024], [1, 32]),
    ],
    ids=str,
)
def test_what_nobody_appends_to_does_not_grow(shapes: tuple[list[int], ...]) -> None:
    (one,) = found(program([cat(*shapes), PRODUCT]), "strided-copy")
    assert one.cause == "concatenation"


def test_writing_in_place_takes_cpu_time_that_a_cat_does_not() -> None:
    """Where the CPU sets the pace, less work on the device makes the step no shorter."""
    quick = replace(cat([32, 64], [32, 64]), dur=5)
    (one,) = found(program([quick]), "strided-copy")
    assert one.saving is not None
    assert -4 * US < one.saving.step_ns < -1 * US


def test_what_was_appended_last_is_told() -> None:
    grows = [cat([32, 16, rows, 128], [32, 16, more, 128]) for rows, more in ((500, 1), (501, 2), (503, 3))]
    (one,) = found(program([*grows, PRODUCT]), "strided-copy")
    assert (one.cause, one.evidence["new"]) == ("growing-buffer", "32x16x3x128")


def test_cats_before_the_recording_may_be_of_the_cache() -> None:
    grows = [cat([32, 16, rows, 128], [32, 16, 1, 128]) for rows in (500, 501)]
    (one,) = found(begun_later(program([*grows, PRODUCT], steps=2)), "strided-copy")
    assert (one.cause, one.count) == ("growing-buffer", 2)


def test_a_small_write_stays_of_what_is_written_in_place() -> None:
    """At most 3 us, and no more than the concatenation took."""
    short, long = (replace(cat([32, 64], [32, 64]), dur=dur) for dur in (2, 10))
    (one,) = found(program([short, long]), "strided-copy")
    assert one.cost_ns == 6 * 7 * US


def moved(strides: list[list[int]]) -> Op:
    """A copy in a layer norm, of a batch of matrices with these strides."""
    sizes = [[8, 512, 1024]] * 2
    return Op("aten::copy_", MOVED, 10, sizes, [BF16] * 2, inside="aten::layer_norm", strides=strides)


@pytest.mark.parametrize(
    ("added", "causes"), [([524_288, 1, 512], ["carried"]), ([524_288, 1_024, 1], ["transposition"])]
)
def test_sums_hand_on_the_layout_of_a_transposed_tensor(added: list[int], causes: list[str]) -> None:
    rows = [524_288, 1_024, 1]
    total = Op("aten::add", "add", 20, [[8, 512, 1024]] * 2, [BF16] * 2, strides=[added, rows])
    trace = program([moved([rows, [524_288, 1, 512]]), total, replace(PRODUCT, dur=60)])
    assert [one.cause for one in found(trace, "strided-copy")] == causes


def test_the_line_that_transposes_is_named() -> None:
    """8 x 1,024 x 512, transposed in encode(): the copies in layer norms and the sum read these strides."""
    rows, turned = [524_288, 1_024, 1], [524_288, 1, 512]
    inputs = {"dims": [[8, 1024, 512], [], []], "strides": [[524_288, 512, 1], [], []]}
    view = Op("aten::transpose", "", types=[BF16], scalars=["", "1", "2"], **inputs)
    total = Op("aten::add", "add", 20, [[8, 512, 1024]] * 2, [BF16] * 2, strides=[turned, rows])
    content = json.loads(content_of(program([view, moved([rows, turned]), total, replace(PRODUCT, dur=60)])))
    (first, *_) = (one for one in content["traceEvents"] if one.get("name") == "aten::transpose")
    code = {"name": "model.py(7): encode", "args": {"Python id": 1, "Python parent id": None}}
    content["traceEvents"].append({**first, "cat": "python_function", **code})
    (one,) = found(load_bytes(json.dumps(content).encode()), "strided-copy")
    assert one.title.startswith("Layers copy the tensor that encode() (model.py:7) transposes: ")
    assert "lies transposed in memory (made at model.py(7): encode)" in one.message.replace("()", "")


def test_images_in_channels_last_are_no_transposed_rows() -> None:
    images, last, first = [[8, 64, 32, 32]] * 2, [65_536, 1, 2_048, 64], [65_536, 1_024, 32, 1]
    total = Op("aten::add", "add", 20, images, [BF16] * 2, strides=[last, last])
    copy = Op("aten::copy_", MOVED, 20, images, [BF16] * 2, inside="aten::contiguous", strides=[first, last])
    assert [one.cause for one in found(program([copy, total]), "strided-copy")] == ["transposition"]


@pytest.mark.parametrize(
    ("inside", "strides", "severity"),
    [
        ("aten::layer_norm", [[128, 1], [1, 64]], "high"),
        ("aten::layer_norm", None, "low"),
        ("aten::contiguous", None, "high"),
    ],
)
def test_inner_copies_without_strides_are_low_at_most(
    inside: str, strides: list[list[int]] | None, severity: str
) -> None:
    shapes = {"dims": [[64, 128]] * 2, "types": [BF16] * 2, "strides": strides} if strides else {}
    moved = Op("aten::copy_", MOVED, 2000, inside=inside, **shapes)
    (one,) = found(program([moved, PRODUCT]), "strided-copy")
    assert (one.cause, one.severity) == ("transposition", severity)
