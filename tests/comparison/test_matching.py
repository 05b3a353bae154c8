"""Which work of two recordings is the same, and rows of a comparison."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pandas as pd
import pytest

from tests.comparison.built_sides import axis, compared, of, row, side, work
from tests.comparison.programs import ADDED, MM, built, pairs, sums
from tests.rules.kernel_programs import Op
from tests.support.fixtures import SHOWING, name_of
from tests.support.trace_builder import load_bytes
from tests.support.trace_changes import all_at_once
from tests.support.trace_selection import ALL
from traceanalyzer import Trace, compare
from traceanalyzer.comparison.canonical_names import canonical_kernel, family_of, plain_name, region_name
from traceanalyzer.comparison.compared_rows import ComparedRow, compared_row, corrected, note_of
from traceanalyzer.comparison.formatting import said_and_got
from traceanalyzer.comparison.matching import Pair
from traceanalyzer.comparison.reasons import reasons
from traceanalyzer.comparison.result import CallRow, FaultChange, Part, Waterfall, Word
from traceanalyzer.comparison.sides import are_identical, device_axis, other_inputs, rung_shares
from traceanalyzer.comparison.snapshot import TABLES, Captures
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
        new = [{"outer": name, "op": name, "dims": "", "blocks": size} for name, size in (("a", unlike), ("b", alike))]
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


def judged(p: float | None, *, tested: bool) -> ComparedRow:
    row = compared_row(Pair("op", {0: 1.0}, {0: 1.0}), ([work("mm", 1, 10)], [work("mm", 1, 10)]))
    return replace(row, row=replace(row.row, p=p, word=Word.SLOWER), tested=tested)


def test_only_rows_that_a_test_decided_are_corrected() -> None:
    rows = [judged(None, tested=False), judged(0.04, tested=True), judged(0.001, tested=True), judged(0.2, tested=True)]
    found = [row.word for row in corrected(rows, comparable=True)]
    assert found == [Word.SLOWER, Word.SAME, Word.SLOWER, Word.SAME]


def test_a_row_is_named_by_what_takes_longest() -> None:
    """Of a pair of several ops, not by what runs most often."""
    table = [work("often", 9, 10, outer="o"), work("long", 1, 90, outer="l")]
    found = compared_row(Pair("region", {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}), (table, table))
    assert (found.row.op, found.row.outer) == ("long", "l")
    assert found.row.base is not None
    assert found.row.base.kernels == ("long", "often")


@pytest.mark.parametrize(
    ("base", "new", "other"), [((4, "a"), (4, "b"), True), ((4, "a"), (5, "b"), False), ((4, "a"), (4, ""), False)]
)
def test_other_sizes_need_equal_counts(base: tuple[float, str], new: tuple[float, str], other: bool) -> None:
    sides = [of(count, shapes=shapes and f"[[{shapes}]]") for count, shapes in (base, new)]
    assert note_of(*sides, alike=False)[1] is other


def test_the_ratio_is_of_one_execution() -> None:
    """Twice as many that take twice as long in all: each takes the same."""
    table = [work("mm", 2, 200), work("mm", 2, 200)], [work("mm", 8, 800)]
    found = compared_row(Pair("op", {0: 1.0, 1: 1.0}, {0: 1.0}), table).row
    assert (found.ratio, found.word) == (1.0, Word.MORE)


@pytest.mark.parametrize(("real", "word"), [(10, Word.SAME), (11, Word.SLOWER), (-10, Word.SAME), (-11, Word.FASTER)])
def test_work_differs_by_a_hundredth_of_the_gpu_s_time(real: int, word: Word) -> None:
    rows = [row(of(ns=500), of(ns=500 + real), word=Word.SLOWER), row(of(ns=500), of(ns=600))]
    found = device_axis(rows)
    assert found is not None
    assert (found.word, found.real_ns, found.base_ns, found.new_ns) == (word, real, 1_000, 1_100 + real)


def test_more_captures_of_one_recording_are_not_identical() -> None:
    table = dict.fromkeys(TABLES, pd.DataFrame({"a": [1]}))
    one: Any = SimpleNamespace(step=1, tables=table)
    once, twice = Captures((one,), one), Captures((one, one), one)
    assert [are_identical(*sides) for sides in ((once, once), (once, twice), (twice, once), (twice, twice))] == [
        True,
        False,
        False,
        True,
    ]


def test_rungs_are_shares_of_the_time_of_both_sides() -> None:
    """A row of 100 ns half by its path and half by its op, beside 100 ns by the path."""
    tables = pd.DataFrame({"ns": [100.0]}), pd.DataFrame({"ns": [100.0]})
    found = rung_shares([Pair("path", {0: 0.5}, {0: 1.0}), Pair("op", {0: 0.5})], tables)
    assert {rung: share for rung, share in found.items() if share} == {"path": 0.75, "op": 0.25}


def test_what_differs_is_listed_before_what_adds_more_by_chance() -> None:
    """A product that takes 500 or 530 us, which is noise, and an addition of 10 that takes 5 us more."""
    slow = [Op(MM.name, MM.kernel, 530, MM.dims, MM.types), Op(ADDED.name, ADDED.kernel, 15, ADDED.dims)]
    quick = [MM, Op(ADDED.name, ADDED.kernel, 10, ADDED.dims)]
    found = compare(*(built(ops).load() for ops in (quick, slow))).rows
    assert [(row.op, row.word) for row in found] == [("aten::add", Word.SLOWER), ("aten::mm", Word.SAME)]
    assert found[1].delta_ns > found[0].delta_ns > 0


def test_longest_op_with_other_inputs_is_named() -> None:
    rows = [compared(ns, op=op) for ns, op in ((20, "aten::add"), (60, "aten::mm"), (10, "aten::sum"))]
    assert other_inputs(rows, (side(), side())).startswith("other shapes: aten::mm got ")


@pytest.mark.parametrize(("alike", "note"), [(True, "float32 became bfloat16 of 8x4"), (False, "")])
def test_types_are_compared_of_the_same_op_alone(alike: bool, note: str) -> None:
    sides = [of(shapes="[[8, 4]]", types=f'["{kind}"]') for kind in ("float", "c10::BFloat16")]
    assert note_of(*sides, alike=alike) == (note, False)


def test_what_waits_is_told_at_its_outer_op() -> None:
    call = CallRow("synchronisations", "aten::item", "aten::is_nonzero", "cudaStreamSynchronize", 1, 3, Word.MORE)
    (found,) = reasons([], [row(1, 1, outer="aten::is_nonzero")], [call], None, None, "")
    assert found.startswith("aten::is_nonzero: ")


@pytest.mark.parametrize(("delta", "idle", "said"), [(4, 5, True), (5, 5, True), (6, 5, False)])
def test_idle_time_is_most_of_an_op_from_as_much_as_its_work(delta: int, idle: int, said: bool) -> None:
    fall = Waterfall(1_000, 2_000, (Part("idle", "late: aten::mm", 0, idle, 1_000 * idle),), {})
    slower = row(1, 1, word=Word.SLOWER, delta_ns=1_000 * delta)
    (found,) = reasons([], [slower], [], fall, axis(Word.SLOWER, 0.5), "")
    assert (", most of it idle time" in found) is said


def test_an_interval_of_a_saving_begins_at_nothing() -> None:
    fault = FaultChange("new", ("a",), "a", "low", 0.1, -0.05, 0.3, None, None, None)
    assert said_and_got(fault, interval=True) == "predicted 10 % (0 % to 30 %)"


def test_recordings_of_other_steps_are_not_identical() -> None:
    tables = dict.fromkeys(TABLES, pd.DataFrame({"a": [1]}))
    one: Any = SimpleNamespace(step=1, tables=tables)
    other: Any = SimpleNamespace(step=2, tables=tables)
    assert not are_identical(Captures((one,), one), Captures((other,), other))
    changed: Any = SimpleNamespace(step=1, tables={**tables, "host": pd.DataFrame({"a": [2]})})
    assert not are_identical(Captures((one,), one), Captures((changed,), changed))
