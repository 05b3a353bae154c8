"""Tables and sections of a page, and the small picture of a notebook."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed, quotes, shown
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Report, TraceReport
from traceanalyzer.render.html import document
from traceanalyzer.render.html.document import facts, kernels, memory, ops, steps
from traceanalyzer.render.html.page_data import Inputs, OpRow, OpTable
from traceanalyzer.render.html.plot_data import (
    KernelRow,
    KernelSpread,
    KernelTable,
    MemoryCurve,
    Owner,
    StepSeries,
    StepTime,
)
from traceanalyzer.render.html.plots import memory_svg, spread_svg
from traceanalyzer.render.html.summary import summary_svg
from traceanalyzer.report.facts import Fact
from traceanalyzer.report.words import in_words

MIB = 1 << 20


def rows_of(page: Parsed) -> list[str]:
    """Texts of the rows below the head."""
    return [text.replace("\u00a0", " ") for text in page.texts("tr", "tbody")]


# -- ops --------------------------------------------------------------------------------------------------

KNOWN = Inputs(3, "8x8", "bf16", 40, 2 * MS, 12.34, 8.75, 0.5, "memory", None)
UNKNOWN = Inputs(5, "", "", 1, MS, None, None, None, None, "no shapes")


def table(*inputs: Inputs, others: int = 0, names: tuple[str, ...] = ("aten::mm",)) -> OpTable:
    rows = tuple(OpRow(name, 1_200, 3 * MS, 0.25, inputs) for name in names)
    return OpTable(rows, others, 7 * MS, ("device 0: a datasheet",))


def test_op_has_inputs_with_rates_and_share_of_the_peak() -> None:
    page = shown(ops(table(KNOWN, UNKNOWN), 2))
    assert rows_of(page) == ["aten::mm1,2003.00 ms25.0 %", "[8x8] bf16402.00 ms12 TFLOP/s, 8.8 GB/s 50.0 % of memory"]
    assert page.of_class("saved")[0].attributes["width"] == "50.0%"
    bodies = [one.attributes for one in page.named("tbody")]
    assert [(one["id"], one["data-name"]) for one in bodies] == [("op-2-0", "aten::mm")]
    of_op, of_inputs = ("calls", "gpu_ns", "share"), ("calls", "gpu_ns", "tflops", "gbps", "peak_share")
    paths = [f"ops-2#/ops/0/{name}" for name in of_op] + [f"ops-2#/inputs/3/{name}" for name in of_inputs]
    assert page.values("data-path") == paths


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
    assert page.texts("p") == [*said, "Peaks: device 0: a datasheet"]


def test_long_names_of_ops_are_told_apart() -> None:
    begin = "k" * 200
    page = shown(ops(table(names=(f"{begin}_first", f"{begin}_other")), 0))
    assert len(set(page.texts("th", "tbody"))) == 2


# -- steps and kernels ------------------------------------------------------------------------------------


def test_a_step_has_what_the_gpu_and_the_cpu_did() -> None:
    parts = {"kernel": 7 * MS, "runtime": 3 * MS}
    first = StepTime(3, 10 * MS, parts, (("aten::mm", 5 * MS),), "idle:python")
    second = StepTime(4, 8 * MS, {"kernel": 8 * MS})
    page = shown(steps(StepSeries(0, 9 * MS, 1, (first, second)), 2))
    heads = ["step", "time", "kernel", "runtime", "most idle time by", "most GPU time in"]
    assert page.texts("th", "thead") == heads
    assert rows_of(page) == [f"310.0 ms7.00 ms3.00 ms{in_words('idle:python')}aten::mm 5.00 ms", "48.00 ms8.00 ms"]
    assert page.values("data-at") == ["#step-2-3", "#step-2-4"]
    assert page.texts("li") == ["kernel", "runtime"]
    assert page.texts_of("level") == ["5.00 ms", "10.0 ms"]
    (caption,) = page.texts("figcaption")
    assert caption.endswith("the line is the median, 9.00 ms. ")
    many = shown(steps(StepSeries(0, 9 * MS, 2, (first,)), 2))
    (caption,) = many.texts("figcaption")
    assert caption.endswith("One bar is the longest of 2 steps.")


def test_a_kernel_has_its_units_its_occupancy_and_its_spread() -> None:
    spread = KernelSpread("void gemm<float>(int)", 0.5, 0.9, 1.1, 2.5, 64)
    one = KernelRow("void gemm<float>(int)", "gemm", 1_200, 36 * MS, 0.75, True, 50.0, 0.9, spread)
    other = KernelRow("add", "elementwise", 2, 1 * MS, 0.25, False, None, None)
    every = replace(other, occupancy_pct=40.0, sm_share=0.8)
    page = shown(kernels(KernelTable((one, other), every, 0.75, 3)))
    assert rows_of(page) == [
        "gemm 64 blocks1,20036.0 ms75 %30.0 µsyes50 %90 %2.50×" + words(spread),
        "add21.00 ms25 %500 µs",
    ]
    assert page.texts("p") == [
        "Tensor cores compute in 75 % of the time of kernels, by their names. "
        "Theoretical occupancy is 40 % on average. 80 % of the SMs have a block.",
        "3 other kernels are left out: traceanalyzer list kernels.",
    ]
    looks = [one.attributes["class"] for one in page.of_class("swatch")]
    assert looks == ["swatch b-gemm", "swatch b-elementwise"]


def words(spread: KernelSpread) -> str:
    """What the picture of a spread is called."""
    return shown(spread_svg(spread)).elements[0].text


# -- memory -----------------------------------------------------------------------------------------------

CURVE = MemoryCurve(
    *(1, "CUDA:0", 4 * MIB, ORIGIN + 30, 8 * MIB, 0),
    (ORIGIN, ORIGIN + 10, ORIGIN + 30, ORIGIN + 40),
    (0, 2 * MIB, 4 * MIB, MIB),
    (8 * MIB,) * 4,
    (Owner("aten::mm", "a.py(1): f", 2, 3 * MIB), Owner("aten::add", None, 1, MIB)),
    *(0, 0),
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
    line = bare.of_class("allocated")[0].attributes["d"]
    assert line == "M0.0,170.0 H250.0 V170.0 H750.0 V6.8 H1000.0 V170.0"


def test_owners_of_the_peak_are_listed_with_rest_and_before() -> None:
    page = shown(memory(CURVE, 2, ORIGIN))
    (caption,) = page.texts("figcaption")
    assert caption == "CUDA:0: peak 4.00 MiB at 30 ns; reserved: at most 8.00 MiB (the dashed line)"
    assert rows_of(page) == ["aten::mma.py(1): f23.00 MiB", "aten::add11.00 MiB"]
    assert "memory-2#/devices/1/alive_at_peak/1/bytes" in page.values("data-path")
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
    divs = [one.text.replace("\u00a0", " ") for one in page.named("div")]
    assert divs == ["gpu peakmm: 120 TFLOP/sadd: 3 TFLOP/s", "link25 GB/s"]
    assert page.values("data-path") == [f"facts-4#/facts/{at}/text" for at in (1, 2, 3)]


def test_memory_peak_and_owners_match_the_json() -> None:
    owners = (*CURVE.owners, Owner("aten::mul", "b.py(2): g", 7, 5))
    more = replace(CURVE, owners=owners, others=1_200, others_bytes=3 * MIB, before_bytes=2 * MIB)
    more = replace(more, uses=(("gradients", 3 * MIB), ("temporary", MIB)))
    page = shown(memory(more, 4, ORIGIN))
    at = "memory-4#/devices/1"
    assert [(path, text) for path, _, _, text in quotes(page)] == [
        (f"{at}/device", "CUDA:0"),
        (f"{at}/peak_bytes", "4.00 MiB"),
        (f"{at}/peak_reserved_bytes", "8.00 MiB"),
        (f"{at}/uses_at_peak/0/bytes", "3.00 MiB"),
        (f"{at}/uses_at_peak/1/bytes", "1.00 MiB"),
        *((f"{at}/alive_at_peak/0/{name}", text) for name, text in (("blocks", "2"), ("bytes", "3.00 MiB"))),
        *((f"{at}/alive_at_peak/1/{name}", text) for name, text in (("blocks", "1"), ("bytes", "1.00 MiB"))),
        *((f"{at}/alive_at_peak/2/{name}", text) for name, text in (("blocks", "7"), ("bytes", "5 B"))),
        (f"{at}/before_bytes", "2.00 MiB"),
    ]
    assert page.texts_of("line") == ["a.py(1): f", "b.py(2): g"]
    assert [(one.text, one.attributes.get("value")) for one in page.of_class("derived")] == [
        ("1,200 other places", None),
        ("3.00 MiB", str(3 * MIB)),
    ]
    rows = page.texts("tr")
    assert rows[0] == "alive at the peakblocksbytes"
    assert rows[-1] == "allocated before the recording2.00 MiB"


def test_owners_that_differ_late_in_long_names_are_distinct() -> None:
    names = [f"{'k' * 130}{letter}" for letter in "AB"]
    owners = tuple(Owner(name, "x" * 200, 1, MIB) for name in names)
    page = shown(memory(replace(CURVE, owners=owners, reserved_bytes=None), 0, ORIGIN))
    heads = page.texts("th", "tbody")
    assert [head.partition("x")[0][-2:] for head in heads] == ["kA", "kB"]
    assert [len(one.text) for one in page.of_class("line")] == [160, 160]


def page_of(*sources: str, confidential: bool = False, **drawn: Any) -> Any:
    ranks = range(len(sources)) if len(sources) > 1 else [None]
    traces = tuple(samples.trace(rank, meta=samples.meta(source)) for rank, source in zip(ranks, sources, strict=True))
    names = ("flame", "steps", "memory", "ops", "timeline", "stretches", "kernels", "facts")
    parts = dict.fromkeys(names, None)
    own = [SimpleNamespace(rank=one.rank, detailed=True, **{**parts, **drawn}) for one in traces]
    return SimpleNamespace(report=samples.report(traces=traces), traces=own, confidential=confidential)


@pytest.mark.parametrize(
    ("sources", "title", "heading"),
    [
        (("/data/a.json",), "a.json", "a.json"),
        (("/data/a.json", "b.json", "c.json"), "a.json and 2 more", "3 ranks of one job"),
    ],
)
def test_page_has_file_names_unless_confidential(sources: tuple[str, ...], title: str, heading: str) -> None:
    page = page_of(*sources)
    assert document.title(page) == f"{title}, traceanalyzer report"
    assert shown(document.heading(page)).elements[0].text.startswith(f"{heading} ")
    secret = page_of(*sources, confidential=True)
    assert document.title(secret) == "traceanalyzer report"
    assert "a.json" not in shown(document.heading(secret)).elements[0].text


@pytest.mark.parametrize(
    ("drawn", "parts"),
    [
        ({"flame": 1}, ["flame-0"]),
        ({"steps": 1, "kernels": 1}, ["steps-0", "kernels-0"]),
        ({"memory": (1,), "ops": 1}, ["ops-0", "memory-0"]),
    ],
)
def test_contents_are_links(drawn: dict[str, Any], parts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flame", "steps", "kernels", "ops", "memory", "plots.roofline"):
        monkeypatch.setattr(f"{document.__name__}.{name}", lambda *_: None)

    def leads(page: Any) -> list[str]:
        return [str(one.attributes["href"])[1:] for one in shown(document.contents(page)).having("href")]

    assert leads(page_of("a.json", **drawn)) == ["findings", "time-0", *parts, "recorded-0", "rules"]
    assert leads(page_of("a.json", timeline=1))[:2] == ["findings", "timeline"]
    job = page_of("a.json", "b.json", **drawn)
    job.traces[0].detailed = False
    assert leads(job) == ["ranks", "findings", "trace-1", "rules"]


def test_keyboard_users_skip_to_the_first_finding() -> None:
    def texts(page: Any) -> list[str]:
        return shown(document.skip(page)).texts_of("skip")

    assert texts(page_of("a.json")) == ["To the findings"]
    assert texts(page_of("a.json", timeline=1)) == ["To the first finding on the timeline", "To the findings"]
    none = page_of("a.json", timeline=1)
    none.report = replace(none.report, findings=())
    assert texts(none) == ["To the findings"]


def test_rules_with_one_reason_share_its_longest_text() -> None:
    outcomes = (
        Outcome("a", Status.NOT_APPLICABLE, "no steps", 0),
        Outcome("a", Status.NOT_APPLICABLE, "no steps: call prof.step()", 1),
        Outcome("b", Status.NOT_APPLICABLE, "no steps", 0),
        Outcome("c", Status.NOT_APPLICABLE, "no shapes"),
        Outcome("d", Status.CLEAR),
    )
    traces = (samples.trace(0), samples.trace(1))
    page = shown(document.rules(samples.report(traces=traces, outcomes=outcomes)))
    assert page.texts("dt") == ["1 clear", "4 not applicable"]
    assert page.texts_of("why") == ["no steps: call prof.step()", "no shapes"]
    assert page.texts("li") == ["d", "a (rank 0, 1)", "b (rank 0)", "c"]
    paths = [str(one.attributes["data-path"]) for one in page.of_class("why")]
    assert paths == ["diagnose#/outcomes/1/why", "diagnose#/outcomes/3/why"]
    alone = shown(document.rules(samples.report(outcomes=outcomes[:1])))
    assert alone.texts("li") == ["a"]


def drawn(report: Report) -> Parsed:
    return parsed(str(summary_svg(report)).encode())


def lines(page: Parsed) -> list[tuple[str, int, str]]:
    """(x, y, text) of all letters."""
    texts = page.named("text")
    return [(str(one.attributes["x"]), int(str(one.attributes["y"])), one.text) for one in texts]


def report(*traces: TraceReport, findings: tuple[Finding, ...] = ()) -> Report:
    return replace(samples.report(), traces=traces, findings=findings)


def bare(rank: int | None = None, verdict: str = "Step: 25 ms") -> TraceReport:
    return samples.trace(rank, verdict=verdict, accounting=())


def test_four_of_several_ranks_are_named() -> None:
    """20 pixels a line."""
    assert lines(drawn(report(bare(7)))) == [("16", 26, "Step: 25 ms"), ("16", 50, "no findings")]
    five = drawn(report(*(bare(rank, f"verdict {rank}") for rank in range(6))))
    assert lines(five) == [
        *(("16", 26 + 20 * rank, f"rank {rank}: verdict {rank}") for rank in range(4)),
        ("16", 106, "and 2 more ranks"),
        ("16", 130, "no findings"),
    ]
    (svg,) = [one.attributes for one in five.named("svg")]
    assert svg["aria-label"] == "traceanalyzer: verdict 0; verdict 1; verdict 2; verdict 3"
    assert (svg["width"], svg["height"], svg["viewbox"]) == ("760", "150", "0 0 760 150")
    four = drawn(report(*(bare(rank) for rank in range(4))))
    assert not [text for *_, text in lines(four) if "more ranks" in text]


def test_a_silent_verdict_says_that_the_step_is_not_known() -> None:
    page = drawn(report(bare(verdict="")))
    assert lines(page)[0] == ("16", 26, "The step is not known.")
    assert page.elements[0].attributes["aria-label"] == "traceanalyzer: "


@pytest.mark.parametrize(("words", "cut"), [(4 * 15, False), (4 * 15 + 1, True)])
def test_a_long_verdict_has_four_lines(words: int, cut: bool) -> None:
    """15 words of five letters fill a line of 92 characters."""
    texts = [text for *_, text in lines(drawn(report(bare(verdict=" ".join(["words"] * words)))))]
    assert texts[:4] == [" ".join(["words"] * 15)] * 4
    assert texts[4:] == (["…", "no findings"] if cut else ["no findings"])


def test_window_parts_are_drawn_largest_first_idle_last() -> None:
    """Of 728 pixels; what is not two pixels wide is left out, and a name needs 8 pixels a letter."""
    parts = {
        "idle:unknown": 500,
        "copy_h2d": 100,  # 72.8 px: too little for its name
        "memset": 2,  # 1.5 px
        "compute": 395,
        "idle:python": 3,  # 2.2 px
    }
    parts = {name: ns * MS for name, ns in parts.items()}
    one = samples.accounting(start_ns=0, end_ns=1_000 * MS, parts_ns=parts)
    page = drawn(report(samples.trace(verdict="Step: 25 ms", accounting=(one, samples.accounting()))))
    bars = page.named("rect")[1:]
    assert [each.attributes["x"] for each in bars] == ["16.0", "303.6", "376.4", "740.4"]
    assert [each.attributes["width"] for each in bars] == ["287.6", "72.8", "364.0", "2.2"]
    assert {each.attributes["y"] for each in bars} == {"38"}
    assert [each.attributes["fill"] for each in bars] == ["#a9d6c1", "#f8e6a0", "#e3e6ea", "#e3e6ea"]
    titles = page.texts("title")
    assert titles[0] == "compute: 395 ms, 39.5 %"
    letters = lines(page)[1:-1]
    assert [(x, y) for x, y, _ in letters] == [("22.0", 56), ("382.36", 56)]
    assert letters[0][2] == "compute"
    assert letters[1][2].startswith("idle: ")
    assert lines(page)[-1] == ("16", 104, "no findings")


def test_finding_has_number_severity_name_and_saving() -> None:
    high = samples.finding(0, severity=Severity.HIGH, saving=samples.saving(), by="aten::mm")
    info = samples.finding(0, severity=Severity.INFO, cost_ns=0)
    page = drawn(report(bare(), findings=(high, info)))
    found = lines(page)[1:]
    assert [(x, y) for x, y, _ in found] == [(x, y) for y in (50, 70) for x in ("16", "110", "744")]
    assert [found[0][2][0], found[3][2][0]] == ["1", "2"]
    assert [found[0][2].split()[-1], found[3][2].split()[-1]] == ["high", "info"]
    assert found[1][2].startswith("The GPU waits")
    assert [found[2][2], found[5][2]] == ["saves 9.00 ms a step, 50.0 %", ""]
    (svg,) = [one.attributes for one in page.named("svg")]
    assert svg["height"] == "90"
    assert page.named("text")[3].attributes["text-anchor"] == "end"
