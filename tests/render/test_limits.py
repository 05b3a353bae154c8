"""Numbers at which the text says something else, each by an example at either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault, IdleCause, Report
from traceanalyzer.render.text.bars import LARGEST_CAUSES, device_bar
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


def test_an_optimizer_is_called_what_the_user_wrote() -> None:
    named = replace(samples.findings()[0], cause="late-once", by="Optimizer.step#AdamW.step")
    assert finding_name(named) == "scheduler-gap: late, once, AdamW.step"


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
    text = render_text(samples.report(head, findings=(first, second)))
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
    assert f"1  scheduler-gap: late ({words}) " in render_text(samples.report(traces=traces, findings=(one,)))


def test_an_instant_that_no_rank_tells_names_none_of_one_trace() -> None:
    text = render_text(samples.report(findings=(replace(samples.findings()[0], device=None),)))
    assert "1  scheduler-gap: late  " in text


# -- the first screen -------------------------------------------------------------------------------------


def head_of(**changes: Any) -> str:
    return render_text(samples.report(samples.trace(**changes))).splitlines()[1]


@pytest.mark.parametrize(
    ("total_us", "words"),
    [
        (97_000, "NVIDIA H200, 4 steps in a window of 100 ms (3.00 ms of it outside these steps)"),
        (97_001, "NVIDIA H200, 4 steps in a window of 100 ms"),
    ],
)
def test_time_outside_of_steps_is_said_from_three_percent_on(total_us: int, words: str) -> None:
    every = replace(samples.times(4), total_ns=1_000 * total_us)
    assert head_of(steps=samples.steps(every=every)) == words


def test_devices_and_steps_are_counted() -> None:
    device = samples.meta().devices[0]
    several = samples.meta(
        devices=(device, replace(device, ordinal=1), replace(device, ordinal=2, name=None))
    )
    one = replace(samples.times(1), total_ns=100 * MS)
    said = head_of(meta=several, steps=samples.steps(every=one))
    assert said == "2 x NVIDIA H200, unknown GPU, 1 step in a window of 100 ms"
    assert head_of(steps=samples.steps(marked=False)) == "NVIDIA H200, a window of 100 ms"
    assert head_of(steps=None) == "NVIDIA H200, a window of 100 ms"


@pytest.mark.parametrize(("devices", "shown", "rows"), [(1, 1, 8), (2, 2, 4), (4, 4, 2), (6, 4, 2)])
def test_so_many_devices_have_a_bar_and_the_others_are_counted(devices: int, shown: int, rows: int) -> None:
    parts = {
        "compute": 40 * MS,
        "memset": 9 * MS,
        "copy_h2d": 8 * MS,
        "copy_d2h": 7 * MS,
        "communication": 6 * MS,
    }
    idle = {f"idle:{name}": ms * MS for name, ms in (("python", 13), ("dispatching", 11), ("unknown", 6))}
    time = samples.accounting(parts_ns=parts | idle, idle_causes=())
    every = tuple(replace(time, device=device) for device in range(devices))
    lines = render_text(samples.report(samples.trace(accounting=every))).splitlines()
    begin = [at for at, line in enumerate(lines) if line.startswith("shares of recorded time")]
    assert len(begin) == shown
    first = lines[begin[0] + 1 : [*begin, lines.index("", begin[-1])][1]]
    assert len([line for line in first if " % " in line]) == rows
    told = [line for line in lines if "--verbose shows all" in line and "more device" in line]
    assert told == [f"... and {devices - 4} more device{'s' * (devices > 5)}: --verbose shows all"] * (
        devices > 4
    )


def outcomes(**counts: int) -> tuple[Outcome, ...]:
    """So many rules of each status, by its name with underscores."""
    return tuple(
        Outcome(f"{name}-{at}", Status[name.upper()], f"why {at}")
        for name, n in counts.items()
        for at in range(n)
    )


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"found": 1}, "1 rule ran. --verbose"),
        ({"found": 1, "clear": 1}, "2 rules ran. --verbose"),
        ({"clear": 2, "not_applicable": 3}, "2 rules ran, 3 others do not apply to this trace. --verbose"),
        ({"clear": 2, "failed": 4}, "2 rules ran, 4 failed. --verbose"),
    ],
)
def test_rules_that_ran_are_counted_and_three_that_failed_named(counts: dict[str, int], said: str) -> None:
    report = samples.report(findings=samples.findings()[:1], outcomes=outcomes(**counts))
    lines = render_text(report).splitlines()
    assert lines[-1].startswith(said)
    named = [line for line in lines if line.startswith("Failed ")]
    assert named == [f"Failed failed-{at}: why {at}" for at in range(min(counts.get("failed", 0), 3))]


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (samples.empty(), "no GPU work to judge"),
        (samples.report(findings=()), "no findings"),
        (samples.report(), "severity: 1 high, 1 medium, 1 low"),
    ],
)
def test_the_title_counts_findings(report: Report, words: str) -> None:
    assert render_text(report).splitlines()[0].endswith(f" {words}")


def test_what_to_do_next_is_a_command_that_can_be_run() -> None:
    def commands(source: str) -> list[str]:
        text = render_text(samples.report(samples.trace(meta=samples.meta(source))))
        return [
            line.removeprefix("Next").strip() for line in text.splitlines() if " traceanalyzer " in f" {line}"
        ][1:]

    assert commands("my trace.json") == [
        "traceanalyzer open 'my trace.json' --finding 1",
        "traceanalyzer explain scheduler-gap",
    ]
    assert commands("-") == ["traceanalyzer explain scheduler-gap"]
    assert "traceanalyzer open" not in render_text(samples.two_ranks())


# -- bars -------------------------------------------------------------------------------------------------


def rows_of(parts: dict[str, int], causes: tuple[IdleCause, ...] = (), most: int | None = None) -> list[str]:
    page = Page(120)
    time = samples.accounting(parts_ns=parts, idle_causes=causes, end_ns=samples.ORIGIN + sum(parts.values()))
    device_bar(page, time, rank=0, most=most)
    return page.lines[1:]


def test_op_is_named_from_a_quarter_of_its_cause() -> None:
    parts = {"compute": 100 * MS, "idle:python": 100 * MS}
    ops = (("aten::a", 25), ("aten::b", 24), ("cudaLaunchKernel", 26), ("aten::c", 25))
    causes = tuple(IdleCause("idle:python", op, ms * MS) for op, ms in ops)
    (row,) = [line for line in rows_of(parts, causes) if "aten::" in line]
    assert row.endswith("  aten::a, aten::c")


def test_causes_beyond_the_largest_five_are_one_row() -> None:
    names = ("python", "dispatching", "data-loading", "allocator", "host-work", "tail", "unknown")
    parts = {"compute": 100 * MS} | {f"idle:{name}": (20 - at) * MS for at, name in enumerate(names)}
    rows = rows_of(parts)
    assert len(rows) == 2 + LARGEST_CAUSES + 1
    assert rows[-1].split()[:2] == ["other", "causes"]
    assert rows[-1].endswith(" 29.0 ms")


@pytest.mark.parametrize(("left_ms", "shown"), [(5, True), (4, False)])
def test_with_little_room_what_is_half_a_percent_has_a_row(left_ms: int, shown: bool) -> None:
    parts = {"compute": (895 - left_ms) * MS, "memset": left_ms * MS, "idle:python": 105 * MS}
    rows = rows_of(parts, most=8)
    assert any(line.split()[1] == "memset" for line in rows) is shown
    assert any("other GPU work" in line for line in rows) is not shown
