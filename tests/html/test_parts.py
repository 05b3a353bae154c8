"""Parts of the page: bars, evidence, books of devices, idle stretches, what fixes save, shapes of plots."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, parsed, shown
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.device_times import DeviceTime, IdleCause
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.render.html.cards import Card, card_of, choice, evidence, saving
from traceanalyzer.render.html.document import stretches
from traceanalyzer.render.html.markup import Html, kernel_names, part, tag, told_apart
from traceanalyzer.render.html.plot_data import KernelSpread, StepSeries, StepTime, Stretch
from traceanalyzer.render.html.plots import (
    accounting_bar,
    class_of,
    parts_bar,
    range_bar,
    ranked_causes,
    round_values,
    spread_svg,
    steps_svg,
)
from traceanalyzer.render.html.summary import summary_svg
from traceanalyzer.report.words import in_words


def card(finding: Finding, *, step: bool = True, **ops: str) -> Card:
    """The second finding of a report."""
    head = samples.trace(step=samples.estimate() if step else None)
    return Card(1, finding, head, 0, False, False, False, "", True, "trace-0", ops)


def cost(made: Card) -> Html:
    return part("cards.cost", made.finding, made.at)


def count(made: Card) -> Html:
    return part("cards.count", made.finding, made.at)


def text_of(content: object) -> str:
    return shown(tag("p", content)).elements[0].text


def test_bar_parts_lie_side_by_side_and_wide_ones_have_letters() -> None:
    """From 7 % of the width on."""
    parts = [("compute", 60), ("memset", 7), ("idle:python", 27), ("copy_h2d", 6)]
    page = shown(parts_bar(parts, "time", ["idle:python"]))
    rects = [one.attributes for one in page.named("rect")]
    assert [one["x"] for one in rects] == ["0.000%", "60.000%", "67.000%", "94.000%"]
    assert [one["width"] for one in rects] == ["60.000%", "7.000%", "27.000%", "6.000%"]
    assert [one["class"] for one in rects] == ["c-compute", "c-memset", "i-0", "c-copy-h2d"]
    assert page.texts_of("letters") == ["compute", "memset", in_words("idle:python")]
    assert page.texts("rect")[-1] == "copy to the device: 6 ns, 6.0 %"


@pytest.mark.parametrize(
    ("shares", "places"),
    [
        ((0.5, 0.4, 0.6), ["50.00%", "40.00%", "60.00%"]),
        ((1.2, -0.1, 1.3), ["100.00%", "0.00%", "100.00%"]),
        ((-0.2, -0.3, 0.1), ["0.00%", "0.00%", "10.00%"]),
    ],
)
def test_an_interval_lies_within_its_bar(shares: tuple[float, float, float], places: list[str]) -> None:
    page = shown(range_bar(*shares, "share"))
    assert page.of_class("saved")[0].attributes["width"] == places[0]
    line, low, high = page.of_class("whisker")
    assert [line.attributes["x1"], line.attributes["x2"]] == places[1:]
    assert [low.attributes["x1"], high.attributes["x1"]] == places[1:]


BOX_AT_TWICE, BOX_AT_LONGEST = ("45.00%", "15.00%"), ("22.50%", "7.50%")


@pytest.mark.parametrize(
    ("most", "usual", "box"),
    [(1.5, "50.00%", BOX_AT_TWICE), (2.0, "50.00%", BOX_AT_TWICE), (4.0, "25.00%", BOX_AT_LONGEST)],
)
def test_spread_reaches_twice_the_usual_or_longest(most: float, usual: str, box: tuple[str, str]) -> None:
    kernel = KernelSpread("gemm", 0.8, 0.9, 1.2, most)
    page = shown(spread_svg(kernel))
    assert page.of_class("tick-median")[0].attributes["x1"] == usual
    (drawn,) = page.of_class("box")
    assert (drawn.attributes["x"], drawn.attributes["width"]) == box
    narrow = shown(spread_svg(replace(kernel, p10=1.0, p90=1.0)))
    assert narrow.of_class("box")[0].attributes["width"] == "0.80%"


@pytest.mark.parametrize(("count", "numbered"), [(24, list(range(24))), (25, list(range(0, 25, 2)))])
def test_number_stands_below_as_many_steps_as_fit(count: int, numbered: list[int]) -> None:
    steps = tuple(StepTime(number, 100, {"kernel": 60, "other": 40}) for number in range(count))
    page = shown(steps_svg(StepSeries(0, 100, 1, steps)))
    assert [int(text) for text in page.texts_of("tick")] == numbered
    assert float(page.of_class("median")[0].attributes["y1"] or "nan") == 0.0
    looks = [[one.attributes[name] for name in ("class", "y", "height")] for one in page.named("rect")]
    assert looks[:2] == [["c-compute", "60.00", "90.00"], ["w-other", "0.00", "60.00"]]


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.5, "saves 9.00 ms of 18.0 ms a step: 50.0 % (46 to 54 %)"),
        (0.0049, "Fixing it saves almost nothing."),
        (-0.0049, "Fixing it saves almost nothing."),
        (-0.005, "Fixing it alone makes 18.0 ms a step 90.0 µs longer."),
    ],
)
def test_what_fixing_a_finding_saves(share: float, words: str) -> None:
    found = replace(samples.findings()[0], saving=samples.saving(share))
    page = shown(saving(card(found)))
    assert page.elements[0].text == words
    bars = page.of_class("range")
    assert len(bars) == (share == 0.5)
    assert saving(card(replace(found, saving=None))) is None


def test_costs_and_counts_have_their_places() -> None:
    found = replace(samples.findings()[0], count=1, steps=1, cost_per_step_ns=8 * MS)
    assert text_of(cost(card(found))) == "cost 8.00 ms a step, 48.0 ms in all, 48.0 % of the window"
    no_step = replace(found, cost_per_step_ns=0)
    assert text_of(cost(card(no_step))) == "cost 48.0 ms in all, 48.0 % of the window"
    free = card_of(card(replace(found, cost_ns=0, cost_per_step_ns=0)))
    assert not [path for path in shown(free).values("data-path") if "/cost" in path]
    assert text_of(count(card(found))) == "1 time in 1 step"
    assert text_of(count(card(replace(found, count=1_200, steps=2)))) == "1,200 times in 2 steps"
    assert text_of(count(card(replace(found, count=2, steps=3)))) == "2 times in 3 steps"
    assert text_of(count(card(replace(found, steps=0)))) == "1 time"
    paths = {*shown(cost(card(found))).values("data-path")}
    assert paths == {f"diagnose#/findings/1/{name}" for name in ("cost_per_step_ns", "cost_ns", "cost_share")}


def rows_of(evidence_of: dict[str, Any], **ops: str) -> dict[str, str]:
    page = shown(evidence(card(replace(samples.findings()[0], evidence=evidence_of), **ops)))
    rows = zip(page.texts("th"), page.texts("tr"), strict=True)
    return {head: row.removeprefix(head) for head, row in rows}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"largest_gap_ns": 2_500, "moved_bytes": 1 << 20}, {"largest gap": "2.50 µs", "moved": "1.00 MiB"}),
        ({"gpu_share": 0.25}, {"of GPU time": "25.0 %"}),
        ({"loop_part": 0.5}, {"of the launches in the loop": "50.0 %"}),
        ({"launches": 12_345, "ratio": 0.123456}, {"launches": "12,345", "ratio": "0.123"}),
        ({"pinned": True, "shape": "8x8"}, {"pinned": "True", "shape": "8x8"}),
        ({"count": 7, "by": "aten::mm", "tail": ", and so on", "one": 1}, {"one": "1"}),
        ({"empty": "", "listed": [1, 2], "mixed": {"a": 1, "b": "x"}, "one": 1}, {"one": "1"}),
        ({"gpu_ns": 2_500, "own_ns": 1_000}, {"GPU time": "2.50 µs", "its own work": "1.00 µs"}),
        ({"gbps": 12.34, "sms": 132, "late": 3}, {"GB/s": "12.3", "SMs": "132", "comes last": "3"}),
    ],
)
def test_evidence_has_units_and_words_by_its_names(given: dict[str, Any], shown: dict[str, str]) -> None:
    assert rows_of(given) == shown


def test_evidence_has_twelve_rows_at_most() -> None:
    assert len(rows_of({f"n{at}": at for at in range(13)})) == 12
    assert evidence(card(replace(samples.findings()[0], evidence={"count": 3}))) is None


def test_five_largest_parts_are_shown_and_ops_link_to_rows() -> None:
    sums = {f"aten::op{at}": at for at in range(1, 7)}
    found = replace(samples.findings()[0], evidence={"by_op": sums, "texts": {"a": "b"}, "none": {}})
    page = shown(evidence(card(found, **{"aten::op6": "op-0-2"})))
    items = page.texts("li")
    shares = ("28.6 %", "23.8 %", "19.0 %", "14.3 %", "9.5 %")
    assert items == [*(f"aten::op{6 - at} {share}" for at, share in enumerate(shares)), "and 1 more"]
    assert [(one.text, one.attributes["href"]) for one in page.having("href")] == [("aten::op6", "#op-0-2")]


def test_job_findings_are_those_to_fix_and_shared_ones() -> None:
    one = replace(samples.findings(0)[0], ranks=(0,))
    info = replace(one, severity=Severity.INFO, rank=1, ranks=(1,))
    findings = (one, info, replace(info, ranks=(0, 1)))
    page: Any = SimpleNamespace(report=SimpleNamespace(job=1, findings=findings))
    assert shown(choice(page)).texts("option") == ["all (3)", "the job (2)", "rank 0 (2)", "rank 1 (2)"]
    page.report.job = None
    assert choice(page) is None


def books(*devices: DeviceTime, before: int = 0) -> list[Parsed]:
    """Of the second trace, before which the first has so many devices."""
    first = samples.trace(accounting=tuple(samples.accounting(device=at) for at in range(before)))
    report = replace(samples.report(), traces=(first, samples.trace(1, accounting=devices)))
    return [shown(one) for one in accounting_bar(report, 1)]


def test_the_books_of_a_device_are_those_of_the_json() -> None:
    one, two = books(samples.accounting(), samples.accounting(device=1), before=3)
    for place, page in ((3, one), (4, two)):
        paths = page.values("data-path")
        assert paths[0] == f"accounting#/{place}/parts_ns/compute"
        assert paths[-1] == "diagnose#/traces/1/window/length_ns"
    rows = one.texts("tr")[1:]
    assert rows[:2] == ["compute35.0 %35.0 ms", "copy to the device2.0 %2.00 ms"]
    assert rows[2].startswith("idle: data loadingenumerate(DataLoader)#")
    assert rows[-1] == "the window100 %100 ms"
    assert one.texts("h4") == ["device 0"]
    (alone,) = books(samples.accounting())
    assert not alone.named("h4")


@pytest.mark.parametrize(("ops", "named"), [(3, "a, b, c"), (4, "a, b, c …")])
def test_three_ops_of_a_cause_are_named(ops: int, named: str) -> None:
    causes = tuple(IdleCause("idle:python", op, MS) for op in "abcd"[:ops])
    other = IdleCause("idle:unknown", "elsewhere", MS)
    time = samples.accounting(parts_ns={"idle:python": 4 * MS}, idle_causes=(other, *causes))
    (page,) = books(time)
    assert page.texts_of("ops") == [named]


def test_idle_stretches_lead_to_their_places() -> None:
    one = Stretch(0, ORIGIN + 2 * MS, ORIGIN + 5 * MS, "idle:python", "aten::mm", 3)
    two = replace(one, device=1, op=None, step=None, line="a.py(1): f")
    page = parsed(str(stretches([one, two], 4, ORIGIN)).encode())
    rows = page.texts("tr")
    assert [row.replace("\u00a0", " ") for row in rows[1:]] == [
        f"2.000 ms3.00 ms03{in_words(one.cause)}aten::mm",
        f"2.000 ms3.00 ms1{in_words(one.cause)}a.py(1): f",
    ]
    assert [link.attributes["data-at"] for link in page.having("data-at")] == [
        "#span-4-0-2000000-5000000",
        "#span-4-1-2000000-5000000",
    ]
    alone = parsed(str(stretches([one, one], 4, ORIGIN)).encode())
    assert "device" not in alone.texts("th")


@pytest.mark.parametrize(("count", "rest"), [(8, ""), (9, "and 1 more")])
def test_a_notebook_shows_eight_findings_and_what_they_are_worth(count: int, rest: str) -> None:
    first = replace(samples.findings()[0], saving=samples.saving())
    worse = replace(first, saving=samples.saving(-0.1), severity=Severity.LOW)
    free = replace(worse, saving=None, cost_ns=0)
    svg = str(summary_svg(samples.report(findings=(first, worse, free, *[first] * (count - 3)))))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    worth = [text for text in texts if text.startswith(("saves", "costs"))]
    assert worth[:2] == ["saves 9.00 ms a step, 50.0 %", "costs 48.0 % of recorded time"]
    assert len(worth) == 7
    assert ("and 1 more" in texts) is bool(rest)
    heights = [int(y) for y in re.findall(r' y="(\d+)"', svg)]
    (height,) = re.findall(r'viewBox="0 0 760 (\d+)"', svg)
    assert max(heights) <= int(height)


def test_shares_of_parts_are_of_their_sum_and_exact() -> None:
    sums = {"by": "x", "by_op": {"a": 1.0, "b": 3.0}, "zero": {"c": 0}}
    page = shown(evidence(card(replace(samples.findings()[0], evidence=sums))))
    assert page.texts("li") == ["b 75.0 %", "a 25.0 %", "c 0 %"]
    assert [one.attributes["value"] for one in page.named("data")] == ["3.0", "1.0", "0"]


def test_steps_are_as_high_as_they_take_with_the_rest_on_top() -> None:
    one = StepTime(3, 100, {"kernel": 60, "runtime": 40})
    two = StepTime(4, 200, {"kernel": 100, "copy": 50, "other": 50})
    page = shown(steps_svg(StepSeries(0, 150, 1, (one, two))))
    rects = [one.attributes for one in page.named("rect")]
    assert [(one["class"], one["y"], one["height"], one["x"]) for one in rects] == [
        ("c-compute", "105.00", "45.00", "4.000%"),
        ("b-call", "75.00", "30.00", "4.000%"),
        ("c-compute", "75.00", "75.00", "54.000%"),
        ("c-copy", "37.50", "37.50", "54.000%"),
        ("w-other", "0.00", "37.50", "54.000%"),
    ]
    assert {one["width"] for one in rects} == {"42.000%"}
    assert page.of_class("median")[0].attributes["y1"] == "37.5"
    ticks = [(one.text, one.attributes["x"]) for one in page.of_class("tick")]
    assert ticks == [("3", "25.00%"), ("4", "75.00%")]
    assert page.texts("title")[0].startswith("step 3: 100 ns; ")


@pytest.mark.parametrize(
    ("most", "values"),
    [(42.9, [10, 20, 30, 40]), (9, [2, 4, 6, 8]), (1.2, [0.5, 1.0]), (100, [50, 100]), (250, [100, 200])],
)
def test_axes_have_round_values(most: float, values: list[float]) -> None:
    assert round_values(most) == pytest.approx(values)


def test_a_spread_goes_from_the_least_to_the_most() -> None:
    page = shown(spread_svg(KernelSpread("gemm", 0.2, 0.9, 1.2, 1.6)))
    line, end = (one.attributes for one in page.of_class("whisker"))
    assert (line["x1"], line["x2"]) == ("10.00%", "80.00%")
    assert (end["x1"], end["x2"]) == ("80.00%", "80.00%")


def test_causes_are_ranked_by_the_idle_time_of_all_devices() -> None:
    parts = ({"idle:a": 10, "idle:b": 30, "compute": 99}, {"idle:a": 25, "idle:c": 30, "idle:d": 0})
    traces = (samples.trace(rank, accounting=(samples.accounting(parts_ns=ns),)) for rank, ns in enumerate(parts))
    assert ranked_causes(replace(samples.report(), traces=tuple(traces))) == ["idle:a", "idle:b", "idle:c"]


def test_device_parts_are_window_shares_with_idle_last() -> None:
    ms = {"idle:python": 60, "memset": 0, "copy_h2d": 10, "compute": 20, "idle:dispatching": 5}
    parts = {name: took * MS for name, took in ms.items()}
    report = samples.report(samples.trace(accounting=(samples.accounting(parts_ns=parts, idle_causes=()),)))
    (page,) = (shown(one) for one in accounting_bar(report, 0))
    rows = page.texts("tr")[1:]
    assert [row.startswith("idle: ") for row in rows[:-1]] == [False, False, True, True]
    assert page.texts_of("derived") == ["20.0 %", "10.0 %", "60.0 %", "5.0 %", "100 %"]


@pytest.mark.parametrize(("alike", "cut"), [(34, False), (35, False), (36, True), (50, True)])
def test_names_that_differ_far_behind_lose_what_they_share(alike: int, cut: bool) -> None:
    """In 40 characters: the first 24, and from 10 before the difference on, where that is less."""
    one, two = (f"{'k' * alike}{letter * 4}{'z' * 60}" for letter in "AB")
    far = "k" * 30 + "C" * 4 + "k" * (alike - 34) + "z" * 64 if alike == 50 else one
    shown = told_apart([one, two, far], 40)
    assert shown[0] == (f"{'k' * 24}…{'k' * 10}AAAAz" if cut else one)
    assert shown[1] == (f"{'k' * 24}…{'k' * 10}BBBBz" if cut else two)
    assert shown[2] == far if alike == 50 else shown[0]


def test_one_name_may_be_the_beginning_of_another() -> None:
    shown = told_apart(["k" * 80, "k" * 81], 40)
    assert shown == [f"{'k' * 24}…{'k' * 10}", f"{'k' * 24}…{'k' * 11}"]


def test_kernels_of_one_name_are_short_others_have_arguments() -> None:
    one, two = "void a::gemm<float>(int)", "void b::gemm<half>(int)"
    assert kernel_names([one, one], 60) == ["gemm", "gemm"]
    assert kernel_names([one, two, "c::add<int>"], 60) == ["a::gemm<float>", "b::gemm<half>", "add"]


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("copy_d2h", "c-copy-d2h"),
        ("copy_h2d", "c-copy-h2d"),
        ("copy_d2d", "c-copy"),
        ("idle", "c-idle"),
        ("memset", "c-memset"),
        ("compute", "c-compute"),
        ("compute_over_communication", "c-compute-over"),
        ("communication_waiting", "c-communication-waiting"),
        ("communication_hidden", "c-communication"),
        ("something else", "c-compute"),
    ],
)
def test_a_class_of_time_looks_as_what_its_name_begins_with(name: str, look: str) -> None:
    assert class_of(name) == look
