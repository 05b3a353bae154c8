"""Which work of two recordings counts as the same, rung by rung, and the names that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.comparison.programs import pairs, sums
from tests.support.fixtures import SHOWING, name_of
from tests.support.trace_builder import load_bytes
from tests.support.trace_changes import all_at_once
from tests.support.trace_selection import ALL
from traceanalyzer import Trace, compare
from traceanalyzer.comparison.canonical_names import canonical_kernel, family_of, plain_name, region_name
from traceanalyzer.comparison.result import Word
from traceanalyzer.read.text.source import Source


def test_rest_of_a_rung_is_matched_by_remaining_executions() -> None:
    """Six of ten run the same kernel and four another: nothing is left, and nothing counts twice."""
    assert pairs([{}], [{"count": 6.0}, {"kernel": "other", "count": 4.0}]) == [
        ("path", {0: 0.6}, {0: 1.0}),
        ("path", {0: 0.4}, {1: 1.0}),
    ]


@pytest.mark.parametrize("more", ["base", "new"])
def test_unmatched_remainder_goes_to_its_rows_first_pair(more: str) -> None:
    many: list[dict[str, Any]] = [{}]
    few = [{"count": 6.0}, {"kernel": "other", "count": 3.0}]
    told = pairs(many, few) if more == "base" else pairs(few, many)
    large, small = [{0: 0.7}, {0: 0.3}], [{0: 1.0}, {1: 1.0}]
    sides = (large, small) if more == "base" else (small, large)
    assert told == [("path", sides[0][at], sides[1][at]) for at in (0, 1)]


@pytest.mark.parametrize(
    ("changed", "rung"),
    [
        ({"kernel": "other", "blocks": 7}, "path"),
        ({"outer": "aten::matmul", "types": "half"}, "op"),
        ({"outer": "aten::matmul", "kernel": "other"}, "op"),
        ({"op": "aten::addmm", "dims": "[9]"}, "kernel"),
        ({"outer": "aten::matmul", "kernel": "other", "dims": "[9]"}, "region"),  # the same inner op
        ({"op": "aten::addmm", "kernel": "other"}, "region"),  # the same outer op
        ({"outer": "aten::addmm", "op": "aten::addmm", "kernel": "sgemm"}, "family"),
        ({"outer": "aten::add", "op": "aten::add", "kernel": "softmax"}, "none"),
        ({"kind": "communication"}, "none"),
    ],
)
def test_work_is_the_same_by_the_most_that_it_has_in_common(changed: dict[str, Any], rung: str) -> None:
    told = pairs([{}], [changed])
    assert told == (
        [("none", {0: 1.0}, {}), ("none", {}, {0: 1.0})] if rung == "none" else [(rung, {0: 1.0}, {0: 1.0})]
    )


def test_kernels_of_other_ops_pair_by_similar_grid() -> None:
    """Of as many bits: 100 blocks are like 64 and like 127, and unlike 63 and 128."""
    for alike, unlike in ((64, 63), (127, 128)):
        new = [
            {"outer": name, "op": name, "dims": "", "blocks": size}
            for name, size in (("a", unlike), ("b", alike))
        ]
        assert pairs([{}], new)[0] == ("kernel", {0: 1.0}, {1: 1.0})


@pytest.mark.parametrize(("kind", "rung"), [("copy_d2d", "family"), ("copy_h2d", "none")])
def test_kernel_may_replace_a_device_copy_but_no_link_copy(kind: str, rung: str) -> None:
    copy = {"outer": "aten::copy_", "op": "aten::copy_", "kernel": "Memcpy", "kind": kind}
    kernel = {"outer": "aten::clone", "op": "aten::clone", "kernel": "direct_copy_kernel"}
    assert [one[0] for one in pairs([copy], [kernel])] == ([rung] if rung == "family" else ["none", "none"])


def test_regions_hold_all_that_is_left_in_them() -> None:
    """Blocks of one name whose kernels all differ: two rows a step against one that runs nine times."""
    base = [{"annotation": "block", "outer": name, "op": name, "kernel": name} for name in ("a", "b")]
    new = [{"annotation": "block", "outer": "c", "op": "c", "kernel": "c", "count": 9.0}]
    assert pairs(base, new) == [("region", {0: 1.0, 1: 1.0}, {0: 1.0})]


def test_unmatched_work_is_listed_by_op_or_else_by_kernel() -> None:
    ops = [{"kernel": name} for name in ("x", "y")]
    kernels = [{"outer": "", "op": "", "kernel": name} for name in ("x", "y")]
    assert pairs([*ops, *kernels], []) == [
        ("none", {0: 1.0, 1: 1.0}, {}),
        ("none", {2: 1.0}, {}),
        ("none", {3: 1.0}, {}),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_tst_64x8_64x16_1x4_v_badd_NNT"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_17"),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>",
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        ),
        (
            "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
            "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_32x4_nn",
        ),
    ],
)
def test_tiles_architectures_and_numbers_go(one: str, other: str) -> None:
    assert canonical_kernel(one) == canonical_kernel(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"),
        ("triton_poi_fused_add_mul_0", "triton_red_fused_add_mul_0"),
        ("triton_poi_fused_add_0", "triton_poi_fused_mul_0"),
    ],
)
def test_types_and_ops_stay(one: str, other: str) -> None:
    assert canonical_kernel(one) != canonical_kernel(other)


def test_what_differs_from_run_to_run_goes() -> None:
    assert plain_name("hipLaunchKernel") == "cudaLaunchKernel"
    assert plain_name("<listcomp> at 0x7f12ab34") == "<listcomp> at 0x"
    assert plain_name("train.py(12): step") == "train.py: step"
    assert plain_name("ProfilerStep#12") == "ProfilerStep#"
    assert plain_name("Torch-Compiled Region: 0/3") == "Torch-Compiled Region"
    assert plain_name("aten::_local_scalar_dense") == "aten::_local_scalar_dense"
    assert region_name("nn.Module: Linear_3") == "nn.Module: Linear"


@pytest.mark.parametrize(
    ("kernel", "kind", "family"),
    [
        ("nvjet_tst_NNT", "compute", "GEMM"),
        ("void flash_fwd_kernel<...>", "compute", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32", "communication", "collective"),
        ("Memcpy DtoD (Device -> Device)", "copy_d2d", "copy"),
        ("triton_poi_fused_add", "compute", "pointwise"),
        ("my_kernel", "compute", "other"),
    ],
)
def test_families(kernel: str, kind: str, family: str) -> None:
    assert family_of(kernel, kind) == family


GIVEN = SHOWING if ALL else SHOWING[::6]


def rewritten(path: Path) -> Trace:
    """The trace with its events in another order, a later clock, and other ids of processes, threads and launches."""
    document = orjson.loads(b"".join(Source(path).blocks()))
    document = document if isinstance(document, dict) else {"traceEvents": document}
    all_at_once(document["traceEvents"])
    return load_bytes(orjson.dumps(document))


@pytest.mark.no_cover
@pytest.mark.parametrize("path", GIVEN, ids=name_of)
def test_a_recording_written_differently_is_identical(path: Path) -> None:
    found = compare(path, rewritten(path))
    assert found.verdict.word is Word.IDENTICAL
    assert found.axes.device is None or found.axes.device.real_ns == 0
    assert {row.word for row in found.rows} <= {Word.SAME}
    assert found.waterfall is None or sums(found)
