"""Numbers at which the text changes, each by an example at either side; rows of a device's time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import DeviceTime, Fault, IdleCause
from traceanalyzer.render.text.bars import device_bar
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.words.savings import amount_words, cost_words, finding_name, grade, saving_words

HIGH, INFO = Severity.HIGH, Severity.INFO


NOTHING, LONGER = "fixing it saves almost nothing", "fixing only this makes a step longer"


def found(share: float, low: float, high: float, severity: Severity = HIGH, **changes: Any) -> Finding:
    """A finding whose fix saves this share of the step."""
    saving = replace(samples.saving(share), low_share=low, high_share=high, high_ns=int(high * 18 * MS))
    return replace(samples.findings()[0], saving=saving, severity=severity, **changes)


@pytest.mark.parametrize(
    ("share", "high", "graded", "words"),
    [
        (0.005, 0.02, "not sure: saves 0.5 % (0 to 2 %)", "saves 90.0 µs of 18.0 ms a step"),
        (0.0049, 0.01, "probably saves nothing (0 to 1 %)", f"{NOTHING} (upper bound: 180 µs a step)"),
        (0.0049, 0.0099, "saves nothing", NOTHING),
        (-0.0049, 0.02, "probably saves nothing (0 to 2 %)", f"{NOTHING} (upper bound: 360 µs a step)"),
        (-0.005, 0.02, "probably saves nothing (0 to 2 %)", f"{LONGER}: 18.1 instead of 18.0 ms"),
        (-0.0051, 0.02, "saves nothing", f"{LONGER}: 18.1 instead of 18.0 ms"),
    ],
)
def test_what_saves_next_to_nothing_is_said_to(share: float, high: float, graded: str, words: str) -> None:
    one = found(share, -0.01, high)
    assert grade(one) == f"high  {graded}"
    assert one.saving is not None
    assert saving_words(one.saving, samples.estimate()) == words


@pytest.mark.parametrize(
    ("share", "low", "high", "said"),
    [
        (0.0994, 0.05, 0.2, "saves 9.9 % (5 to 20 %)"),
        (0.0995, 0.05, 0.2, "saves 10 % (5 to 20 %)"),
        (0.02, 0.0051, 0.03, "saves 2.0 % (1 to 3 %)"),
        (0.02, 0.005, 0.03, "not sure: saves 2.0 % (0 to 3 %)"),
        (0.992, 0.9, 1.0, "saves 99 % (90 to 99 %)"),
    ],
)
def test_a_share_has_two_digits_and_an_interval_around_it(
    share: float, low: float, high: float, said: str
) -> None:
    assert grade(found(share, low, high)) == f"high  {said}"


@pytest.mark.parametrize(("cost_us", "told"), [(7_200, False), (7_199, True), (0, False)])
def test_saving_clearly_above_the_cost_is_explained(cost_us: int, told: bool) -> None:
    """It saves 9 ms: more than a quarter above the recorded time of 7.2 ms a step, or no more than that."""
    one = found(0.5, 0.4, 0.6, cost_per_step_ns=1_000 * cost_us)
    assert ("the rest of the saving" in amount_words(one, samples.estimate())) is told


def test_what_happens_once_costs_nothing_a_step() -> None:
    once = replace(samples.findings()[0], cost_per_step_ns=8 * MS, rule="cold-start")
    assert cost_words(once) == "cost 48.0 ms in total"
    assert cost_words(replace(once, rule="scheduler-gap")) == "cost 8.00 ms a step, 48.0 ms in total"


@pytest.mark.parametrize(("length", "whole"), [(30, True), (31, False)])
def test_a_name_of_thirty_characters_is_whole(length: int, whole: bool) -> None:
    name = "aten::" + "a" * (length - 6)
    assert (name in finding_name(replace(samples.findings()[0], cause="", by=name))) is whole
    line = f"a/b{'c' * (length - 18)}.py(12): step"
    said = finding_name(replace(samples.findings()[0], cause="", by=line))
    assert said == f"scheduler-gap: {line if whole else line[2:]}()"


FIRST = "The CPU is the limit: until that changes, fixing this saves nothing."


@pytest.mark.parametrize(
    ("rule", "step", "share", "said"),
    [
        ("strided-copy", {}, 0.0049, True),
        ("strided-copy", {}, 0.005, False),
        ("strided-copy", {"bound": "gpu"}, 0.0, False),
        ("strided-copy", {"bounds": ("gpu", "cpu")}, 0.0, False),
        ("implicit-sync", {}, 0.0, False),
    ],
)
def test_what_saves_nothing_until_the_cpu_is_faster_says_so(
    rule: str, step: Mapping[str, Any], share: float, said: bool
) -> None:
    """Of the rules about the GPU's own work, where the CPU is the limit beyond doubt."""
    head = samples.trace(step=samples.estimate(**step))
    text = render_text(samples.report(head, findings=(found(share, 0.0, 0.2, Severity.LOW, rule=rule),)))
    assert (FIRST in " ".join(text.split())) is said


@pytest.mark.parametrize(("share", "words"), [(0.0049, "same fix as"), (0.005, "fixed with")])
def test_shared_cause_is_fixed_along_if_it_saves(share: float, words: str) -> None:
    first, second = found(0.5, 0.4, 0.6), found(0.2, 0.1, 0.3, Severity.LOW)
    fault = Fault("F1", "one cause", replace(samples.saving(share), low_share=0.0), HIGH, (1, 2))
    head = samples.trace(step=samples.estimate(), faults=(fault,))
    text = render_text(samples.report(head, findings=(first, second)), verbose=True)
    assert f"low, {words} finding 1\n" in text


