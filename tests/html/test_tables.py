"""Tables of a trace by themselves: ops, steps, kernels, memory and facts, and the small picture of memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.html.pages import Parsed, quotes, shown
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable
from traceanalyzer.render.html.plot_data import KernelSpread, MemoryCurve, Owner, StepSeries, StepTime
from traceanalyzer.render.html.plots import memory_svg
from traceanalyzer.render.html.tables import facts, kernels, memory, ops, steps
from traceanalyzer.report.facts import Fact

MIB = 1 << 20


def rows_of(page: Parsed) -> list[str]:
    """Texts of the rows below the head."""
    return [
        one.text.replace("\u00a0", " ")
        for one in page.elements
        if one.name == "tr" and "tbody" in one.parents
    ]


# -- ops --------------------------------------------------------------------------------------------------

KNOWN = Inputs(3, "8x8", "bf16", 40, 2 * MS, 12.34, 8.75, 0.5, "memory", None)
UNKNOWN = Inputs(5, "", "", 1, MS, None, None, None, None, "no shapes")


def table(*inputs: Inputs, others: int = 0, names: tuple[str, ...] = ("aten::mm",)) -> OpTable:
    rows = tuple(OpRow(name, 1_200, 3 * MS, 0.25, inputs, 0) for name in names)
    return OpTable(rows, others, 7 * MS, ("device 0: a datasheet",))


def test_op_has_inputs_with_rates_and_share_of_the_peak() -> None:
    page = shown(ops(table(KNOWN, UNKNOWN), 2))
    assert rows_of(page) == [
        "aten::mm1,2003.00 ms25.0 %",
        "[8x8] bf16402.00 ms12 TFLOP/s, 8.8 GB/s 50.0 % of memory",
    ]
    assert page.of_class("saved")[0].attributes["width"] == "50.0%"
    bodies = [one.attributes for one in page.elements if one.name == "tbody"]
    assert [(one["id"], one["data-name"]) for one in bodies] == [("op-2-0", "aten::mm")]
    paths = [str(one.attributes["data-path"]) for one in page.having("data-path")]
    assert paths[:3] == [f"ops-2#/ops/0/{name}" for name in ("calls", "gpu_ns", "share")]
    assert paths[3:] == [
        f"ops-2#/inputs/3/{name}" for name in ("calls", "gpu_ns", "tflops", "gbps", "peak_share")
    ]


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"gbps": None}, "[8x8] bf16402.00 ms12 TFLOP/s 50.0 % of memory"),
        ({"tflops": None}, "[8x8] bf16402.00 ms8.8 GB/s 50.0 % of memory"),
        ({"tflops": 0.0}, "[8x8] bf16402.00 ms0.0 TFLOP/s, 8.8 GB/s 50.0 % of memory"),
        ({"peak_share": None, "why": "not measured"}, "[8x8] bf16402.00 ms12 TFLOP/s, 8.8 GB/snot measured"),
        ({"peak_share": None}, "[8x8] bf16402.00 ms12 TFLOP/s, 8.8 GB/s"),
        ({"peak_share": 1.25}, "[8x8] bf16402.00 ms12 TFLOP/s, 8.8 GB/s 125.0 % of memory"),
        ({"shapes": ""}, "[] bf16402.00 ms12 TFLOP/s, 8.8 GB/s 50.0 % of memory"),
    ],
)
def test_what_is_not_known_of_inputs_is_left_out(changes: dict[str, float | None], row: str) -> None:
    page = shown(ops(table(replace(KNOWN, **changes)), 0))
    assert rows_of(page)[1] == row
    if changes.get("peak_share") == 1.25:
        assert page.of_class("saved")[0].attributes["width"] == "100.0%"


@pytest.mark.parametrize(("others", "said"), [(0, []), (1, ["1 other ops take 7.00 ms."])])
def test_ops_that_have_no_row_are_summed(others: int, said: list[str]) -> None:
    page = shown(ops(table(KNOWN, others=others), 0))
    texts = [one.text for one in page.elements if one.name == "p"]
    assert texts == [*said, "Peaks: device 0: a datasheet"]


def test_long_names_of_ops_are_told_apart() -> None:
    begin = "k" * 200
    page = shown(ops(table(names=(f"{begin}_first", f"{begin}_other")), 0))
    names = [one.text for one in page.elements if one.name == "th" and "tbody" in one.parents]
    assert len(set(names)) == 2


# -- steps and kernels ------------------------------------------------------------------------------------


def test_step_has_busy_and_idle_time_and_its_main_part() -> None:
    first = StepTime(3, 10 * MS, {"compute": 7 * MS, "idle": 3 * MS}, (("aten::mm", 5 * MS),), "idle:python")
    second = StepTime(4, 8 * MS, {"compute": 8 * MS, "memset": 0})
    page = shown(steps(StepSeries(0, 9 * MS, 1, (first, second)), 2))
    assert rows_of(page)[0].startswith("310.0 ms7.00 ms3.00 msaten::mm 5.00 ms")
    assert rows_of(page)[1] == "48.00 ms8.00 ms0 ns"
    assert len(rows_of(page)[0]) > len("310.0 ms7.00 ms3.00 msaten::mm 5.00 ms")
    assert [one.attributes["data-at"] for one in page.having("data-at")] == ["#step-2-3", "#step-2-4"]
    legend = [one.text for one in page.elements if one.name == "li"]
    assert legend == ["compute", "memset", "idle"]
    (caption,) = [one.text for one in page.elements if one.name == "figcaption"]
    assert caption == "Time of each step on device 0; the line is the median, 9.00 ms. "
    many = shown(steps(StepSeries(0, 9 * MS, 2, (first,)), 2))
    (caption,) = [one.text for one in many.elements if one.name == "figcaption"]
    assert caption.endswith("One bar is the longest of 2 steps.")


def test_a_kernel_has_its_count_its_median_and_its_spread() -> None:
    one = KernelSpread("void gemm<float>(int)", 0, 1_200, 36 * MS, 25_000, 0.5, 0.9, 1.1, 2.5)
    page = shown(kernels([one, replace(one, blocks=64)]))
    plain, blocks = rows_of(page)
    assert plain.endswith("1,20036.0 ms25.0 µs0.90× to 1.10×2.50×")
    assert "blocks" not in plain
    assert " 64 blocks" in blocks


# -- memory -----------------------------------------------------------------------------------------------

CURVE = MemoryCurve(
    1,
    "CUDA:0",
    4 * MIB,
    ORIGIN + 30,
    8 * MIB,
    0,
    (ORIGIN, ORIGIN + 10, ORIGIN + 30, ORIGIN + 40),
    (0, 2 * MIB, 4 * MIB, MIB),
    (8 * MIB,) * 4,
    (Owner("aten::mm", "a.py(1): f", 2, 3 * MIB), Owner("aten::add", None, 1, MIB)),
    0,
    0,
)


def test_memory_curve_is_stepped_below_the_reserved_peak() -> None:
    """0.96 of 170 px are 8 MiB: 2 MiB are 40.8 px, from a quarter of the width on."""
    page = shown(memory_svg(CURVE))
    (allocated,), (reserved,), (area,) = (page.of_class(name) for name in ("allocated", "reserved", "area"))
    assert allocated.attributes["d"] == "M0.0,170.0 H250.0 V129.2 H750.0 V88.4 H1000.0 V149.6"
    assert str(reserved.attributes["d"]).startswith("M0.0,6.8 H250.0 V6.8")
    assert area.attributes["d"] == "M0,170 L0.0,170.0 H250.0 V129.2 H750.0 V88.4 H1000.0 V149.6 L1000,170 Z"
    assert page.of_class("edge")[0].attributes["x1"] == "750.0"
    bare = shown(memory_svg(replace(CURVE, reserved_bytes=None, allocated_bytes=(0, -MIB, 4 * MIB, 0))))
    assert not bare.of_class("reserved")
    assert (
        bare.of_class("allocated")[0].attributes["d"] == "M0.0,170.0 H250.0 V170.0 H750.0 V6.8 H1000.0 V170.0"
    )


def test_owners_of_the_peak_are_listed_with_rest_and_before() -> None:
    page = shown(memory(CURVE, 2, ORIGIN))
    (caption,) = [one.text for one in page.elements if one.name == "figcaption"]
    assert caption == "CUDA:0: peak 4.00 MiB at 30 ns; reserved: at most 8.00 MiB (the dashed line)"
    assert rows_of(page) == ["aten::mma.py(1): f23.00 MiB", "aten::add11.00 MiB"]
    paths = [str(one.attributes["data-path"]) for one in page.having("data-path")]
    assert "memory-2#/devices/1/alive_at_peak/1/bytes" in paths
    more = replace(CURVE, others=1, others_bytes=MIB, before_bytes=5, peak_reserved_bytes=None)
    page = shown(memory(more, 2, ORIGIN))
    assert rows_of(page)[2:] == ["1 other places1.00 MiB", "allocated before the recording5 B"]
    assert "reserved" not in page.elements[0].text


@pytest.mark.parametrize(("peak", "drawn"), [(MIB - 1, False), (MIB, True)])
def test_less_than_a_mebibyte_is_no_curve(peak: int, drawn: bool) -> None:
    page = shown(memory(replace(CURVE, peak_bytes=peak), 0, ORIGIN))
    assert bool(page.of_class("curve")) is drawn
    assert bool(rows_of(page)) is drawn


def test_facts_of_a_kind_are_grouped_without_empty_ones() -> None:
    found = [
        Fact("gpu-peak", "mm: 0 TFLOP/s", {}, ()),
        Fact("gpu-peak", "mm: 120 TFLOP/s", {}, ()),
        Fact("gpu-peak", "add: 3 TFLOP/s", {}, ()),
        Fact("link", "25 GB/s", {}, ()),
    ]
    page = shown(facts(found, 4))
    divs = [one.text.replace("\u00a0", " ") for one in page.elements if one.name == "div"]
    assert divs == ["gpu peakmm: 120 TFLOP/sadd: 3 TFLOP/s", "link25 GB/s"]
    paths = [str(one.attributes["data-path"]) for one in page.having("data-path")]
    assert paths == [f"facts-4#/facts/{at}/text" for at in (1, 2, 3)]


def test_memory_peak_and_owners_match_the_json() -> None:
    owners = (*CURVE.owners, Owner("aten::mul", "b.py(2): g", 7, 5))
    more = replace(CURVE, owners=owners, others=1_200, others_bytes=3 * MIB, before_bytes=2 * MIB)
    page = shown(memory(more, 4, ORIGIN))
    at = "memory-4#/devices/1"
    assert [(path, text) for path, _, _, text in quotes(page)] == [
        (f"{at}/device", "CUDA:0"),
        (f"{at}/peak_bytes", "4.00 MiB"),
        (f"{at}/peak_reserved_bytes", "8.00 MiB"),
        *((f"{at}/alive_at_peak/0/{name}", text) for name, text in (("blocks", "2"), ("bytes", "3.00 MiB"))),
        *((f"{at}/alive_at_peak/1/{name}", text) for name, text in (("blocks", "1"), ("bytes", "1.00 MiB"))),
        *((f"{at}/alive_at_peak/2/{name}", text) for name, text in (("blocks", "7"), ("bytes", "5 B"))),
        (f"{at}/before_bytes", "2.00 MiB"),
    ]
    assert [one.text for one in page.of_class("line")] == ["a.py(1): f", "b.py(2): g"]
    assert [(one.text, one.attributes.get("value")) for one in page.of_class("derived")] == [
        ("1,200 other places", None),
        ("3.00 MiB", str(3 * MIB)),
    ]
    rows = [one.text for one in page.elements if one.name == "tr"]
    assert rows[0] == "alive at the peakblocksbytes"
    assert rows[-1] == "allocated before the recording2.00 MiB"


def test_owners_that_differ_late_in_long_names_are_distinct() -> None:
    names = [f"{'k' * 130}{letter}" for letter in "AB"]
    owners = tuple(Owner(name, "x" * 200, 1, MIB) for name in names)
    page = shown(memory(replace(CURVE, owners=owners, reserved_bytes=None), 0, ORIGIN))
    heads = [one.text for one in page.elements if one.name == "th" and "tbody" in one.parents]
    assert [head.partition("x")[0][-2:] for head in heads] == ["kA", "kB"]
    assert [len(one.text) for one in page.of_class("line")] == [160, 160]