@pytest.mark.parametrize(
    ("ranks", "count", "words"),
    [
        ((0, 1), 2, "both ranks"),
        ((0, 1, 2), 3, "all 3 ranks"),
        ((0, 2), 3, "ranks 0, 2"),
        ((0,), 2, "rank 0"),
        ((), 2, "rank 0"),
    ],
)
def test_a_finding_names_the_ranks_that_have_it(ranks: tuple[int, ...], count: int, words: str) -> None:
    traces = tuple(samples.trace(rank, meta=samples.meta(f"{rank}.json", rank=rank)) for rank in range(count))
    one = replace(samples.findings(0)[0], ranks=ranks)
    report = samples.report(traces=traces, findings=(one,))
    assert f"  high  scheduler-gap ({words})\n" in render_text(report)
    assert f"1  scheduler-gap: late ({words}) " in render_text(report, verbose=True)


def test_an_instant_that_no_rank_tells_names_none_of_one_trace() -> None:
    text = render_text(samples.report(findings=(replace(samples.findings()[0], device=None),)))
    assert "  high  scheduler-gap\n" in text


NS = st.integers(1, 10**9)


def drawn(time: DeviceTime, *, rank: int | None = None, width: int = 80) -> list[str]:
    page = Page(width)
    device_bar(page, time, rank=rank)
    return page.lines


LEGEND = "  The outer rows add up to 100 %, the indented ones to the idle time."


def test_a_device_has_a_bar_and_a_row_for_every_class_and_cause() -> None:
    """The bar has what is left of 80 columns: 45, of which 35 %, 2 % and 63 % are 16, 1 and 28 whole ones."""
    first, *rows = drawn(samples.accounting())
    assert first == "shares of recorded time, device 0  " + "█" * 16 + "▼" + "·" * 28
    assert rows == [
        "  █ compute                 35.0 %   35.0 ms",
        "  ▼ copy to the device       2.0 %   2.00 ms",
        "  · idle                    63.0 %   63.0 ms",
        "    data loading            50.0 %   50.0 ms  enumerate(DataLoa…derIter.__next__",
        "    waiting for launches    12.0 %   12.0 ms  before aten::mm",
        "    not explained            1.0 %   1.00 ms",
        LEGEND,
    ]
    of_a_rank = drawn(samples.accounting(), rank=0)
    assert of_a_rank[0].startswith("shares of recorded time, rank 0, device 0  █")
    assert of_a_rank[1:] == rows[:-1]  # one legend for all ranks stands elsewhere


def test_a_device_that_is_never_idle_has_no_row_for_it() -> None:
    busy = samples.accounting(parts_ns={"compute": 100 * MS, "idle:python": 0}, idle_causes=())
    assert drawn(busy)[1:] == ["  █ compute                100.0 %    100 ms"]


def causes_of(*ops: tuple[str, str, int]) -> list[str]:
    """Rows of causes, each of (cause, op, ms)."""
    parts: dict[str, int] = {"compute": 10 * MS}
    for cause, _, ms in ops:
        parts[f"idle:{cause}"] = parts.get(f"idle:{cause}", 0) + ms * MS
    named = tuple(IdleCause(f"idle:{cause}", op, ms * MS) for cause, op, ms in ops)
    rows = drawn(samples.accounting(parts_ns=parts, idle_causes=named), width=120)
    return [row[4:] for row in rows if row.startswith("    ")]


def test_quarter_of_a_cause_names_its_op_but_no_own_launch() -> None:
    launch = "cudaLaunchKernel"
    (row,) = causes_of(("python", launch, 26), ("python", "a", 25), ("python", "b", 25), ("python", "c", 24))
    assert row.endswith("100 ms  a, b")


@pytest.mark.parametrize(
    ("first", "second", "rest", "named"),
    [(50, 0, 50, ["a"]), (49, 0, 51, []), (25, 25, 50, ["a, b"]), (26, 24, 50, []), (26, 25, 49, ["a, b"])],
)
def test_ops_are_named_beside_a_cause_where_they_have_half_of_it(
    first: int, second: int, rest: int, named: list[str]
) -> None:
    others = [("python", f"c{at}", 1) for at in range(rest)]
    (row,) = causes_of(*[one for one in (("python", "a", first), ("python", "b", second)) if one[2]], *others)
    assert row.split("100 ms")[1].split("  ")[1:] == named


@pytest.mark.parametrize(
    ("cause", "named"),
    [
        ("dispatching", "before aten::mm, aten::add"),
        ("launch-latency", "before aten::mm, aten::add"),
        ("synchronisation", "aten::mm, aten::add"),
    ],
)
def test_the_op_that_the_device_waits_for_stands_after_before(cause: str, named: str) -> None:
    (row,) = causes_of((cause, "cudaLaunchKernel", 30), (cause, "aten::mm", 30), (cause, "aten::add", 25))
    assert row.endswith(f"  {named}")


@pytest.mark.parametrize(("count", "rest"), [(5, False), (6, True)])
def test_five_causes_have_a_row_and_the_others_one(count: int, rest: bool) -> None:
    rows = causes_of(*((f"cause-{k}", f"aten::op{k}", 10 - k) for k in range(count)))
    assert [row.split()[-1] for row in rows[:5]] == [f"aten::op{k}" for k in range(5)]
    assert rows[5:] == ["other causes             5.0 %   5.00 ms"] * rest


def test_copies_and_waits_have_the_colour_of_their_kind() -> None:
    page = Page(80, colour=True)
    device_bar(
        page, samples.accounting(parts_ns={"copy_h2d": 60 * MS, "communication_waiting": 40 * MS}), rank=None
    )
    assert page.lines[1].startswith("  \x1b[36m▼\x1b[0m copy to the device")
    assert page.lines[2].startswith("  \x1b[35m◌\x1b[0m ")
